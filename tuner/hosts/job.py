"""The job's side: the process that runs a job, and the files that it leaves."""

import io
import os
import pickle
import shutil
import tarfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.errors import LaunchLost, TunerError
from tuner.hosts.executor import Function, Slot

JOB_VARIABLE = "TUNER_JOB"
"""Marks every server process of a job, whatever the job called its servers."""

RUN_VARIABLE = "TUNER_RUN"
"""Names the tuner's own process, to what it starts on its own machine."""

RAY_VARIABLE = "TUNER_RAY"
"""Marks Ray's own processes and workers, and nothing that a job starts."""

# What Ray sets in its workers and a server must not inherit: one OpenMP thread, for one thing.
_SET_BY_RAY = ("OMP_NUM_THREADS", "PYTHONBREAKPOINT", "SPT_NOENV")


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """A job's own result, or the error of the tuner's own that it raised; `again` is True for one
    that the same job need not meet a second time."""

    result: Any = None
    refused: str | None = None
    again: bool = False


def enter(mark: str, slot: Slot, environment: Mapping[str, str] | None) -> None:
    """Make this process the job's: marked, pinned to the client's cores, Ray's settings undone.

    Ray's workers run at a low priority, which every server would inherit.

    `environment` is the tuner's own, None on a host where it means nothing.
    """
    for name in (*_SET_BY_RAY, RAY_VARIABLE):
        os.environ.pop(name, None)
    if environment is not None:
        os.environ.update(environment)
    os.environ[JOB_VARIABLE] = mark
    for thread in Path("/proc/self/task").iterdir():
        # Affinity and priority are each thread's own; Ray's threads were there before.
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), slot.client_cores)
            with suppress(PermissionError):
                os.setpriority(os.PRIO_PROCESS, int(thread.name), 0)


def call(
    function: Function, payload: Any, slot: Slot, folder: Path, send: Callable[[bytes], None]
) -> Returned:
    """Run the job; its notes are sent pickled. Anything but a TunerError goes through."""
    try:
        return Returned(
            result=function(payload, slot, folder, lambda note: send(pickle.dumps(note)))
        )
    except TunerError as error:
        return Returned(refused=str(error), again=isinstance(error, LaunchLost))


def pack(folder: Path) -> bytes | None:
    """A folder as one archive, None where there is none; the folder is removed."""
    if not folder.exists():
        return None
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        archive.add(folder, arcname=".")
    shutil.rmtree(folder)
    return buffer.getvalue()


def unpack(archive: bytes, folder: Path) -> None:
    """The files of an archive; nothing outside the folder is written."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
