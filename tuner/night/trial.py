"""One launch, in a straight line: start, ready, read back, climb the ladder, stop.

Runs in a process of its own on the host that has the GPUs.
"""

import hashlib
import json
import logging
import shutil
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from tuner import engines
from tuner.definitions.models import Objective, Rung, Value
from tuner.engines.base import Engine, EngineFacts, LaunchSpec
from tuner.engines.overrides import Override
from tuner.errors import EngineError, HostError, HttpError, remedy
from tuner.failures.classifier import Failure
from tuner.frozen import Frozen
from tuner.hosts.executor import Note, Slot
from tuner.hosts.server import Server
from tuner.http.client import Http
from tuner.load import Played, RungPlan, Target, play, run
from tuner.measuring.measurement import RequestTiming, RungMeasurement, measure
from tuner.measuring.quality import OutputQuality, output_quality, wrong_output
from tuner.measuring.replicas import Replicas
from tuner.night.causes import refused, understood, wrong
from tuner.night.requests import keep_requests
from tuner.night.servers import HOST, commands, script, started, stop
from tuner.night.watch import Watch
from tuner.records import Outcome, TrialKind, TrialRecord
from tuner.verdicts.score import hopeless

logger = logging.getLogger(__name__)

_ASK_IT = "Ask a server that was launched by hand for a completion; its log may say more."
_ROOM_BYTES = 1_000_000
"""Less than this is a full disk: a log alone takes more."""


class TrialOrder(Frozen):
    """What to launch and how to judge it on the way.

    `reference` holds the baseline's tok/s per rung and `noise` the relative sd of a launch there,
    both empty while they are not known; `best` is the best score so far, `ceilings` the best ratio
    seen at each rung; `known` maps effective keys to the trial that has them, `dead` are arguments
    that count in none of them since nothing reads them. `nearest` holds flags
    and variables of the most similar configuration that served: blame starts from what differs.
    `gpus` are what all its servers take together, `host_gpus` what the host has (None: as many).
    """

    number: int
    kind: TrialKind
    hypothesis: str | None = None
    key: str
    values: dict[str, Value]
    launch: LaunchSpec
    gpus: int
    host_gpus: int | None = None
    replicas: Replicas = Replicas()
    objective: Objective
    lengths: tuple[tuple[int, int], ...]
    prune: bool = False
    reference: dict[int, float] = {}
    noise: dict[int, float] = {}
    best: float = 1.0
    ceilings: dict[int, float] = {}
    dead: list[str] = []
    known: dict[str, int] = {}
    baseline_quality: OutputQuality = OutputQuality()
    nearest: dict[str, Value] = {}


class TrialNote(Frozen):
    """Where a trial is: starting, rung, stopping; with the numbers of a rung that is done."""

    number: int
    phase: str
    concurrency: int | None = None
    rung: RungMeasurement | None = None


@dataclass(slots=True)
class _Course:
    """What is known of the trial so far; becomes its record."""

    outcome: Outcome = "completed"
    rungs: list[RungMeasurement] = field(default_factory=list)
    quality: OutputQuality = field(default_factory=OutputQuality)
    failure: Failure | None = None
    pruned_because: str | None = None
    effective: dict[str, Value] = field(default_factory=dict)
    overridden: list[Override] = field(default_factory=list)
    effective_key: str | None = None
    duplicate_of: int | None = None
    facts: EngineFacts = field(default_factory=EngineFacts)
    phase_s: dict[str, float] = field(default_factory=dict)
    serving: bool = False
    heard: str = ""
    failed_replica: int | None = None
    rehearsal: bool = False
    command: str = ""
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    begun: float = field(default_factory=time.perf_counter)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Serving:
    """The servers of a launch and what speaks to each."""

    engine: Engine
    servers: Sequence[Server]
    https: Sequence[Http]
    watch: Watch


