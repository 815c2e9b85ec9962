"""What a case of bad input needs of the machine: permissions, full disks, strangers, other clocks.

Each preparation is named in a case's `prepare` and is undone when the test ends.
"""

import asyncio
import errno
import itertools
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.evening import RATES, hosts, served
from tests.samples import record
from tuner.definitions.validation import load_study
from tuner.errors import TunerError
from tuner.hosts.agent import Agent
from tuner.hosts.executor import Event, Function, HostInfo, JobDone, JobLost, JobNote
from tuner.hosts.job import JOB_VARIABLE
from tuner.records import Records, TrialRecord

NOBODY = 65534


@dataclass
class Machine:
    """Where a case runs: `folder` is its copy, made anew for each test and the working folder."""

    folder: Path
    patch: pytest.MonkeyPatch
    stack: ExitStack = field(default_factory=ExitStack)

    def prepare(self, what: str) -> None:
        """Do what a line of `prepare` says: a name, and words after it."""
        name, *words = what.split()
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
    for name in names:
        machine.path(name).chmod(int(octal, 8))
    machine.stack.callback(lambda: [machine.path(name).chmod(0o755) for name in names])
    if os.geteuid() == 0:
        os.seteuid(NOBODY)
        machine.stack.callback(os.seteuid, 0)


@preparation
def long_name(machine: Machine, name: str) -> None:
    """A name that no file system takes, in place of the word LONG in a file."""
    path = machine.path(name)
    path.write_text(path.read_text().replace("LONG", 300 * "n"))


@preparation
def large_files_fail(machine: Machine, bytes_: str) -> None:
    """No file can grow beyond so many bytes, as on a disk that is full."""
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
    output = Path("/dev/full").open("w")  # noqa: SIM115  (closed by nobody: that would fail too)
    machine.patch.setattr(sys, "stdout", output)
    machine.stack.callback(lambda: machine.patch.setattr(sys, "stdout", sys.__stdout__))


# Records.


@preparation
def records(machine: Machine, count: str = "3") -> None:
    """So many launches of the baseline, and what they were measured on."""
    study = load_study(machine.folder)
    remember(machine)
    kept = Records(study.folder)
    for number in range(int(count)):
        kept.append(baseline(study, number))


@preparation
def remember(machine: Machine) -> None:
    from tests.evening import remember as remembered

    remembered(machine.folder)


def baseline(study: Any, number: int, **changes: Any) -> TrialRecord:
    phases = {"start": 2.0, "load": 7.0, "stop": 0.5}
    return record(
        number,
        key=study.baseline.key,
        values=study.baseline.as_dict(),
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


# Hosts, launches, clocks.


@preparation
def launches(machine: Machine, minutes: str = "1") -> None:
    """In place of hosts, one on which every launch serves, and takes so many minutes."""

    def outcome(order: Any) -> TrialRecord:
        return served(order).model_copy(update={"duration_s": 60.0 * float(minutes)})

    machine.patch.setitem(sys.modules, "tuner.hosts.cluster", hosts(outcome))


@preparation
def here(machine: Machine) -> None:
    """In place of Ray, this process: launches are real."""
    machine.patch.setitem(
        sys.modules, "tuner.hosts.cluster", SimpleNamespace(Cluster=_cluster(machine))
    )


def _cluster(machine: Machine) -> Callable[..., "HereCluster"]:
    return lambda gpus, address, *, use_gpus: HereCluster(
        gpus, use_gpus=use_gpus, patch=machine.patch
    )


class HereCluster:
    """An executor that runs each job where it is asked to, under a real agent."""

    def __init__(self, gpus: int, *, use_gpus: bool, patch: pytest.MonkeyPatch) -> None:
        self._agent = Agent(declared=gpus, use_gpus=use_gpus)
        self._info, _ = asyncio.run(self._agent.describe(Path("/")))
        self._patch = patch
        self._numbers = itertools.count()
        self._events: list[Event] = []

    def __enter__(self) -> "HereCluster":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def hosts(self) -> tuple[HostInfo, ...]:
        return (self._info,)

    def submit(self, function: Function, payload: Any, *, gpus: int, folder: Path) -> int:
        number = next(self._numbers)
        mark = f"bad-input-{os.getpid()}-{number}"
        self._patch.setenv(JOB_VARIABLE, mark)
        try:
            slot = asyncio.run(self._agent.reserve(mark, gpus))
            assert slot is not None
            result = function(payload, slot, folder, lambda note: self._say(number, note))
            self._events.append(JobDone(job=number, result=result))
        except TunerError as error:
            self._events.append(JobLost(job=number, reason=str(error), again=False))
        finally:
            settled = asyncio.run(self._agent.settle(mark, kill=False, collect=False))
            assert settled.survivors == 0
        return number

    def _say(self, number: int, note: Any) -> None:
        self._events.append(JobNote(job=number, note=note))

    def poll(self, timeout_s: float) -> list[Event]:
        events, self._events = self._events, []
        return events

    def cancel(self, job: int) -> None:
        pass


@preparation
def busy(machine: Machine) -> None:
    """Another run of this study, in a process of its own."""
    program = (
        "import pathlib, sys\n"
        "from tuner.records import locked\n"
        "with locked(pathlib.Path('.')):\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=machine.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    machine.stack.callback(other.wait)
    machine.stack.callback(other.kill)
    assert other.stdout is not None
    machine.stack.callback(other.stdout.close)
    assert other.stdout.readline() == b"held\n"


@preparation
def serve(machine: Machine) -> None:
    """`./serve`, an engine that answers as answers.json says: nothing but raw bytes by path."""
    script = Path(__file__).with_name("wrong_server.py").read_text()
    machine.path("serve").write_text(f"#!{sys.executable} -IS\n{script}")
    machine.path("serve").chmod(0o755)


@preparation
def clock(machine: Machine, hours: str) -> None:
    """The machine's clock is moved by so many hours each time that it is looked at."""
    from tuner.night import budget

    state = SimpleNamespace(at=datetime(2026, 1, 1, 22, 0))

    def now() -> datetime:
        state.at += timedelta(hours=float(hours))
        return state.at

    machine.patch.setattr(
        budget, "datetime", SimpleNamespace(now=now, fromisoformat=datetime.fromisoformat)
    )


@preparation
def environment(machine: Machine, name: str, value: str) -> None:
    machine.patch.setenv(name, value.replace("HERE", str(machine.folder)))


@preparation
def strangers(machine: Machine) -> None:
    """All ports that an agent could give away are taken, by this process."""
    from tuner.hosts import agent

    taken = machine.stack.enter_context(socket.socket())
    taken.bind(("", 0))
    taken.listen()
    port = taken.getsockname()[1]
    machine.patch.setattr(
        agent.slots, "port_blocks", lambda *_: iter([tuple(range(port - 15, port + 1))])
    )


@preparation
def without(machine: Machine, program: str) -> None:
    """No program of that name on the PATH."""
    kept = [at for at in os.environ["PATH"].split(os.pathsep) if not shutil.which(program, path=at)]
    machine.patch.setenv("PATH", os.pathsep.join(kept))
