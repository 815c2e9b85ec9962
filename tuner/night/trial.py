"""One launch, in a straight line: start, ready, read back, climb the ladder, stop.

Runs in a process of its own on the host that has the GPUs.
"""

import errno
import shutil
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from tuner import engines
from tuner.engines.base import Engine
from tuner.errors import EngineError, HostError, LaunchLost, writing
from tuner.failures.classifier import Failure
from tuner.hosts.executor import Note, Slot
from tuner.hosts.server import Server
from tuner.http.client import Http
from tuner.load import run
from tuner.measuring.replicas import Replicas
from tuner.night.causes import refused, understood
from tuner.night.climb import climb
from tuner.night.course import Course, Serving, TrialNote, TrialOrder
from tuner.night.readback import read_back
from tuner.night.rescoring import not_compared, rescore
from tuner.night.servers import HOST, commands, observing, script, started, stop
from tuner.night.watch import Watch
from tuner.records import TrialRecord

_ROOM_BYTES = 1_000_000
"""Less than this is a full disk: a log alone takes more."""
_USED_UP = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT})
"""Of all that a system refuses, what a host has no more of."""


def run_trial(order: TrialOrder, slot: Slot, folder: Path, note: Note) -> TrialRecord:
    """Launch, measure and stop; every way to fail is in the record.

    Raises HostError where the host cannot do it, whatever the configuration.
    """
    course = Course()
    note(TrialNote(number=order.number, phase="starting"))
    try:
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        _launch(order, slot, folder, course, note)
    except EngineError as error:
        course.outcome = "failed"
        course.failure = refused(order.launch, error.message, advice=error.hint or None)
    except OSError as error:
        if error.errno not in _USED_UP:
            raise
        raise HostError(
            f"the launch used up what this host has: {error.strerror}",
            hint="Make room or raise its limits, then run again: the study continues.",
        ) from error
    return _record(order, slot, course)


def _launch(order: TrialOrder, slot: Slot, folder: Path, course: Course, note: Note) -> None:
    engine = engines.create(order.launch)
    course.rehearsal = engine.rehearsal
    slots = slot.split(order.replicas.launched)
    launched = commands(engine, slots)
    course.command = launched[0].shell()
    with writing(folder):
        (folder / "command.sh").write_text(script(launched))
    with started(launched, slots, folder, f"trial-{order.number}") as servers:
        run(_serve(order, engine, slot, servers, course, note))
        ended = servers[course.failed_replica or 0]
        exit_code = ended.exit_code()
        note(TrialNote(number=order.number, phase="stopping"))
        stopping = time.perf_counter()
        meddler = stop(servers)
    course.phase_s["stop"] = time.perf_counter() - stopping
    if course.outcome == "failed":
        _refuse_full(folder)
        _refuse_meddled(meddler)
    if course.outcome == "failed" and course.failure is None:
        course.failure = _understand(order, ended.log(), exit_code, course)


def _refuse_meddled(by: str) -> None:
    """A server that somebody else ended says nothing of its configuration.

    Raises LaunchLost.
    """
    if by:
        raise LaunchLost(f"its server was ended from outside: {by}")


def _refuse_full(folder: Path) -> None:
    """A server that dies for want of room says so to nobody: its log has none either.

    Raises HostError.
    """
    if shutil.disk_usage(folder).free < _ROOM_BYTES:
        raise HostError(
            f"{folder}: its disk is full, and the launch failed",
            hint="Make room, then run again: the launch counts for nothing and is made anew.",
        )


async def _serve(
    order: TrialOrder,
    engine: Engine,
    slot: Slot,
    servers: Sequence[Server],
    course: Course,
    note: Note,
) -> None:
    begun = time.perf_counter()
    async with AsyncExitStack() as stack:
        https = [
            await stack.enter_async_context(Http(f"http://{HOST}:{server.port}"))
            for server in servers
        ]
        stall_s = order.launch.engine.stall_timeout_s
        watch = Watch(servers, stall_s=stall_s)
        patience_s = order.launch.engine.ready_timeout_s
        ready = await watch.ready(engine, https, patience_s)
        course.start_s = time.perf_counter() - begun
        course.phase_s |= watch.phase_s
        if not ready:
            course.lost(watch)
            return
        course.serving = True
        observer = stack.enter_context(observing(engine, slot, servers, https))
        serving = Serving(
            engine=engine, servers=servers, https=https, watch=watch, observer=observer
        )
        await read_back(order, serving, course)
        if course.outcome == "completed":
            begun = time.perf_counter()
            await climb(order, serving, course, note)
            course.phase_s["load"] = time.perf_counter() - begun
            await _compare(order, serving, course)


async def _compare(order: TrialOrder, serving: Serving, course: Course) -> None:
    """Score what was said; where the baseline dies of it, its numbers stand and that is kept."""
    watch, asked = serving.watch, order.kind == "baseline" and course.outcome != "failed"
    if await watch.unless_doomed(rescore(order, serving, course)) is None and asked:
        died = serving.servers[watch.failed or 0]
        cause = _understand(order, died.log(), died.exit_code(), course).cause
        not_compared(order, course, f"the baseline died while it scored: {cause}")


def _understand(order: TrialOrder, log: str, exit_code: int | None, course: Course) -> Failure:
    return understood(
        order.launch,
        order.nearest,
        log,
        exit_code,
        serving=course.serving,
        heard=course.heard,
        stalled=course.stalled,
        waited_s=course.phase_s.get("load") if course.serving else course.start_s,
    )


def _record(order: TrialOrder, slot: Slot, course: Course) -> TrialRecord:
    return TrialRecord(
        number=order.number,
        kind=order.kind,
        hypothesis=order.hypothesis,
        key=order.key,
        values=order.values,
        started_at=course.started_at.isoformat(timespec="seconds"),
        duration_s=round(time.perf_counter() - course.begun, 3),
        ready_s=round(course.start_s, 3) if course.serving else None,
        phase_s={name: round(seconds, 3) for name, seconds in course.phase_s.items()},
        command=course.command,
        outcome=course.outcome,
        rungs=course.rungs,
        invalid=course.invalid,
        quality_at=course.quality_at,
        continuations=course.continuations,
        rescored=course.rescored,
        not_compared=course.not_compared,
        failure=course.failure,
        pruned_because=course.pruned_because,
        effective=course.effective,
        overridden=course.overridden,
        effective_key=course.effective_key,
        duplicate_of=course.duplicate_of,
        facts=course.facts,
        workload=order.workload,
        host=slot.host,
        gpus=list(slot.gpus),
        server_cores=list(slot.server_cores),
        client_cores=list(slot.client_cores),
        replicas=_replicas(order, course),
        rehearsal=course.rehearsal,
    )


def _replicas(order: TrialOrder, course: Course) -> Replicas:
    """Which of several ended the launch is kept: its log lies apart."""
    if order.replicas.launched == 1 or course.failed_replica is None:
        return order.replicas
    return order.replicas.model_copy(update={"failed": course.failed_replica + 1})
