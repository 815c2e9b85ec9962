"""What the search is told of one launch: from a record to an outcome. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from tuner.definitions.models import Objective
from tuner.definitions.space import Configuration, Space, flag_of
from tuner.failures.classifier import Failure
from tuner.records import TrialKind, TrialRecord
from tuner.verdicts.score import rung_ratios, score, slo_breaches


@dataclass(frozen=True, slots=True)
class Completed:
    """The whole ladder was measured: score and throughput ratios, 1.0 being the baseline.

    With `breaches` of limits it is no candidate for the best, however fast.
    """

    score: float
    rungs: Mapping[float, float] = field(default_factory=dict)
    breaches: int = 0


@dataclass(frozen=True, slots=True)
class Pruned:
    """The ladder was left early, because the rest of it could not save the configuration."""

    rungs: Mapping[float, float]
    reason: str


@dataclass(frozen=True, slots=True)
class Crashed:
    """The server failed and would fail again: the configuration is at fault.

    `named` are the parameters that the failure points at, if it does.
    """

    kind: str
    named: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Ours:
    """The launch came to nothing for a reason that says nothing about the configuration."""

    reason: str


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The server resolved to the arguments of the earlier observation number `of`."""

    of: int


Result = Completed | Pruned | Crashed | Ours | Duplicate


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One launch that is over; `number` is that of its record."""

    number: int
    configuration: Configuration
    label: TrialKind
    result: Result
    started_at: datetime | None = None
    duration_s: float = 0.0


def observation(
    record: TrialRecord, space: Space, reference: Mapping[float, float], objective: Objective
) -> Observation | None:
    """What a record says to the search; None where the launch was interrupted.

    Raises SpaceError where the record's values do not belong to the space.
    """
    result = _result(record, space, reference, objective)
    if result is None:
        return None
    return Observation(
        number=record.number,
        configuration=space.configuration(record.values),
        label=record.kind,
        result=result,
        started_at=datetime.fromisoformat(record.started_at),
        duration_s=record.duration_s,
    )


def _result(
    record: TrialRecord, space: Space, reference: Mapping[float, float], objective: Objective
) -> Result | None:
    if record.outcome == "interrupted":
        return None
    if record.outcome == "invalid":
        return Ours(f"measurement void {record.void_because}")
    if record.duplicate_of is not None:
        return Duplicate(record.duplicate_of)
    if record.failure is not None:
        return _failed(record.failure, space)
    ratios = rung_ratios(record.rungs, reference, objective)
    if record.outcome == "pruned":
        return Pruned(ratios, record.pruned_because or "")
    value = score(record.rungs, reference, objective)
    if value is None:
        return Ours("not every rung was measured")
    return Completed(value, ratios, len(slo_breaches(record.rungs, objective)))


def _failed(failure: Failure, space: Space) -> Crashed | Ours:
    if failure.action != "never":
        return Ours(failure.kind)
    blame = set(failure.blame)
    named = (
        name
        for name, parameter in space.parameters.items()
        if parameter.env in blame or flag_of(name, parameter) in blame
    )
    return Crashed(failure.kind, frozenset(named))
