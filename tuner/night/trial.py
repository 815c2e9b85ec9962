"""One launch, in a straight line: start, ready, read back, climb the ladder, stop.

Runs in a process of its own on the host that has the GPUs.
"""

import gzip
import hashlib
import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tuner import engines
from tuner.definitions.models import Objective, Rung, Value
from tuner.engines.base import Engine, EngineFacts, LaunchSpec
from tuner.engines.overrides import Override
from tuner.errors import EngineError, HostError, HttpError
from tuner.failures.blame import changed
from tuner.failures.classifier import Failure, Phase, classify, gave_up, verdict
from tuner.frozen import Frozen
from tuner.hosts.executor import Note, Slot
from tuner.hosts.server import Server
from tuner.http.client import Http
from tuner.load import Played, RungPlan, Target, play, run
from tuner.measuring.measurement import RungMeasurement, measure
from tuner.measuring.quality import OutputQuality, output_quality, wrong_output
from tuner.night.watch import Watch
from tuner.records import Outcome, TrialKind, TrialRecord
from tuner.verdicts.score import hopeless

HOST = "127.0.0.1"

logger = logging.getLogger(__name__)


class TrialOrder(Frozen):
    """What to launch and how to judge it on the way.

    `reference` holds the baseline's tok/s per rung and `noise` the relative sd of a launch there,
    both empty while they are not known; `best` is the best score so far, `ceilings` the best ratio
    seen at each rung; `known` maps effective keys to the trial that has them. `nearest` holds flags
    and variables of the most similar configuration that served: blame starts from what differs.
    """

    number: int
    kind: TrialKind
    hypothesis: str | None = None
    key: str
    values: dict[str, Value]
    launch: LaunchSpec
    gpus: int
    objective: Objective
    prune: bool = False
    reference: dict[int, float] = {}
    noise: dict[int, float] = {}
    best: float = 1.0
    ceilings: dict[int, float] = {}
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
    rehearsal: bool = False
    command: str = ""
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    begun: float = field(default_factory=time.perf_counter)


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
        course.failure = _refused(order, str(error))
    except OSError as error:
        raise HostError(
            f"{folder}: cannot be written to: {error.strerror}",
            hint="Make room or give write access, then run again.",
        ) from error
    return _record(order, slot, course)


def _launch(order: TrialOrder, slot: Slot, folder: Path, course: _Course, note: Note) -> None:
    engine = engines.create(order.launch)
    course.rehearsal = engine.rehearsal
    command = engine.command(
        host=HOST,
        port=slot.ports[0],
        extra_ports=slot.ports[1:],
        gpus=slot.gpus if slot.real_gpus else (),
    )
    course.command = command.shell()
    (folder / "command.sh").write_text(f"#!/bin/sh\n{command.launched_shell()}\n")
    server = Server.start(
        command,
        folder=folder,
        port=slot.ports[0],
        cores=slot.server_cores,
        tag=f"trial-{order.number}",
    )
    with server:
        run(_serve(order, engine, server, course, note))
        exit_code = server.exit_code()
        note(TrialNote(number=order.number, phase="stopping"))
        stopping = time.perf_counter()
        server.stop()
    course.phase_s["stop"] = time.perf_counter() - stopping
    if course.outcome == "failed" and course.failure is None:
        course.failure = _understand(order, server.log(), exit_code, course)


async def _serve(
    order: TrialOrder, engine: Engine, server: Server, course: _Course, note: Note
) -> None:
    begun = time.perf_counter()
    async with Http(f"http://{HOST}:{server.port}") as http:
        watch = Watch(server)
        ready = await watch.ready(engine, http, order.launch.engine.ready_timeout_s)
        course.phase_s["start"] = time.perf_counter() - begun
        if not ready:
            course.outcome = "failed"
            return
        course.serving = True
        await _read_back(order, engine, server, http, course)
        if course.outcome == "completed":
            begun = time.perf_counter()
            await _climb(order, engine, server, http, watch, course, note)
            course.phase_s["load"] = time.perf_counter() - begun


async def _read_back(
    order: TrialOrder, engine: Engine, server: Server, http: Http, course: _Course
) -> None:
    """What the server really runs with; a twin of an earlier trial is not measured again."""
    log = server.log()
    try:
        course.effective = await engine.effective(http, log)
        course.overridden = engine.overridden(course.effective, log)
        course.facts = await engine.facts(http, log)
    except HttpError as error:  # if it is dead the ladder says why; else it just does not tell
        logger.warning("trial %d: arguments could not be read back: %s", order.number, error)
    if course.effective:
        course.effective_key = effective_key(course.effective, order.launch)
        course.duplicate_of = order.known.get(course.effective_key)
    if course.duplicate_of is not None:
        course.outcome = "duplicate"


