"""What a Ray leaves whose process was killed: its daemons, found by their mark, and its files.

Knows nothing of Ray itself, whose import takes seconds.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tuner.hosts import processes
from tuner.hosts.job import RAY_VARIABLE
from tuner.hosts.leftovers import default_run_root

_KILL_LIMIT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RaySwept:
    """The processes that were killed, how many could not be, and the folders that were removed."""

    killed: tuple[int, ...]
    survivors: int
    folders: tuple[str, ...]


def mark() -> str:
    """What this process marks its Ray with: its own number and when it began."""
    me = processes.read(os.getpid())
    return f"{os.getpid()}-{me.started if me else 0}"


def folder() -> Path:
    """Where the Rays of this user keep their files. Raises HostError."""
    return default_run_root() / "ray"


def sweep_ray() -> RaySwept:
    """Remove every Ray of this user whose process is dead. Raises HostError."""
    killed, survivors = kill_marked(_owner_is_dead)
    return RaySwept(killed=killed, survivors=survivors, folders=_remove_dead_sessions(folder()))


def kill_marked(condition: Callable[[str], bool]) -> tuple[tuple[int, ...], int]:
    """Kill all that carries such a mark: (numbers of the killed, survivors)."""

    def find() -> list[processes.Process]:
        known = processes.table()
        found = processes.marks(RAY_VARIABLE, known)
        return [known[pid] for pid, text in found.items() if condition(text)]

    killed, survivors = processes.kill_all(find, _KILL_LIMIT_S)
    return tuple(sorted(process.pid for process in killed)), survivors


def _owner_is_dead(text: str) -> bool:
    owner = processes.named(text)  # the variable may be somebody else's
    return owner is not None and not processes.alive(*owner)


def _remove_dead_sessions(root: Path) -> tuple[str, ...]:
    """The folders of those whose process, named last in the folder's name, is gone."""
    removed = []
    for session in root.glob("session_*_*"):
        pid = session.name.rpartition("_")[2]
        if pid.isdecimal() and processes.read(int(pid)) is None:
            shutil.rmtree(session, ignore_errors=True)
            removed.append(str(session))
    return tuple(sorted(removed))
