"""Is the output still the baseline's? What the load itself shows: empty, repeated, cut short.

A first gate only: it catches servers that answer fast with nothing in it. Output that is fluent and
wrong passes it, and is caught by its distance (`fidelity`). Shares are held against the baseline's
own, since a small or random model repeats itself however it is served. Pure.
"""

import math
import zlib
from collections.abc import Iterable

from tuner.frozen import Frozen
from tuner.measuring.measurement import RequestTiming

LEAST_TOKENS = 16
"""Fewer tokens than this look repetitive by chance."""
REPEATED_RATIO = 0.2
"""Text that deflates to less than this share of its length says one thing over and over: prose
deflates to about half, a sentence told twenty times to about a tenth."""
TAILS = 2
"""The last half of an answer is looked at alone: a decode that breaks down begins well."""
LEAST_REQUESTS = 3
LEAST_EXCESS = 0.01
"""So many faulty requests, and so much more than the baseline's share, may be no accident: one in a
hundred passes however sure, since a configuration is not refused for less."""
CHANCE = 1e-4
"""And are none where requests that are no worse than the baseline's would show them so rarely."""


class OutputQuality(Frozen):
    """Requests whose output could be judged, and how many of them are faulty in each way."""

    requests: int = 0
    empty: int = 0
    repeated: int = 0
    short: int = 0

    def __add__(self, other: "OutputQuality") -> "OutputQuality":
        return OutputQuality(
            requests=self.requests + other.requests,
            empty=self.empty + other.empty,
            repeated=self.repeated + other.repeated,
            short=self.short + other.short,
        )


def output_quality(timings: Iterable[RequestTiming]) -> OutputQuality:
    """Judge every request that came far enough, whether or not it was cut by the window's end."""
    return sum((_judge(timing) for timing in timings if _judged(timing)), OutputQuality())


def _judged(timing: RequestTiming) -> bool:
    finished = timing.done_s is not None
    return timing.error is None and (finished or timing.output_tokens >= LEAST_TOKENS)


def _judge(timing: RequestTiming) -> OutputQuality:
    text = timing.text.strip()
    finished = timing.done_s is not None
    return OutputQuality(
        requests=1,
        empty=int(not text),
        repeated=int(timing.output_tokens >= LEAST_TOKENS and _repeats(text)),
        short=int(finished and timing.output_tokens < timing.requested_tokens),
    )


def _repeats(text: str) -> bool:
    """Whether a text, or its last half, says one thing over and over."""
    content = text.encode()
    half = len(content) // TAILS
    return _deflates(content) or (half >= LEAST_TOKENS and _deflates(content[-half:]))


def _deflates(content: bytes) -> bool:
    # deflate has some 11 bytes of its own, which would let short texts pass
    return len(content) > 0 and len(zlib.compress(content)) - 11 < REPEATED_RATIO * len(content)


def wrong_output(found: OutputQuality, baseline: OutputQuality) -> str | None:
    """What is wrong that is right in the baseline's output, with both shares; else None.

    Both at one level of load: where many are asked for, other prompts are answered. An excess is
    judged by Fisher's exact test, one-sided.
    """
    if not found.requests or not baseline.requests:
        return None
    for fault in ("empty", "repeated", "short"):
        faulty, usual = getattr(found, fault), getattr(baseline, fault)
        share, base = faulty / found.requests, usual / baseline.requests
        everyone = found.requests + baseline.requests
        if (
            faulty >= LEAST_REQUESTS
            and share - base > LEAST_EXCESS
            and _tail(faulty, faulty + usual, found.requests, everyone) < CHANCE
        ):
            return f"output is {fault} in {share:.0%} of the requests, in the baseline's {base:.0%}"
    return None


def _tail(least: int, marked: int, drawn: int, everyone: int) -> float:
    """The chance that of `drawn` out of `everyone`, of whom some are `marked`, so many at the least
    are: the hypergeometric distribution's tail, which is that of Fisher's exact test."""
    whole = _log_choices(everyone, drawn)
    return math.fsum(
        math.exp(_log_choices(marked, hits) + _log_choices(everyone - marked, drawn - hits) - whole)
        for hits in range(max(least, drawn - (everyone - marked)), min(marked, drawn) + 1)
    )


def _log_choices(things: int, taken: int) -> float:
    return math.lgamma(things + 1) - math.lgamma(taken + 1) - math.lgamma(things - taken + 1)
