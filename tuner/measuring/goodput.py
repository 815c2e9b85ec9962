"""Goodput: the requests a second that met every latency limit. Pure.

After DistServe (Zhong et al., OSDI 2024), which counts requests within both a TTFT and a TPOT
limit; `vllm bench serve --goodput` counts the same way, and takes limits on E2E too. A limit of an
objective is on a percentile of many requests, here it is held against each one: of several on one
latency the loosest counts, since a tighter one on a lower percentile is not meant for all.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from tuner.definitions.slo import PER_REQUEST, Slo
from tuner.measuring.timing import RequestTiming

_LATENCIES: Mapping[str, Callable[[RequestTiming], float | None]] = {
    "ttft_ms": lambda timing: timing.ttft_s,
    "tpot_ms": lambda timing: timing.tpot_s,
    "e2e_ms": lambda timing: timing.e2e_s,
}


def goodput_rps(
    ended: Sequence[RequestTiming], slos: Iterable[Slo], length_s: float
) -> float | None:
    """The rate of those requests, of all that came to a good end in a window of that length, that
    met each limit on `PER_REQUEST` latencies; None where there is no such limit.

    A latency that a request does not have (a pace between tokens, with one token) is met.
    """
    limits: dict[str, list[Slo]] = {}
    for slo in slos:
        if slo.metric in PER_REQUEST:
            limits.setdefault(slo.metric, []).append(slo)
    if not limits or length_s <= 0:
        return None
    return sum(all(_met(t, limits[metric]) for metric in limits) for t in ended) / length_s


def _met(timing: RequestTiming, limits: Sequence[Slo]) -> bool:
    """Whether any limit of one latency is kept: the loosest, where there are several."""
    value_s = _LATENCIES[limits[0].metric](timing)
    return value_s is None or any(slo.met_by(value_s * 1000) for slo in limits)
