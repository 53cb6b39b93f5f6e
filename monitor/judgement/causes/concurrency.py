"""Causes that keep requests in the queue although the KV cache has room: caps on running ones.

Rules of this file:

1. A cap is at work when requests wait, the KV cache has room, and the running ones reach the cap
   where it is told. It is a cause only when lifting it is worth `gain_info`: a cap that 7 % of
   the demand exceeds is no fault.
2. The SGLang state slots are the cap when slots // slots per request is the cap as told, or what
   runs. Where the server tells no slots: when the running requests are pinned and the model has
   state at all. The usage of the state pool proves nothing: at the cap it is a constant of the
   strategy (4 of 5 slots, 2 of 3, all), and the same on a healthy server.
3. Caps, slots and advice are of one data-parallel rank.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from monitor.judgement.causes.row import (
    Cause,
    by_engine,
    expected_gain,
    load,
    on_each_rank,
    ranks,
    told_info,
)
from monitor.judgement.evidence import Evidence
from monitor.judgement.symptoms import gain_of_lifting_cap
from monitor.model import JudgementSettings

SLOTS_PER_REQUEST = {"extra_buffer": (5, 4), "extra_buffer_lazy": (4,), "no_buffer": (3,)}
"""SGLang's state slots a request, by strategy: with the overlap scheduler, and without it.

