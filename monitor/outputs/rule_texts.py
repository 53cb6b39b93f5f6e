"""What the shipped alerts say: annotations with figures that Prometheus looks up as it fires.

Rules of this file:

1. `summary` holds no value: a notification's title stays the same while figures move. The
   figures stand in `description`, which no alert is told apart by.
2. A figure is asked for by all labels of the alert, so two targets of one name on two hosts are
   not mixed up; label values are quoted by `%q`, whatever they hold.
3. A figure that is not there is said to be unknown, never 0. A query never fails on a bad label.

The template language: Prometheus, "Template reference" (Go's text/template with `query`).
"""

from __future__ import annotations

from collections.abc import Mapping

OF = (
    '{{ $of := "" }}{{ range $name, $value := $labels }}'
    '{{ if match "^[a-zA-Z_][a-zA-Z0-9_]*$" $name }}'
    '{{ $of = printf "%s%s=%q," $of $name $value }}{{ end }}{{ end }}'
)
"""Puts the alert's labels into `$of`, as the inside of a selector with a comma at its end."""


def figure(query: str, form: str, missing: str = "unknown") -> str:
    """The first value of a query. `%s` in the query is the alert's labels; `form` a Go format."""
    return (
        f"{{{{ with printf {_text(query)} $of | query }}}}"
        f"{{{{ . | first | value | printf {_text(form)} }}}}"
        f"{{{{ else }}}}{missing}{{{{ end }}}}"
    )


def word(query: str, label: str, missing: str = "unknown") -> str:
    """A label of the query's first series."""
    return (
        f"{{{{ with printf {_text(query)} $of | query }}}}"
        f"{{{{ . | first | label {_text(label)} }}}}{{{{ else }}}}{missing}{{{{ end }}}}"
    )


def words(query: str, label: str, missing: str = "none told") -> str:
    """A label of each of the query's series, in order of the alphabet."""
    return (
        f"{{{{ with printf {_text(query)} $of | query }}}}"
        f"{{{{ range $at, $one := sortByLabel {_text(label)} . }}}}"
        f"{{{{ if $at }}}}, {{{{ end }}}}{{{{ $one | label {_text(label)} }}}}{{{{ end }}}}"
        f"{{{{ else }}}}{missing}{{{{ end }}}}"
    )


def chosen(query: str, label: str, sentences: Mapping[str, str], missing: str) -> str:
    """For each of the query's series the sentence of its label's value; others say nothing."""
    cases = "".join(
        f"{{{{ {'else if' if place else 'if'} eq $is {_text(value)} }}}}{sentence}"
        for place, (value, sentence) in enumerate(sentences.items())
    )
    return (
        f"{{{{ with printf {_text(query)} $of | query }}}}"
        f"{{{{ range $at, $one := sortByLabel {_text(label)} . }}}}"
        f"{{{{ if $at }}}}; {{{{ end }}}}{{{{ $is := $one | label {_text(label)} }}}}"
        f"{cases}{{{{ else }}}}{{{{ $is }}}}{{{{ end }}}}{{{{ end }}}}"
        f"{{{{ else }}}}{missing}{{{{ end }}}}"
    )


