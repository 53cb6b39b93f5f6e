"""Which alerts are pushed: named as the shipped rules name them, since when, and what they say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import pytest

from monitor.judgement.findings import ROWS
from monitor.model import (
    AlertStatus,
    CauseFound,
    Finding,
    GpuActivity,
    GpuStatus,
    Instant,
    JudgementSettings,
    Status,
    TargetStatus,
    Verdict,
)
from monitor.outputs.alertmanager_alerts import OF_FINDINGS, AlertsToPush, PushedAlert
from monitor.outputs.alertmanager_texts import MOST_CHARACTERS
from tests.deploy.promtool import alert_rules, shipped
from tests.outputs.samples import CAPPED, HOSTILE_TARGET, NOW, READING, STATUS, UUID

SETTINGS = JudgementSettings()
SINCE = NOW.wall_seconds - 600.0
RULES = alert_rules(shipped())


def status(
    *alerts: AlertStatus,
    targets: tuple[TargetStatus, ...] = (),
    gpus: tuple[GpuStatus, ...] = (),
    after: float = 0.0,
    nvml_up: bool = True,
) -> Status:
    at = Instant(NOW.monotonic_seconds + after, NOW.wall_seconds + after)
    return Status(at, targets, gpus, nvml_up=nvml_up, nvml_reason=None, alerts=alerts)


def pushed(
    one: Status, to_push: AlertsToPush | None = None, **labels: str
) -> dict[str, PushedAlert]:
    """By alertname; each must be there once."""
    told = (to_push or AlertsToPush()).of(one, SETTINGS, labels)
    by_name = {dict(alert.labels)["alertname"]: alert for alert in told}
    assert len(by_name) == len(told)
    return by_name


def below_floor(target: str = "qwen-a", since: float = SINCE) -> AlertStatus:
    return AlertStatus("FloorwatchBelowFloor", "critical", target, since, "485 of 725 tokens/s")


def finding(name: str, since: float = SINCE) -> Finding:
    return Finding(name, "warning", f"shows {name}", f"try {name}", since)


def ticket(*findings: Finding) -> TargetStatus:
    return replace(CAPPED, findings=findings)


def throttled(after: float = 0.0, share: float = 0.6, reason: str = "hw_thermal") -> GpuStatus:
    did = GpuActivity(0, UUID, span_seconds=60.0, reason_shares={reason: share, "gpu_idle": 0.0})
    return GpuStatus(READING, up=True, catalogue_id=None, targets=("qwen-a",), activity=did)


# ---------------------------------------------------------------------------- labels


def rule_labels(name: str, of: TargetStatus | None = None, **more: str) -> dict[str, str]:
    """What the shipped rule's alert is named by: its series' labels, those dropped left out."""
    rule = RULES[name]
    of_target = {} if of is None else {"target": of.name, **of.labels}
    return {"alertname": name, **rule["labels"], **of_target, **more}


@pytest.mark.parametrize("name", ["BelowFloor", "Stalled", "TargetDown"])
def test_an_alarm_of_a_target_is_named_as_its_rule_names_it(name: str) -> None:
    alarm = replace(below_floor(), name=f"Floorwatch{name}")
    one = pushed(status(alarm, targets=(CAPPED,)))[f"Floorwatch{name}"]
    assert dict(one.labels) == rule_labels(f"Floorwatch{name}", CAPPED)
    assert dict(one.labels) == {
        "alertname": f"Floorwatch{name}",
        "severity": "critical",
        "target": "qwen-a",
        "team": "search",
    }
    summary = RULES[f"Floorwatch{name}"]["annotations"]["summary"]
    assert one.annotations["summary"] == summary.replace("{{ $labels.target }}", "qwen-a")
    assert one.annotations["runbook_url"] == f"deploy/runbooks/Floorwatch{name}.md"
    assert one.since_wall_seconds == SINCE


def test_an_alarm_of_a_gpu_is_named_by_index_and_uuid() -> None:
    lost = AlertStatus("FloorwatchGpuLost", "critical", None, SINCE, "gone", gpu=3, uuid="GPU-3")
    one = pushed(status(lost))["FloorwatchGpuLost"]
    assert dict(one.labels) == rule_labels("FloorwatchGpuLost", gpu="3", uuid="GPU-3")
    assert one.annotations["summary"] == "GPU 3 (GPU-3) gives no facts any more"
    without = pushed(status(replace(lost, uuid=None)))["FloorwatchGpuLost"]
    assert dict(without.labels) == rule_labels("FloorwatchGpuLost", gpu="3")
    assert without.annotations["summary"] == "GPU 3 gives no facts any more"


def test_labels_of_the_configuration_are_as_external_labels() -> None:
    """Prometheus adds one where the alert lacks it: the target's own goes before."""
    one = pushed(status(below_floor(), targets=(CAPPED,)), cluster="north", team="ops", empty="")
    assert dict(one["FloorwatchBelowFloor"].labels) == rule_labels(
        "FloorwatchBelowFloor", CAPPED, cluster="north"
    )


