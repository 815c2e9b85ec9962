"""What a server leaves in the file system: segments of shared memory, and its temporary files.

Standard library only, like the supervisor, whose eyes it is: once a process is dead nobody can tell
what it had mapped.
"""

import getpass
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from tuner.hosts import processes
from tuner.hosts.processes import Process


class Belongings:
    """What one server's processes made in /dev/shm while they ran, and its scratch folder."""

    def __init__(self, scratch: str | None) -> None:
        self.segments: set[str] = set()
        self.scratch = scratch
        self._before = _segment_names()
        self._changed_at = -1.0

    def prepare(self) -> None:
        """Make the scratch folder. Raises OSError."""
        if self.scratch:
            Path(self.scratch).mkdir(mode=0o700, parents=True, exist_ok=True)

    def look(self, tree: Callable[[], Iterable[Process]]) -> bool:
        """Note what is new in /dev/shm and the tree's; whether there was anything."""
        changed_at = _segments_changed_at()
        if changed_at == self._changed_at:
            return False
        self._changed_at = changed_at
        return bool(_segment_names() - self._before - self.segments) and self.add(tree())

    def add(self, tree: Iterable[Process]) -> bool:
        """Note what these processes hold; whether any of it is new."""
        held = processes.shared_memory(process.pid for process in tree) - self._before
        new = bool(held - self.segments)
        self.segments |= held
        return new

    def remove(self) -> list[str]:
        """Remove all of it that no process holds any more; returns the segments."""
        remove_scratch(self.scratch)
        return processes.remove_shared_memory(self.segments)


def remove_scratch(folder: str | None) -> None:
    """Remove a server's scratch folder with all that is in it."""
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


def environment(inherited: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """The environment with a server's temporary files in its scratch folder.

    What PyTorch compiled stays where it would be without: the next launch finds it again.
    """
    found = {**inherited, "TMPDIR": str(scratch)}
    with suppress(KeyError, OSError):  # a user without a name
        cache = f"{tempfile.gettempdir()}/torchinductor_{getpass.getuser()}"
        found.setdefault("TORCHINDUCTOR_CACHE_DIR", cache)
    return found


def _segment_names() -> set[str]:
    try:
        return {str(path) for path in Path(processes.SHARED_MEMORY).iterdir()}
    except OSError:
        return set()


def _segments_changed_at() -> float:
    try:
        return Path(processes.SHARED_MEMORY).stat().st_mtime
    except OSError:
        return 0.0
