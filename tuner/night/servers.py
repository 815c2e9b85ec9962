"""The servers of one launch: one, or a full set of replicas; started and stopped together."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from tuner.engines.base import Engine, LaunchCommand
from tuner.hosts.executor import Slot
from tuner.hosts.server import Server
from tuner.http.client import Http
from tuner.observers.observer import EVERY_S, Observer, Subject

HOST = "127.0.0.1"

REPLICAS_VARIABLE = "TUNER_REPLICAS"
"""Tells each server of a set how many there are; a surface may say what that does to it."""


def commands(engine: Engine, slots: Sequence[Slot]) -> list[LaunchCommand]:
    """The launch of a server in each slot. Raises EngineError where it cannot be spelt."""
    return [_command(engine, slot, len(slots)) for slot in slots]


def _command(engine: Engine, slot: Slot, servers: int) -> LaunchCommand:
    command = engine.command(
        host=HOST,
        port=slot.ports[0],
        extra_ports=slot.ports[1:],
        gpus=slot.gpus if slot.real_gpus else (),
    )
    if servers == 1:
        return command
    told = {**command.injected_env, REPLICAS_VARIABLE: str(servers)}
    return replace(command, injected_env=told)


def script(launched: Sequence[LaunchCommand]) -> str:
    """The launch as a shell script: a set's servers beside each other."""
    lines = [command.launched_shell() for command in launched]
    if len(lines) > 1:
        lines = [*(f"{line} &" for line in lines), "wait"]
    return "\n".join(["#!/bin/sh", *lines, ""])


def log_folder(folder: Path, place: int) -> Path:
    """Where a server's log lies: the first one's with the trial, the others' in folders there."""
    return folder if place == 0 else folder / f"replica-{place + 1}"


@contextmanager
def started(
    launched: Sequence[LaunchCommand], slots: Sequence[Slot], folder: Path, tag: str
) -> Iterator[tuple[Server, ...]]:
    """The running servers; all of them are stopped and proven gone at the end.

    Raises HostError where a port is taken or a server cannot be killed, EngineError where a command
    cannot be executed.
    """
    with ExitStack() as stack:
        servers = [
            stack.enter_context(
                Server.start(
                    command,
                    folder=log_folder(folder, place),
                    port=slot.ports[0],
                    cores=slot.server_cores,
                    tag=tag,
                )
            )
            for place, (command, slot) in enumerate(zip(launched, slots, strict=True))
        ]
        yield tuple(servers)


def observing(
    engine: Engine, slot: Slot, servers: Sequence[Server], https: Sequence[Http]
) -> Observer:
    """What looks at the GPUs, the host and the engine of a launch while it is under load."""
    subject = Subject(
        gpus=slot.gpus if slot.real_gpus and not engine.rehearsal else (),
        tags=[server.tag for server in servers],
        roots=[pid for server in servers for pid in server.roots()],
        urls=[http.base_url for http in https],
        names=engine.metrics,
    )
    return Observer(subject, every_s=EVERY_S / engine.time_scale)


def stop(servers: Sequence[Server]) -> str:
    """Stop all at once; returns when they are proven gone.

    Who ended one of them, if that was neither this process nor a server itself, else empty.
    """
    with ThreadPoolExecutor(len(servers)) as threads:
        reports = list(threads.map(Server.stop, servers))
    return next((report.reason for report in reports if report.meddled), "")
