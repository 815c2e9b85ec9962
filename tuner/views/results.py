"""What the records say, as values that can be printed or dumped as JSON. Starts nothing."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from tuner.definitions.domain import same
from tuner.definitions.flag_checks import dead_notes
from tuner.definitions.levels import Level, level_words
from tuner.definitions.models import Value
from tuner.definitions.validation import LoadedStudy
from tuner.definitions.workload import Workload
from tuner.flags.names import canonical
from tuner.frozen import Frozen
from tuner.measuring.replicas import Replicas
from tuner.night.ending import unfinished
from tuner.night.environment import changed_since
from tuner.night.launches import time_scale
from tuner.night.servers import log_folder
from tuner.night.workload import workload_of
from tuner.records import Records, TrialRecord
from tuner.verdicts.analysis import (
    ParetoPoint,
    TimeUse,
    pareto_front,
    pareto_points,
    time_use,
)
from tuner.verdicts.arms import Arms
from tuner.verdicts.decision import Conclusion, conclusion
from tuner.verdicts.ledger import LedgerRow, ledger, null_results
from tuner.verdicts.limits import worst
from tuner.verdicts.outputs import WRONG_OUTPUT
from tuner.verdicts.score import rung_ratios, score, slo_breaches, throughput
from tuner.verdicts.standing import judged
from tuner.views.asked import forgotten
from tuner.views.cautions import cautions
from tuner.views.changed import changes
from tuner.views.words import PER_USER, so_far

SCHEMA = 1
FULL_SHARE = 0.9
"""An engine that never ran this share of the requests at a time is said to run at what it did."""
LEAST_GAP = 0.5
"""And only where at least so many are missing: of a single stream, pauses between requests and an
engine that counts once in forty steps leave 0.7, though it runs in full."""


class TrialRow(Frozen):
    """One launch in a line; by level `rates` are what is scored, in tokens or (goodput) requests a
    second, and `ratios` those over the baseline's.

    `ran_at` holds the rungs that the engine did not run in full: the requests it ran at a time, by
    its own count. `void` are the attempts at a rung that were worth nothing, and why,
    `remarks` what else is said against rungs. `output` says how far its output is from the
    baseline's, empty where that is not known. Where fewer `replicas` were launched than the host
    holds, throughputs, ratios and score are `extrapolated`.
    """

    number: int
    kind: str
    hypothesis: str | None
    changes: dict[str, Value]
    outcome: str
    words: str
    score: float | None
    ratios: dict[Level, float]
    rates: dict[Level, float]
    ran_at: dict[Level, float]
    breaches: list[str]
    void: list[str] = []
    remarks: list[str] = []
    output: str = ""
    duration_s: float
    replicas: Replicas = Replicas()
    extrapolated: bool = False


class DeadEnd(Frozen):
    """What never to try again, and why.

    `changes` is what all launches that died of this cause had in common, `suspects` those of them
    that are blamed; `blame` names the flags or variables that the first one's log points at.
    """

    changes: dict[str, Value]
    suspects: dict[str, Value]
    trials: list[int]
    kind: str
    cause: str
    blame: list[str]
    advice: str


class StudyView(Frozen):
    """A study so far: its verdict, its hypotheses, its trials, and where the time went.

    `cautions` are what to know of the winner before it serves; `dead` says which of its flags
    nothing reads; `workload` is what its servers are asked, and `forgotten` whether they forgot
    prefixes between rungs; `ended` is why the run that shows this came to its end, empty where none
    ran; `unfinished` is how far a study is that did not come to its end, as its conclusion says
    first, and empty for one that did; `changed` is how the study differs from what the records were
    made by, empty where it does not.
    """

    schema_number: int = SCHEMA
    study: str
    rehearsal: bool
    time_scale: float
    by_rate: bool = False
    scored: str
    conclusion: Conclusion
    winner_changes: dict[str, Value] | None
    cautions: list[str] = []
    winner_replicas: int = 1
    noise: str
    hypotheses: list[LedgerRow]
    located: list[str]
    never_again: list[DeadEnd]
    trials: list[TrialRow]
    time_use: list[TimeUse]
    feasible: bool
    dead: list[str] = []
    workload: Workload | None = None
    forgotten: str = ""
    ended: str = ""
    unfinished: str = ""
    changed: str = ""

    def said(self, level: float) -> str:
        """A rung as it stands behind 'at'."""
        return level_words(level, by_rate=self.by_rate)


class Front(Frozen):
    """The configurations that no other beats in both metrics, and those that are `beaten`.

    `baseline_key` is the key of the baseline's points, on the front or not; `changes` holds what
    each configuration changes, by key; `why_empty` says why there is no point at all.
    """

    schema_number: int = SCHEMA
    study: str
    rehearsal: bool
    by_rate: bool = False
    x: str
    y: str
    points: list[ParetoPoint]
    beaten: list[ParetoPoint] = []
    baseline_key: str = ""
    changes: dict[str, dict[str, Value]]
    why_empty: str = ""

    def said(self, point: ParetoPoint) -> str:
        """Which rung a point is at; `ladder` for one that stands for all."""
        if point.level is None:
            return "ladder"
        return level_words(point.level, by_rate=self.by_rate)

    @property
    def legend(self) -> list[str]:
        """What is meant by metrics that other tools count otherwise."""
        return [PER_USER] if any(m.startswith("tok_s_per_user") for m in (self.x, self.y)) else []


def study_view(study: LoadedStudy, records: Records, ended: str = "") -> StudyView:
    """All that can be said of a study from its records."""
    objective, key = study.objective, study.baseline.key
    found = conclusion(records, objective, key)
    rows = ledger(records, study.space.hypotheses, objective, key, study.idle)
    arms = Arms(records, objective, key)
    trials = [_trial_row(study, record, arms) for record in records]
    won = [record for record in arms.records if record.key == found.winner_key]
    winner = won[0] if won else None
    so_far_only = "" if ended else unfinished(study, list(records))
    return StudyView(
        study=name(study),
        rehearsal=rehearsal(study),
        time_scale=time_scale(study),
        by_rate=objective.by_rate,
        scored=objective.score,
        conclusion=replace(found, sentence=so_far(so_far_only, found.sentence)),
        winner_changes=changes(winner.values, study) if winner else None,
        winner_replicas=winner.replicas.of if winner else 1,
        cautions=cautions(study, arms, won),
        noise=str(found.noise),
        hypotheses=rows,
        located=null_results(rows),
        never_again=_dead_ends(study, records),
        trials=trials,
        time_use=list(time_use(records)),
        feasible=any(map(_feasible, trials)),
        dead=dead_notes(study),
        workload=workload_of(study),
        forgotten=forgotten(records),
        ended=ended,
        unfinished=so_far_only,
        changed=changed_since(study),
    )


def _feasible(row: TrialRow) -> bool:
    """Whether it served the whole ladder within all limits, as all that a host holds, and its
    output is not known to be wrong."""
    whole = row.outcome == "completed" and row.score is not None
    return whole and not row.breaches and not row.extrapolated


def front(study: LoadedStudy, records: Records, x: str, y: str) -> Front:
    """The Pareto front in two metrics. Raises TunerError for an unknown metric."""
    objective, key = study.objective, study.baseline.key
    points = pareto_front(records, x, y, objective, key)
    compared = pareto_points(records, x, y, objective, key)
    values = {record.key: changes(record.values, study) for record in records}
    return Front(
        study=name(study),
        rehearsal=rehearsal(study),
        by_rate=objective.by_rate,
        x=x,
        y=y,
        points=list(points),
        beaten=[point for point in compared if point not in points],
        baseline_key=key,
        changes={point.key: values[point.key] for point in compared},
        why_empty="" if compared else _why_empty(study, records, (x, y)),
    )


def _why_empty(study: LoadedStudy, records: Records, metrics: tuple[str, str]) -> str:
    whole = [record for record in records if record.outcome == "completed"]
    if not whole:
        return "No configuration has completed its ladder yet."
    found = [slo_breaches(record.rungs, study.objective) for record in whole]
    if not all(found):
        kept = " that kept every limit" if any(found) else ""
        power = any(word in metric for metric in metrics for word in ("joule", "watt"))
        unseen = " Power was not observed; NVIDIA GPUs tell it." if power else ""
        return f"No completed launch{kept} shows both {' and '.join(metrics)}.{unseen}"
    several = (
        f"All {len(whole)} launches that completed break"
        if len(whole) > 1
        else ("The one launch that completed breaks")
    )
    return f"{several} a limit, so that nothing is feasible; the worst: {worst(sum(found, ()))}."


def name(study: LoadedStudy) -> str:
    """The study's folder as the user would name it."""
    try:
        return str(study.folder.relative_to(Path.cwd()))
    except ValueError:
        return str(study.folder)


