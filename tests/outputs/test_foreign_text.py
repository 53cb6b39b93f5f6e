"""Text of a server, cut; and that no output carries more of it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from monitor.outputs.explanation import explanation_to_bytes
from monitor.outputs.exposition import render
from monitor.outputs.foreign_text import bounded
from monitor.outputs.front_page import front_page
from monitor.outputs.report import check_report
from monitor.outputs.status_json import status_to_bytes
from monitor.outputs.terminal import render_table
from monitor.outputs.text_format import pair, pairs
from tests.outputs.samples import CAPPED, OWN, STATUS


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (None, None),
        ("", ""),
        ("m" * 200, "m" * 200),
        ("m" * 201, "m" * 197 + "..."),
        ("é" * 500_000, "é" * 197 + "..."),
    ],
)
def test_it_has_200_characters_at_most(text: str | None, shown: str | None) -> None:
    assert bounded(text) == shown


def test_a_label_value_is_cut_before_it_is_escaped() -> None:
    assert pair("model", '"' * 300) == 'model="' + r"\"" * 197 + '..."'
    assert pairs({"model": "m" * 500_000, "engine": None}) == f'model="{"m" * 197}...",engine=""'


def test_no_output_carries_a_long_model_name_in_full() -> None:
    long, cut = "m" * 500_000, "m" * 197 + "..."
    status = replace(STATUS, targets=(replace(CAPPED, model=long),))
    assert json.loads(status_to_bytes(status))["targets"][0]["model"] == cut
    assert json.loads(explanation_to_bytes(status.targets[0]))["model"] == cut
    pages = (
        render(status, OWN).classic.decode(),
        check_report(status),
        render_table(status).plain,
        front_page(status).decode(),
    )
    for page in pages:
        assert "m" * 198 not in page
    assert f'model="{cut}"' in pages[0]
    assert f"model {cut}" in pages[1]
    assert cut in pages[2]
