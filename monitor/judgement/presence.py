"""Whether a server is there, awake, at work or stuck: what is asked before its speed is.

Each function gives the text that says so, or None.
"""

from __future__ import annotations

from monitor.judgement.evidence import Evidence, count
from monitor.model import JudgementSettings, Liveness, Rates, Verdict

SCHEDULER_IDLE_SHARE = 0.95
"""From this share of idle scheduler time on there was no work (SGLang 0.5.20 and later)."""

LEAST_HELD_OPEN = 5.0
"""So many HTTP requests more than the engine shows are no leftover of streams just ended: the
gauge lags by seconds and reads up to twice the truth (measured on SGLang 0.5.16)."""

_NEW_SERVER = frozenset({"reset", "model_changed", "engine_changed", "several_servers"})
_SINCE = {
    "first_sample": "the first page",
    "reset": "the restart",
    "gap": "the gap in the pages",
    "source_changed": "the tokens were counted otherwise",
    "model_changed": "the model changed",
    "engine_changed": "the engine changed",
    "several_servers": "another server answered at this address",
    "implausible": "an impossible jump of the counters",
}


def no_data(evidence: Evidence, settings: JudgementSettings) -> str | None:
    """No engine page ever, or none for `no_data_seconds`."""
    problem = evidence.problem
    told = "no page yet" if problem is None else f"{problem.reason.value}: {problem.detail}"
    age = evidence.blind_seconds()
    if age is None:
        return told
    return f"no engine page for {age:.0f} s ({told})" if age > settings.no_data_seconds else None


def young(evidence: Evidence, settings: JudgementSettings) -> str | None:
    """Its scheduler has not reported, too few pages, or younger than `warm_up_seconds`."""
    if not evidence.ready:
        return "the engine answers, but its scheduler has not reported yet"
    if evidence.long.samples < settings.min_samples:
        pages = f"{evidence.long.samples} of {settings.min_samples} pages"
        return f"{pages} since {since(evidence)}"
    age = _age(evidence)
    if age is None or age >= settings.warm_up_seconds:
        return None
    old = f"{age:.0f} s since {since(evidence)}" if is_new(evidence) else f"{age:.0f} s old"
    return f"{old}; judged from {settings.warm_up_seconds:.0f} s on"


def _age(evidence: Evidence) -> float | None:
    """The server's age: by what was seen of it, else by its own word; None if not known.

    Its own word rests on two wall clocks, so it never makes a server younger than it was seen
    to be; and a process that outlives the engine in it tells nothing of the engine.
    """
    if is_new(evidence):
        return evidence.unbroken_seconds
    if evidence.process_age_seconds is None:
        return None
    return max(evidence.process_age_seconds, evidence.unbroken_seconds)


def is_new(evidence: Evidence) -> bool:
    """Whether the last break was that of another server, and not of our sight."""
    return evidence.break_reason in _NEW_SERVER


def since(evidence: Evidence) -> str:
    """What the present stretch of pages began with, in words."""
    return _SINCE.get(evidence.break_reason, evidence.break_reason)


def idle(evidence: Evidence, settings: JudgementSettings) -> str | None:
    """No token moved over the main window, and there was no work."""
    main = evidence.main
    if moving(main) or held_open(evidence) is not None:
        return None
    still = "no token moved"
    if main.generation_tokens_per_second is None and main.prompt_tokens_per_second is None:
        still = "no token is counted"
    told = evidence.still_seconds is not None
    # A window that ends before the last page does not know what the scheduler did since.
    if (told or main.complete) and (main.scheduler_idle_share or 0.0) >= SCHEDULER_IDLE_SHARE:
        return f"{still} and the scheduler had nothing to do"
    least = settings.idle_requests
    if main.running_mean is None or not told:
        return None
    if main.running_mean < least and (main.waiting_mean or 0.0) < least:
        return f"{still} and no request was seen"
    if main.complete and evidence.running == 0.0 and not evidence.waiting:
        return f"{still} and the requests are gone"
    return None


def moving(rates: Rates) -> bool:
    """Whether tokens were made or prompts read in this window."""
    told = rates.generation_tokens_per_second, rates.prompt_tokens_per_second
    return any(rate is not None and rate > 0.0 for rate in told)


def held_open(evidence: Evidence) -> str | None:
    """Clients hold requests open all through the main window that the engine does not show.

    The front end is then what they wait for: an engine that looks idle is not.
    """
    main, running = evidence.main, evidence.main.running_mean
    if not main.complete or main.http_active_mean is None or running is None:
        return None
    hidden = main.http_active_mean - running - (main.waiting_mean or 0.0)
    if hidden < LEAST_HELD_OPEN:
        return None
    return (
        f"clients hold {main.http_active_mean:.0f} requests open and the engine shows "
        f"{count(running)} running and {count(main.waiting_mean)} waiting"
    )


def stalled(
    before: Verdict | None, evidence: Evidence, still: float, settings: JudgementSettings
) -> str | None:
    """Requests are there and nothing moved for `stall_seconds`."""
    if not _shows_work(evidence):
        return None
    if still < max(settings.stall_seconds, evidence.stale_gauge_seconds):
        return None
    running, waiting = evidence.running, evidence.waiting
    if running is None and waiting is None:
        there = before is Verdict.STALLED
    else:
        there = (running or 0.0) >= 1.0 or (waiting or 0.0) >= 1.0
    if not there:
        return None
    return (
        f"no token for {still:.0f} s while {count(running)} "
        f"requests run and {count(waiting)} wait: it hangs, or its gauges do (old "
        "vLLM after aborted requests)"
    )


def still_stalled(
    before: Verdict | None, evidence: Evidence, settings: JudgementSettings
) -> str | None:
    """It was stalled before our sight of it broke (a gap, our own start), and no token moved since.

    Only while there is too little sight to judge anew.
    """
    if before is not Verdict.STALLED or is_new(evidence) or not evidence.ready:
        return None
    judged_anew = evidence.short.complete and young(evidence, settings) is None
    if judged_anew or evidence.still_seconds is None or moving(evidence.main):
        return None
    running, waiting = evidence.running, evidence.waiting
    told = running is not None or waiting is not None
    if told and (running or 0.0) < 1.0 and (waiting or 0.0) < 1.0:
        return None
    if idle(evidence, settings) is not None:
        return None
    return f"it was stalled, and no token moved since {since(evidence)}"


def _shows_work(evidence: Evidence) -> bool:
    """Whether requests under way move the counter; one of finished requests says nothing."""
    return evidence.liveness not in (None, Liveness.FINISHED)


def lagging(evidence: Evidence, still: float) -> str | None:
    """An engine whose gauges may be those of before the work ended, until they must be true."""
    if moving(evidence.main) or not evidence.main.complete or not _shows_work(evidence):
        return None
    if not 0.0 < still < evidence.stale_gauge_seconds:
        return None
    return (
        f"no token for {still:.0f} s; the {count(evidence.running)} running and "
        f"{count(evidence.waiting)} waiting requests may be gone (this engine's gauges lag by up "
        f"to {evidence.stale_gauge_seconds:.0f} s)"
    )