def rehearsal(study: LoadedStudy) -> bool:
    """Whether nothing that is measured here is a benchmark."""
    return study.definition.engine.name == "rehearsal"


def trial_row(study: LoadedStudy, record: TrialRecord, records: Iterable[TrialRecord]) -> TrialRow:
    """One launch against the baseline as it is known by now."""
    return _trial_row(study, record, Arms(records, study.objective, study.baseline.key))


def _trial_row(study: LoadedStudy, record: TrialRecord, arms: Arms) -> TrialRow:
    base = arms.reference
    value = score(record.rungs, base, study.objective)
    standing = _standing(record, arms)
    return TrialRow(
        number=record.number,
        kind=record.kind,
        hypothesis=record.hypothesis,
        changes=changes(record.values, study),
        outcome=standing.outcome,
        words=outcome_words(study, standing),
        output=arms.outputs.said(record.number),
        score=None if value is None else round(value, 5),
        ratios=rung_ratios(record.rungs, base, study.objective),
        rates={r.level: throughput(r, study.objective) for r in record.rungs},
        ran_at=_ran_at(record),
        breaches=[str(b) for b in slo_breaches(record.rungs, study.objective)],
        void=void_attempts(record),
        remarks=_remarks(record),
        duration_s=record.duration_s,
        replicas=record.replicas,
        extrapolated=record.replicas.extrapolated,
    )