def _text(text: str) -> str:
    """A string of the template language, for the texts of this file (no control characters)."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


TARGET = "{{ $labels.target }}"
GPU = "GPU {{ $labels.gpu }}{{ with $labels.uuid }} ({{ . }}){{ end }}"

MEASURED = figure('avg(floorwatch_tokens_per_second_per_gpu{%sphase="generation"})', "%.0f")
FLOOR = figure(
    "avg(floorwatch_gpu_floor_tokens_per_second{%[1]s} "
    "and on (job, instance, target, rule) floorwatch_floor_in_force{%[1]s} == 1)",
    "%.0f",
)
RULE = word("floorwatch_floor_in_force{%s} == 1", "rule")
RATIO = figure("min(floorwatch_gpu_floor_ratio{%s})", "%.2f")
VERDICT = word("floorwatch_verdict{%s} == 1", "verdict")
CAUSES = words("count by (cause) (floorwatch_cause{%s} == 1)", "cause")
RUNNING = figure("sum(floorwatch_requests_running{%s})", "%.0f")
WAITING = figure("sum(floorwatch_requests_waiting{%s})", "%.0f")
KV_CACHE = figure("max(floorwatch_kv_cache_usage_ratio{%s}) * 100", "%.0f %%")
LOST = figure("max(increase(floorwatch_lost_tokens_total{%s}[1h]))", "%.0f")
PROBLEM = word("floorwatch_target_problem{%s} == 1", "reason")
EFFICIENCY = figure('min(floorwatch_efficiency{%sbasis="observed"})', "%.2f")
USUAL = figure('min(floorwatch_efficiency{%sbasis="relative"})', "%.2f")
CHECK = figure("max(floorwatch_expectation_check_ratio{%s})", "%.2f")
SERVES = words(
    'count by (target) ({__name__=~"floorwatch_gpu_(floor_)?tokens_per_second",%s})', "target"
)
GPU_NAME = word("floorwatch_gpu_up{%s}", "gpu_name", "the GPU")
REASONS = words("count by (reason) (floorwatch_gpu_throttle_reason{%s} == 1)", "reason")
CLOCK = figure(
    "min(floorwatch_gpu_sm_clock_hertz{%[1]s} / floorwatch_gpu_sm_clock_max_hertz{%[1]s}) * 100",
    "%.0f %%",
)
HEAT = figure("max(floorwatch_gpu_temperature_celsius{%s})", "%.0f C")

EXPECTED = figure("avg(floorwatch_gpu_expected_tokens_per_second{%s})", "%.0f")

WAYS: Mapping[str, str] = {
    "fixed": "given by the operator",
    "fraction": "the operator's share of another GPU's rate",
    "reference": "a measured rate of another GPU, scaled by hardware figures",
    "model": f"a share of the {EXPECTED} tokens/s per GPU that the load model expects at this load",
    "baseline": "a share of this server's own best",
}
"""How the floor of each rule comes about."""

HOW = chosen("floorwatch_floor_in_force{%s} == 1", "rule", WAYS, "not known")

TRIES: Mapping[str, str] = {
    "mamba_state_cap": "more mamba state slots, or a radix cache strategy that takes fewer",
    "max_running_cap": "a higher cap (--max-running-requests, --max-num-seqs)",
    "kv_cache_full": "more memory for the KV cache, an fp8 KV cache, or another replica",
    "preemptions": "more memory for the KV cache, or a lower cap on running requests",
    "thermal_throttle": "cooling: fans, airflow, the inlet's temperature",
    "power_cap": "the power limit (nvidia-smi -q -d POWER)",
    "hardware_slowdown": "the power supply and its cables; the BMC's log",
    "pcie_link": "the slot and riser of the GPU; reseat it",
    "nvlink": "NVLink errors (nvidia-smi nvlink -e) and the fabric manager",
    "slow_gpu_in_group": "what holds that one GPU back: clocks, heat, another process",
    "cuda_graphs_off": "CUDA graphs on (no --enforce-eager, no --disable-cuda-graph)",
    "api_server_saturated": "more API servers (--api-server-count), or fewer, larger streams",
    "host_cpu": "more or faster cores for the engine; nothing else on them",
    "wrong_kernel_or_precision": "the engine's log for the kernels it chose; the quantisation",
    "shared_gpu": "the other process away from this GPU",
    "engine_hung": "a stack dump of the engine's processes, then a restart",
    "engine_dead": "the engine's log and exit code, out of memory in dmesg; a restart",
    "data_parallel_imbalance": "the balancer in front: the same work for each rank",
    "prefix_cache_collapsed": "routing by prefix; what changed in the prompts",
    "speculation_costs": "speculation off, or fewer draft tokens",
    "gpu_lost": "the kernel's log (NVRM, XID); drain the host, reset the GPU",
    "xid": "the XID's code in the kernel's log; a reset after a device fault",
    "unknown": "the status page, and explain for the floor",
}
"""What to try first, by cause; the runbook and the status page say more."""

TRY = chosen(
    "count by (cause) (floorwatch_cause{%s} == 1)", "cause", TRIES, "what the runbook says"
)

STANDING = (
    f"Now: {MEASURED} generated tokens/s per GPU, floor {FLOOR} by the rule {RULE}, "
    f"ratio {RATIO}, verdict {VERDICT}, causes: {CAUSES}, {RUNNING} running, {WAITING} waiting. "
    f"The floor is {HOW}."
)
"""What an operator wants to know of any target first."""

EXPLAIN = f"How the floor comes about: floorwatch explain '{TARGET}' --config FILE."


def finding(names: str) -> str:
    """Which of these findings (a regular expression) hold."""
    return words(f'count by (finding) (floorwatch_finding{{%sfinding=~"{names}"}} == 1)', "finding")
