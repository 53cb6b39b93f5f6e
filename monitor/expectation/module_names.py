"""Which modules of a model a quantisation config speaks of.

Rules of this file:

1. Checkpoints name modules exactly (`model.layers.3.mlp.gate`), by a parent
   (`model.layers.3`), by a last part (`lm_head`, `gate`), as a glob (`*.shared_expert.*`) or
   as a regular expression (`re:.*mlp.gate$`), under whatever prefix the model class has. All
   are held against names without prefix, such as `layers.3.mlp.gate_proj`.
2. Engines fuse projections, so a fused name (`qkv_proj`) speaks of each of its parts.
3. Patterns are foreign text: a regular expression that could take long to match is refused.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from monitor.expectation.config_keys import ConfigUnusable

_PREFIXES = ("model", "language_model", "text_model", "backbone", "transformer")
_SPELLINGS = ("{}", "model.{}", "model.language_model.{}", "language_model.model.{}", "backbone.{}")
_FUSED = {
    "q_proj": "qkv_proj",
    "k_proj": "qkv_proj",
    "v_proj": "qkv_proj",
    "gate_proj": "gate_up_proj",
    "up_proj": "gate_up_proj",
    "in_proj_qkv": "in_proj_qkvz",
    "in_proj_z": "in_proj_qkvz",
    "in_proj_b": "in_proj_ba",
    "in_proj_a": "in_proj_ba",
    "q_a_proj": "fused_qkv_a_proj_with_mqa",
    "kv_a_proj_with_mqa": "fused_qkv_a_proj_with_mqa",
}
_MOST_GLOBS = 500
_MOST_EXPRESSIONS = 50
_MOST_CHARACTERS = 400
_MOST_REPEATS = 4
_REPEAT = re.compile(r"(?:\.|\\[dwDW]|\[[^\]\\]*\]|\w)[*+]\??")
_LITERAL = re.compile(r"\w|\\\.")
_UNTAMED = re.compile(r"[*+{]|\(\?|\\\d")


@dataclass(frozen=True, slots=True)
class Modules:
    """A set of modules, given by names and patterns."""

    exact: frozenset[str] = frozenset()
    glob: re.Pattern[str] | None = None
    regex: re.Pattern[str] | None = None

    def __bool__(self) -> bool:
        return bool(self.exact or self.glob or self.regex)

    def cover(self, name: str) -> bool:
        """Tell whether a module, or one that it lies in, is meant."""
        return any(self._cover(spelling) for spelling in _variants(name))

    def _cover(self, name: str) -> bool:
        parts = name.split(".")
        if self.exact and any(run in self.exact for run in _runs(parts)):
            return True
        if self.glob is not None and any(self.glob.match(parent) for parent in _parents(parts)):
            return True
        return self.regex is not None and any(
            self.regex.match(spelling.format(name)) for spelling in _SPELLINGS
        )


def modules(patterns: Iterable[str]) -> Modules:
    """Read names and patterns. Raises ConfigUnusable for one that cannot be used."""
    exact, globs, regexes = set(), [], []
    for pattern in patterns:
        if pattern.startswith("re:"):
            regexes.append(_tame(pattern.removeprefix("re:")))
        elif any(sign in pattern for sign in "*?["):
            globs.append(fnmatch.translate(_bare(pattern[:_MOST_CHARACTERS])))
        else:
            exact.add(_bare(pattern))
    return Modules(
        frozenset(exact), _any_of(globs, _MOST_GLOBS), _any_of(regexes, _MOST_EXPRESSIONS)
    )


def _any_of(patterns: list[str], most: int) -> re.Pattern[str] | None:
    if not patterns:
        return None
    if len(patterns) > most:
        raise ConfigUnusable(f"there are {len(patterns)} module patterns; at most {most}")
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns))


def _tame(text: str) -> str:
    # Each repeat is followed by something to find, and none repeats a group: then a name of
    # some 60 characters is matched in microseconds whatever the pattern.
    pieces = _REPEAT.split(text)
    tame = (
        len(text) <= _MOST_CHARACTERS
        and len(pieces) <= _MOST_REPEATS + 1
        and all(_LITERAL.search(piece) for piece in pieces[1:-1])
        and not any(_UNTAMED.search(piece) for piece in pieces)
    )
    if not tame:
        raise ConfigUnusable(f"module pattern {text[:60]!r} is too intricate to match safely")
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError):
        raise ConfigUnusable(f"module pattern {text[:60]!r} is no regular expression") from None
    return text


def _bare(name: str) -> str:
    parts = name.split(".")
    while parts and parts[0] in _PREFIXES:
        parts = parts[1:]
    return ".".join(parts)


def _variants(name: str) -> Iterator[str]:
    yield name
    parent, _, last = name.rpartition(".")
    if last in _FUSED:
        yield f"{parent}.{_FUSED[last]}"
    if ".experts.0." in name:
        # Some classes hold all experts of a layer in one tensor, without a number.
        yield from _variants(name.replace(".experts.0.", ".experts."))


def _parents(parts: list[str]) -> Iterator[str]:
    """The name itself, and every module that it lies in."""
    return (".".join(parts[: end + 1]) for end in range(len(parts)))


def _runs(parts: list[str]) -> Iterator[str]:
    """Every run of neighbouring parts: a name's parents, its last parts, what lies between.

    The empty run stands for a bare prefix (`model`): the whole model.
    """
    yield ""
    for start in range(len(parts)):
        for end in range(start, len(parts)):
            yield ".".join(parts[start : end + 1])
