"""What a case of bad input needs of the machine: permissions, full disks, strangers, other clocks.

Each preparation is named in a case's `prepare` and is undone when the test ends.
"""

import asyncio
import errno
import itertools
import os
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from subprocess import DEVNULL
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from tests.evening import RATES, SMALL, hosts, served
from tests.evening import remember as remembered
from tests.samples import record
from tuner.definitions.validation import load_study
from tuner.errors import PortTaken, TunerError
from tuner.hosts import gpus as gpu_room
from tuner.hosts import slots
from tuner.hosts.agent import Agent
from tuner.hosts.executor import Event, Function, HostInfo, JobDone, JobLost, JobNote
from tuner.hosts.job import JOB_VARIABLE
from tuner.night import budget, study
from tuner.night.trial import TrialOrder
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


# Hosts, launches, clocks.


@preparation
def no_host(machine: Machine) -> None:
    """In place of hosts, one that nobody may ask for: this is done for every case."""

    def touched(*_: Any, **__: Any) -> None:
        raise AssertionError("a host was touched")

    _hosts(machine, touched)


@preparation
def launches(machine: Machine) -> None:
    """In place of hosts, one on which every launch serves at once."""

    def outcome(order: TrialOrder) -> TrialRecord:
        machine.launched += 1
        return served(order)

    machine.patch.setitem(sys.modules, "tuner.hosts.cluster", hosts(outcome))


@preparation
def here(machine: Machine) -> None:
    """In place of Ray, this process: launches are real."""
    _hosts(machine, lambda gpus, _, *, use_gpus: HereCluster(gpus, machine, use_gpus=use_gpus))


@preparation
def real_cluster(machine: Machine) -> None:
    """Ray itself."""
    machine.patch.delitem(sys.modules, "tuner.hosts.cluster")


def _hosts(machine: Machine, cluster: Callable[..., Any]) -> None:
    stand_in = SimpleNamespace(Cluster=cluster)
    machine.patch.setitem(sys.modules, "tuner.hosts.cluster", stand_in)


class HereCluster:
    """An executor that runs each job where it is asked to, under a real agent."""

    def __init__(self, gpus: int, machine: Machine, *, use_gpus: bool) -> None:
        self._agent = Agent(declared=gpus, use_gpus=use_gpus)
        self._info, _ = asyncio.run(self._agent.describe(Path("/")))
        self._machine = machine
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
        self._machine.patch.setenv(JOB_VARIABLE, mark)
        try:
            slot = asyncio.run(self._agent.reserve(mark, gpus))
            assert slot is not None
            self._machine.reserved(slot.ports[0])
            result = function(payload, slot, folder, lambda note: self._say(number, note))
            self._events.append(JobDone(job=number, result=result))
        except TunerError as error:
            self._events.append(self._lost(number, error))
        finally:
            settled = asyncio.run(self._agent.settle(mark, kill=False, collect=False))
            assert settled.survivors == 0
        return number

    def _lost(self, number: int, error: TunerError) -> JobLost:
        again = isinstance(error, PortTaken)
        return JobLost(job=number, reason=str(error), again=again)

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
    assert other.stdout is not None
    assert other.stdin is not None
    for end in (other.stdout.close, other.stdin.close, other.wait, other.kill):
        machine.stack.callback(end)
    assert other.stdout.readline() == b"held\n"


@preparation
def serve(machine: Machine) -> None:
    """`./serve`, an engine that answers as answers.json says: nothing but raw bytes by path."""
    shutil.copy(Path(__file__).with_name("wrong_server.py"), machine.folder)
    words = f'"{sys.executable}" -IS "{machine.folder}/wrong_server.py" "$@"'
    machine.path("serve").write_text(f"#!/bin/sh\nexec {words}\n")
    machine.path("serve").chmod(0o755)


@preparation
def clock(machine: Machine, shows: str, hours: str) -> None:
    """The machine's clock shows this, and is moved by so many hours while the first launch runs."""
    before = datetime.fromisoformat(shows)
    after = before + timedelta(hours=float(hours))

    def now() -> datetime:
        return after if machine.launched else before

    stand_in = SimpleNamespace(now=now, fromisoformat=datetime.fromisoformat)
    machine.patch.setattr(budget, "datetime", stand_in)
    machine.patch.setattr(study, "datetime", stand_in)


@preparation
def environment(machine: Machine, name: str, value: str) -> None:
    machine.patch.setenv(name, value.replace("HERE", str(machine.folder)))


def listen(machine: Machine, port: int = 0) -> int:
    """A server of somebody else's, on that port or any."""
    listener = machine.stack.enter_context(socket.create_server(("127.0.0.1", port)))
    return int(listener.getsockname()[1])


@preparation
def strangers(machine: Machine) -> None:
    """All ports that an agent could give away are taken, by this process."""
    port = listen(machine)
    block = tuple(range(port - 15, port + 1))
    machine.patch.setattr(slots, "port_blocks", lambda *_: iter([block]))


@preparation
def server(machine: Machine) -> None:
    """A server that runs already and answers as answers.json says, at PORT of the command."""
    serve(machine)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen([machine.path("serve"), "--port", str(port)], stdout=DEVNULL)
    machine.stack.callback(process.wait)
    machine.stack.callback(process.kill)
    machine.words["PORT"] = str(port)
    while True:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.02)


@preparation
def stranger(machine: Machine, when: str) -> None:
    """Somebody else takes the server's port, before it starts or as soon as it runs."""

    def later(port: int) -> None:
        while not machine.path("waiting").exists():
            time.sleep(0.02)
        listen(machine, port)

    def take(port: int) -> None:
        if when == "before":
            listen(machine, port)
        else:
            threading.Thread(target=later, args=(port,), daemon=True).start()

    machine.reserved = take


@preparation
def web(machine: Machine, name: str) -> None:
    """A web server, at a port that stands in place of the word PORT in a file."""
    listener = machine.stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    port = listener.getsockname()[1]

    def answer() -> None:
        wire, _ = listener.accept()
        with wire:
            wire.recv(64)
            wire.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    threading.Thread(target=answer, daemon=True).start()
    machine.path(name).write_text(machine.path(name).read_text().replace("PORT", str(port)))


@preparation
def gpus(machine: Machine, state: str) -> None:
    """A machine with so many GPUs, or with a driver that has lost one."""

    def found() -> tuple[Any, ...]:
        if state == "lost":
            with gpu_room._translated():
                raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        count = int(state) if state.isdecimal() else 1
        return tuple(
            gpu_room.FoundGpu(uuid=f"GPU-{at}", model="a GPU", numa=None) for at in range(count)
        )

    def used(uuids: tuple[str, ...]) -> tuple[dict[str, float], dict[str, str]]:
        return {}, dict.fromkeys(uuids, "the driver is gone")

    machine.patch.setattr(gpu_room, "find_gpus", found)
    machine.patch.setattr(gpu_room, "used_memory_gb", used)


@preparation
def without(machine: Machine, program: str) -> None:
    """No program of that name on the PATH."""
    kept = [at for at in os.environ["PATH"].split(os.pathsep) if not shutil.which(program, path=at)]
    machine.patch.setenv("PATH", os.pathsep.join(kept))
