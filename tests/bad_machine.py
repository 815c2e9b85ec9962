"""What a case of bad input needs of files and disks: rights, links, room, damaged records.

Each preparation is named in a case's `prepare` and is undone when the test ends.
"""

import errno
import os
import resource
import shlex
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.evening import RATES, SMALL
from tests.evening import remember as remembered
from tests.samples import record
from tuner.definitions.validation import load_study
from tuner.records import Records, TrialRecord

NOBODY = 65534


@dataclass
class Machine:
    """Where a case runs: `folder` is its copy, made anew for each test and the working folder."""

    folder: Path
    patch: pytest.MonkeyPatch
    stack: ExitStack = field(default_factory=ExitStack)
    last: list[Callable[[], object]] = field(default_factory=list)
    """What is done once the folder was looked at."""
    words: dict[str, str] = field(default_factory=dict)
    """What stands in the command for what the preparations found."""
    launched: int = 0
    reserved: Callable[[int], None] = lambda port: None
    """Is told the port of each launch before it starts."""

    def prepare(self, what: str) -> None:
        """Do what a line of `prepare` says: a name, and words after it."""
        name, *words = shlex.split(what)
        PREPARATIONS[name](self, *words)

    def path(self, name: str) -> Path:
        return self.folder / name


PREPARATIONS: dict[str, Callable[..., None]] = {}


def preparation(function: Callable[..., None]) -> Callable[..., None]:
    PREPARATIONS[function.__name__] = function
    return function


# Files and folders.


@preparation
def folder(machine: Machine, name: str) -> None:
    """A folder of that name, in place of whatever is there."""
    machine.path(name).unlink(missing_ok=True)
    machine.path(name).mkdir()


@preparation
def file(machine: Machine, name: str) -> None:
    """An empty file of that name."""
    machine.path(name).touch()


@preparation
def remove(machine: Machine, name: str) -> None:
    machine.path(name).unlink()


@preparation
def executable(machine: Machine, name: str) -> None:
    machine.path(name).chmod(0o755)


@preparation
def python(machine: Machine, name: str) -> None:
    """This interpreter, in place of the word PYTHON in a file."""
    machine.path(name).write_text(machine.path(name).read_text().replace("PYTHON", sys.executable))


@preparation
def pipe(machine: Machine, name: str) -> None:
    """A pipe that nobody writes to, which to read would never end."""
    machine.path(name).unlink(missing_ok=True)
    os.mkfifo(machine.path(name))


@preparation
def link(machine: Machine, name: str, target: str) -> None:
    machine.path(name).unlink(missing_ok=True)
    machine.path(name).symlink_to(target)


@preparation
def mode(machine: Machine, octal: str, *names: str) -> None:
    """These rights, and a user who is bound by them: root is not."""
    for path in (machine.folder, *machine.folder.rglob("*")):
        if not path.is_symlink() and os.geteuid() == 0:
            os.chown(path, NOBODY, NOBODY)
    machine.last += [partial(machine.path(name).chmod, int(octal, 8)) for name in names]
    for name in names:
        machine.stack.callback(machine.path(name).chmod, 0o755)
    if os.geteuid() == 0:
        machine.last.append(partial(os.seteuid, NOBODY))
        machine.stack.callback(os.seteuid, 0)


@preparation
def long_name(machine: Machine, name: str) -> None:
    """A name that no file system takes, in place of the word LONG in a file."""
    path = machine.path(name)
    path.write_text(path.read_text().replace("LONG", 300 * "n"))


@preparation
def large_files_fail(machine: Machine, bytes_: str) -> None:
    """No file can grow beyond so many bytes, as on a disk that is full."""
    machine.patch.setattr(sys, "dont_write_bytecode", True)  # Python leaves half of it
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(bytes_), limits[1]))
    machine.stack.callback(signal.signal, signal.SIGXFSZ, before)
    machine.stack.callback(resource.setrlimit, resource.RLIMIT_FSIZE, limits)


@preparation
def full(machine: Machine, call: str, *names: str) -> None:
    """The disk fills up: this call of the operating system fails for files of these names."""
    real = getattr(os, call)

    def fails(target: Any, *words: Any, **options: Any) -> Any:
        path = Path(f"/proc/self/fd/{target}").readlink() if isinstance(target, int) else target
        if not names or Path(path).name in names:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return real(target, *words, **options)

    machine.patch.setattr(os, call, fails)


@preparation
def full_output(machine: Machine) -> None:
    """Standard output is a file on a full disk."""
    output = Path("/dev/full").open("w")  # noqa: SIM115  (closed below, which fails)
    machine.patch.setattr(sys, "stdout", output)

    def close() -> None:
        with suppress(OSError):
            output.close()

    machine.stack.callback(close)


# Records.


@preparation
def records(machine: Machine, count: str = "3") -> None:
    """So many launches of the baseline, and what they were measured on."""
    loaded = load_study(machine.folder)
    remembered(machine.folder)
    kept = Records(loaded.folder)
    for number in range(int(count)):
        kept.append(baseline(loaded, number))


@preparation
def records_of_small_night(machine: Machine) -> None:
    """The records of another study, with what they were measured on."""
    other = shutil.copytree(SMALL, machine.folder.parent / "other")
    records(Machine(other, machine.patch))
    for name in ("trials.jsonl", "environment.json"):
        shutil.copy(other / name, machine.folder)


@preparation
def remember(machine: Machine) -> None:
    remembered(machine.folder)


def baseline(loaded: Any, number: int, **changes: Any) -> TrialRecord:
    phases = {"start": 2.0, "load": 7.0, "stop": 0.5}
    return record(
        number,
        key=loaded.baseline.key,
        values=loaded.baseline.as_dict(),
        rates=RATES,
        phase_s=phases,
        rehearsal=True,
        **changes,
    )


@preparation
def replace(machine: Machine, name: str, old: str, new: str, line: str = "0") -> None:
    """One text of a file for another, in its line of that number (0: in all)."""
    lines = machine.path(name).read_bytes().split(b"\n")
    for at, text in enumerate(lines, start=1):
        if int(line) in (0, at):
            lines[at - 1] = text.replace(_bytes(old), _bytes(new))
    machine.path(name).write_bytes(b"\n".join(lines))


@preparation
def append(machine: Machine, name: str, text: str) -> None:
    with machine.path(name).open("ab") as out:
        out.write(_bytes(text))


@preparation
def cut(machine: Machine, name: str, bytes_: str) -> None:
    """Take so many bytes from a file's end."""
    content = machine.path(name).read_bytes()
    machine.path(name).write_bytes(content[: -int(bytes_)])


@preparation
def copy_line(machine: Machine, name: str, line: str) -> None:
    """Append one of its own lines to a file."""
    lines = machine.path(name).read_bytes().splitlines(keepends=True)
    with machine.path(name).open("ab") as out:
        out.write(lines[int(line) - 1])


def _bytes(text: str) -> bytes:
    return text.encode().decode("unicode_escape").encode("latin-1")