def test_no_label_moves_with_a_figure() -> None:
    slower = replace(CAPPED, main=replace(CAPPED.main, generation_tokens_per_second=100.0))
    to_push = AlertsToPush()
    first = pushed(status(below_floor(), targets=(CAPPED,)), to_push)["FloorwatchBelowFloor"]
    alarm = replace(below_floor(), because="100 of 725 tokens/s")
    then = pushed(status(alarm, targets=(slower,), after=60.0), to_push)["FloorwatchBelowFloor"]
    assert (first.labels, first.since_wall_seconds) == (then.labels, then.since_wall_seconds)
    assert first.annotations["description"] != then.annotations["description"]


def test_hostile_text_breaks_no_label_and_no_line() -> None:
    alarm = replace(below_floor(HOSTILE_TARGET.name), because="half \ud800 a pair\x1b[2J")
    one = pushed(status(alarm, targets=(HOSTILE_TARGET,)))["FloorwatchBelowFloor"]
    labels = dict(one.labels)
    assert set(labels) == {"alertname", "severity", "target", "team"}
    assert labels["target"] == HOSTILE_TARGET.name
    assert "\x1b" not in one.annotations["description"]
    str(one).encode()


def test_an_alarm_of_a_target_that_is_not_told_of_has_its_name() -> None:
    one = pushed(status(below_floor("gone")))["FloorwatchBelowFloor"]
    assert dict(one.labels) == rule_labels("FloorwatchBelowFloor", target="gone")


def test_an_alarm_that_is_told_twice_is_one_alert() -> None:
    told = status(below_floor(), below_floor(), targets=(ticket(),))
    assert set(pushed(told)) == {"FloorwatchBelowFloor"}


def test_an_alarm_that_no_rule_knows_is_not_pushed() -> None:
    assert pushed(status(replace(below_floor(), name="Other"), targets=(ticket(),))) == {}


# --------------------------------------------------------------------------- tickets


def test_every_ticket_is_told_as_the_alert_of_its_rule() -> None:
    of_rules = {
        found: name
        for name, rule in RULES.items()
        for names in re.findall(r'finding=~"([\w|]+)"', rule["expr"])
        for found in names.split("|")
    }
    assert of_rules == OF_FINDINGS
    assert {row.finding for row in ROWS if row.severity == "warning"} == set(OF_FINDINGS)
    for name, alert in OF_FINDINGS.items():
        target = ticket(finding(name))
        one = pushed(status(targets=(target,)))[alert]
        assert dict(one.labels) == rule_labels(alert, target)
        assert one.annotations["description"].startswith(f"{name}: shows {name}\ntry: try {name}")


def test_two_findings_of_one_alert_are_one_alert_with_the_earlier_since() -> None:
    target = ticket(finding("straggler", SINCE), finding("data_parallel_imbalance", SINCE - 50.0))
    one = pushed(status(targets=(target,)))["FloorwatchStraggler"]
    assert one.since_wall_seconds == SINCE - 50.0
    assert "shows straggler" in one.annotations["description"]
    assert "shows data_parallel_imbalance" in one.annotations["description"]


def test_a_finding_that_is_no_ticket_is_not_told() -> None:
    assert pushed(status(targets=(ticket(finding("host_bound"), finding("throttled")),))) == {}


