"""Tables over all launches: metrics by name, the Pareto front, where the time went."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

import pandas as pd

from tuner.definitions.levels import Level
from tuner.definitions.models import Objective
from tuner.definitions.nearest import did_you_mean
from tuner.definitions.slo import LATENCIES, RATES, STATS
from tuner.errors import TunerError
from tuner.measuring.measurement import RungMeasurement
from tuner.records import TrialRecord
from tuner.verdicts.decision import reference
from tuner.verdicts.score import score, slo_breaches
from tuner.verdicts.standing import judged

SCORE = "score"
HIGHER_IS_BETTER = (*RATES, "input_tok_s", "goodput_rps", "tok_per_joule")
METRICS = (*HIGHER_IS_BETTER, *(f"{name}.{stat}" for name in LATENCIES for stat in STATS))
"""What a rung measured, by the names that metrics are asked for with; latencies are better low."""

_Cut = Literal["phase", "kind", "outcome"]
_METRIC = re.compile(r"(?P<name>[^@]+)(@(?P<level>[\d.]+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """`ttft_ms.p99@10`, `tok_s_per_user` at every rung (no level), or `score`."""

    name: str
    level: float | None

    @classmethod
    def parse(cls, text: str, objective: Objective) -> "Metric":
        """Read a metric's name. Raises TunerError, naming those that are known."""
        match = _METRIC.fullmatch(text)
        name = match["name"] if match else text
        if name not in (*METRICS, SCORE):
            meant = did_you_mean(name, [*METRICS, SCORE])
            known = f"{', '.join(HIGHER_IS_BETTER)}, score, or a latency such as ttft_ms.p99"
            raise TunerError(f"unknown metric '{text}'{meant}", hint=f"known are {known}")
        if not match or match["level"] is None:
            return cls(name=name, level=None)
        ladder = {f"{rung.level:g}": rung for rung in objective.ladder}
        rung = ladder.get(match["level"])
        if name == SCORE or rung is None:
            rungs = ", ".join(ladder)
            raise TunerError(
                f"'{text}' is measured nowhere",
                hint="the score is one number for the whole ladder"
                if name == SCORE
                else f"the ladder has {rungs}",
            )
        return cls(name=name, level=rung.level)

    @property
    def higher_is_better(self) -> bool:
        """Whether more of it is better."""
        return self.name == SCORE or self.name in HIGHER_IS_BETTER

    @property
    def by_rung(self) -> bool:
        """Whether it has a number at every rung rather than one for a configuration."""
        return self.level is None and self.name != SCORE

    @property
    def column(self) -> str:
        """Its column in `trials_frame`, or in `rungs_frame` where it is `by_rung`."""
        return self.name if self.level is None else f"{self.name}@{self.level:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoPoint:
    """A configuration (at one rung, where the metrics are by rung), averaged over its launches.

    Where all of a host's servers were launched those launches alone count; `extrapolated` where one
    stood for them.
    """

    key: str
    trials: tuple[int, ...]
    level: Level | None
    x: float
    y: float
    extrapolated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeUse:
    """How long the launches spent on one thing, all added up, and its share of all of them."""

    by: _Cut
    name: str
    launches: int
    seconds: float
    share: float


def rungs_frame(records: Iterable[TrialRecord]) -> pd.DataFrame:
    """One row for each rung of each launch, with every metric of `METRICS`; NaN for one unseen."""
    rows = [
        {
            "number": record.number,
            "key": record.key,
            "level": rung.level,
            **{name: _number(rung, name) for name in METRICS},
        }
        for record in records
        for rung in record.rungs
    ]
    columns = ["number", "key", "level", *METRICS]
    return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(METRICS, float))


def trials_frame(
    records: Iterable[TrialRecord], objective: Objective, baseline_key: str
) -> pd.DataFrame:
    """One row for each launch: its score, and every metric as `name@level`."""
    records = tuple(records)
    baseline = reference(records, objective, baseline_key)
    rows = [
        {
            "number": record.number,
            "key": record.key,
            SCORE: score(record.rungs, baseline, objective),
            **{
                f"{name}@{rung.level:g}": _number(rung, name)
                for rung in record.rungs
                for name in METRICS
            },
        }
        for record in records
    ]
    wide = [f"{name}@{rung.level:g}" for rung in objective.ladder for name in METRICS]
    frame = pd.DataFrame(rows, columns=["number", "key", SCORE, *wide])
    return frame.astype(dict.fromkeys([SCORE, *wide], float))


def pareto_front(
    records: Iterable[TrialRecord],
    x: str,
    y: str,
    objective: Objective,
    baseline_key: str,
) -> tuple[ParetoPoint, ...]:
    """The points that no other equals or beats in both metrics and beats in one, best x first.

    Raises TunerError as `pareto_points` does.
    """
    across, up = _axes(x, y, objective)
    points = _points(tuple(records), across, up, objective, baseline_key)
    return tuple(_undominated(points, across, up))


