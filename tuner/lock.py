"""The lock on a study: one run at a time may write beside its file."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from tuner.errors import StudyBusy, StudyError, remedy


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the study for this process alone. Raises StudyBusy, naming the process that has it,
    StudyError where nothing can be written there."""
    lock = FileLock(folder / ".lock", timeout=0)
    owner = folder / ".lock.pid"
    try:
        lock.acquire()
        owner.write_text(str(os.getpid()))
    except Timeout:
        raise StudyBusy(
            f"{folder}: another run holds this study{_holder(owner)}",
            hint="Wait for it, or stop it with Ctrl-C there; then run again.",
        ) from None
    except (OSError, NotImplementedError) as error:
        lock.release()
        raise _cannot_lock(folder, error) from error
    try:
        yield
    finally:
        with suppress(OSError):
            owner.unlink()
        lock.release()


def _cannot_lock(folder: Path, error: Exception) -> StudyError:
    """filelock raises NotImplementedError on file systems without locks."""
    if not isinstance(error, OSError):
        return StudyError(
            f"{folder}: its file system cannot lock files, so that two runs could write at once",
            hint="Copy the folder to a local disk.",
        )
    return StudyError(
        f"{error.filename or folder}: cannot be written: {error.strerror}",
        hint=f"Nothing was started. {remedy_beside(error)}",
    )


def remedy_beside(error: OSError) -> str:
    """What to do where nothing can be written beside a study's file."""
    return (
        f"{remedy(error)}, or copy the folder to a place that you may write to: a study keeps its "
        "records beside its file."
    )


def _holder(owner: Path) -> str:
    try:
        return f" (process {int(owner.read_text())})"
    except (OSError, ValueError):
        return ""
