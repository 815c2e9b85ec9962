"""What a case of bad input needs of hosts, servers, launches and clocks."""

import asyncio
import itertools
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from subprocess import DEVNULL
from types import SimpleNamespace
from typing import Any

import pynvml

from tests.bad_machine import Machine, preparation
from tests.evening import hosts, served
from tuner.errors import PortTaken, TunerError
from tuner.hosts import gpus as gpu_room
from tuner.hosts import slots
from tuner.hosts.agent import Agent
from tuner.hosts.executor import Event, Function, HostInfo, JobDone, JobLost, JobNote
from tuner.hosts.job import JOB_VARIABLE
from tuner.night import budget, study
from tuner.night.course import TrialOrder
from tuner.records import TrialRecord


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
        "from tuner.lock import locked\n"
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
