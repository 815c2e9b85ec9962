"""What a launch is worth: ratios to the baseline over the ladder, and the limits it broke. Pure.

The score is the weighted geometric mean of throughput ratios, the mean that gives the same order
whatever the ratios are taken against (Fleming & Wallace, CACM 29(3), 1986).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tuner.definitions.models import Objective
from tuner.definitions.slo import LATENCIES, Slo
from tuner.measuring.enough import too_few
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
    """A limit that a rung broke; `at` is the rung in words, `found` is None where the window could
    not show the number."""

    at: str
    limit: str
    found: float | None

    def __str__(self) -> str:
        found = "nothing to show it" if self.found is None else f"{self.found:.4g}"
        return f"{self.limit} at {self.at}: found {found}"


def throughput(rung: RungMeasurement, objective: Objective) -> float:
    """The tokens per second that the objective scores; or requests, where that is goodput."""
    return {
        "output": rung.output_tok_s,
        "total": rung.total_tok_s,
        "input": rung.input_tok_s,
        "goodput": rung.goodput_rps or 0.0,
    }[objective.score]


def log_throughputs(rungs: Iterable[RungMeasurement], objective: Objective) -> dict[float, float]:
    """Natural logarithms by level; a rung that gave no token has none."""
    rates = {rung.level: throughput(rung, objective) for rung in rungs}
    return {level: math.log(rate) for level, rate in rates.items() if rate > 0}


def reference(
    launches: Iterable[Sequence[RungMeasurement]], objective: Objective
) -> dict[float, float]:
    """The baseline's geometric mean by rung, over the launches that measured it."""
    logs: dict[float, list[float]] = {}
    for rungs in launches:
        for level, log_rate in log_throughputs(rungs, objective).items():
            logs.setdefault(level, []).append(log_rate)
    return {
        rung.level: math.exp(math.fsum(found) / len(found))
        for rung in objective.ladder
        if (found := logs.get(rung.level))
    }


def rung_ratios(
    rungs: Iterable[RungMeasurement], reference: Mapping[float, float], objective: Objective
) -> dict[float, float]:
    """Throughput over the baseline's by level, for the rungs that both have."""
    return {
        level: math.exp(log_rate) / reference[level]
        for level, log_rate in log_throughputs(rungs, objective).items()
        if level in reference
    }


def best_ratios(
    launches: Iterable[Sequence[RungMeasurement]],
    reference: Mapping[float, float],
    objective: Objective,
) -> dict[float, float]:
    """The best ratio that any launch reached, by level: what `hopeless` holds plausible."""
    best: dict[float, float] = {}
    for rungs in launches:
        for level, ratio in rung_ratios(rungs, reference, objective).items():
            best[level] = max(ratio, best.get(level, ratio))
    return best


def score(
    rungs: Iterable[RungMeasurement], reference: Mapping[float, float], objective: Objective
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

    A percentile of too few requests neither keeps a limit nor breaks it; what nothing shows is not
    kept. Raises TunerError where an SLO cannot be read.
    """
    limits = {rung.level: objective.limits_at(rung) for rung in objective.ladder}
    breaches: list[Breach] = []
    for rung in rungs:
        slos = [Slo.parse(text) for text in limits.get(rung.level, objective.slos)]
        breaches += _failed_requests(rung)
        breaches += [breach for slo in slos for breach in _slo_breach(rung, slo)]
    return tuple(breaches)


def hopeless(
    rungs_so_far: Sequence[RungMeasurement],
    reference: Mapping[float, float],
    noise: Mapping[float, float],
    objective: Objective,
    best: float | None,
    *,
    ceilings: Mapping[float, float] | None = None,
) -> str | None:
    """Why the rest of the ladder cannot save this configuration, in one sentence; None if it may.

    Regimes are not assumed to agree: a rung still to come may reach the best ratio that the study
    saw there (`ceilings`, from `best_ratios`) or `PLAUSIBLE_RATIO`, whichever is more, plus noise.
    Even so the score must stay below the best score so far, or the baseline's, by more than the
    noise. `noise` is the relative launch-to-launch deviation by level. A configuration whose
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
    said = [_listed(ratios, objective) for ratios in (measured, hoped)]
    return _why_hopeless(*said, reach=reach, target=target, margin=margin)


def _weights(reference: Mapping[float, float], objective: Objective) -> dict[float, float]:
    """Weights of the rungs that the baseline has, adding up to one."""
    found = {r.level: r.weight for r in objective.ladder if r.level in reference}
    total = sum(found.values())
    return {level: weight / total for level, weight in found.items()}


def _failed_requests(rung: RungMeasurement) -> list[Breach]:
    sent = rung.requests_completed + rung.requests_failed
    share = rung.requests_failed / sent if sent else 0.0
    if share <= FAILED_SHARE_LIMIT:
        return []
    limit = f"share of failed requests <= {FAILED_SHARE_LIMIT:g}"
    return [Breach(at=rung.said, limit=limit, found=share)]


def _slo_breach(rung: RungMeasurement, slo: Slo) -> list[Breach]:
    if too_few(slo, rung):
        return []
    measured = getattr(rung, slo.metric)
    if slo.metric in LATENCIES and measured is not None:
        measured = getattr(measured, slo.stat or "mean")
    if measured is not None and slo.met_by(measured):
        return []
    return [Breach(at=rung.said, limit=str(slo), found=measured)]


def _why_hopeless(
    measured: str,
    hoped: str,
    *,
    reach: float,
    target: float,
    margin: float,
) -> str:
    beaten = "the baseline" if target == 1.0 else f"the best so far ({target:.2f}x)"
    even = f"even with {hoped} it would reach" if hoped else "it reaches"
    return (
        f"{measured} of the baseline; {even} {reach:.2f}x, below {beaten}"
        f" by more than the noise ({100 * (1 - math.exp(-margin)):.1f} %)"
    )


def _listed(ratios: Mapping[float, float], objective: Objective) -> str:
    found = sorted(ratios.items())
    return ", ".join(f"{ratio:.2f}x at {objective.said(level)}" for level, ratio in found)