def effective_key(effective: Mapping[str, Value], launch: LaunchSpec) -> str:
    """12 hex digits that two launches share only if they run with the same arguments, variables
    and build."""
    identity = json.dumps(
        [sorted(effective.items()), sorted(launch.env.items()), launch.build], default=str
    )
    return hashlib.sha256(identity.encode()).hexdigest()[:12]


async def _climb(
    order: TrialOrder,
    engine: Engine,
    server: Server,
    http: Http,
    watch: Watch,
    course: _Course,
    note: Note,
) -> None:
    for index, rung in enumerate(order.objective.ladder):
        note(TrialNote(number=order.number, phase="rung", concurrency=rung.concurrency))
        played = await watch.unless_doomed(_play(order, engine, http, rung, index))
        if played is None:
            course.outcome = "failed"
            return
        measured = _measured(order, rung, played)
        _keep_requests(server.log_path.parent, rung, played)
        course.quality += output_quality(played.timings)
        course.failure = _faulty(order, course, measured)
        if course.failure or measured.output_tok_s == 0:
            course.outcome = "failed"
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


async def _play(order: TrialOrder, engine: Engine, http: Http, rung: Rung, index: int) -> Played:
    objective = order.objective
    target = Target(
        base_url=http.base_url,
        api=engine.api,
        model=engine.served_model,
        time_scale=engine.time_scale,
    )
    plan = RungPlan(
        concurrency=rung.concurrency,
        input_tokens=objective.input_tokens,
        output_tokens=objective.output_tokens,
        warmup_s=objective.warmup_s,
        window_s=objective.window_s,
        prompt_seed=objective.seeds.prompts,
        order_seed=objective.seeds.order,
        rung_index=index,
    )

    async def probe() -> tuple[float, float] | None:
        try:
            return await engine.load_now(http)
        except HttpError:
            return None

    return await play(target, plan, probe=probe)


def _measured(order: TrialOrder, rung: Rung, played: Played) -> RungMeasurement:
    return measure(
        played.timings,
        concurrency=rung.concurrency,
        start_s=played.start_s,
        end_s=played.end_s,
        gpus=order.gpus,
        load_samples=played.load_samples,
    )


def _keep_requests(folder: Path, rung: Rung, played: Played) -> None:
    """One line a request, without prompts or texts."""
    with gzip.open(folder / "requests.jsonl.gz", "at", compresslevel=3) as out:
        for timing in played.timings:
            first = timing.events[0][0] if timing.events else None
            last = timing.events[-1][0] if timing.events else None
            line = {
                "concurrency": rung.concurrency,
                "stream": timing.stream,
                "index": timing.index,
                "sent_s": timing.sent_s,
                "first_s": first,
                "last_s": last,
                "done_s": timing.done_s,
                "events": len(timing.events),
                "input_tokens": timing.input_tokens,
                "output_tokens": timing.output_tokens,
                "error": timing.error,
            }
            out.write(json.dumps(line) + "\n")


def _understand(order: TrialOrder, log: str, exit_code: int | None, course: _Course) -> Failure:
    """Why it failed; `exit_code` is None for a server that was alive until it was stopped."""
    engine = order.launch.engine.name
    phase: Phase | None = "serving" if course.serving else None
    flags, nearest = {**order.launch.flags, **order.launch.env}, order.nearest or None
    if exit_code is not None:
        failure = classify(
            log, engine=engine, exit_code=exit_code, phase=phase, flags=flags, nearest=nearest
        )
        if failure is not None:
            return failure
    waited_s = course.phase_s.get("load" if course.serving else "start")
    return gave_up(log, engine=engine, phase=phase, waited_s=waited_s, flags=flags, nearest=nearest)


def _faulty(order: TrialOrder, course: _Course, measured: RungMeasurement) -> Failure | None:
    """What the answers of a server that lives say against it."""
    fault = wrong_output(course.quality, order.baseline_quality)
    if fault:
        return _wrong(fault, order)
    if measured.output_tok_s == 0 and measured.first_error:
        return _refused(order, f"every request failed: {measured.first_error}", phase="serving")
    return None


def _refused(order: TrialOrder, cause: str, phase: Phase = "starting") -> Failure:
    """The launch or all of its requests were refused, in words that need no log."""
    return verdict(
        "arg_validation", cause, engine=order.launch.engine.name, phase=phase, action="never"
    )


def _wrong(fault: str, order: TrialOrder) -> Failure:
    """Fast or not: output that is no longer the model's is no result."""
    return verdict(
        "wrong_output",
        fault,
        engine=order.launch.engine.name,
        phase="serving",
        blame=changed({**order.launch.flags, **order.launch.env}, order.nearest),
        action="never",
        advice="Do not serve with these flags, however fast: compare answers by hand and report it "
        "to the engine.",
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
        rehearsal=course.rehearsal,
    )
