"""How far is what a launch said from what the baseline would have said? Pure.

Greedy continuations that a launch gave under load are scored by the baseline, token by token,
each after all that stood before it: how much likelier was the token that the baseline itself would
have said? Nothing but rounding lies between them where both compute the same, whatever the batch,
the attention backend or the order of a sum; a token that is only just another one costs nearly
nothing, however different the text that follows. So a distance in nat a token tells rounding from
faults that a comparison of texts cannot tell apart.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tuner.frozen import Frozen

SURE_NAT = 0.5
"""The baseline is sure of a token that leads the next by so much."""
MOST_NAT = 10.0
"""More than this a single token never counts: one of them is wrong, however wrong."""
FLOOR_NAT = 0.02
FLOOR_LEAD_SHARE = 0.02
FLOOR_SHARE = 0.02
"""What is tolerated whatever the baseline shows: few launches may agree by chance, and another
kernel rounds otherwise than two launches of one. Where all tokens are nearly alike, as to a model
of random weights, so is a wrong one: there it is a share of the lead that the best token has."""
TIMES = 3.0
"""How many times the baseline's own largest distance is tolerated."""
MISSING_SHARE = 0.05
LEAST_LAUNCHES = 2
"""Launches of the baseline that must have been scored before anything else is held against them."""
LEAST_SURE_SHARE = 0.2
"""Below it the baseline hardly knows what to say, as a model of random weights does not."""


class Continuation(Frozen):
    """What one passage was continued with, as token ids, at one level of the ladder."""

    level: float
    prompt: tuple[int, ...]
    output: tuple[int, ...]


class TokenScore(NamedTuple):
    """Log-probabilities that the baseline gives to a token that was said, to the one that it would
    have said, and to the next after that."""

    said: float
    best: float
    second: float


class Distance(Frozen):
    """How far the continuations at one level are from the baseline's.

    `gap_nat` is the mean, over `tokens`, of how much likelier the baseline's own token was. `flips`
    counts tokens that it surely would not have said (a gap above 0.5 nat), `sure` those where it
    knew what to say, `missing` those that were asked for and did not come. By `lead_nat`, on
    average, its own token led the next.
    """

    level: float
    tokens: int
    gap_nat: float
    lead_nat: float
    flips: int
    sure: int
    missing: int = 0

    @property
    def flip_share(self) -> float:
        """Of the tokens that came."""
        return self.flips / self.tokens if self.tokens else 0.0

    @property
    def sure_share(self) -> float:
        """Of the tokens that came."""
        return self.sure / self.tokens if self.tokens else 0.0

    @property
    def missing_share(self) -> float:
        """Of the tokens that were asked for."""
        return self.missing / (self.tokens + self.missing) if self.missing else 0.0

    def __str__(self) -> str:
        return (
            f"{self.gap_nat:.2g} nat per token from the baseline's at {self.level:g}, with"
            f" {percent(self.flip_share)} of tokens that it would not have said"
        )


def percent(share: float) -> str:
    """A share with one decimal at most: `2 %`, `9.5 %`."""
    return f"{round(100 * share, 1):g} %"


def distance(level: float, asked: int, scored: Iterable[Sequence[TokenScore]]) -> Distance:
    """The distance of continuations of `asked` tokens each from the scores of their tokens."""
    answers = list(scored)
    scores = [score for answer in answers for score in answer]
    gaps = [_capped(score.best - score.said) for score in scores]
    leads = [_capped(score.best - score.second) for score in scores]
    return Distance(
        level=level,
        tokens=len(scores),
        gap_nat=_mean(gaps),
        lead_nat=_mean(leads),
        flips=sum(gap > SURE_NAT for gap in gaps),
        sure=sum(lead > SURE_NAT for lead in leads),
        missing=sum(max(0, asked - len(answer)) for answer in answers),
    )


def _capped(nat: float) -> float:
    return min(max(nat, 0.0), MOST_NAT) if math.isfinite(nat) else MOST_NAT


def _mean(values: Sequence[float]) -> float:
    return round(math.fsum(values) / len(values), 6) if values else 0.0


class Tolerance(Frozen):
    """How far a launch may be: so many times as far as the baseline's own launches at the most, and
    a floor; `launches` says how many those were, `own_nat` and `own_share` how far the furthest
    was."""

    gap_nat: float
    flip_share: float
    missing_share: float
    own_nat: float
    own_share: float
    launches: int

    def exceeded(self, found: Distance) -> str:
        """In what way a distance is beyond it, with both numbers; empty where it is not."""
        own = "the baseline's own launches: at most"
        if found.gap_nat > self.gap_nat:
            return f"{found} (limit {self.gap_nat:.2g} nat; {own} {self.own_nat:.2g})"
        if found.flip_share > self.flip_share:
            return f"{found} (limit {percent(self.flip_share)}; {own} {percent(self.own_share)})"
        if found.missing_share > self.missing_share:
            return f"short of {percent(found.missing_share)} of the tokens that were asked for"
        return ""


def tolerance(own: Sequence[Sequence[Distance]]) -> Tolerance | None:
    """What the baseline's launches tolerate, each given by its distances; None while too few are
    known.

    Its launches are the same computation at other batch sizes and other times, so their furthest
    distance is what rounding does here. With few launches no quantile of such a tail can be
    estimated: the largest is taken, times a factor, over a floor.
    """
    launches = [distances for distances in own if distances]
    if len(launches) < LEAST_LAUNCHES:
        return None
    found = [distance for distances in launches for distance in distances]
    own_nat = max(distance.gap_nat for distance in found)
    own_share = max(distance.flip_share for distance in found)
    lead_nat = math.fsum(distance.lead_nat for distance in found) / len(found)
    return Tolerance(
        gap_nat=min(FLOOR_NAT, FLOOR_LEAD_SHARE * lead_nat) + TIMES * own_nat,
        flip_share=FLOOR_SHARE + TIMES * own_share,
        missing_share=MISSING_SHARE + max(distance.missing_share for distance in found),
        own_nat=own_nat,
        own_share=own_share,
        launches=len(launches),
    )
