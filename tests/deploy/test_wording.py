"""What alerts say, word for word, and the values of the recorded series."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from monitor.judgement.causes import CAUSES
from monitor.model import FloorRule
from monitor.outputs.rule_texts import TRIES, WAYS
from tests.deploy.promtool import run_expressions, run_wording
from tests.deploy.series import STUCK, TICK, finding, gpu

EVER = "0+0x200"


def server(host: str, target: str, rate: float, floor: float) -> dict[str, str]:
    """A server below its floor; the label `host` is as a scrape configuration gives it."""
    of = f'instance="{host}:9838",job="floorwatch",host="{host}",target="{target}"'
    card = f'{of},gpu="0",uuid="GPU-{host}",gpu_name="H200"'
    values = {
        f"floorwatch_below_floor{{{of}}}": 1,
        f'floorwatch_tokens_per_second_per_gpu{{{of},phase="generation"}}': rate,
        f'floorwatch_tokens_per_second_per_gpu{{{of},phase="prompt"}}': 7,
        f'floorwatch_gpu_floor_tokens_per_second{{{card},rule="fraction"}}': floor,
        f'floorwatch_gpu_floor_tokens_per_second{{{card},rule="reference"}}': 705,
        f'floorwatch_floor_in_force{{{of},rule="fraction"}}': 1,
        f'floorwatch_floor_in_force{{{of},rule="reference"}}': 0,
        f"floorwatch_gpu_floor_ratio{{{card}}}": round(rate / floor, 4),
        f'floorwatch_verdict{{{of},verdict="concurrency_limited"}}': 1,
        f'floorwatch_verdict{{{of},verdict="idle"}}': 0,
        f'floorwatch_cause{{{of},cause="mamba_state_cap"}}': 1,
        f'floorwatch_cause{{{of},cause="max_running_cap"}}': 1,
        f"floorwatch_requests_running{{{of}}}": 19,
        f"floorwatch_requests_waiting{{{of}}}": 203,
    }
    lost = {f"floorwatch_lost_tokens_total{{{of}}}": "0+1500x200"}
    return {series: f"{value}+0x200" for series, value in values.items()} | lost


class Said(NamedTuple):
    """An alert that fires, alertname and the two addresses left out."""

    labels: Mapping[str, str]
    summary: str
    description: str


def said(alert: str, summary: str, description: str) -> dict[str, str]:
    return {
        "summary": summary,
        "description": description,
        "runbook_url": f"deploy/runbooks/{alert}.md",
        "dashboard_url": "http://127.0.0.1:9838/",
    }


def check(
    alert: str,
    series: Mapping[str, str],
    at: str,
    *expected: Said,
    folder: Path,
) -> None:
    whole = [
        {
            "exp_labels": one.labels,
            "exp_annotations": said(alert, one.summary, one.description),
        }
        for one in expected
    ]
    run_wording(series, at, alert, whole, folder)


def test_below_floor_tells_the_figures_of_its_own_target(tmp_path: Path) -> None:
    """Two hosts with a target of one name, and a name that has to be quoted."""
    alert, name = "FloorwatchBelowFloor", r"a \"b\" \\ c"
    shown = r'a "b" \ c'
    series = server("gpu-1", name, 485, 875) | server("gpu-2", name, 100, 800)

    def on(host: str, figures: str) -> Said:
        return Said(
            {"severity": "critical", "target": shown, "host": host},
            f"{shown} makes fewer tokens/s per GPU than its floor",
            f"Now: {figures}, verdict concurrency_limited, causes: mamba_state_cap, "
            "max_running_cap, 19 running, 203 waiting. The floor is the operator's share of another "
            "GPU's rate. Try: more mamba state slots, or a radix cache strategy that takes fewer; a "
            "higher cap (--max-running-requests, --max-num-seqs). It has cost 360000 tokens within "
            f"the last hour. How the floor comes about: floorwatch explain '{shown}' --config FILE.",
        )

    # 1500 tokens every 15 s are 360000 in an hour.
    check(
        alert,
        {name: values.replace("x200", "x300") for name, values in series.items()},
        "60m",
        on("gpu-1", "485 generated tokens/s per GPU, floor 875 by the rule fraction, ratio 0.55"),
        on("gpu-2", "100 generated tokens/s per GPU, floor 800 by the rule fraction, ratio 0.12"),
        folder=tmp_path,
    )


def test_what_is_not_known_is_said_to_be_unknown(tmp_path: Path) -> None:
    check(
        "FloorwatchBelowFloor",
        {'floorwatch_below_floor{instance="i",job="floorwatch",target="a"}': "1+0x20"},
        "5m",
        Said(
            {"severity": "critical", "target": "a"},
            "a makes fewer tokens/s per GPU than its floor",
            "Now: unknown generated tokens/s per GPU, floor unknown by the rule unknown, ratio "
            "unknown, verdict unknown, causes: none told, unknown running, unknown waiting. The "
            "floor is not known. Try: what the runbook says. It has cost unknown tokens within the "
            "last hour. How the floor comes about: floorwatch explain 'a' --config FILE.",
        ),
        folder=tmp_path,
    )


def test_stalled_and_down_tell_why(tmp_path: Path) -> None:
    of = 'instance="i",job="floorwatch",target="a"'
    check(
        "FloorwatchStalled",
        {
            f'floorwatch_verdict{{{of},verdict="stalled"}}': "1+0x20",
            f'floorwatch_cause{{{of},cause="engine_hung"}}': "1+0x20",
            f"floorwatch_requests_running{{{of}}}": "3+0x20",
        },
        "1m",
        Said(
            {"severity": "critical", "target": "a"},
            "a has requests and makes no token",
            "No token for 120 s or more; 3 running, unknown waiting; causes: engine_hung. Try: a "
            "stack dump of the engine's processes, then a restart.",
        ),
        folder=tmp_path,
    )
    check(
        "FloorwatchTargetDown",
        {
            f"floorwatch_target_up{{{of}}}": "0+0x40",
            f'floorwatch_target_problem{{{of},reason="timeout"}}': "1+0x40",
        },
        "6m",
        Said(
            {"severity": "critical", "target": "a"},
            "a gives no metrics page",
            "The last scrape failed: timeout. Nothing can be said of its throughput. Causes: none "
            "told. Try: what the runbook says.",
        ),
        folder=tmp_path,
    )


def test_alerts_of_a_gpu_tell_whom_it_serves(tmp_path: Path) -> None:
    card = 'instance="gpu-1:9838",job="floorwatch",gpu="3",uuid="GPU-3",gpu_name="H200"'
    serves = {
        f'floorwatch_gpu_floor_tokens_per_second{{{card},target="{target}",rule="fixed"}}': EVER
        for target in ("b", "a")
    }
    check(
        "FloorwatchGpuLost",
        TICK | serves | gpu("floorwatch_gpu_up", "0+0x40"),
        "5m",
        Said(
            {"severity": "critical", "gpu": "3", "uuid": "GPU-3"},
            "GPU 3 (GPU-3) gives no facts any more",
            "NVML answers, but not of this GPU (H200). It serves: a, b. The kernel's log says why "
            "(NVRM, XID).",
        ),
        folder=tmp_path,
    )
    check(
        "FloorwatchGpuThrottled",
        TICK
        | gpu("floorwatch_gpu_up", "1+0x80")
        | gpu("floorwatch_gpu_throttle_reason", "1+0x80", ',reason="hw_thermal"')
        | gpu("floorwatch_gpu_throttle_reason", "0+0x80", ',reason="gpu_idle"')
        | gpu("floorwatch_gpu_sm_clock_hertz", "990000000+0x80")
        | gpu("floorwatch_gpu_sm_clock_max_hertz", "1980000000+0x80")
        | gpu("floorwatch_gpu_temperature_celsius", "91+0x80"),
        "10m",
        Said(
            {"severity": "warning", "gpu": "3", "uuid": "GPU-3"},
            "GPU 3 (GPU-3) has its clocks held down",
            "H200: SM clock 50 % of its maximum, 91 C; reasons now: hw_thermal. It serves: none "
            "told.",
        ),
        folder=tmp_path,
    )


class Ticket(NamedTuple):
    alert: str
    finding: str
    summary: str
    description: str


def test_tickets_tell_the_findings(tmp_path: Path) -> None:
    unknown = (
        "Now: unknown generated tokens/s per GPU, floor unknown by the rule unknown, ratio "
        "unknown, verdict unknown, causes: none told, unknown running, unknown waiting. The floor is "
        "not known."
    )
    of = {"severity": "warning", "target": "a", "team": "search"}
    texts = (
        Ticket(
            "FloorwatchKvCacheLimited",
            "kv_cache_limited",
            "a is held back by its KV cache",
            f"KV cache unknown full. {unknown}",
        ),
        Ticket(
            "FloorwatchStraggler",
            "straggler",
            "a falls behind servers or replicas that do the same work",
            "Findings: straggler (none: it falls behind the servers of its kind on other hosts). "
            f"Efficiency at the batch that runs unknown. {unknown}",
        ),
        Ticket(
            "FloorwatchDrift",
            "drift",
            "a has become slower than it used to be",
            f"Efficiency over its own usual unknown. {unknown}",
        ),
        Ticket(
            "FloorwatchExpectationInvalid",
            "expectation_check",
            "what is expected of a cannot be right",
            "Findings: expectation_check. Measured over expected unknown; bandwidth by the model "
            "over what the GPU counts unknown. How the floor comes about: floorwatch explain 'a' "
            "--config FILE.",
        ),
    )
    for one in texts:
        series = TICK | finding(one.finding, "1+0x60")
        check(one.alert, series, "10m", Said(of, one.summary, one.description), folder=tmp_path)


def test_alerts_of_floorwatch_itself_name_the_daemon(tmp_path: Path) -> None:
    check(
        "FloorwatchStale",
        STUCK,
        "10m",
        Said(
            {"severity": "critical", "instance": "gpu-1:9838"},
            "Floorwatch on gpu-1:9838 answers and stands still",
            "Its last tick was 5m 0s ago. Until it ticks no other alert of its targets and GPUs "
            "can be trusted, and none fires.",
        ),
        folder=tmp_path,
    )
    check(
        "FloorwatchGone",
        {'up{instance="gpu-1:9838",job="floorwatch"}': "0+0x60"},
        "6m",
        Said(
            {"severity": "critical", "instance": "gpu-1:9838"},
            "Floorwatch on gpu-1:9838 is gone: nobody watches",
            "Prometheus cannot scrape it.",
        ),
        folder=tmp_path,
    )
    check(
        "FloorwatchGone",
        {},
        "6m",
        Said(
            {"severity": "critical"},
            "Floorwatch is gone: nobody watches",
            "Prometheus has no metric of any Floorwatch: none runs, or none is scraped.",
        ),
        folder=tmp_path,
    )
    check(
        "FloorwatchWatchdog",
        {},
        "6m",
        Said(
            {"severity": "info"},
            "always on: alerts arrive",
            "Send it to a dead man's switch, which calls when this does not arrive any more.",
        ),
        folder=tmp_path,
    )


def test_the_fleet_is_summed_by_kind_of_gpu(tmp_path: Path) -> None:
    """Two servers share GPU 0 of h1; h2 has one of another kind and one of the same."""

    def card(host: str, target: str, gpu: str, name: str, more: str = "") -> str:
        return (
            f'{{instance="{host}",job="floorwatch",target="{target}",gpu="{gpu}",'
            f'uuid="{host}-{gpu}",gpu_name="{name}"{more}}}'
        )

    made = ',phase="generation"'
    series = {
        f"floorwatch_gpu_tokens_per_second{card('h1', 'a', '0', 'H200', made)}": "300+0x20",
        f"floorwatch_gpu_tokens_per_second{card('h1', 'b', '0', 'H200', made)}": "200+0x20",
        f"floorwatch_gpu_tokens_per_second{card('h2', 'c', '0', 'H200', made)}": "900+0x20",
        f"floorwatch_gpu_tokens_per_second{card('h2', 'd', '1', 'B200', made)}": "3000+0x20",
        f"floorwatch_gpu_expected_tokens_per_second{card('h1', 'a', '0', 'H200')}": "1000+0x20",
        f"floorwatch_gpu_expected_tokens_per_second{card('h2', 'c', '0', 'H200')}": "1200+0x20",
        f"floorwatch_gpu_floor_ratio{card('h2', 'c', '0', 'H200')}": "1.5+0x20",
        f"floorwatch_gpu_floor_ratio{card('h2', 'c', '1', 'H200')}": "0.75+0x20",
        'floorwatch_lost_tokens_total{instance="h2",job="floorwatch",target="c"}': "0+3000x20",
        'floorwatch_verdict{instance="h1",job="floorwatch",target="a",verdict="idle"}': "1+0x20",
        'floorwatch_verdict{instance="h2",job="floorwatch",target="c",verdict="idle"}': "1+0x20",
    }
    rate = "gpu_name_phase:floorwatch_gpu_tokens_per_second"
    h200 = '{gpu_name="H200", phase="generation"}'
    b200 = '{gpu_name="B200", phase="generation"}'
    count = "gpu_name:floorwatch_gpu_tokens_per_second:count"
    expected = "gpu_name:floorwatch_gpu_expected_tokens_per_second:sum"
    ratio = "target:floorwatch_gpu_floor_ratio:min"
    verdicts = "verdict:floorwatch_verdict:sum"
    run_expressions(
        series,
        "5m",
        {
            f"{rate}:sum": {f"{rate}:sum{h200}": 1400.0, f"{rate}:sum{b200}": 3000.0},
            count: {f'{count}{{gpu_name="H200"}}': 2.0, f'{count}{{gpu_name="B200"}}': 1.0},
            f"{rate}:avg": {f"{rate}:avg{h200}": 700.0, f"{rate}:avg{b200}": 3000.0},
            expected: {f'{expected}{{gpu_name="H200"}}': 2200.0},
            ratio: {f'{ratio}{{target="c"}}': 0.75},
            verdicts: {f'{verdicts}{{verdict="idle"}}': 2.0},
            # 20 steps of 3000 in 5 min; what was before the first sample is not made up.
            "floor(target:floorwatch_lost_tokens:increase1h)": {'{target="c"}': 60000.0},
        },
        tmp_path,
    )


@pytest.mark.parametrize(
    ("rule", "how"),
    [
        ("fixed", "given by the operator"),
        ("model", "a share of the 1450 tokens/s per GPU that the load model expects at this load"),
        ("reference", "a measured rate of another GPU, scaled by hardware figures"),
    ],
)
def test_each_rule_says_how_its_floor_comes_about(rule: str, how: str, tmp_path: Path) -> None:
    of = 'instance="i",job="floorwatch",target="a"'
    check(
        "FloorwatchBelowFloor",
        {
            f"floorwatch_below_floor{{{of}}}": "1+0x20",
            f'floorwatch_floor_in_force{{{of},rule="{rule}"}}': "1+0x20",
            f'floorwatch_gpu_expected_tokens_per_second{{{of},gpu="0"}}': "1450+0x20",
        },
        "5m",
        Said(
            {"severity": "critical", "target": "a"},
            "a makes fewer tokens/s per GPU than its floor",
            f"Now: unknown generated tokens/s per GPU, floor unknown by the rule {rule}, ratio "
            "unknown, verdict unknown, causes: none told, unknown running, unknown waiting. The "
            f"floor is {how}. Try: what the runbook says. It has cost unknown tokens within the "
            "last hour. How the floor comes about: floorwatch explain 'a' --config FILE.",
        ),
        folder=tmp_path,
    )


def test_every_cause_and_rule_has_its_sentence() -> None:
    assert set(TRIES) == {cause.name for cause in CAUSES} | {"unknown"}
    assert set(WAYS) == {rule.value for rule in FloorRule}