def test_a_ticket_waits_as_long_as_its_rule_does() -> None:
    """`for: 5m`, from when it was first found."""
    assert RULES["FloorwatchDrift"]["for"] == "5m"
    to_push = AlertsToPush()
    target = ticket(finding("drift", NOW.wall_seconds))
    assert pushed(status(targets=(target,)), to_push) == {}
    assert pushed(status(targets=(target,), after=299.0), to_push) == {}
    one = pushed(status(targets=(target,), after=300.0), to_push)["FloorwatchDrift"]
    assert one.since_wall_seconds == NOW.wall_seconds
    # After a restart its since, which the state keeps, says that it has lasted.
    assert "FloorwatchDrift" in pushed(status(targets=(target,), after=301.0))
    # Held as long as the rule holds it: whoever resolved first would be contradicted.
    assert RULES["FloorwatchDrift"]["keep_firing_for"] == "5m"
    held = pushed(status(targets=(ticket(),), after=599.0), to_push)
    assert held["FloorwatchDrift"].since_wall_seconds == NOW.wall_seconds
    assert pushed(status(targets=(ticket(),), after=601.0), to_push) == {}


def test_none_is_held_of_what_is_not_watched_any_more() -> None:
    alarm = below_floor(since=NOW.wall_seconds)
    for after in ((), (replace(CAPPED, labels={"team": "other"}),)):
        to_push = AlertsToPush()
        assert "FloorwatchBelowFloor" in pushed(status(alarm, targets=(CAPPED,)), to_push)
        still = pushed(status(targets=(CAPPED,), after=1.0), to_push)
        assert "FloorwatchBelowFloor" in still
        assert "FloorwatchBelowFloor" not in pushed(status(targets=after, after=2.0), to_push)


def test_a_clock_set_back_makes_none_wait_for_good_nor_start_in_the_future() -> None:
    to_push = AlertsToPush()
    ahead = finding("drift", NOW.wall_seconds + 86_400.0)
    assert pushed(status(targets=(ticket(ahead),)), to_push) == {}
    one = pushed(status(targets=(ticket(ahead),), after=300.0), to_push)["FloorwatchDrift"]
    assert one.since_wall_seconds == NOW.wall_seconds
    alarm = below_floor(since=NOW.wall_seconds + 86_400.0)
    told = pushed(status(alarm, targets=(CAPPED,)))["FloorwatchBelowFloor"]
    assert told.since_wall_seconds == NOW.wall_seconds
    told = pushed(status(below_floor(since=-5.0), targets=(CAPPED,)))["FloorwatchBelowFloor"]
    assert told.since_wall_seconds == 0.0


# ------------------------------------------------------------------------------ GPUs


def test_a_throttled_gpu_is_told_once_it_has_lasted_and_held_for_a_while() -> None:
    assert RULES["FloorwatchGpuThrottled"]["for"] == "5m"
    assert RULES["FloorwatchGpuThrottled"]["keep_firing_for"] == "5m"
    to_push = AlertsToPush()
    assert pushed(status(gpus=(throttled(),)), to_push) == {}
    one = pushed(status(gpus=(throttled(),), after=300.0), to_push)["FloorwatchGpuThrottled"]
    assert dict(one.labels) == rule_labels("FloorwatchGpuThrottled", gpu="0", uuid=UUID)
    assert one.since_wall_seconds == NOW.wall_seconds
    assert one.annotations["summary"] == f"GPU 0 ({UUID}) has its clocks held down"
    assert one.annotations["description"] == (
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition: hw_thermal 60% of the last 60 s; "
        "it serves qwen-a"
    )
    assert one.annotations["values"] == "SM clock 2415 of 3090 MHz; 71 C; 412 W"
    cool = throttled(share=0.4)
    held = pushed(status(gpus=(cool,), after=599.0), to_push)
    assert held == {"FloorwatchGpuThrottled": one}
    assert pushed(status(gpus=(cool,), after=600.0), to_push) == {}


def test_since_when_a_gpu_throttles_is_kept_by_the_target_that_it_serves() -> None:
    told = replace(finding("throttled", SINCE), severity="info")
    one = pushed(status(targets=(ticket(told),), gpus=(throttled(),)))
    assert one["FloorwatchGpuThrottled"].since_wall_seconds == SINCE
    judged = replace(CAPPED.judgement, verdict=Verdict.THROTTLED, since_wall_seconds=SINCE - 1.0)
    target = replace(ticket(told), judgement=judged)
    one = pushed(status(targets=(target,), gpus=(throttled(),)))
    assert one["FloorwatchGpuThrottled"].since_wall_seconds == SINCE - 1.0


