"""When the requests of an open loop are due: absolute times from the load's beginning. Pure.

A time is never the last one plus a gap that was slept: what one send is late does not make the next
one late, and the same seed gives the same times to every configuration that is compared.
"""

import random
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Literal

Arrivals = Literal["poisson", "constant", "trace"]


def due_times(
    arrivals: Arrivals,
    rate: float,
    *,
    seed: int,
    rung_index: int,
    offsets_s: Sequence[float] = (),
) -> Iterator[float]:
    """Rising times without end, `rate` of them a second on average.

    * poisson: exponential gaps of mean 1 / rate, drawn from the seed; the first is at 0.
    * constant: gaps of 1 / rate.
    * trace: gaps in proportion to those of `offsets_s` (each request's time, at least one, in any
      unit that does not fall), which come over and over; the gap back to the first is the mean one.
    """
    if arrivals == "poisson":
        return _poisson(rate, random.Random(f"{seed} {rung_index} arrivals"))  # noqa: S311
    if arrivals == "constant":
        return (number / rate for number in count())
    return _recorded(rate, offsets_s)


def _poisson(rate: float, rng: random.Random) -> Iterator[float]:
    at_s = 0.0
    while True:
        yield at_s
        at_s += rng.expovariate(rate)


def _recorded(rate: float, offsets_s: Sequence[float]) -> Iterator[float]:
    """One pass takes as long as its requests take at the rate."""
    first, last, number = offsets_s[0], offsets_s[-1], len(offsets_s)
    pass_s = number / rate
    scale = (pass_s - 1 / rate) / (last - first) if last > first else 0.0
    for turn in count():
        yield from (turn * pass_s + (offset - first) * scale for offset in offsets_s)
