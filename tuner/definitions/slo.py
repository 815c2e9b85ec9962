"""Service-level objectives as text: `ttft_ms p99 <= 500`, `output_tok_s >= 1000`. Pure."""

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self, cast, get_args

from tuner.definitions.nearest import did_you_mean
from tuner.errors import TunerError

Latency = Literal["ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"]
Rate = Literal["output_tok_s", "total_tok_s", "tok_s_per_user", "tok_s_per_gpu"]
Stat = Literal["p50", "p90", "p95", "p99", "mean", "max"]
Op = Literal["<=", "<", ">=", ">"]

LATENCIES: tuple[str, ...] = get_args(Latency)
PER_REQUEST = ("ttft_ms", "tpot_ms", "e2e_ms")
"""Latencies that a single request has: goodput is of those that keep all limits on them."""
RATES: tuple[str, ...] = get_args(Rate)
STATS: tuple[str, ...] = get_args(Stat)
LEAST_VALUES: Mapping[str, int] = {"p50": 2, "p90": 10, "p95": 20, "p99": 100}
"""How many values a percentile needs for one of them to lie beyond it: 1 / (1 - q)."""
_OF_TOKENS: Latency = "itl_ms"
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
}
_TOKEN = re.compile(r"[<>=!]+|[^\s<>=!]+")
_NUMBER = re.compile(r"\d+(\.\d*)?([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?")
_GRAMMAR = "METRIC STAT OP NUMBER, such as 'ttft_ms p99 <= 500' or 'output_tok_s >= 1000'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """One bound on what a rung measured; `stat` is None exactly where the metric is a rate.

    The metric has the name, and so the unit, of its field in a rung's measurement.
    """

    metric: Latency | Rate
    stat: Stat | None
    op: Op
    limit: float

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the grammar `METRIC STAT OP NUMBER`. Raises TunerError saying what is wrong."""
        metric, *rest = _TOKEN.findall(text) or [""]
        _expect(metric, (*LATENCIES, *RATES), "metric")
        stat = _take_stat(metric, rest)
        if len(rest) != 2:
            raise TunerError(f"found '{text}', expected {_GRAMMAR}")
        op, number = rest
        _expect(op, tuple(_COMPARE), "comparison")
        return cls(
            metric=cast("Latency | Rate", metric),
            stat=cast("Stat | None", stat),
            op=cast("Op", op),
            limit=_limit(number),
        )

    def met_by(self, value: float) -> bool:
        """Whether a measured value keeps to the bound; not a number never does."""
        return _COMPARE[self.op](value, self.limit)

    def __str__(self) -> str:
        words = [self.metric, self.stat, self.op, f"{self.limit:g}"]
        return " ".join(word for word in words if word is not None)


def of_single_requests(text: str) -> bool:
    """Whether a limit, right or wrong, is on a latency that single requests have."""
    metric, *_ = _TOKEN.findall(text) or [""]
    return metric in PER_REQUEST


def least_requests(slos: Iterable[str]) -> int:
    """How many whole requests a window needs for every percentile that is named.

    Raises TunerError where one cannot be read.
    """
    asked = [Slo.parse(text) for text in slos]
    of_requests = (slo for slo in asked if slo.metric in LATENCIES and slo.metric != _OF_TOKENS)
    return max((LEAST_VALUES.get(slo.stat or "", 1) for slo in of_requests), default=0)


def _take_stat(metric: str, rest: list[str]) -> str | None:
    """Remove the statistic from the front of what follows the metric."""
    is_word = bool(rest) and not _NUMBER.fullmatch(rest[0]) and not set(rest[0]) <= set("<>=!")
    if metric in RATES:
        if not is_word:
            return None
        raise TunerError(
            f"found the statistic '{rest[0]}', but {metric} is one number a rung",
            hint=f"write it without one: '{metric} >= 1000'",
        )
    if not is_word:
        raise TunerError(
            f"{metric} needs a statistic", hint=f"one of {', '.join(STATS)}: '{metric} p99 <= 500'"
        )
    _expect(rest[0], STATS, "statistic")
    return rest.pop(0)


def _expect(found: str, known: Sequence[str], kind: str) -> None:
    if not found:
        raise TunerError("found an empty text", hint=f"an SLO is {_GRAMMAR}")
    if found not in known:
        meant = did_you_mean(found, known)
        raise TunerError(f"unknown {kind} '{found}'{meant}", hint=f"one of {', '.join(known)}")


def _limit(text: str) -> float:
    limit = float(text) if _NUMBER.fullmatch(text) else math.inf
    if not math.isfinite(limit):
        raise TunerError(f"found '{text}', expected a number without a unit")
    return limit
