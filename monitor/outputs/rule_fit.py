"""How Prometheus rules fit a configuration: the options, and the pieces of expressions.

Rules of this file:

1. An alert is named by alertname, severity and target (a GPU's: by gpu and uuid), and by what
   labels the operator gave: `dropped_labels` are aggregated away, so that the alert is the same
   one whichever daemon or Prometheus tells of it.
2. Figures of a daemon that stands still prove nothing (`fresh`).
3. Where windows are shorter than the default ones, the times that bridge a bad scrape shrink too.
"""

from __future__ import annotations

from dataclasses import dataclass

from monitor.model import JudgementSettings

RUNBOOKS = "deploy/runbooks"
"""Where the runbooks stand in this project."""

LONGEST_FOR_SECONDS = 60.0
"""The most that FloorwatchBelowFloor waits."""

DROPPED_LABELS = ("instance", "job", "pod")

GENERATION = 'floorwatch_gpu_tokens_per_second{phase="generation"}'

_DEFAULT_SHORT_SECONDS = JudgementSettings().short_window_seconds
_LEAST_STALE_SECONDS = 60.0
_STALE_POLLS = 5.0
# A rate needs two scrapes in its range, and they may be as far apart as 30 s.
_LEAST_RANGE_SECONDS = 60.0
_TICK = "floorwatch_last_tick_timestamp_seconds"


@dataclass(frozen=True, slots=True)
class RuleOptions:
    """What the rules need to know besides the thresholds.

    `dropped_labels`: labels of the scrape that no alert is told apart by. `job`: the daemons' job.
    `below_floor_for_seconds`: None: what fits the windows. `dashboard_url`: a dashboard with a
    variable `target`; `grafana_url`: a Grafana with the shipped dashboards, which goes before it;
    both None: `status_page`.
    """

    poll_interval_seconds: float = 1.0
    runbook_url: str = RUNBOOKS
    dashboard_url: str | None = None
    grafana_url: str | None = None
    status_page: str = "http://127.0.0.1:9838/"
    job: str = "floorwatch"
    dropped_labels: tuple[str, ...] = DROPPED_LABELS
    below_floor_for_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Fit:
    """The settings and options, and what follows from them. Times in seconds."""

    settings: JudgementSettings
    options: RuleOptions

    def without(self, *more: str) -> str:
        """The labels to aggregate away, in the form of a `without` clause."""
        return ", ".join((*self.options.dropped_labels, *more))

    @property
    def stale_seconds(self) -> float:
        """From this age on of its last tick a daemon stands still."""
        return max(_LEAST_STALE_SECONDS, _STALE_POLLS * self.options.poll_interval_seconds)

    @property
    def stale(self) -> str:
        """Whose last tick is old, and did not move: a host's clock may be wrong by more."""
        span = prometheus_duration(self.stale_seconds)
        return f"time() - {_TICK} > {self.stale_seconds:g} unless changes({_TICK}[{span}]) > 0"

    def fresh(self, expr: str) -> str:
        """The expression, of daemons that do not stand still."""
        return f"{expr}\n  unless on (job, instance) ({self.stale})"

    @property
    def range(self) -> str:
        """The short window, as a range that holds two scrapes."""
        return prometheus_duration(max(_LEAST_RANGE_SECONDS, self.settings.short_window_seconds))

    @property
    def straggler_range(self) -> str:
        """As long as the judgement watches a member before it calls it a straggler."""
        settings = self.settings
        span = settings.straggler_windows * settings.straggler_window_seconds
        return prometheus_duration(max(_LEAST_RANGE_SECONDS, span))

    def scaled(self, seconds: float) -> float:
        """A time that shrinks with the short window, and does not grow with it."""
        short = self.settings.short_window_seconds
        return seconds * min(1.0, short / _DEFAULT_SHORT_SECONDS)


def prometheus_duration(seconds: float) -> str:
    """A duration as Prometheus writes it, such as 1h30m; to the millisecond."""
    left = max(1, round(seconds * 1000.0))
    told = ""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        number, left = divmod(left, size)
        told += f"{number}{unit}" if number else ""
    return told
