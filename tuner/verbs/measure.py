"""The instrument alone: the load of an objective on any running server, and if to believe it."""

import logging
import resource
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Literal, Protocol

from tuner.definitions.models import Objective, Rung
from tuner.definitions.slo import Slo
from tuner.definitions.trace import Trace
from tuner.definitions.validation import Lengths, lengths_of, load_objective
from tuner.definitions.workload import Workload, workload
from tuner.errors import HttpError, TunerError
from tuner.frozen import Frozen
from tuner.http.client import Http
from tuner.load import Api, Played, RungPlan, play, run
from tuner.measuring.measurement import RungMeasurement, measure
from tuner.measuring.observed import Doubt, Observed
from tuner.measuring.validity import doubts
from tuner.verbs.explain import EngineName
from tuner.verbs.servers import Found, find, key_of
from tuner.verdicts.score import slo_breaches

DEFAULT = Objective(
    ladder=[Rung(concurrency=1), Rung(concurrency=10), Rung(concurrency=64)],
    input_tokens=256,
    output_tokens=128,
    warmup_s=5.0,
    window_s=10.0,
)
"""What is played where no objective is given: three quarters of a minute."""

_SPARE_DESCRIPTORS = 64


class MeasuredRung(Frozen):
    """One rung: its numbers, what the load generator saw of itself, what speaks against them."""

    measurement: RungMeasurement
    observed: Observed
    doubts: list[Doubt]
    breaches: list[str]


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
    ended: Literal["whole", "interrupted", "nobody answers"]
    notes: list[str]
    valid: bool
    reasons: list[str]


class Listener(Protocol):
    """Hears how far a measurement is."""

    def found(self, server: Found, objective: Objective) -> None:
        """A server was found, and this will be played."""
        ...

    def window(self, rung: int, seconds_left: float, load: tuple[float, float] | None) -> None:
        """A rung's window is open, for so long still; `load` is (running, queued) where known."""
        ...

    def started(self, rung: int, seconds: float) -> None:
        """A rung began; it takes about so long."""
        ...

    def ended(self, rung: MeasuredRung) -> None:
        """A rung's numbers are there."""
        ...


@dataclass(slots=True, kw_only=True)
class _Course:
    """What was measured so far: kept whatever interrupts the rest."""

    server: Found
    objective: Objective
    lengths: Lengths
    trace: Trace | None
    prompt_seed: int
    gpus: int
    rungs: list[MeasuredRung] = field(default_factory=list)
    ended: Literal["whole", "interrupted", "nobody answers"] = "whole"


def measure_server(
    url: str,
    objective: Path | None,
    listener: Listener,
    *,
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
    asked, lengths, trace = (
        (DEFAULT, lengths_of(DEFAULT), None) if objective is None else load_objective(objective)
    )
    _refuse_few_descriptors(asked)
    key = key_of(key_variable)
    server = run(find(url, api=api or asked.api, model=model, engine=engine, key=key))
    _refuse_too_long(server, lengths)
    seed = secrets.randbelow(2**31)
    asked = asked.model_copy(update={"api": server.target.api})
    course = _Course(
        server=server,
        objective=asked,
        lengths=lengths,
        trace=trace,
        prompt_seed=seed,
        gpus=gpus,
    )
    listener.found(server, asked)
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


def _refuse_few_descriptors(objective: Objective) -> None:
    most = max(rung.concurrency or 0 for rung in objective.ladder)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < most + _SPARE_DESCRIPTORS:
        raise TunerError(
            f"{most} streams need {most + _SPARE_DESCRIPTORS} open files, and {hard} are allowed",
            hint=f"Raise the hard limit: ulimit -Hn {2 * most} (in docker: --ulimit nofile=...).",
        )


def _refuse_too_long(server: Found, lengths: Lengths) -> None:
    longest = max(lengths, key=sum)
    asked = sum(longest)
    if server.longest is not None and asked > server.longest:
        raise TunerError(
            f"the objective asks for {asked} tokens a request ({longest[0]} in, "
            f"{longest[1]} out), and the server takes at most {server.longest}",
            hint="Give an objective with shorter requests: --objective FILE.",
        )


async def _climb(course: _Course, listener: Listener) -> None:
    target = course.server.target
    async with Http(target.base_url, key=target.key) as http:
        for index, rung in enumerate(course.objective.ladder):
            measured = await _play(course, http, index, listener)
            course.rungs.append(measured)
            listener.ended(measured)
            if measured.measurement.output_tok_s == 0 and measured.measurement.requests_failed:
                course.ended = "nobody answers" if rung != course.objective.ladder[-1] else "whole"
                return


async def _play(course: _Course, http: Http, index: int, listener: Listener) -> MeasuredRung:
    objective = course.objective
    listener.started(index, objective.warmup_s + objective.window_s)
    watch = _Watch(course.server, http, objective.window_s, index, listener)
    plan = RungPlan.of(
        objective,
        index,
        lengths=course.lengths,
        prompt_seed=course.prompt_seed,
        texts=() if course.trace is None else course.trace.texts,
        offsets_s=(course.trace and course.trace.offsets_s) or (),
    )
    played = await play(course.server.target, plan, probe=watch.look)
    return _judged(course, objective.ladder[index], played)


def _judged(course: _Course, rung: Rung, played: Played) -> MeasuredRung:
    slos = [Slo.parse(text) for text in course.objective.slos_at(rung)]
    measured = measure(
        played.timings,
        concurrency=rung.concurrency,
        request_rate=rung.request_rate,
        start_s=played.start_s,
        end_s=played.end_s,
        gpus=course.gpus,
        load_samples=played.load_samples,
        lags_s=played.lags_s,
        unsent_s=played.unsent_s,
        slos=slos,
    )
    seen = played.observed()
    only_this = course.objective.model_copy(update={"ladder": [rung]})
    return MeasuredRung(
        measurement=measured,
        observed=seen,
        doubts=doubts(measured, seen, slos),
        breaches=[str(breach) for breach in slo_breaches([measured], only_this)],
    )


class _Watch:
    """Looks a few times a second while a window is open: at the engine, for whoever listens."""

    def __init__(
        self, server: Found, http: Http, window_s: float, rung: int, listener: Listener
    ) -> None:
        self._engine = server.asked
        self._http = http
        self._window_s = window_s
        self._rung = rung
        self._listener = listener
        self._begun_s: float | None = None

    async def look(self) -> tuple[float, float] | None:
        """Running and queued requests, where the engine says."""
        self._begun_s = self._begun_s or time.perf_counter()
        load = await self._load()
        left_s = self._window_s - (time.perf_counter() - self._begun_s)
        self._listener.window(self._rung, max(left_s, 0.0), load)
        return load

    async def _load(self) -> tuple[float, float] | None:
        if self._engine is not None:
            with suppress(HttpError):
                load = await self._engine.load_now(self._http)
                if load is not None:
                    return load
            self._engine = None  # it has no metrics: asking again would only disturb it
        return None


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


def _reasons(rungs: Sequence[MeasuredRung], ladder: Sequence[str], ended: str) -> list[str]:
    found = [str(doubt) for rung in rungs for doubt in rung.doubts if doubt.voids]
    left = ", ".join(ladder[len(rungs) :])
    if left:
        found.append(f"{ended}: {left} of the ladder not measured")
    return found


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
    if not server.recorded:
        notes.append(
            "through TLS or a proxy: timed by a stock client, whose own latency is in every number"
        )
    return notes