def _standing(record: TrialRecord, arms: Arms) -> TrialRecord:
    """The launch as it is taken by now: a failed one where its output turned out to be wrong."""
    wrong = (r for r in arms.records if r.failure is not None and r.failure.kind == WRONG_OUTPUT)
    return next((r for r in wrong if r.number == record.number), record)


def log_path(study: LoadedStudy, record: TrialRecord) -> str:
    """The log of a launch as the user would name it; of several servers, of the one that failed."""
    folder = Path(name(study)) / "trials" / f"{record.number:04d}"
    return str(log_folder(folder, (record.replicas.failed or 1) - 1) / "server.log")


def _ran_at(record: TrialRecord) -> dict[float, float]:
    loads = [(rung, rung.engine_load) for rung in record.rungs]
    return {
        rung.level: round(load.running_mean * rung.factor, 1)
        for rung, load in loads
        if load is not None
        and rung.concurrency is not None
        and load.running_mean < min(FULL_SHARE * rung.played, rung.played - LEAST_GAP)
    }


def unlike_baseline(
    study: LoadedStudy, record: TrialRecord, records: Iterable[TrialRecord]
) -> dict[str, Value]:
    """The arguments read back that are not those of the baseline's first launch that told its own;
    all where none did."""
    told = (r.effective for r in records if r.key == study.baseline.key and r.effective)
    baseline = next(told, {})
    names = [*record.effective, *(name for name in baseline if name not in record.effective)]
    ours = record.effective
    return {n: ours.get(n) for n in names if not same(ours.get(n), baseline.get(n))}


def outcome_words(study: LoadedStudy, record: TrialRecord) -> str:
    """What came of a launch, in a few words."""
    if record.failure is not None:
        return f"{_died(study, record)}: {record.failure.cause} [{record.failure.kind}]"
    if record.outcome == "pruned":
        return f"stopped early: {record.pruned_because}"
    if record.outcome == "duplicate":
        said = "".join(f"; {each}" for each in record.overridden)
        return f"runs with the same arguments as trial {record.duplicate_of}{said}"
    if record.outcome == "invalid":
        return f"measurement void {record.void_because}"
    return record.outcome


def void_attempts(record: TrialRecord) -> list[str]:
    """Each attempt at a rung that was worth nothing: why, and what to do about it."""
    voiding = (next((d for d in rung.doubts if d.voids), None) for rung in record.invalid)
    return [str(doubt) for doubt in voiding if doubt is not None]


def _remarks(record: TrialRecord) -> list[str]:
    """What is said against rungs that count; that a p99 is nearly the largest is no news."""
    doubts = (doubt for rung in record.rungs for doubt in rung.doubts)
    return [str(doubt) for doubt in doubts if doubt.rule != "percentiles"]


def _died(study: LoadedStudy, record: TrialRecord) -> str:
    if record.failure is not None and record.failure.kind == WRONG_OUTPUT:
        return "wrong output"
    if record.failure is None or record.ready_s is None:
        return f"died while {record.failure.phase}" if record.failure else "died"
    reached = {rung.level for rung in record.rungs}
    ladder = (rung.level for rung in study.objective.ladder)
    at = next((level for level in ladder if level not in reached), None)
    return "died after the ladder" if at is None else f"died at {study.objective.said(at)}"


def _dead_ends(study: LoadedStudy, records: Sequence[TrialRecord] | Records) -> list[DeadEnd]:
    found: dict[tuple[str, str], list[TrialRecord]] = {}
    for record in judged(records, admit=study.objective.admits):
        if record.failure is not None and record.failure.action == "never":
            found.setdefault((record.failure.kind, record.failure.cause), []).append(record)
    return [_dead_end(study, group) for group in found.values()]


def _dead_end(study: LoadedStudy, group: Sequence[TrialRecord]) -> DeadEnd:
    """What the launches that died of one cause had in common."""
    failure = group[0].failure
    blame = failure.blame if failure else []
    common = changes(group[0].values, study)
    for record in group[1:]:
        other = changes(record.values, study)
        common = {n: v for n, v in common.items() if n in other and same(other[n], v)}
    return DeadEnd(
        changes=common,
        suspects={n: v for n, v in common.items() if _flag(study, n) in map(canonical, blame)},
        trials=[record.number for record in group],
        kind=failure.kind if failure else "",
        cause=failure.cause if failure else "",
        blame=blame,
        advice=failure.advice if failure else "",
    )


def _flag(study: LoadedStudy, name: str) -> str:
    """The flag or variable that a parameter sets, as blame would name it."""
    parameter = study.space.parameters.get(name)  # none: the space changed after the launch
    return canonical((parameter and (parameter.env or parameter.flag)) or name)
