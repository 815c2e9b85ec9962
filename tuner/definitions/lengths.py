"""How long the requests of an objective are: one length, draws of a distribution, or a trace's."""

import math
import random
from statistics import NormalDist

from tuner.definitions.models import MAX_TOKENS, LengthDistribution, Objective
from tuner.definitions.trace import Trace

Lengths = tuple[tuple[int, int], ...]
"""(input, output) tokens of requests: one pair for all of them, or those of a trace."""
DRAWS = 1000
"""Requests that are drawn of a distribution; like those of a trace they come over and over."""
WARM_PROMPTS = 64
"""Prompts that are asked over and over where the prefix is warm and no trace names others."""
_HIGHEST = 10
"""Times the mean: what lengths are cut to where nothing is said."""


def lengths_of(objective: Objective, trace: Trace | None = None) -> Lengths:
    """The lengths of the objective's requests: those of its trace, its draws, or its one."""
    if trace is not None:
        return trace.lengths
    asked, answered = objective.input_tokens or 0, objective.output_tokens or 0
    warm = objective.prefix == "warm"
    if isinstance(asked, int) and isinstance(answered, int):
        return ((asked, answered),) * (WARM_PROMPTS if warm else 1)
    count, seed = WARM_PROMPTS if warm else DRAWS, objective.seeds.order
    given = drawn(asked, count, random.Random(f"{seed} input lengths"))  # noqa: S311  # repeatable
    wanted = drawn(answered, count, random.Random(f"{seed} output lengths"))  # noqa: S311
    return tuple(zip(given, wanted, strict=True))


def highest(lengths: LengthDistribution) -> int:
    """What no length exceeds."""
    usual = min(round(_HIGHEST * lengths.mean), MAX_TOKENS)
    return usual if lengths.high is None else lengths.high


def drawn(lengths: int | LengthDistribution, count: int, rng: random.Random) -> list[int]:
    """So many lengths in a random order: one from each of `count` equally likely parts, so that
    their mean and spread are those that were asked for, whatever the seed.

    A lognormal of mean m and standard deviation s has the parameters sigma^2 = ln(1 + s^2/m^2) and
    mu = ln m - sigma^2/2.
    """
    if isinstance(lengths, int):
        return [lengths] * count
    shares = [(place + rng.uniform(1e-9, 1 - 1e-9)) / count for place in range(count)]
    rng.shuffle(shares)
    low, high = lengths.low, highest(lengths)
    return [min(high, max(low, round(_quantile(lengths, share)))) for share in shares]


def _quantile(lengths: LengthDistribution, share: float) -> float:
    if lengths.distribution == "normal":
        return NormalDist(lengths.mean, lengths.sd).inv_cdf(share)
    variance = math.log1p((lengths.sd / lengths.mean) ** 2)
    middle = math.log(lengths.mean) - variance / 2
    return math.exp(NormalDist(middle, math.sqrt(variance)).inv_cdf(share))
