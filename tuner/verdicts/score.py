"""What a launch is worth: ratios to the baseline over the ladder, and the limits it broke. Pure.

The score is the weighted geometric mean of throughput ratios, the mean that gives the same order
whatever the ratios are taken against (Fleming & Wallace, CACM 29(3), 1986).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tuner.definitions.models import Objective
from tuner.definitions.slo import LATENCIES, Slo
from tuner.measuring.measurement import RungMeasurement

FAILED_SHARE_LIMIT = 0.01
"""Above this share of failed requests a rung is refused, however fast the others were."""

PLAUSIBLE_RATIO = 1.5
"""What a rung not yet measured may still gain over the baseline, where the study has seen no
more. Single flags are known to give up to about 1.3x, whole campaigns about 1.6x; a server start
costs more than a rung, so a wrong prune costs more than a rung too many."""

SPREAD = 3.0
"""Standard deviations of a launch that count as noise in pruning: the deviation itself comes from
few launches and may be far too small."""

MIN_SD = 0.01
UNKNOWN_SD = 0.05
"""Relative launch-to-launch deviation assumed at the least, and where a rung has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """A limit that a rung broke; `found` is None where the window could not show the number."""

    concurrency: int
    limit: str
    found: float | None

    def __str__(self) -> str:
        found = "nothing to show it" if self.found is None else f"{self.found:.4g}"
        return f"{self.limit} at {self.concurrency}: found {found}"


def throughput(rung: RungMeasurement, objective: Objective) -> float:
    """The tokens per second that the objective scores."""
    return {
        "output": rung.output_tok_s,
        "total": rung.total_tok_s,
        "input": rung.input_tok_s,
    }[objective.score]


def log_throughputs(rungs: Iterable[RungMeasurement], objective: Objective) -> dict[int, float]:
    """Natural logarithms by concurrency; a rung that gave no token has none."""
    rates = {rung.concurrency: throughput(rung, objective) for rung in rungs}
    return {concurrency: math.log(rate) for concurrency, rate in rates.items() if rate > 0}


def reference(
    launches: Iterable[Sequence[RungMeasurement]], objective: Objective
) -> dict[int, float]:
    """The baseline's geometric mean by rung, over the launches that measured it."""
    logs: dict[int, list[float]] = {}
    for rungs in launches:
        for concurrency, log_rate in log_throughputs(rungs, objective).items():
            logs.setdefault(concurrency, []).append(log_rate)
    return {
        rung.concurrency: math.exp(math.fsum(found) / len(found))
        for rung in objective.ladder
        if (found := logs.get(rung.concurrency))
    }


def rung_ratios(
    rungs: Iterable[RungMeasurement], reference: Mapping[int, float], objective: Objective
) -> dict[int, float]:
    """Throughput over the baseline's by concurrency, for the rungs that both have."""
    return {
        concurrency: math.exp(log_rate) / reference[concurrency]
        for concurrency, log_rate in log_throughputs(rungs, objective).items()
        if concurrency in reference
    }


def best_ratios(
    launches: Iterable[Sequence[RungMeasurement]],
    reference: Mapping[int, float],
    objective: Objective,
) -> dict[int, float]:
    """The best ratio that any launch reached, by concurrency: what `hopeless` holds plausible."""
    best: dict[int, float] = {}
    for rungs in launches:
        for concurrency, ratio in rung_ratios(rungs, reference, objective).items():
            best[concurrency] = max(ratio, best.get(concurrency, ratio))
    return best


def score(
    rungs: Iterable[RungMeasurement], reference: Mapping[int, float], objective: Objective
) -> float | None:
    """The weighted geometric mean of the ratios; 1.0 is the baseline.

    None unless every rung was measured. A rung that the baseline never reached has no ratio and
    does not count; without any reference there is no score.
    """
    weights = _weights(reference, objective)
    ratios = rung_ratios(rungs, reference, objective)
    if not weights or weights.keys() - ratios.keys():
        return None
    return math.exp(sum(weight * math.log(ratios[rung]) for rung, weight in weights.items()))


