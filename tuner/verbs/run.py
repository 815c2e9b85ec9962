"""Start a study, or continue it; end as Ctrl-C would, with everything recorded."""

import signal
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Self

from tuner.definitions.validation import LoadedStudy
from tuner.errors import EngineError, HostError, MeasurementInvalid, TunerError
from tuner.failures.classifier import Failure
from tuner.lock import locked
from tuner.night.ending import note_end
from tuner.night.environment import identity, refuse_changed, remember_or_refuse
from tuner.night.known import (
    Known,
    Remembering,
    hardware_of,
    known_failures,
    named_of,
    said,
    values_of,
)
from tuner.night.opening import open_for_launches
from tuner.night.relaunching import IN_A_ROW
from tuner.night.study import Listener, StudyRun
from tuner.records import Records, TrialRecord
from tuner.verbs.inspect import not_ready, refuse, searcher_of
from tuner.verdicts.standing import judged
from tuner.views import results
from tuner.views.results import StudyView, study_view

if TYPE_CHECKING:
    from tuner.search.searcher import Searcher

Progress = Callable[[LoadedStudy], AbstractContextManager[Listener]]


def run(path: Path, progress: Progress) -> StudyView:
    """Start or continue a study until its budget or its questions end.

    Everything that can be refused is refused before a host is touched. Raises StudyBusy,
    StudyChanged, RecordsError, StudyError, EngineError, HostError; KeyboardInterrupt on SIGINT and
    SIGTERM, with everything recorded and every server gone.
    """
    study, line = open_for_launches(path)
    refuse(study, line)
    with locked(study.folder):
        records = Records(study.folder)
        missing = not_ready(study)
        if missing:
            raise EngineError("\n".join(missing), hint="Nothing was started.")
        refuse_changed(study, records)
        records.prepare()
        return _run(study, records, progress)


def _run(study: LoadedStudy, records: Records, progress: Progress) -> StudyView:
    from tuner.hosts.cluster import Cluster  # ray is loaded only once all else is in order

    searcher = searcher_of(study, study.folder / "optuna.journal")
    hardware = study.definition.hardware
    with _Interruption() as interruption, progress(study) as listener:
        for number in _cut_off(study, records):
            listener.preparing(f"launch {number} was cut off with the last run and counts nothing")
        listener.preparing(f"finding hosts (Ray {hardware.ray or 'on this machine'})")
        real = not results.rehearsal(study)
        with Cluster(hardware.gpus, hardware.ray, use_gpus=real) as cluster:
            interruption.listen()
            now = identity(study, cluster.hosts)
            remember_or_refuse(study.folder, now)
            _offer(study, known_failures(study, hardware_of(now)), searcher, listener)
            memory = Remembering(study, hardware_of(now), before=list(records))
            end = StudyRun(study, records, cluster, searcher, listener, memory.look).run()
    if end.failed is not None and end.failed.outcome == "invalid":
        raise _invalid(end.failed)
    if end.failed is not None and end.failed.failure is not None:
        raise _no_baseline(study, list(records), end.failed, end.failed.failure)
    note_end(study, list(records), end.reason)
    return study_view(study, records, ended=end.reason)


def _cut_off(study: LoadedStudy, records: Records) -> list[int]:
    """Launches after the last record that have a folder: the tuner or the machine died in them."""
    folders = (study.folder / "trials").glob("[0-9]*")
    numbers = sorted(int(f.name) for f in folders if f.name.isdecimal() and f.is_dir())
    return [number for number in numbers if number >= records.next_number]


def _offer(study: LoadedStudy, known: Known, searcher: "Searcher", listener: Listener) -> None:
    """What crashed in other studies: said, and weighed by the search as a crash of its own."""
    for sentence in said(study, known):
        listener.preparing(f"known: {sentence}")
    for crash in known.failures:
        searcher.warn(values_of(study.space, crash), named_of(study.space, crash))


def _invalid(last: TrialRecord) -> TunerError:
    """Why the study stops though the baseline serves: its numbers are worth nothing."""
    doubts = [doubt for rung in last.invalid for doubt in rung.doubts if doubt.voids]
    advice = dict.fromkeys(doubt.advice for doubt in doubts)
    return MeasurementInvalid(
        f"measurement invalid: {IN_A_ROW} launches or more in a row were void, the last of them "
        f"the baseline (trial {last.number}) {last.void_because}",
        hint=f"{' '.join(advice)} Then run again: the study continues.",
    )


def _no_baseline(
    study: LoadedStudy, records: Sequence[TrialRecord], last: TrialRecord, failure: Failure
) -> TunerError:
    """Why the study stops: the host, where the baseline has served before or blames it itself."""
    hint = f"{failure.advice} Log: {study.folder}/trials/{last.number:04d}/server.log"
    served = [r.number for r in records if r.kind == "baseline" and r.outcome == "completed"]
    if not served:
        kind = HostError if failure.action == "stop-study" else EngineError
        return kind(
            f"the baseline does not serve (trial {last.number}): {failure.cause}", hint=hint
        )
    standing = {record.number for record in judged(records)}
    freed = [str(record.number) for record in records if record.number not in standing]
    message = (
        f"the baseline does not serve any more (trial {last.number}; it did in trial {served[-1]}):"
        f" {failure.cause}"
    )
    if freed:
        message += f"\nNot held against their configurations: trial {', '.join(freed)}"
    return HostError(
        message, hint=f"{hint} What broke is the host: tuner doctor {study.folder} looks at it."
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
