"""What a study says before and after it runs: check, plan, show, pareto, export."""

from pathlib import Path
from typing import TYPE_CHECKING

from tuner import engines
from tuner.definitions.counted import counted
from tuner.definitions.findings import Findings
from tuner.definitions.models import Value
from tuner.definitions.validation import LoadedStudy
from tuner.definitions.workload import Workload
from tuner.errors import DefinitionError, Problem
from tuner.frozen import Frozen
from tuner.hosts.gpus import find_gpus
from tuner.night.command_line import CommandLine, notes, problems
from tuner.night.known import expected_hardware, known_failures, said
from tuner.night.launches import launch_spec
from tuner.night.opening import (
    conflicting_version,
    open_for_launches,
    open_study,
    other_version,
)
from tuner.night.workload import contradictions, workload_of
from tuner.records import Records, TrialRecord
from tuner.views import results
from tuner.views.changed import changes
from tuner.views.export import export as chosen_export
from tuner.views.export import find
from tuner.views.forms import Format, written
from tuner.views.plan import Plan
from tuner.views.plan import plan as planned
from tuner.views.results import Front, StudyView, front, study_view
from tuner.views.scope import Scope, scope, searched
from tuner.views.words import said_changes

if TYPE_CHECKING:
    from tuner.search.searcher import Searcher


class Check(Frozen):
    """A study without faults: what it holds, what of its space is not searched, what is not ready
    on this machine and what it could not verify; `notes` on flags that are deprecated or dead,
    `known` what crashed in other studies of this engine, model and hardware.

    `parameters` are those that are searched; `configurations` is None for a space that is too
    large to count, or continuous.
    """

    schema_number: int = 1
    study: str
    engine: str
    parameters: int
    configurations: int | None
    continuous: bool
    hypotheses: int
    ladder: list[str]
    scope: Scope
    workload: Workload
    not_ready: list[str]
    unverified: list[str]
    notes: list[str]
    known: list[str]


class TrialView(Frozen):
    """One launch in full.

    `unlike_baseline` holds the arguments read back that differ from the baseline's; None for one
    that only the baseline has.
    """

    schema_number: int = 1
    row: results.TrialRow
    record: TrialRecord
    unlike_baseline: dict[str, Value]
    log: str
    rehearsal: bool


def check(path: Path) -> Check:
    """Read and check a study. Raises DefinitionError with every fault of every file, then with
    every flag that the engine would refuse and what needs more GPUs than are declared; TunerError
    for a sampler that does not exist or cannot search the space."""
    study, line = open_for_launches(path)
    refuse(study, line)
    searcher_of(study, None)
    return Check(
        study=results.name(study),
        engine=study.definition.engine.name,
        parameters=searched(study),
        configurations=study.space.size(),
        continuous=any(study.space.values_of(name) is None for name in study.space.parameters),
        hypotheses=len(study.space.hypotheses),
        ladder=[rung.said for rung in study.objective.ladder],
        scope=scope(study),
        workload=workload_of(study),
        not_ready=not_ready(study),
        unverified=line.unverified(),
        notes=[*notes(study, line), *contradictions(study)],
        known=said(study, known_failures(study, expected_hardware(study))),
    )


def refuse(study: LoadedStudy, line: CommandLine) -> None:
    """Raises DefinitionError with all of `faults`."""
    found = faults(study, line)
    if found:
        raise DefinitionError(found)


def faults(study: LoadedStudy, line: CommandLine) -> list[Problem]:
    """Each flag that the engine would refuse, a version that is another than the study states, and
    what could be launched on no machine that has the GPUs that the study declares."""
    return [*too_large(study), *problems(study, line, conflicting_version(study))]


def too_large(study: LoadedStudy) -> list[Problem]:
    """Of the baseline and the hypotheses, each that needs more GPUs than are declared (and than
    the baseline). What is searched is refused launch by launch instead."""
    findings, space = Findings(), study.space
    most = declared = study.definition.hardware.gpus
    ahead = (space.hypothesis_configuration(h, study.baseline) for h in space.hypotheses)
    for configuration in (study.baseline, *ahead):
        needed = engines.create(launch_spec(study, configuration)).gpus_needed()
        if needed > most:
            what = said_changes(changes(configuration.as_dict(), study))
            message = f"found {declared}, and {what} needs {counted(needed, 'GPU')}"
            findings.add(study.sources["study"], ("hardware", "gpus"), message)
        if configuration is study.baseline:
            most = max(most, needed)
    return findings.problems()


def not_ready(study: LoadedStudy) -> list[str]:
    """What would keep launches of any build from starting here."""
    launch = launch_spec(study, study.baseline)
    builds = [None, *study.definition.engine.builds]
    faults = [
        f for name in builds for f in engines.preflight(launch.model_copy(update={"build": name}))
    ]
    other = other_version(study)
    faults += [other] if other else []
    return list(dict.fromkeys(faults))


def plan(path: Path) -> Plan:
    """What `run` would do from here. Starts nothing."""
    study, line = open_for_launches(path)
    refused = [str(problem) for problem in [*too_large(study), *problems(study, line)]]
    return planned(
        study,
        list(Records(study.folder)),
        [*refused, *unverified(study), *line.unverified()],
        [*notes(study, line), *contradictions(study)],
        said(study, known_failures(study, expected_hardware(study))),
    )


def unverified(study: LoadedStudy) -> list[str]:
    """What cannot be verified on this machine, one sentence each."""
    if results.rehearsal(study):
        return not_ready(study)
    declared, found = study.definition.hardware.gpus, len(find_gpus())
    here = "no GPU is here" if not found else f"{found} of {declared} GPUs are here"
    gpus = f"{here}: memory, kernels and speed show when it runs"
    return [*not_ready(study), *([gpus] if found < declared else [])]


def show(path: Path) -> StudyView:
    """Everything the records say."""
    study = open_study(path)
    return study_view(study, Records(study.folder))


def show_trial(path: Path, number: int) -> TrialView:
    """One launch in full. Raises TunerError for one that does not exist."""
    study = open_study(path)
    records = Records(study.folder)
    record = find(list(records), number)
    return TrialView(
        row=results.trial_row(study, record, records),
        record=record,
        unlike_baseline=results.unlike_baseline(study, record, records),
        log=results.log_path(study, record),
        rehearsal=record.rehearsal,
    )


def pareto(path: Path, x: str, y: str) -> Front:
    """The Pareto front in two metrics."""
    study = open_study(path)
    return front(study, Records(study.folder), x, y)


def export(path: Path, trial: int | None, form: Format) -> str:
    """The launch command in the form that was asked for."""
    study = open_study(path)
    return written(chosen_export(study, list(Records(study.folder)), trial), form)


def searcher_of(study: LoadedStudy, journal: Path | None) -> "Searcher":
    """The study's search, as its file asks for it. Raises TunerError for a sampler that cannot."""
    from tuner.search.searcher import Searcher

    search = study.definition.search
    return Searcher(
        study.space,
        sampler=search.sampler,
        seed=search.seed,
        journal=journal,
        name=study.folder.resolve().name,
    )
