"""Blocks of ports that one tuner of this user holds and no other takes, by locked files.

A lock lasts as long as the process that took it; its file is removed with it, or by the next
agent's sweep.
"""

import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class PortLock(NamedTuple):
    """A locked file, open."""

    descriptor: int
    path: Path


def take(root: Path, port: int) -> PortLock | None:
    """The lock on the block that begins with this port, None where another has it.

    Raises OSError where files cannot be made there.
    """
    folder = root / "ports"
    folder.mkdir(exist_ok=True)
    return _lock(folder / str(port), os.O_CREAT)


def release(locks: Iterable[PortLock]) -> None:
    """Let others have them."""
    for lock in locks:
        # Removed while it is still locked: who opened it meanwhile finds another file in its place.
        with suppress(OSError):
            lock.path.unlink()
        os.close(lock.descriptor)


def sweep(root: Path) -> None:
    """Remove the files of those whose process is gone."""
    for path in (root / "ports").glob("*"):
        with suppress(OSError):
            lock = _lock(path, 0)
            if lock is not None:
                release([lock])


def _lock(path: Path, flags: int) -> PortLock | None:
    descriptor = os.open(path, flags | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(path, descriptor):
            return PortLock(descriptor, path)
    except BlockingIOError:
        pass
    os.close(descriptor)
    return None


def _is_at(path: Path, descriptor: int) -> bool:
    """False for a file that was removed, or another one put in its place."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