def test_a_power_cap_is_told_where_it_costs() -> None:
    capped = throttled(reason="sw_power_cap")
    told = ticket(replace(finding("throttled"), severity="info"))
    assert pushed(status(targets=(told,), gpus=(capped,))) == {}
    cause = (CauseFound("power_cap", "400 of 600 W", "raise it"),)
    costs = replace(told, judgement=replace(told.judgement, causes=cause))
    assert set(pushed(status(targets=(costs,), gpus=(capped,)))) == {"FloorwatchGpuThrottled"}


def test_of_gpus_that_are_not_read_nothing_is_told() -> None:
    told = ticket(replace(finding("throttled"), severity="info"))
    unread = replace(throttled(), activity=None)
    lost = replace(throttled(), up=False)
    assert pushed(status(targets=(told,), gpus=(unread,))) == {}
    assert pushed(status(targets=(told,), gpus=(lost,))) == {}
    assert pushed(status(targets=(told,), gpus=(throttled(),), nvml_up=False)) == {}


def test_one_odd_reading_of_a_gpu_pages_nobody() -> None:
    def lost(since: float) -> AlertStatus:
        return AlertStatus("FloorwatchGpuLost", "critical", None, since, "gone", 0, UUID)

    to_push = AlertsToPush()
    now = NOW.wall_seconds
    assert pushed(status(lost(now)), to_push) == {}
    assert pushed(status(after=1.0), to_push) == {}
    assert pushed(status(lost(now + 2.0), after=2.0), to_push) == {}
    assert set(pushed(status(lost(now + 2.0), after=62.0), to_push)) == {"FloorwatchGpuLost"}
    # Back, and gone again: the same alert goes on; two minutes after it came back it ends.
    assert set(pushed(status(after=100.0), to_push)) == {"FloorwatchGpuLost"}
    assert set(pushed(status(after=181.0), to_push)) == {"FloorwatchGpuLost"}
    assert pushed(status(after=182.0), to_push) == {}


# ------------------------------------------------------------------------ annotations


def test_an_alarm_says_why_what_to_try_and_how_the_floor_came_about() -> None:
    one = pushed(STATUS)["FloorwatchBelowFloor"]
    assert one.annotations == {
        "summary": "qwen-a makes fewer tokens/s per GPU than its floor",
        "description": (
            "485 of 725\ncause mamba_state_cap: 19 of 19 state slots\ntry: raise the state pool"
        ),
        "values": (
            "485.0 generated tokens/s per GPU; floor 725.0 by the rule model; ratio 0.67; "
            "verdict concurrency_limited; 19 running; 200 waiting; KV cache 35% full; "
            "1929 tokens and 1 GPU seconds lost"
        ),
        "derivation": (
            "725.0 tokens/s per GPU by the rule model\n"
            "1. expected: 1449.5 tokens/s (at the demanded batch)\n"
            "2. safety factor: 0.5 (see the model)"
        ),
        "runbook_url": "deploy/runbooks/FloorwatchBelowFloor.md",
    }


def test_what_is_not_known_is_left_out() -> None:
    down = replace(
        CAPPED,
        up=False,
        cost=replace(CAPPED.cost, lost_tokens=0.0),
        judgement=replace(CAPPED.judgement, floor_ratio=None, verdict=None, causes=()),
        expectation=replace(CAPPED.expectation, in_force=None),
    )
    told: Mapping[str, str] = pushed(status(below_floor(), targets=(down,)))[
        "FloorwatchBelowFloor"
    ].annotations
    assert set(told) == {"summary", "description", "runbook_url"}
    bare = replace(down, up=True, requests_running=None, kv_cache_usage_ratio=None, gpu_count=None)
    told = pushed(status(below_floor(), targets=(bare,)))["FloorwatchBelowFloor"].annotations
    assert told["values"] == "200 waiting"


def test_a_stalled_server_has_no_word_of_its_floor() -> None:
    alarm = replace(below_floor(), name="FloorwatchStalled")
    assert "derivation" not in pushed(status(alarm, targets=(CAPPED,)))[alarm.name].annotations


def test_no_text_is_longer_than_a_message_can_hold() -> None:
    one = pushed(status(replace(below_floor(), because="x" * 9000), targets=(CAPPED,)))
    told = one["FloorwatchBelowFloor"].annotations["description"]
    assert len(told) == MOST_CHARACTERS
    assert told.endswith("...")
