"""What a server must be asked before a load: how it counts words, and what prompts share."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from tuner.errors import HttpError
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


def prompts_for(
    target: Target, plan: RungPlan, *, index: int = 0, of: int = 1
) -> Prompts[int] | Prompts[str]:
    """The prompts of a rung as its server takes them; those of the `index`-th of `of` processes
    that play it together."""
    made = PromptPlan(
        seed=plan.prompt_seed,
        rung_index=plan.rung_index,
        longest=max(given + wanted for given, wanted in plan.lengths),
        prefix=plan.prefix,
        index=index,
        of=of,
        texts=() if DIALECTS[target.api].takes_ids else plan.texts,
    )
    if DIALECTS[target.api].takes_ids:
        return prompts_of_ids(made, target.vocab_size)
    return prompts_of_words(made, target.words)


async def readied(target: Target, plan: RungPlan) -> Target:
    """The target, its count of words known where it takes text only, and all of its servers asked
    what prompts will share.

    A server that does not answer is left to the load, whose requests then fail in its sight.
    """
    if not DIALECTS[target.api].takes_ids:
        target = replace(target, words=await _word_rate(target, plan))
    primers = prompts_for(target, plan).primers(plan.lengths)
    if primers:
        for url in (target.base_url, *target.replicas):
            await _prime(target, url, primers)
    return target


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


async def _prime(target: Target, url: str, prompts: Sequence[Prompt]) -> None:
    left: Iterator[Prompt] = iter(prompts)

    async def work(channel: Channel) -> None:
        for prompt in left:
            if await _ask(target, channel, prompt) is None:
                return

    async with _channels(target, url, min(_AT_ONCE, len(prompts))) as channels:
        await asyncio.gather(*map(work, channels))


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