def slo_breaches(rungs: Iterable[RungMeasurement], objective: Objective) -> tuple[Breach, ...]:
    """Every limit that the rungs broke: the objective's, each rung's own, and failed requests.

    Raises TunerError where an SLO cannot be read.
    """
    own = {rung.concurrency: rung.slos for rung in objective.ladder}
    breaches: list[Breach] = []
    for rung in rungs:
        slos = [Slo.parse(text) for text in [*objective.slos, *own.get(rung.concurrency, [])]]
        breaches += _failed_requests(rung)
        breaches += [breach for slo in slos for breach in _slo_breach(rung, slo)]
    return tuple(breaches)


def hopeless(
    rungs_so_far: Sequence[RungMeasurement],
    reference: Mapping[int, float],
    noise: Mapping[int, float],
    objective: Objective,
    best: float | None,
    *,
    ceilings: Mapping[int, float] | None = None,
) -> str | None:
    """Why the rest of the ladder cannot save this configuration, in one sentence; None if it may.

    Regimes are not assumed to agree: a rung still to come may reach the best ratio that the study
    saw there (`ceilings`, from `best_ratios`) or `PLAUSIBLE_RATIO`, whichever is more, plus noise.
    Even so the score must stay below the best score so far, or the baseline's, by more than the
    noise. `noise` is the relative launch-to-launch deviation by concurrency. A configuration whose
    measured rungs are all within noise of the baseline, or above it, is never given up.
    """
    weights = _weights(reference, objective)
    sds = {rung: max(noise.get(rung, UNKNOWN_SD), MIN_SD) for rung in weights}
    ratios = rung_ratios(rungs_so_far, reference, objective)
    measured = {rung: ratio for rung, ratio in ratios.items() if rung in weights}
    if all(math.log(ratio) >= -SPREAD * sds[rung] for rung, ratio in measured.items()):
        return None
    hoped = {
        rung: max((ceilings or {}).get(rung, 1.0) * math.exp(SPREAD * sds[rung]), PLAUSIBLE_RATIO)
        for rung in weights.keys() - measured.keys()
    }
    reach = math.exp(sum(weights[r] * math.log(x) for r, x in (measured | hoped).items()))
    # A launch may be off at all rungs together, so deviations add up rather than their squares.
    margin = SPREAD * sum(weight * sds[rung] for rung, weight in weights.items())
    target = max(best or 1.0, 1.0)
    if math.log(reach) >= math.log(target) - margin:
        return None
    return _why_hopeless(measured, hoped, reach=reach, target=target, margin=margin)


def _weights(reference: Mapping[int, float], objective: Objective) -> dict[int, float]:
    """Weights of the rungs that the baseline has, adding up to one."""
    found = {r.concurrency: r.weight for r in objective.ladder if r.concurrency in reference}
    total = sum(found.values())
    return {concurrency: weight / total for concurrency, weight in found.items()}


def _failed_requests(rung: RungMeasurement) -> list[Breach]:
    sent = rung.requests_completed + rung.requests_failed
    share = rung.requests_failed / sent if sent else 0.0
    if share <= FAILED_SHARE_LIMIT:
        return []
    limit = f"share of failed requests <= {FAILED_SHARE_LIMIT:g}"
    return [Breach(concurrency=rung.concurrency, limit=limit, found=share)]


def _slo_breach(rung: RungMeasurement, slo: Slo) -> list[Breach]:
    measured = getattr(rung, slo.metric)
    if slo.metric in LATENCIES and measured is not None:
        measured = getattr(measured, slo.stat or "mean")
    if measured is not None and slo.met_by(measured):
        return []
    return [Breach(concurrency=rung.concurrency, limit=str(slo), found=measured)]


def _why_hopeless(
    measured: Mapping[int, float],
    hoped: Mapping[int, float],
    *,
    reach: float,
    target: float,
    margin: float,
) -> str:
    beaten = "the baseline" if target == 1.0 else f"the best so far ({target:.2f}x)"
    even = f"even with {_listed(hoped)} it would reach" if hoped else "it reaches"
    return (
        f"{_listed(measured)} of the baseline; {even} {reach:.2f}x, below {beaten}"
        f" by more than the noise ({100 * (1 - math.exp(-margin)):.1f} %)"
    )


def _listed(ratios: Mapping[int, float]) -> str:
    return ", ".join(f"{ratio:.2f}x at {rung}" for rung, ratio in sorted(ratios.items()))