Source: `_calculate_mamba_ratio` and `resolve_max_num_reqs` of SGLang 0.5.7 to 0.5.23: the cap
is `max_mamba_cache_size // slots`. Without the radix cache a request takes one.
"""

ANY_SLOTS_PER_REQUEST = (5, 4, 3)
"""Where the strategy is `auto` or not told: it depends on the release."""

NO_BUFFER_SLOTS = 3

NO_BUFFER_KEEPS_OVERLAP = (0, 5, 12)
"""The last SGLang release in which `no_buffer` is known to keep the overlap scheduler."""

NO_BUFFER_STOPS_OVERLAP = (0, 5, 14)
"""The first in which it turns that off: measured on 0.5.16, 24 -> 40 running bring 2 %."""

PINNED_SPREAD = 0.05
"""Running requests that vary less than that are held by a cap (performance model, 2.3)."""


@dataclass(frozen=True, slots=True)
class _Slots:
    strategy: str
    each: int
    slots: int
    cap: int


# ------------------------------------------------------------------------ state slots


def _mamba_state_cap(evidence: Evidence, settings: JudgementSettings) -> str | None:
    if not _capped(evidence, settings):
        return None
    if (found := _slots(evidence)) is not None:
        why = (
            f"{found.strategy} takes {found.each} state slots a request: "
            f"{found.slots} // {found.each} = {found.cap}"
        )
    elif _state_may_pin(evidence):
        why = (
            f"what runs is pinned (spread {evidence.short.running_spread:.1%}) and the model has "
            "recurrent state: its slots are the likely cap, though the server does not tell them"
        )
    else:
        return None
    return f"{load(evidence)}; {why}{_gain(evidence)}"


def _slots(evidence: Evidence) -> _Slots | None:
    """The arithmetic of the cap (as told, else as seen), if it comes from the state slots."""
    info = told_info(evidence)
    slots = info.max_mamba_cache_size
    seen = round((evidence.short.running_mean or 0.0) / ranks(evidence))
    cap = info.max_running_requests or seen
    strategy = info.mamba_strategy or "the state pool"
    each_of = SLOTS_PER_REQUEST.get(strategy, ANY_SLOTS_PER_REQUEST)
    if info.radix_cache_disabled:
        strategy, each_of = "no radix cache", (1,)
    for each in each_of:
        if slots and cap and slots // each == cap:
            return _Slots(strategy, each, slots, cap)
    return None


def _state_may_pin(evidence: Evidence) -> bool:
    if evidence.engine != "sglang" or told_info(evidence).max_mamba_cache_size is not None:
        return False
    # SGLang tells a usage of 0 for models without state.
    return bool(evidence.short.state_usage_mean) and _pinned(evidence)


def _more_slots(evidence: Evidence) -> str:
    wanted, found = _wanted(evidence), _slots(evidence)
    per_rank = on_each_rank(evidence)
    if found is None:
        return (
            "set --max-mamba-cache-size to the slots a request takes (extra_buffer 5, no_buffer "
            f"3, radix cache off 1) x the {wanted} requests asked for{per_rank}; the slots take "
            f"their memory from the KV cache. {_no_buffer(evidence, None)}"
        )
    each, slots = found.each, found.slots
    needed = each * wanted
    told = (
        f"set --max-mamba-cache-size {each} x {wanted} = {needed} for the "
        f"{wanted} requests asked for{per_rank} ({needed / slots:.1f} times the state memory of "
        "now, as far as the KV cache can spare it), and --max-running-requests no lower"
    )
    if each > 1:
        told += f"; or --disable-radix-cache: 1 slot each, so {slots} run, and no prefix is reused"
    if each > NO_BUFFER_SLOTS:
        told += f". {_no_buffer(evidence, slots // NO_BUFFER_SLOTS)}"
    return told


def _no_buffer(evidence: Evidence, would_run: int | None) -> str:
    """What the strategy with the fewest slots brings in this release."""
    allows = "" if would_run is None else f" (3 slots each, so {would_run} run)"
    release = _release(evidence)
    off = "turns the overlap scheduler off and brings little by itself (2% measured on 0.5.16)"
    if release is not None and release <= NO_BUFFER_KEEPS_OVERLAP:
        return f"--mamba-scheduler-strategy no_buffer{allows} keeps the overlap scheduler here"
    if release is not None and release >= NO_BUFFER_STOPS_OVERLAP:
        return f"no_buffer{allows} {off}"
    return f"no_buffer{allows}, from SGLang 0.5.14 on, {off}"


def _release(evidence: Evidence) -> tuple[int, int, int] | None:
    told = re.match(r"v?(\d+)\.(\d+)\.(\d+)", told_info(evidence).engine_version or "")
    return None if told is None else (int(told[1]), int(told[2]), int(told[3]))


# ------------------------------------------------------------------------ the cap itself


def _max_running_cap(evidence: Evidence, settings: JudgementSettings) -> str | None:
    if not _capped(evidence, settings) or _mamba_state_cap(evidence, settings) is not None:
        return None
    told = load(evidence)
    if evidence.cap is None:
        told += "; cap not told"
        if _pinned(evidence):
            told += f", but what runs is pinned (spread {evidence.short.running_spread:.1%})"
    return told + _gain(evidence)


def _higher_cap(evidence: Evidence) -> str:
    wanted = _wanted(evidence)
    flags = by_engine(
        evidence, sglang=f"--max-running-requests {wanted}", vllm=f"--max-num-seqs {wanted}"
    )
    told = f"raise the cap on running requests: {flags} for those asked for{on_each_rank(evidence)}"
    if evidence.engine != "vllm":
        told += "; for SGLang's hybrid models the state slots cap them as well"
    return told


def _capped(evidence: Evidence, settings: JudgementSettings) -> bool:
    """Whether a cap holds requests back, and lifting it is worth it."""
    short, cap = evidence.short, evidence.cap
    kv_full = (short.kv_cache_usage_mean or 0.0) >= settings.kv_cache_high_ratio
    if kv_full or (short.waiting_mean or 0.0) < 1.0:
        return False
    if cap is not None and (short.running_mean or 0.0) < settings.running_at_cap_ratio * cap:
        return False
    gain = gain_of_lifting_cap(evidence)
    return gain is None or gain >= settings.gain_info


def _pinned(evidence: Evidence) -> bool:
    spread = evidence.short.running_spread
    return spread is not None and spread < PINNED_SPREAD


def _gain(evidence: Evidence) -> str:
    """What lifting the cap is worth, as far as it is known."""
    if told := expected_gain(evidence):
        return told
    gain = gain_of_lifting_cap(evidence)
    return "" if gain is None else f"; {gain:.1f} times as many are asked for"


def _wanted(evidence: Evidence) -> int:
    """Requests that one rank is asked to run, as far as memory allows where that is known."""
    demand = evidence.expectation.batch_demand
    if demand is None:
        short = evidence.short
        demand = ((short.running_mean or 0.0) + (short.waiting_mean or 0.0)) / ranks(evidence)
    return math.ceil(demand)


MAMBA_STATE_CAP = Cause("mamba_state_cap", _mamba_state_cap, _more_slots)
MAX_RUNNING_CAP = Cause("max_running_cap", _max_running_cap, _higher_cap)
