"""From a job to the order that a trial carries out: what is known by now, as the trial needs it."""

from collections.abc import Sequence

from tuner import engines
from tuner.definitions.models import Value
from tuner.definitions.space import Configuration
from tuner.definitions.validation import LoadedStudy
from tuner.measuring.fidelity import Continuation
from tuner.measuring.quality import OutputQuality
from tuner.night.course import TrialOrder
from tuner.night.launches import launch_spec, replicas
from tuner.night.schedule import Job
from tuner.night.workload import workload_of
from tuner.records import TrialRecord
from tuner.verdicts.decision import noise_by_rung, reference
from tuner.verdicts.outputs import WRONG_OUTPUT
from tuner.verdicts.score import best_ratios, score, slo_breaches
from tuner.verdicts.standing import judged


def order(
    study: LoadedStudy,
    records: Sequence[TrialRecord],
    number: int,
    job: Job,
    configuration: Configuration,
) -> TrialOrder:
    """The order for one launch. Raises EngineError where its size cannot be told."""
    launch = launch_spec(study, configuration)
    servers = replicas(study, configuration, job.kind)
    base = reference(records, study.objective, study.baseline.key)
    standing = judged(records, admit=study.objective.admits)
    return TrialOrder(
        number=number,
        kind=job.kind,
        hypothesis=job.hypothesis,
        key=configuration.key,
        values=configuration.as_dict(),
        launch=launch,
        gpus=engines.create(launch).gpus_needed() * servers.launched,
        host_gpus=study.definition.hardware.gpus,
        replicas=servers,
        objective=study.objective,
        lengths=study.lengths,
        texts=() if study.trace is None else study.trace.texts,
        offsets_s=(study.trace and study.trace.offsets_s) or (),
        workload=workload_of(study),
        prune=job.kind == "search",
        reference=base,
        noise=noise_by_rung(records, study.objective),
        best=_best_score(study, standing),
        ceilings=best_ratios((r.rungs for r in _right(standing)), base, study.objective),
        dead=sorted(study.dead),
        known=_known(records, job, configuration),
        baseline_quality=_baseline_quality(study, records),
        nearest=_nearest(study, standing, configuration),
        to_rescore=_to_rescore(study, records, configuration),
    )


def _known(
    records: Sequence[TrialRecord], job: Job, configuration: Configuration
) -> dict[str, int]:
    """Trials whose numbers would do for this one, should it turn out to run with their arguments.

    A repetition is wanted for itself. A hypothesis runs its whole ladder with all its servers: one
    that was left early, or stood for others, does not do for it.
    """
    if job.phase not in ("hypotheses", "search") or job.kind not in ("hypothesis", "search"):
        return {}
    return {
        r.effective_key: r.number
        for r in records
        if r.effective_key and r.key != configuration.key and _does_for(r, job)
    }


def _does_for(record: TrialRecord, job: Job) -> bool:
    if record.replicas.extrapolated and job.kind != "search":
        return False
    if record.failure is not None:
        return record.failure.action == "never" and bool(record.rungs)
    return record.outcome == "completed" or (record.outcome == "pruned" and job.kind == "search")


def _right(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Without those that are fast since their output is wrong."""
    return [r for r in records if r.failure is None or r.failure.kind != WRONG_OUTPUT]


def _to_rescore(
    study: LoadedStudy, records: Sequence[TrialRecord], configuration: Configuration
) -> dict[int, list[Continuation]]:
    """What a launch of the baseline scores: what was said since, by whichever configuration."""
    if configuration.key != study.baseline.key:
        return {}
    scored = {number for record in records for number in record.rescored}
    return {
        r.number: r.continuations for r in records if r.continuations and r.number not in scored
    }


def _baseline_quality(
    study: LoadedStudy, records: Sequence[TrialRecord]
) -> dict[float, OutputQuality]:
    own = [r for r in records if r.key == study.baseline.key]
    return {
        rung.level: sum((r.quality_at.get(rung.level, r.quality) for r in own), OutputQuality())
        for rung in study.objective.ladder
    }


def _nearest(
    study: LoadedStudy, records: Sequence[TrialRecord], configuration: Configuration
) -> dict[str, Value]:
    """Flags and variables of the configuration that served and has most values alike."""
    values = configuration.as_dict()

    def alike(record: TrialRecord) -> int:
        return sum(record.values.get(name) == value for name, value in values.items())

    served = [r for r in records if r.outcome == "completed" and r.key != configuration.key]
    nearest = study.baseline
    if served:
        nearest = study.space.configuration(max(served, key=alike).values)
    launch = launch_spec(study, nearest)
    own = launch_spec(study, configuration).flags
    unread = {flag: own[flag] for flag in own if flag in study.dead}  # they are not to blame
    return {**launch.flags, **launch.env, **unread}


def _best_score(study: LoadedStudy, records: Sequence[TrialRecord]) -> float:
    """Of the launches that served the whole ladder within all limits; the baseline is 1.

    What was extrapolated beats nobody: a full set of such replicas may be slower.
    """
    base = reference(records, study.objective, study.baseline.key)
    seen = [r for r in records if not r.replicas.extrapolated]
    served = [r.rungs for r in seen if r.outcome == "completed"]
    within = [rungs for rungs in served if not slo_breaches(rungs, study.objective)]
    scores = [score(rungs, base, study.objective) for rungs in within]
    return max([1.0, *(value for value in scores if value is not None)])
