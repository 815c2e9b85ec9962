"""What a server must be asked before a load: how it counts words, and what prompts share."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from time import perf_counter

from tuner.errors import HttpError
from tuner.http.client import public_url
from tuner.load.channels import Channel, open_channels
from tuner.load.dialects import DIALECTS, Reply, decode
from tuner.load.plan import RungPlan, Target
from tuner.load.prompts import (
    Prompt,
    PromptPlan,
    Prompts,
    WordRate,
    prompts_of_ids,
    prompts_of_words,
)

PROBE_WORDS = (8, 72)
"""The two questions that show what a word is and what the template adds."""
_AT_ONCE = 8
_REFUSALS = 3
"""In a row, asked one at a time: a server that will not be told."""
LONGEST_PRIMING_S = 600.0
_TOLD_EVERY_S = 10.0
_PAUSE_S = 0.1

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Readied:
    """A target that was asked what must be asked first: `primed` of `primers` requests, over all of
    its servers, were answered."""

    target: Target
    primers: int = 0
    primed: int = 0


def prompts_for(
    target: Target, plan: RungPlan, *, index: int = 0, of: int = 1
) -> Prompts[int] | Prompts[str]:
    """The prompts of a rung as its server takes them; those of the `index`-th of `of` processes
    that play it together."""
    made = PromptPlan(
        seed=plan.prompt_seed,
        rung_index=plan.rung_index + plan.prompt_offset,
        longest=max(given + wanted for given, wanted in plan.lengths),
        prefix=plan.prefix,
        index=index,
        of=of,
        texts=() if DIALECTS[target.api].takes_ids else plan.texts,
    )
    if DIALECTS[target.api].takes_ids:
        return prompts_of_ids(made, target.vocab_size)
    return prompts_of_words(made, target.words)


async def readied(target: Target, plan: RungPlan) -> Readied:
    """The target, its count of words known where it takes text only, and all of its servers asked
    what prompts will share, each for `LONGEST_PRIMING_S` real seconds at the most.

    A server that does not answer is left to the load, whose requests then fail in its sight.
    """
    if not DIALECTS[target.api].takes_ids:
        target = replace(target, words=await _word_rate(target, plan))
    if plan.prefix == "cold":
        return Readied(target=target)
    primers = prompts_for(target, plan).primers(plan.lengths)
    urls = (target.base_url, *target.replicas) if primers else ()
    primed = [await _Priming(target, url, primers).primed() for url in urls]
    return Readied(target=target, primers=len(urls) * len(primers), primed=sum(primed))


async def _word_rate(target: Target, plan: RungPlan) -> WordRate:
    prompts = prompts_for(target, plan)
    counts: list[int] = []
    async with _channels(target, target.base_url, 1) as (channel,):
        for place, words in enumerate(PROBE_WORDS):
            reply = await _ask(target, channel, prompts.unheard(words, place))
            if reply is None or reply.input_tokens is None:
                return target.words
            counts.append(reply.input_tokens)
    per_word = (counts[1] - counts[0]) / (PROBE_WORDS[1] - PROBE_WORDS[0])
    if per_word <= 0:
        return target.words
    return WordRate(per_word, counts[0] - per_word * PROBE_WORDS[0])


class _Priming:
    """One server is asked all primers: several at once, and what it refuses again one by one."""

    def __init__(self, target: Target, url: str, primers: Sequence[Prompt]) -> None:
        self._target = target
        self._url = url
        self._wanted = len(primers)
        self._left = deque(primers)
        self._primed = 0
        self._told_s = perf_counter()

    async def primed(self) -> int:
        """How many were answered."""
        at_once = min(_AT_ONCE, self._wanted)
        with suppress(TimeoutError):
            async with (
                asyncio.timeout(LONGEST_PRIMING_S),
                _channels(self._target, self._url, at_once) as channels,
            ):
                await asyncio.gather(*(self._work(channel, 1) for channel in channels))
                await self._work(channels[0], _REFUSALS)
        return self._primed

    async def _work(self, channel: Channel, refusals: int) -> None:
        """Ask until all were asked, or so many were refused in a row."""
        refused = 0
        while self._left and refused < refusals:
            prompt = self._left.popleft()
            reply = await _ask(self._target, channel, prompt)
            if reply is None:
                self._left.append(prompt)
                refused += 1
                await asyncio.sleep(_PAUSE_S)
                continue
            refused = 0
            self._primed += 1
            self._tell()

    def _tell(self) -> None:
        if perf_counter() - self._told_s > _TOLD_EVERY_S:
            self._told_s = perf_counter()
            where = public_url(self._url)
            log.info("%s: knows %d of %d prompts", where, self._primed, self._wanted)


@asynccontextmanager
async def _channels(target: Target, url: str, count: int) -> AsyncIterator[list[Channel]]:
    path = DIALECTS[target.api].path
    channels = open_channels(url.rstrip("/") + path, count, key=target.key)
    try:
        yield channels
    finally:
        for channel in channels:
            await channel.close()


async def _ask(target: Target, channel: Channel, prompt: Prompt) -> Reply | None:
    """A request for one token; None where it failed."""
    dialect = DIALECTS[target.api]
    try:
        reply = decode(await channel.post(dialect.body(target.model, prompt, 1)), dialect)
    except HttpError:
        return None
    return None if reply.error else reply