def pareto_points(
    records: Iterable[TrialRecord],
    x: str,
    y: str,
    objective: Objective,
    baseline_key: str,
) -> tuple[ParetoPoint, ...]:
    """All points that a front is chosen from.

    Of completed launches that kept every limit; launches of one configuration are averaged first
    (arithmetic mean of those that show both metrics). Metrics without a level give a point
    for each rung. Raises TunerError for an unknown metric, or one by rung beside one that is not.
    """
    across, up = _axes(x, y, objective)
    return tuple(_points(tuple(records), across, up, objective, baseline_key))


def _axes(x: str, y: str, objective: Objective) -> tuple[Metric, Metric]:
    across, up = Metric.parse(x, objective), Metric.parse(y, objective)
    if across.by_rung != up.by_rung:
        loose = x if across.by_rung else y
        raise TunerError(
            f"'{loose}' has a number at every rung, the other metric one for a configuration",
            hint=f"say at which rung, such as {loose}@{objective.ladder[0].level:g}",
        )
    return across, up


def time_use(records: Iterable[TrialRecord]) -> tuple[TimeUse, ...]:
    """Where the launches' time went: by phase, by kind and by outcome, most first in each."""
    records = tuple(records)
    parts: dict[tuple[_Cut, str], list[float]] = {}
    for record in records:
        for by, name, seconds in _parts(record):
            parts.setdefault((by, name), []).append(seconds)
    total = math.fsum(record.duration_s for record in records)
    uses = [
        TimeUse(
            by=by,
            name=name,
            launches=len(seconds),
            seconds=math.fsum(seconds),
            share=math.fsum(seconds) / total if total else 0.0,
        )
        for (by, name), seconds in parts.items()
    ]
    return tuple(sorted(uses, key=lambda use: (get_args(_Cut).index(use.by), -use.seconds)))


def _number(rung: RungMeasurement, name: str) -> float | None:
    metric, _, stat = name.partition(".")
    value = getattr(rung, metric)
    return cast("float | None", getattr(value, stat) if stat and value is not None else value)


def _points(
    records: Sequence[TrialRecord],
    across: Metric,
    up: Metric,
    objective: Objective,
    baseline_key: str,
) -> list[ParetoPoint]:
    kept = _shown(records, objective)
    guessed = {record.number for record in kept if record.replicas.extrapolated}
    if across.by_rung:
        frame, by = rungs_frame(kept), ["key", "level"]
    else:
        # The reference is the baseline's whole arm, whatever of it is kept for the front.
        wide = trials_frame(records, objective, baseline_key)
        frame, by = wide[wide["number"].isin([r.number for r in kept])], ["key"]
    shown = frame.dropna(subset=[across.column, up.column])
    return [
        ParetoPoint(
            key=str(group["key"].iloc[0]),
            trials=tuple(int(number) for number in group["number"]),
            level=float(group["level"].iloc[0]) if across.by_rung else None,
            x=float(group[across.column].mean()),
            y=float(group[up.column].mean()),
            extrapolated=bool(group["number"].isin(guessed).any()),
        )
        for _, group in shown.groupby(by, sort=False)
    ]


def _shown(records: Sequence[TrialRecord], objective: Objective) -> list[TrialRecord]:
    """Those that kept all limits and whose output is the baseline's, or another that is admitted,
    without what was extrapolated where there is better."""
    whole = [
        record
        for record in judged(records, admit=objective.admits)
        if record.outcome == "completed" and not slo_breaches(record.rungs, objective)
    ]
    seen = {record.key for record in whole if not record.replicas.extrapolated}
    return [r for r in whole if not (r.replicas.extrapolated and r.key in seen)]


def _undominated(points: Sequence[ParetoPoint], across: Metric, up: Metric) -> list[ParetoPoint]:
    """One pass from the best x on: a point stays where its y is better than any before it."""
    x_sign, y_sign = (1.0 if metric.higher_is_better else -1.0 for metric in (across, up))
    ordered = sorted(points, key=lambda p: (-x_sign * p.x, -y_sign * p.y))
    front: list[ParetoPoint] = []
    for point in ordered:
        best = front[-1] if front else None
        same = best is not None and (point.x, point.y) == (best.x, best.y)
        if best is None or same or y_sign * point.y > y_sign * best.y:
            front.append(point)
    return front


def _parts(record: TrialRecord) -> list[tuple[_Cut, str, float]]:
    """A launch's time, cut three ways; what no phase accounts for is called other."""
    rest = record.duration_s - sum(record.phase_s.values())
    return [
        *(("phase", name, seconds) for name, seconds in record.phase_s.items()),
        ("phase", "other", max(rest, 0.0)),
        ("kind", record.kind, record.duration_s),
        ("outcome", record.outcome, record.duration_s),
    ]
