"""Whether a launch says what the baseline says: passages continued under load, scored by it later.

A launch continues the fixed passages at the lightest and at the heaviest rung, once the window has
ended and under the same load: faults of batching, overlap and graphs live there. The next launch
of the baseline scores what came since and what it said itself, after its own ladder, so that
nothing it measures depends on it.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import TypeVar

from tuner.engines.base import Engine
from tuner.errors import HttpError, HttpUnreachable
from tuner.http.client import Http
from tuner.measuring.fidelity import Continuation, Distance, TokenScore, distance
from tuner.measuring.passages import OUTPUT_TOKENS, TEXTS, unwritten
from tuner.night.course import Course, Serving, TrialOrder
from tuner.night.patience import FIRST_TOKEN
from tuner.night.silence import SILENCE

logger = logging.getLogger(__name__)

PATIENCE_S = 300.0
"""For a continuation, in real seconds: behind a full queue it waits for all that came before. Less
where a server that stalls is waited for less: no token comes later than the first may."""
SCORED_AT_ONCE = 8

Found = TypeVar("Found")


def continuing(
    order: TrialOrder, serving: Serving, course: Course, index: int
) -> Callable[[], Awaitable[None]] | None:
    """What continues the passages under the load of the rung of this index and adds them to the
    course; None at all rungs but the lightest and the heaviest, and where a server was silent at
    the first attempt: one that hangs is not waited for twice."""
    levels = [rung.level for rung in order.objective.ladder]
    level, users = levels[index], order.objective.ladder[index].concurrency
    if level not in (min(levels), max(levels)) or _was_silent(course, level):
        return None
    at_once = len(TEXTS) if users is None else order.replicas.streams(users)
    patience_s = min(PATIENCE_S, FIRST_TOKEN * order.launch.engine.stall_timeout_s)

    async def ask() -> None:
        try:
            found = await _continued(serving, level, at_once, patience_s)
        except HttpError as error:  # of a server that died its watch says so
            not_compared(order, course, f"its output could not be asked for: {error.message}")
            return
        # a rung that is played again is asked again
        course.continuations = [c for c in course.continuations if c.level != level] + found

    return ask


def _was_silent(course: Course, level: float) -> bool:
    return any(
        doubt.rule == SILENCE
        for attempt in course.invalid
        if attempt.level == level
        for doubt in attempt.doubts
    )


async def _continued(
    serving: Serving, level: float, at_once: int, patience_s: float
) -> list[Continuation]:
    """Of every passage, dealt out over the servers. Raises HttpError.

    No more are asked at once than the rung itself asks of these servers: all of them would be
    another, heavier load than the lightest one, and whoever dies of that would take the rung's
    numbers along.
    """
    engine, https = serving.engine, serving.https
    gate = asyncio.Semaphore(at_once)
    passages = await _passages(engine, https[0])

    async def one(place: int, prompt: list[int]) -> Continuation:
        http = https[place % len(https)]
        async with gate:
            output = await engine.continuation(http, prompt, OUTPUT_TOKENS, patience_s)
        return Continuation(level=level, prompt=tuple(prompt), output=tuple(output))

    return await _all(one(place, prompt) for place, prompt in enumerate(passages))


async def _passages(engine: Engine, http: Http) -> list[list[int]]:
    """As the server reads them; of ids where it has no tokenizer. Raises HttpError."""
    read = [await engine.tokens(http, text) for text in TEXTS]
    passages = [tokens for tokens in read if tokens]
    return passages if len(passages) == len(TEXTS) else unwritten()


async def rescore(order: TrialOrder, serving: Serving, course: Course) -> bool:
    """Where this is the baseline and it has served: score what it has said itself, without which
    nothing is judged, then what earlier launches said, those of the baseline included. True once
    that is done, as far as it can be."""
    if order.kind != "baseline" or course.outcome == "failed":
        return True
    begun = time.perf_counter()
    said = {order.number: course.continuations, **order.to_rescore}
    for number, continuations in said.items():
        if not continuations:
            continue
        try:
            course.rescored[number] = await _distances(serving, continuations)
        except HttpError as error:
            why = f"trial {number} could not be scored: {error.message}"
            course.not_scored[number] = why
            if number == order.number:
                not_compared(order, course, why)
            else:
                logger.warning("trial %d: %s", order.number, why)
            if isinstance(error, HttpUnreachable):  # so are those that come after it
                break
    course.phase_s["score"] = time.perf_counter() - begun
    return True


async def _distances(serving: Serving, spoken: Sequence[Continuation]) -> list[Distance]:
    """By level. Raises HttpError."""
    gate = asyncio.Semaphore(SCORED_AT_ONCE)

    async def one(continuation: Continuation) -> list[TokenScore]:
        if not continuation.output:
            return []
        async with gate:
            engine, http = serving.engine, serving.https[0]
            return await engine.scores(http, continuation.prompt, continuation.output)

    scores = await _all(map(one, spoken))
    by_level: dict[float, list[list[TokenScore]]] = {}
    for continuation, scored in zip(spoken, scores, strict=True):
        by_level.setdefault(continuation.level, []).append(scored)
    return [distance(level, OUTPUT_TOKENS, scored) for level, scored in by_level.items()]


async def _all(work: Iterable[Coroutine[None, None, Found]]) -> list[Found]:
    """All results in their order; where one fails the others are ended first."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def not_compared(order: TrialOrder, course: Course, why: str) -> None:
    """Keep why a launch's own output is not compared, the first reason of several."""
    logger.warning("trial %d: %s", order.number, why)
    course.not_compared = course.not_compared or why
