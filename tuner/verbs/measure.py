"""The instrument alone: the load of an objective on any running server, and if to believe it."""

import logging
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Literal, Protocol

from tuner.definitions.models import Objective, Rung
from tuner.definitions.slo import Slo
from tuner.definitions.trace import Trace
from tuner.definitions.validation import Lengths
from tuner.definitions.workload import Workload, workload
from tuner.frozen import Frozen
from tuner.load import Api, Played, RungPlan, play, run
from tuner.measuring.machine import MachineUse
from tuner.measuring.measurement import RungMeasurement, measure
from tuner.measuring.observed import Doubt, Observed
from tuner.measuring.validity import doubts
from tuner.night.heeding import heeded, idle_cores
from tuner.observers.observer import Observer, Seen, Subject, beside
from tuner.verbs.asked import NONE, Options, asked
from tuner.verbs.explain import EngineName
from tuner.verbs.neighbours import subject_of
from tuner.verbs.servers import Found, find, key_of
from tuner.verdicts.score import slo_breaches
from tuner.views.machine import unobserved

Ended = Literal["whole", "interrupted", "every request failed"]
"""How a measurement came to its end: two of these leave rungs that were not played."""


class MeasuredRung(Frozen):
    """One rung: its numbers, what the load generator saw of itself, what speaks against them; the
    limits that it broke, none where it is void; and the `first` attempt at it, where that was."""

    measurement: RungMeasurement
    observed: Observed
    doubts: list[Doubt]
    breaches: list[str]
    first: "MeasuredRung | None" = None

    @property
    def void(self) -> bool:
        """Whether its numbers are worth nothing."""
        return any(doubt.voids for doubt in self.doubts)


class Measured(Frozen):
    """A server measured. `reasons` say why it is not `valid`; `not_played` are rungs that were not
    come to. Prompts start from `prompt_seed`, another each time: the server knows none of them.
    Tokens are the means over a trace where the objective plays one."""

    schema_number: int = 1
    url: str
    engine: str | None
    version: str | None
    model: str
    api: str
    workload: Workload
    rehearsal: bool
    input_tokens: int
    output_tokens: int
    warmup_s: float
    window_s: float
    prompt_seed: int
    rungs: list[MeasuredRung]
    not_played: list[str]
    ended: Ended
    notes: list[str]
    valid: bool
    reasons: list[str]


class Listener(Protocol):
    """Hears how far a measurement is."""

    def found(self, server: Found, objective: Objective) -> None:
        """A server was found, and this will be played."""
        ...

    def window(self, rung: int, seconds_left: float) -> None:
        """A rung's window is open, for about so long still."""
        ...

    def again(self, rung: int) -> None:
        """A rung's numbers were void, and it is measured once more."""
        ...

    def started(self, rung: int, seconds: float) -> None:
        """A rung began; it takes about so long."""
        ...

    def ended(self, rung: MeasuredRung) -> None:
        """A rung's numbers are there."""
        ...


@dataclass(slots=True, kw_only=True)
class _Course:
    """What was measured so far: kept whatever interrupts the rest. `client_idle_cores` are those of
    this machine that nobody used while the last rung was played."""

    server: Found
    objective: Objective
    lengths: Lengths
    trace: Trace | None
    prompt_seed: int
    gpus: int
    rungs: list[MeasuredRung] = field(default_factory=list)
    client_idle_cores: float = 0.0
    ended: Ended = "whole"