def run_trial(order: TrialOrder, slot: Slot, folder: Path, note: Note) -> TrialRecord:
    """Launch, measure and stop; every way to fail is in the record.

    Raises HostError where the host cannot do it, whatever the configuration.
    """
    course = _Course()
    note(TrialNote(number=order.number, phase="starting"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _launch(order, slot, folder, course, note)
    except EngineError as error:
        course.outcome = "failed"
        course.failure = refused(order.launch, error.message, advice=error.hint or None)
    except OSError as error:
        raise HostError(
            f"{error.filename or folder}: cannot be written: {error.strerror}",
            hint=f"{remedy(error)}, then run again: the study continues.",
        ) from error
    return _record(order, slot, course)


def _launch(order: TrialOrder, slot: Slot, folder: Path, course: _Course, note: Note) -> None:
    engine = engines.create(order.launch)
    course.rehearsal = engine.rehearsal
    slots = slot.split(order.replicas.launched)
    launched = commands(engine, slots)
    course.command = launched[0].shell()
    (folder / "command.sh").write_text(script(launched))
    with started(launched, slots, folder, f"trial-{order.number}") as servers:
        run(_serve(order, engine, servers, course, note))
        ended = servers[course.failed_replica or 0]
        exit_code = ended.exit_code()
        note(TrialNote(number=order.number, phase="stopping"))
        stopping = time.perf_counter()
        stop(servers)
    course.phase_s["stop"] = time.perf_counter() - stopping
    if course.outcome == "failed":
        _refuse_full(folder)
    if course.outcome == "failed" and course.failure is None:
        course.failure = _understand(order, ended.log(), exit_code, course)


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
    order: TrialOrder, engine: Engine, servers: Sequence[Server], course: _Course, note: Note
) -> None:
    begun = time.perf_counter()
    async with AsyncExitStack() as stack:
        https = [
            await stack.enter_async_context(Http(f"http://{HOST}:{server.port}"))
            for server in servers
        ]
        serving = _Serving(engine=engine, servers=servers, https=https, watch=Watch(servers))
        patience_s = order.launch.engine.ready_timeout_s
        ready = await serving.watch.ready(engine, https, patience_s)
        course.phase_s["start"] = time.perf_counter() - begun
        if not ready:
            course.outcome = "failed"
            course.failed_replica, course.heard = serving.watch.failed, serving.watch.heard
            return
        course.serving = True
        await _read_back(order, serving, course)
        if course.outcome == "completed":
            begun = time.perf_counter()
            await _climb(order, serving, course, note)
            course.phase_s["load"] = time.perf_counter() - begun


async def _read_back(order: TrialOrder, serving: _Serving, course: _Course) -> None:
    """What the server really runs with; a twin of an earlier trial is not measured again.

    The servers of a set are told alike and asked one by one: the first speaks for all.
    """
    engine = serving.engine
    for server, http in reversed(list(zip(serving.servers, serving.https, strict=True))):
        log, other = server.log(), course.effective
        try:
            course.effective = await engine.effective(http, log)
            course.overridden = engine.overridden(course.effective, log)
            course.facts = await engine.facts(http, log)
        except HttpError as error:  # if it is dead the ladder says why; else it just does not tell
            logger.warning("trial %d: arguments could not be read back: %s", order.number, error)
        if other and other != course.effective:
            logger.warning("trial %d: its servers do not run with the same", order.number)
    if course.effective:
        course.effective_key = effective_key(course.effective, order.launch, order.dead)
        course.duplicate_of = order.known.get(course.effective_key)
    if course.duplicate_of is not None:
        course.outcome = "duplicate"


def effective_key(
    effective: Mapping[str, Value], launch: LaunchSpec, dead: Collection[str] = ()
) -> str:
    """12 hex digits that two launches share only if they run with the same arguments, variables
    and build; `dead` arguments are read by nothing, whatever they say."""
    read = sorted(item for item in effective.items() if item[0] not in dead)
    identity = json.dumps([read, sorted(launch.env.items()), launch.build], default=str)
    return hashlib.sha256(identity.encode()).hexdigest()[:12]


async def _climb(order: TrialOrder, serving: _Serving, course: _Course, note: Note) -> None:
    for index, rung in enumerate(order.objective.ladder):
        note(TrialNote(number=order.number, phase="rung", concurrency=rung.concurrency))
        played = await serving.watch.unless_doomed(_play(order, serving, rung, index))
        course.failed_replica = serving.watch.failed
        if played is None:
            course.outcome = "failed"
            return
        measured = _measured(order, rung, played)
        keep_requests(serving.servers[0].log_path.parent, rung.concurrency, played.timings)
        course.quality += output_quality(played.timings)
        _judge(order, course, _of_each(order, rung, played, measured))
        if course.outcome == "failed":
            return
        course.rungs.append(measured)
        note(
            TrialNote(
                number=order.number, phase="rung", concurrency=rung.concurrency, rung=measured
            )
        )
        if order.prune and index + 1 < len(order.objective.ladder):
            course.pruned_because = hopeless(
                course.rungs,
                order.reference,
                order.noise,
                order.objective,
                order.best,
                ceilings=order.ceilings,
            )
            if course.pruned_because:
                course.outcome = "pruned"
                return


async def _play(order: TrialOrder, serving: _Serving, rung: Rung, index: int) -> Played:
    objective, engine = order.objective, serving.engine
    target = Target(
        base_url=serving.https[0].base_url,
        replicas=tuple(http.base_url for http in serving.https[1:]),
        api=engine.api,
        model=engine.served_model,
        time_scale=engine.time_scale,
    )
    plan = RungPlan.of(
        objective,
        index,
        concurrency=order.replicas.streams(rung.concurrency),
        lengths=order.lengths,
        prompt_seed=objective.seeds.prompts,
    )

    async def probe() -> tuple[float, float] | None:
        try:
            loads = [await engine.load_now(http) for http in serving.https]
        except HttpError:
            return None
        told = [load for load in loads if load is not None]
        if len(told) < len(loads):
            return None
        return sum(running for running, _ in told), sum(queued for _, queued in told)

    return await play(target, plan, probe=probe)


def _measured(order: TrialOrder, rung: Rung, played: Played) -> RungMeasurement:
    return measure(
        played.timings,
        concurrency=rung.concurrency,
        start_s=played.start_s,
        end_s=played.end_s,
        gpus=order.host_gpus or order.gpus,
        load_samples=played.load_samples,
        lags_s=played.lags_s,
        replicas=order.replicas,
    )


def _of_each(
    order: TrialOrder, rung: Rung, played: Played, measured: RungMeasurement
) -> dict[int, RungMeasurement]:
    """The rung by server, of those that had streams."""
    servers = order.replicas.launched
    if servers == 1:
        return {0: measured}
    own: dict[int, list[RequestTiming]] = {}
    for timing in played.timings:
        own.setdefault(timing.stream % servers, []).append(timing)
    return {
        place: _measured(order, rung, replace(played, timings=tuple(timings), load_samples=()))
        for place, timings in sorted(own.items())
    }


def _judge(order: TrialOrder, course: _Course, parts: Mapping[int, RungMeasurement]) -> None:
    """What the answers of servers that live say against them."""
    fault = wrong_output(course.quality, order.baseline_quality)
    silent = next((place for place, part in parts.items() if part.output_tok_s == 0), None)
    if fault:
        course.outcome, course.failure = "failed", wrong(order.launch, order.nearest, fault)
    elif silent is not None:
        course.outcome, course.failed_replica = "failed", silent
        error = parts[silent].first_error
        if error:
            words = f"every request failed: {error}"
            course.failure = refused(order.launch, words, phase="serving", advice=_ASK_IT)


def _understand(order: TrialOrder, log: str, exit_code: int | None, course: _Course) -> Failure:
    return understood(
        order.launch,
        order.nearest,
        log,
        exit_code,
        serving=course.serving,
        heard=course.heard,
        waited_s=course.phase_s.get("load" if course.serving else "start"),
    )


def _record(order: TrialOrder, slot: Slot, course: _Course) -> TrialRecord:
    return TrialRecord(
        number=order.number,
        kind=order.kind,
        hypothesis=order.hypothesis,
        key=order.key,
        values=order.values,
        started_at=course.started_at.isoformat(timespec="seconds"),
        duration_s=round(time.perf_counter() - course.begun, 3),
        ready_s=round(course.phase_s["start"], 3) if course.serving else None,
        phase_s={name: round(seconds, 3) for name, seconds in course.phase_s.items()},
        command=course.command,
        outcome=course.outcome,
        rungs=course.rungs,
        quality=course.quality,
        failure=course.failure,
        pruned_because=course.pruned_because,
        effective=course.effective,
        overridden=course.overridden,
        effective_key=course.effective_key,
        duplicate_of=course.duplicate_of,
        facts=course.facts,
        host=slot.host,
        gpus=list(slot.gpus),
        replicas=_replicas(order, course),
        rehearsal=course.rehearsal,
    )


def _replicas(order: TrialOrder, course: _Course) -> Replicas:
    """Which of several ended the launch is kept: its log lies apart."""
    if order.replicas.launched == 1 or course.failed_replica is None:
        return order.replicas
    return order.replicas.model_copy(update={"failed": course.failed_replica + 1})
