"""Text that a server chose, such as a model's name, cut to a length that no page suffers from."""

from __future__ import annotations

from typing import overload

MOST_CHARACTERS = 200
"""As for an operator's own labels."""

_CUT = "..."


@overload
def bounded(text: str) -> str: ...
@overload
def bounded(text: None) -> None: ...
def bounded(text: str | None) -> str | None:
    """Give the text, at most 200 characters of it; one that was cut ends in `...`."""
    if text is None or len(text) <= MOST_CHARACTERS:
        return text
    return text[: MOST_CHARACTERS - len(_CUT)] + _CUT
