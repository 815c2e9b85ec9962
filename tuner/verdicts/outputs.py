"""Whose output is not the baseline's, by what its launches scored. Pure.

A configuration that differs is none that could be chosen, however fast: its launches are taken for
failed. Nothing of this is stored: it follows from the distances in the baseline's records, and the
more of those there are the better it is known.
"""

from collections.abc import Iterable, Sequence

from tuner.definitions.domain import same
from tuner.failures.classifier import Failure, verdict
from tuner.measuring.fidelity import (
    FLOOR_NAT,
    LEAST_LAUNCHES,
    LEAST_SURE_SHARE,
    Distance,
    Tolerance,
    percent,
    tolerance,
)
from tuner.records import TrialRecord

WRONG_OUTPUT = "wrong_output"
"""The failure class of a server whose output is no longer the baseline's."""

_ADVICE = (
    "Do not serve with these flags, however fast: compare answers by hand and report it to the"
    " engine. Where another output is meant, as of a quantisation, set decision.differing to admit."
)


class Outputs:
    """What is known of the outputs of a study's launches; `distances` by trial, `tolerance` None
    while too few launches of the baseline were scored."""

    def __init__(self, records: Iterable[TrialRecord]) -> None:
        self._records = tuple(records)
        self._baseline = [r for r in self._records if r.kind == "baseline"]
        self.distances: dict[int, Sequence[Distance]] = {}
        for record in self._records:
            for number, found in record.rescored.items():
                self.distances.setdefault(number, found)
        own = {record.number for record in self._baseline}
        self._own = [found for number, found in self.distances.items() if number in own]
        self.tolerance: Tolerance | None = tolerance(self._own)

    def differs(self, number: int) -> str:
        """In what way a launch's output is not the baseline's; empty where it is, or is not known
        to differ."""
        if self.tolerance is None or any(r.number == number for r in self._baseline):
            return ""
        said = (self.tolerance.exceeded(found) for found in self.distances.get(number, ()))
        return next(filter(None, said), "")

    def said(self, number: int) -> str:
        """How far a launch's output is from the baseline's, by the level where it is furthest;
        empty where that is not known."""
        found = self.distances.get(number)
        return self.differs(number) or (str(max(found, key=lambda d: d.gap_nat)) if found else "")

    def unchecked(self, key: str) -> str:
        """Why a configuration may not be chosen yet, for want of a comparison; empty where one was
        made, or none can be made in this study."""
        launches = [r for r in self._records if r.key == key]
        if self.unusable:
            return ""
        if self.tolerance is None:  # before distances: what nothing is held against was not judged
            return self._not_yet()
        if any(r.number in self.distances for r in launches):
            return ""
        why = next(filter(None, map(self._why_not, launches)), "")
        return f"its output was not compared with the baseline's yet{f': {why}' if why else ''}"

    def _why_not(self, launch: TrialRecord) -> str:
        """Why a launch's output could not be had or scored, by what was said of it last."""
        scorers = reversed(self._baseline)
        said = (scorer.not_scored.get(launch.number, "") for scorer in scorers)
        return launch.not_compared or next(filter(None, said), "")

    @property
    def unusable(self) -> str:
        """Why outputs cannot be compared in this study at all; empty where they can, or will be."""
        if self.distances:
            return ""
        why = next((r.not_compared for r in self._baseline if r.not_compared), "")
        if why:
            return why
        spoke = any(r.continuations for r in self._baseline) or not self._baseline
        return "" if spoke else "its launches were made before outputs were compared"

    def summary(self) -> str:
        """How the comparison stands, in sentences."""
        if not self._baseline:
            return "outputs are not judged yet: the baseline was not launched"
        if self.unusable:
            return f"outputs were not compared with the baseline's: {self.unusable}"
        if self.tolerance is None:
            return self._not_yet()
        others = [number for number in self.distances if not self._is_baseline(number)]
        wrong = sum(bool(self.differs(number)) for number in others)
        found = self.tolerance
        compared = (
            f"outputs of {_launches(len(others))} compared with the baseline's,"
            f" {wrong or 'none'} {'differs' if wrong == 1 else 'differ'}"
        )
        nothing = "outputs: no launch was compared with the baseline's yet"
        return (
            f"{compared if others else nothing}. Limit:"
            f" {found.gap_nat:.2g} nat per token (log-probability lost) and"
            f" {percent(found.flip_share)} of tokens the baseline would not have said; the"
            f" baseline's own {found.launches} launches: at most {found.own_nat:.2g} nat and"
            f" {percent(found.own_share)}{self._doubts()}"
        )

    def _not_yet(self) -> str:
        return (
            f"outputs are not judged yet: {len(self._own)} of the {LEAST_LAUNCHES} launches of the"
            " baseline that this needs were scored"
        )

    def _doubts(self) -> str:
        """What makes the comparison worth less than it seems."""
        found = [each for own in self._own for each in own]
        tokens = sum(each.tokens for each in found)
        sure = sum(each.sure for each in found) / tokens if tokens else 0.0
        said = ""
        if sure < LEAST_SURE_SHARE:
            said += (
                f"; a weak test: the baseline is sure of {sure:.0%} of its tokens, as a model of"
                " random weights is"
            )
        if self.tolerance is not None and self.tolerance.own_nat > 5 * FLOOR_NAT:
            said += (
                "; what the baseline says under load is not what it would say alone: its own"
                " output may be wrong"
            )
        return said

    def _is_baseline(self, number: int) -> bool:
        return any(record.number == number for record in self._baseline)


def _launches(count: int) -> str:
    return f"{count} {'launch' if count == 1 else 'launches'}"


def faithful(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The records with every launch of a configuration whose output differs taken for failed."""
    outputs = Outputs(records)
    wrong: dict[str, tuple[int, str]] = {}
    for record in records:
        said = outputs.differs(record.number)
        if said:
            wrong.setdefault(record.key, (record.number, said))
    if not wrong:
        return list(records)
    return [
        _failed(record, records, outputs, *wrong[record.key]) if _is_of(record, wrong) else record
        for record in records
    ]


def _is_of(record: TrialRecord, wrong: Iterable[str]) -> bool:
    measured = record.outcome in ("completed", "pruned") and record.kind != "baseline"
    return measured and record.key in wrong


def _failed(
    record: TrialRecord,
    records: Sequence[TrialRecord],
    outputs: Outputs,
    number: int,
    said: str,
) -> TrialRecord:
    where = "" if number == record.number else f" in trial {number}"
    failure: Failure = verdict(
        WRONG_OUTPUT,
        f"its output{where} is {said}",
        engine="rehearsal" if record.rehearsal else "",
        phase="serving",
        blame=_blame(record, records, outputs),
        action="never",
        advice=_ADVICE,
    )
    return record.model_copy(update={"outcome": "failed", "failure": failure})


def _blame(record: TrialRecord, records: Sequence[TrialRecord], outputs: Outputs) -> list[str]:
    """What it changes and no launch has whose output was compared and is the baseline's."""
    baseline = next((r.values for r in records if r.kind == "baseline"), {})
    changed = [
        name
        for name, value in record.values.items()
        if not same(value, baseline.get(name)) and value is not None
    ]
    well = [r for r in records if r.number in outputs.distances and not outputs.differs(r.number)]
    alone = [
        name
        for name in changed
        if not any(same(r.values.get(name), record.values[name]) for r in well)
    ]
    return alone or changed