def measure_server(
    url: str,
    objective: Path | None,
    listener: Listener,
    *,
    options: Options = NONE,
    api: Api | None = None,
    model: str | None = None,
    engine: EngineName | None = None,
    gpus: int = 1,
    key_variable: str | None = None,
) -> Measured:
    """Play the ladder of an objective on a server that somebody else launched.

    A KeyboardInterrupt ends it with the rungs that are whole. Raises DefinitionError for a wrong
    objective, TunerError and HttpError where the server cannot be measured at all.
    """
    wanted = asked(objective, options)
    wanted.refuse_few_descriptors()
    key, said = key_of(key_variable), api or wanted.objective.api
    server = run(find(url, api=said, model=model, engine=engine, key=key))
    wanted.refuse_too_long(server.longest)
    course = _Course(
        server=server,
        objective=wanted.objective.model_copy(update={"api": server.target.api}),
        lengths=wanted.lengths,
        trace=wanted.trace,
        prompt_seed=secrets.randbelow(2**31),
        gpus=gpus,
    )
    listener.found(server, course.objective)
    try:
        with _said_once():
            run(_climb(course, listener))
    except KeyboardInterrupt:
        course.ended = "interrupted"
    return _measured(course)


@contextmanager
def _said_once() -> Iterator[None]:
    """That requests are not recorded would be said with every rung; `notes` say it once."""
    logger = logging.getLogger("tuner.load.channels")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


async def _climb(course: _Course, listener: Listener) -> None:
    ladder = course.objective.ladder
    with _observing(subject_of(course.server)) as observers:
        for index in range(len(ladder)):
            measured = await _believed(course, observers, index, listener)
            course.rungs.append(measured)
            if _all_failed(measured):
                course.ended = "every request failed" if index + 1 < len(ladder) else "whole"
                return


@dataclass(frozen=True, slots=True, kw_only=True)
class _Observers:
    """Who observes the server, and who this machine, which is the client's: one and the same where
    the server is `here`."""

    here: bool
    server: Observer
    client: Observer

    async def seen(self, since_s: float, until_s: float) -> tuple[Seen, MachineUse]:
        """What was seen of the server in a window that is over, and of this machine."""
        seen = await self.server.seen(since_s, until_s)
        if self.here:
            return seen, seen.machine
        return seen, (await self.client.seen(since_s, until_s)).machine


@contextmanager
def _observing(subject: Subject) -> Iterator[_Observers]:
    with ExitStack() as stack:
        server = stack.enter_context(Observer(subject))
        client = server if subject.here else stack.enter_context(Observer(Subject()))
        yield _Observers(here=subject.here, server=server, client=client)


async def _believed(
    course: _Course, observers: _Observers, index: int, listener: Listener
) -> MeasuredRung:
    """A rung, measured once more where its numbers are void, as what speaks against them asks."""
    plan = _plan(course, index, here=observers.here)
    first = await _play(course, observers, index, plan, listener)
    if _all_failed(first) or not first.void:
        return first
    listener.again(index)
    plan = heeded(
        plan,
        first.doubts,
        rungs=len(course.objective.ladder),
        idle_cores=course.client_idle_cores,
    )
    second = await _play(course, observers, index, plan, listener)
    return second.model_copy(update={"first": first})


def _all_failed(rung: MeasuredRung) -> bool:
    return rung.measurement.output_tok_s == 0 and rung.measurement.requests_failed > 0


def _plan(course: _Course, index: int, *, here: bool) -> RungPlan:
    trace = course.trace
    plan = RungPlan.of(
        course.objective,
        index,
        lengths=course.lengths,
        prompt_seed=course.prompt_seed,
        texts=() if trace is None else trace.texts,
        offsets_s=(trace and trace.offsets_s) or (),
    )
    return replace(plan, processes=_processes(course, plan.processes, here=here))


def _processes(course: _Course, wanted: int, *, here: bool) -> int:
    """How many play the next rung: a server that is here is not pinned, and has the cores that it
    wants before the client has a second one; so has, once it was seen, whoever else works here."""
    if course.rungs:
        return min(wanted, course.rungs[-1].observed.processes + int(course.client_idle_cores))
    return 1 if here else wanted


async def _play(
    course: _Course, observers: _Observers, index: int, plan: RungPlan, listener: Listener
) -> MeasuredRung:
    listener.started(index, plan.warmup_s + plan.window_s)
    played = await play(
        course.server.target, plan, progress=lambda left_s: listener.window(index, left_s)
    )
    seen, client = await observers.seen(*played.real_s)
    rung = _judged(course, course.objective.ladder[index], played, seen)
    of_client = rung.measurement.model_copy(update={"machine": client})
    course.client_idle_cores = idle_cores(of_client)
    listener.ended(rung)
    return rung


