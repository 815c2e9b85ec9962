"""What each verb does; the command line prints what they return or dumps it as JSON."""

import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Self

from tuner import engines, views
from tuner.definitions import Value
from tuner.environment import identity, remember_or_refuse
from tuner.errors import EngineError, HostError
from tuner.export import Format, find, written
from tuner.export import export as chosen_export
from tuner.frozen import Frozen
from tuner.launches import launch_spec
from tuner.plan import Plan
from tuner.plan import plan as planned
from tuner.records import Records, TrialRecord, locked
from tuner.study import Listener, StudyRun
from tuner.validation import LoadedStudy, load_study
from tuner.views import Front, StudyView, front, study_view

if TYPE_CHECKING:
    from tuner.search import Searcher


class Check(Frozen):
    """A study without faults: what it holds, and what this machine could not verify.

    `configurations` is None for a space that is too large to count, or continuous.
    """

    schema_number: int = 1
    study: str
    engine: str
    parameters: int
    configurations: int | None
    continuous: bool
    hypotheses: int
    ladder: list[int]
    not_ready: list[str]


class TrialView(Frozen):
    """One launch in full.

    `unlike_baseline` holds the arguments read back that differ from the baseline's; None for one
    that only the baseline has.
    """

    schema_number: int = 1
    row: views.TrialRow
    record: TrialRecord
    unlike_baseline: dict[str, Value]
    log: str
    rehearsal: bool


def check(path: Path) -> Check:
    """Read and check a study. Raises DefinitionError with every fault of every file, TunerError
    for a sampler that does not exist or cannot search the space."""
    study = load_study(path)
    _searcher(study, None)
    return Check(
        study=views.name(study),
        engine=study.definition.engine.name,
        parameters=len(study.space.parameters),
        configurations=study.space.size(),
        continuous=any(study.space.values_of(name) is None for name in study.space.parameters),
        hypotheses=len(study.space.hypotheses),
        ladder=[rung.concurrency for rung in study.objective.ladder],
        not_ready=_not_ready(study),
    )


def _not_ready(study: LoadedStudy) -> list[str]:
    """What would keep launches from starting here: of each build, and of what is too large."""
    launch = launch_spec(study, study.baseline)
    builds = [None, *study.definition.engine.builds]
    faults = [
        f for name in builds for f in engines.preflight(launch.model_copy(update={"build": name}))
    ]
    stated = [
        study.baseline,
        *(study.space.hypothesis_configuration(h, study.baseline) for h in study.space.hypotheses),
    ]
    declared = study.definition.hardware.gpus
    for configuration in stated:
        needed = engines.create(launch_spec(study, configuration)).gpus_needed()
        if needed > declared:
            what = views.changes(configuration.as_dict(), study) or "the baseline"
            faults.append(f"{what} needs {needed} GPUs, and hardware.gpus says {declared}")
    return list(dict.fromkeys(faults))


def plan(path: Path) -> Plan:
    """What `run` would do from here. Starts nothing."""
    study = load_study(path)
    return planned(study, list(Records(study.folder)))


def show(path: Path) -> StudyView:
    """Everything the records say."""
    study = load_study(path)
    return study_view(study, Records(study.folder))


def show_trial(path: Path, number: int) -> TrialView:
    """One launch in full. Raises TunerError for one that does not exist."""
    study = load_study(path)
    records = Records(study.folder)
    record = find(list(records), number)
    return TrialView(
        row=views.trial_row(study, record, records),
        record=record,
        unlike_baseline=views.unlike_baseline(study, record, records),
        log=f"{views.name(study)}/trials/{number:04d}/server.log",
        rehearsal=record.rehearsal,
    )


def pareto(path: Path, x: str, y: str) -> Front:
    """The Pareto front in two metrics."""
    study = load_study(path)
    return front(study, Records(study.folder), x, y)


def export(path: Path, trial: int | None, form: Format) -> str:
    """The launch command in the form that was asked for."""
    study = load_study(path)
    return written(chosen_export(study, list(Records(study.folder)), trial), form)


Progress = Callable[[LoadedStudy], AbstractContextManager[Listener]]


def run(path: Path, progress: Progress) -> StudyView:
    """Start or continue a study until its budget or its questions end.

    Everything that can be refused is refused before a host is touched. Raises StudyBusy,
    StudyChanged, RecordsError, EngineError, HostError; KeyboardInterrupt on SIGINT and SIGTERM,
    with everything recorded and every server gone.
    """
    study = load_study(path)
    with locked(study.folder):
        records = Records(study.folder)
        missing = _not_ready(study)
        if missing:
            raise EngineError("\n".join(missing), hint="Nothing was started.")
        return _run(study, records, progress)


def _run(study: LoadedStudy, records: Records, progress: Progress) -> StudyView:
    from tuner.hosts import Cluster  # ray is loaded only once all else is in order

    searcher = _searcher(study, study.folder / "optuna.journal")
    hardware = study.definition.hardware
    with _Interruption() as interruption, progress(study) as listener:
        listener.preparing(f"finding hosts (Ray {hardware.ray or 'on this machine'})")
        real = not views.rehearsal(study)
        with Cluster(hardware.gpus, hardware.ray, use_gpus=real) as cluster:
            interruption.listen()
            remember_or_refuse(study.folder, identity(study, cluster.hosts))
            end = StudyRun(study, records, cluster, searcher, listener).run()
    if end.failed is not None and end.failed.failure is not None:
        failure = end.failed.failure
        kind = HostError if failure.action == "stop-study" else EngineError
        raise kind(
            f"the baseline does not serve (trial {end.failed.number}): {failure.cause}",
            hint=f"{failure.advice} Log: {study.folder}/trials/{end.failed.number:04d}/server.log",
        )
    return study_view(study, records, ended=end.reason)


def _searcher(study: LoadedStudy, journal: Path | None) -> "Searcher":
    from tuner.search import Searcher

    search = study.definition.search
    return Searcher(
        study.space,
        sampler=search.sampler,
        seed=search.seed,
        journal=journal,
        name=study.folder.resolve().name,
    )


class _Interruption:
    """SIGTERM ends a run as Ctrl-C does; once it is ending, neither is heard again.

    While hosts are found it only waits: Ray does not survive an interruption of its start, and
    takes SIGTERM for itself.
    """

    _NUMBERS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self._before = {number: signal.getsignal(number) for number in self._NUMBERS}
        self._asked = False

    def __enter__(self) -> Self:
        self._handle(self._wait)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def listen(self) -> None:
        """Raise KeyboardInterrupt from now on, and at once where it was asked for before."""
        self._handle(self._raise)
        if self._asked:
            self._raise(signal.SIGINT, None)

    def _handle(self, handler: Callable[[int, FrameType | None], None]) -> None:
        for number in self._NUMBERS:
            signal.signal(number, handler)

    def _wait(self, _number: int, _frame: FrameType | None) -> None:
        self._asked = True

    def _raise(self, _number: int, _frame: FrameType | None) -> None:
        for number in self._NUMBERS:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt
