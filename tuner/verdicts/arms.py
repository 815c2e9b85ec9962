"""Which launches belong together: baseline, finalists launched afresh, repetitions. Pure."""

from collections.abc import Iterable, Sequence

from tuner.definitions.models import Objective
from tuner.measuring.measurement import RungMeasurement
from tuner.records import TrialRecord
from tuner.verdicts.effects import Effect, Sample, effect
from tuner.verdicts.outputs import Outputs
from tuner.verdicts.score import log_throughputs, reference
from tuner.verdicts.standing import judged

FRESH_LAUNCHES = 2
"""Launches made after a configuration was chosen: so many judge it, and a winner needs them."""


class Arms:
    """The launches of a study, read once: which belong together, and what each measured.

    `baseline_key` names the baseline; where it is not said, the launches of its kind do.
    """

    def __init__(
        self,
        records: Iterable[TrialRecord],
        objective: Objective,
        baseline_key: str | None = None,
    ) -> None:
        self.records = tuple(judged(records, admit=objective.admits))
        self.outputs = Outputs(self.records)
        self.objective = objective
        by_number = {record.number: record for record in self.records}
        launched = next((r.key for r in self.records if r.kind == "baseline"), None)
        self.baseline_key = baseline_key or launched
        self.baseline = tuple(r for r in self.records if self._is_baseline(r))
        self.reference = reference((r.rungs for r in self.baseline), objective)
        self._original = {
            record.number: by_number.get(record.duplicate_of, record)
            if record.duplicate_of is not None
            else record
            for record in self.records
        }

    def original(self, record: TrialRecord) -> TrialRecord:
        """The launch whose effective arguments this one repeats; itself for a distinct one."""
        return self._original[record.number]

    def fresh(self, key: str) -> tuple[TrialRecord, ...]:
        """Launches made to confirm a configuration, of all the servers that its host holds; one
        that a person cut short, or whose measurement is void, says nothing."""
        made = (r for r in self.records if r.kind == "confirm" and r.key == key)
        return tuple(r for r in made if r.tells and not r.replicas.extrapolated)

    def confirmed_keys(self) -> tuple[str, ...]:
        """Configurations that were launched afresh, in order of their first such launch."""
        keys = (r.key for r in self.records if r.kind == "confirm")
        return tuple(key for key in dict.fromkeys(keys) if key != self.baseline_key)

    def scores(self, records: Iterable[TrialRecord]) -> list[Sample]:
        """The log score of each launch that measured every rung."""
        found = ((record, self._log_score(record.rungs)) for record in records)
        return [Sample(position=r.number, value=v) for r, v in found if v is not None]

    def rung(self, records: Iterable[TrialRecord], level: float) -> list[Sample]:
        """The log throughput at one rung, of each launch that got there."""
        logs = ((r.number, log_throughputs(r.rungs, self.objective)) for r in records)
        return [
            Sample(position=number, value=found[level]) for number, found in logs if level in found
        ]

    def candidates(self) -> dict[str, list[TrialRecord]]:
        """Launches by configuration, without the baseline and what turned out to be the same."""
        same = {record.effective_key for record in self.baseline if record.effective_key}
        groups: dict[str, list[TrialRecord]] = {}
        for record in self.records:
            is_baseline = record.key == self.baseline_key or record.effective_key in same
            if not is_baseline and record.outcome in ("completed", "failed"):
                groups.setdefault(record.key, []).append(record)
        return groups

    def repeated(self) -> list[list[TrialRecord]]:
        """Launches of one configuration, made for one purpose, more than one of them.

        Purposes are kept apart, since a launch that led to a choice is not like those after it.
        """
        groups: dict[tuple[str, str], list[TrialRecord]] = {}
        for record in self.records:
            kind = "baseline" if self._is_baseline(record) else record.kind
            key = "" if kind == "baseline" else record.key
            groups.setdefault((kind, key), []).append(record)
        return [group for group in groups.values() if len(group) > 1]

    def _is_baseline(self, record: TrialRecord) -> bool:
        return record.key == self.baseline_key and record.kind in ("baseline", "confirm")

    def _log_score(self, rungs: Sequence[RungMeasurement]) -> float | None:
        """The score's logarithm but for the reference, which cancels between launches."""
        logs = log_throughputs(rungs, self.objective)
        weights = {
            rung.level: rung.weight
            for rung in self.objective.ladder
            if rung.level in self.reference
        }
        if not weights or weights.keys() - logs.keys():
            return None
        return sum(weights[level] * logs[level] for level in weights) / sum(weights.values())


def compare(
    arms: Arms,
    arm: Iterable[TrialRecord],
    control: Iterable[TrialRecord],
    *,
    rung: float | None = None,
    confidence: float | None = None,
) -> Effect | None:
    """The effect of one group of launches over another, by score or at one rung.

    None where a side has no such measurement.
    """

    def samples(records: Iterable[TrialRecord]) -> list[Sample]:
        return arms.scores(records) if rung is None else arms.rung(records, rung)

    arm, control = tuple(arm), tuple(control)
    arm_samples, control_samples = samples(arm), samples(control)
    if not arm_samples or not control_samples:
        return None
    taken = {record.number for record in (*arm, *control)}
    rest = ([r for r in group if r.number not in taken] for group in arms.repeated())
    return effect(
        arm_samples,
        control_samples,
        others=[samples(group) for group in rest],
        confidence=confidence or arms.objective.decision.confidence,
    )


def counts_against(record: TrialRecord) -> bool:
    """Whether a launch failed by its configuration's fault, or in service.

    What the host did before the server served (a taken port, a lost peer) is not held against it.
    """
    if record.outcome != "failed":
        return False
    if record.failure is None or record.failure.action == "never":
        return True
    return record.failure.action == "once" and record.failure.phase in ("ready", "serving")