def _judged(course: _Course, rung: Rung, played: Played, beheld: Seen) -> MeasuredRung:
    said, limits = (
        [Slo.parse(text) for text in texts]
        for texts in (course.objective.slos_at(rung), course.objective.limits_at(rung))
    )
    measured = measure(
        played.timings,
        concurrency=rung.concurrency,
        request_rate=rung.request_rate,
        start_s=played.start_s,
        end_s=played.end_s,
        gpus=course.gpus,
        lags_s=played.lags_s,
        unsent_s=played.unsent_s,
        slos=said,
    )
    measured = measured.model_copy(update=beside(beheld, measured))
    seen = played.observed()
    only_this = course.objective.model_copy(update={"ladder": [rung]})
    against = doubts(measured, seen, limits)
    void = any(doubt.voids for doubt in against)  # of numbers worth nothing none breaks a limit
    broken = () if void else slo_breaches([measured], only_this)
    return MeasuredRung(
        measurement=measured,
        observed=seen,
        doubts=against,
        breaches=[str(breach) for breach in broken],
    )


def _measured(course: _Course) -> Measured:
    objective, server = course.objective, course.server
    ladder = [rung.said for rung in objective.ladder]
    reasons = _reasons(course.rungs, ladder, course.ended)
    return Measured(
        url=server.target.base_url,
        engine=server.engine,
        version=server.facts.version,
        model=server.target.model,
        api=server.target.api,
        workload=workload(objective, course.lengths, course.trace, server.target.api),
        rehearsal=server.rehearsal,
        input_tokens=round(fmean(given for given, _ in course.lengths)),
        output_tokens=round(fmean(wanted for _, wanted in course.lengths)),
        warmup_s=objective.warmup_s,
        window_s=objective.window_s,
        prompt_seed=course.prompt_seed,
        rungs=course.rungs,
        not_played=ladder[len(course.rungs) :],
        ended=course.ended,
        notes=_notes(server, course.rungs),
        valid=not reasons,
        reasons=reasons,
    )


def _reasons(rungs: Sequence[MeasuredRung], ladder: Sequence[str], ended: Ended) -> list[str]:
    found = [str(doubt) for rung in rungs for doubt in rung.doubts if doubt.voids]
    left = ladder[len(rungs) :]
    if left:
        were = "was" if len(left) == 1 else "were"
        said = " and ".join(filter(None, (", ".join(left[:-1]), left[-1])))
        found.append(f"{_WHY_LEFT[ended]} {said} {were} not played")
    return found


_WHY_LEFT: Mapping[Ended, str] = {
    "interrupted": "interrupted:",
    "every request failed": "every request failed, so",
    "whole": "",
}


def _broken(rung: MeasuredRung) -> str:
    return ", ".join(dict.fromkeys(doubt.rule for doubt in rung.doubts if doubt.voids))


def _notes(server: Found, rungs: Sequence[MeasuredRung]) -> list[str]:
    remarks = [doubt for rung in rungs for doubt in rung.doubts if not doubt.voids]
    notes = [str(doubt) for doubt in remarks if doubt.rule != "percentiles"]
    few = [doubt for doubt in remarks if doubt.rule == "percentiles"]
    if few:
        where = ", ".join(f"{doubt.at} ({doubt.found:.0f})" for doubt in few)
        notes.append(
            f"p99 is of fewer than {few[0].limit:.0f} requests at {where}: read it as the largest; "
            "a longer window_s shows more"
        )
    notes += [
        f"at {rung.measurement.said}: measured twice, the first attempt was void "
        f"({_broken(rung.first)})"
        for rung in rungs
        if rung.first is not None
    ]
    if not server.recorded:
        notes.append(
            "through TLS or a proxy: timed by a stock client, whose own latency is in every number"
        )
    return notes + unobserved(rung.measurement for rung in rungs)
