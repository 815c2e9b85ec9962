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
from tuner.errors import HttpError, HttpStatusError
from tuner.http.client import Http
from tuner.measuring.fidelity import Continuation, Distance, TokenScore, distance
from tuner.measuring.passages import OUTPUT_TOKENS, TEXTS, unwritten
from tuner.night.course import Course, Serving, TrialOrder

logger = logging.getLogger(__name__)

PATIENCE_S = 300.0
"""For a continuation, in real seconds: behind a full queue it waits for all that came before."""
SCORED_AT_ONCE = 8

Found = TypeVar("Found")


def continuing(
    order: TrialOrder, serving: Serving, course: Course, index: int
) -> Callable[[], Awaitable[None]] | None:
    """What continues the passages under the load of the rung of this index and adds them to the
    course; None at all rungs but the lightest and the heaviest."""
    levels = [rung.level for rung in order.objective.ladder]
    level, at_once = levels[index], order.objective.ladder[index].concurrency
    if level not in (min(levels), max(levels)):
        return None

    async def ask() -> None:
        try:
            found = await _continued(serving, level, at_once or len(TEXTS))
        except HttpError as error:  # of a server that died its watch says so
            _cannot(order, course, f"its output could not be asked for: {error.message}")
            return
        # a rung that is played again is asked again
        course.continuations = [c for c in course.continuations if c.level != level] + found

    return ask


async def _continued(serving: Serving, level: float, at_once: int) -> list[Continuation]:
    """Of every passage, dealt out over the servers. Raises HttpError.

    No more are asked at once than the rung itself asks: all of them would be another, heavier load
    than the lightest one, and whoever dies of that would take the rung's numbers along.
    """
    engine, https = serving.engine, serving.https
    gate = asyncio.Semaphore(at_once)
    passages = await _passages(engine, https[0])

    async def one(place: int, prompt: list[int]) -> Continuation:
        http = https[place % len(https)]
        async with gate:
            output = await engine.continuation(http, prompt, OUTPUT_TOKENS, PATIENCE_S)
        return Continuation(level=level, prompt=tuple(prompt), output=tuple(output))

    return await _all(one(place, prompt) for place, prompt in enumerate(passages))


async def _passages(engine: Engine, http: Http) -> list[list[int]]:
    """As the server reads them; of ids where it has no tokenizer. Raises HttpError."""
    read = [await engine.tokens(http, text) for text in TEXTS]
    passages = [tokens for tokens in read if tokens]
    return passages if len(passages) == len(TEXTS) else unwritten()


async def rescore(order: TrialOrder, serving: Serving, course: Course) -> None:
    """Where this is the baseline and it has served: score what earlier launches said, those of the
    baseline included, and what it has said itself."""
    if order.kind != "baseline" or course.outcome == "failed":
        return
    begun = time.perf_counter()
    said = {**order.to_rescore, order.number: course.continuations}
    for number, continuations in said.items():
        if not continuations:
            continue
        try:
            course.rescored[number] = await _distances(serving, continuations)
        except HttpError as error:
            _cannot(order, course, f"trial {number} could not be scored: {error.message}")
            if not isinstance(error, HttpStatusError):
                break
    course.phase_s["score"] = time.perf_counter() - begun


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


def _cannot(order: TrialOrder, course: Course, why: str) -> None:
    logger.warning("trial %d: %s", order.number, why)
    course.not_compared = course.not_compared or why
