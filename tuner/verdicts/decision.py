"""From records to a winner, or to "no configuration beats the baseline beyond noise". Pure.

Search-time numbers choose finalists and never crown them: the best of many noisy values is too
good. A winner is judged by launches made for nothing else, against every launch of the baseline,
none of which was chosen for its result.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tuner.definitions.levels import Level, level_words
from tuner.definitions.models import Objective
from tuner.records import TrialRecord
from tuner.verdicts.arms import FRESH_LAUNCHES, Arms, compare, counts_against
from tuner.verdicts.effects import (
    MOST_LAUNCHES,
    Drift,
    Effect,
    Judgement,
    Noise,
    Sample,
    detectable_percent,
    drift,
    judge,
    launches_to_decide,
    more_words,
    odd_ones,
    pooled_noise,
    too_noisy,
)
from tuner.verdicts.limits import (
    Kept,
    baseline_breaches,
    broken_words,
    infeasible_words,
    kept,
    output_words,
    unconfirmed_words,
    worst,
)
from tuner.verdicts.outputs import WRONG_OUTPUT
from tuner.verdicts.score import Breach, slo_breaches

MIN_DRIFT_LAUNCHES = 4
"""A line through three launches fits by chance too well to be spoken of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseFloor:
    """Launch-to-launch noise of the score and of each rung; None where nothing was repeated.

    `odd` are launches of the baseline that do not belong with the others (trial, distance in
    percent): a cold cache, another regime of the engine. They count all the same. `too_noisy` says
    that no affordable number of launches would tell whether a gain lies inside the band.
    """

    score: Noise | None
    rungs: Mapping[Level, Noise]
    odd: Mapping[int, float]
    confidence: float
    control_launches: int
    too_noisy: bool = False
    by_rate: bool = False

    def detectable_percent(self, launches: int) -> float | None:
        """The smallest true gain that so many launches of a configuration are likely to show."""
        return detectable_percent(
            self.score, launches, self.control_launches, confidence=self.confidence
        )

    def __str__(self) -> str:
        if self.score is None:
            return "launch-to-launch noise is unknown: nothing was launched twice"
        if self.score.sd == 0:
            return "all repeated launches were identical: no noise was seen"
        rungs = ", ".join(
            f"{noise.sd_percent:.1f} % at {level_words(level, by_rate=self.by_rate)}"
            for level, noise in sorted(self.rungs.items())
        )
        odd = (
            f"; trial {trial} lies {distance:+.1f} % from the baseline's other launches"
            for trial, distance in self.odd.items()
        )
        return (
            f"launch-to-launch noise {self.score.sd_percent:.1f} % of the score ({rungs};"
            f" {self.score.df} degrees of freedom){''.join(odd)}"
            f"{'; too noisy to decide anything small: see tuner doctor' if self.too_noisy else ''}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalist:
    """A configuration that was launched afresh, and what became of it.

    `refused` is why it cannot be the winner, empty for one that may.
    """

    key: str
    trials: tuple[int, ...]
    effect: Effect | None
    judgement: Judgement | None
    breaches: tuple[Breach, ...]
    refused: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """What the study found, in a sentence that can be quoted alone.

    `effect` is the winner's, or where there is none the best finalist's. `detectable_percent` is
    the gain that as many fresh launches (two at least) would likely have shown; None where no
    configuration that keeps the limits was measured beside the baseline. `output` says how far
    outputs were compared with the baseline's.
    """

    winner_key: str | None
    effect: Effect | None
    sentence: str
    detectable_percent: float | None
    noise: NoiseFloor
    drift: Drift | None
    finalists: tuple[Finalist, ...]
    output: str = ""


def reference(
    records: Iterable[TrialRecord], objective: Objective, baseline_key: str
) -> dict[float, float]:
    """The baseline's geometric mean by rung, over all its launches so far."""
    return Arms(records, objective, baseline_key).reference


def noise_by_rung(records: Iterable[TrialRecord], objective: Objective) -> dict[float, float]:
    """Relative launch-to-launch deviation by level, as `score.hopeless` takes it."""
    return {c: noise.sd for c, noise in noise_floor(records, objective).rungs.items()}


def noise_floor(records: Iterable[TrialRecord], objective: Objective) -> NoiseFloor:
    """How much launches of one and the same configuration differ, pooled over all repeated ones."""
    return _noise_floor(Arms(records, objective))


def finalists(records: Iterable[TrialRecord], objective: Objective, baseline_key: str) -> list[str]:
    """Keys worth launching afresh, best first: measured above the baseline and within all limits.

    The order is that of the search and stays while finalists are launched afresh; one that its
    fresh launches show not to be better, or to fail, leaves it. Where the baseline itself breaks
    a limit, whatever keeps to all of them is worth it.
    """
    return _finalists(Arms(records, objective, baseline_key))


def conclusion(
    records: Iterable[TrialRecord], objective: Objective, baseline_key: str
) -> Conclusion:
    """The winner by fresh launches, or that there is none, and what the night could have shown.

    A winner was launched afresh at least twice, every time served the whole ladder within all
    limits, its output was compared with the baseline's where that can be done, and its interval
    lies above zero and not inside the band that counts as no effect.
    With k finalists each is judged with error min(a, 2 a / k), a = 1 - confidence: gains are the
    upper half of that error, so that the chance of crowning any of them without a gain is at most
    a (Bonferroni). Looking again after every further launch is not corrected for.
    Where the baseline itself breaks a limit, the best finalist that keeps to all of them wins.
    """
    arms = Arms(records, objective, baseline_key)
    floor, slope = _noise_floor(arms), _drift(arms)
    breaches, limits = baseline_breaches(arms), kept(arms)
    keys = arms.confirmed_keys()
    error = 1 - objective.decision.confidence
    tests = sum(len(arms.fresh(key)) >= FRESH_LAUNCHES for key in keys)
    confidence = 1 - min(error, 2 * error / max(tests, 1))
    judged = tuple(_finalist(arms, key, confidence, bool(breaches)) for key in keys)
    winner = _best(f for f in judged if not f.refused)
    shown = winner or _best(judged)
    key = winner.key if winner else None
    most = max([len(finalist.trials) for finalist in judged], default=0)
    detectable = floor.detectable_percent(max(most, FRESH_LAUNCHES)) if limits.within else None
    if winner:
        found = _won(winner, breaches)
    elif breaches and limits.measured:
        found = infeasible_words(breaches, limits) or _unconfirmed(breaches, limits, judged)
    else:
        found = _nothing_won(arms, judged, shown, floor, detectable)
    return Conclusion(
        winner_key=key,
        effect=shown.effect if shown else None,
        sentence=f"{found}{output_words(arms, key)}{_drift_words(slope)}",
        detectable_percent=detectable,
        noise=floor,
        drift=slope,
        finalists=judged,
        output=arms.outputs.summary(),
    )


def _finalists(arms: Arms) -> list[str]:
    baseline = arms.scores(arms.baseline)
    if not baseline:
        return []
    bar = -math.inf if baseline_breaches(arms) else _mean(baseline)
    candidates = arms.candidates()
    estimates = {
        key: _mean(samples)
        for key, group in candidates.items()
        if (samples := arms.scores(r for r in group if r.kind != "confirm"))
    }
    return [
        key
        for key in sorted(estimates, key=lambda key: -estimates[key])
        if estimates[key] > bar and _still_open(arms, key, candidates[key])
    ]


def _mean(samples: Sequence[Sample]) -> float:
    return math.fsum(sample.value for sample in samples) / len(samples)


def _still_open(arms: Arms, key: str, group: Iterable[TrialRecord]) -> bool:
    """Whether every launch kept the limits and fresh ones leave a gain possible."""
    if any(counts_against(r) or slo_breaches(r.rungs, arms.objective) for r in group):
        return False
    fresh = arms.fresh(key)
    found = compare(arms, fresh, arms.baseline) if len(fresh) >= FRESH_LAUNCHES else None
    refuted = found and judge(found, arms.objective.decision) in ("no effect", "regresses")
    return not refuted or bool(baseline_breaches(arms))


def _noise_floor(arms: Arms) -> NoiseFloor:
    groups = arms.repeated()
    rungs = {
        rung.level: pooled_noise(arms.rung(group, rung.level) for group in groups)
        for rung in arms.objective.ladder
    }
    baseline, confidence = arms.scores(arms.baseline), arms.objective.decision.confidence
    odd = odd_ones(baseline, confidence=confidence)
    noise = pooled_noise(arms.scores(group) for group in groups)
    return NoiseFloor(
        score=noise,
        rungs={level: noise for level, noise in rungs.items() if noise is not None},
        odd={int(sample.position): distance for sample, distance in odd},
        confidence=confidence,
        control_launches=len(baseline),
        too_noisy=too_noisy(noise, arms.objective.decision),
        by_rate=arms.objective.by_rate,
    )


def _drift(arms: Arms) -> Drift | None:
    """How the baseline itself changed through the night; None with too few launches."""
    return drift(arms.scores(arms.baseline), confidence=arms.objective.decision.confidence)


def _finalist(arms: Arms, key: str, confidence: float, baseline_infeasible: bool) -> Finalist:
    records = arms.fresh(key)
    breaches = tuple(b for record in records for b in slo_breaches(record.rungs, arms.objective))
    found = compare(arms, records, arms.baseline, confidence=confidence)
    judgement = judge(found, arms.objective.decision) if found else None
    refused = _unfit(records, found, breaches)
    if not refused and found and not baseline_infeasible:
        better = judgement == "helps"
        refused = "" if better else _not_better(found, judgement, arms.objective)
        refused = refused or _not_beside(records, arms.baseline)
    refused = refused or arms.outputs.unchecked(key)
    return Finalist(
        key=key,
        trials=tuple(record.number for record in records),
        effect=found,
        judgement=judgement,
        breaches=breaches,
        refused=refused,
    )


def _unfit(records: Sequence[TrialRecord], found: Effect | None, breaches: Sequence[Breach]) -> str:
    """Why a configuration is out, however fast."""
    for record in records:
        if record.failure is not None and record.failure.kind == WRONG_OUTPUT:
            return record.failure.cause
        if counts_against(record):
            cause = record.failure.cause if record.failure else record.outcome
            return f"trial {record.number} did not complete: {cause}"
    if breaches:
        return f"breaks {breaches[0]}"
    if found is None or found.launches < FRESH_LAUNCHES:
        done = found.launches if found else 0
        return f"{done} of the {FRESH_LAUNCHES} fresh launches that a winner needs"
    return ""


def _not_beside(fresh: Sequence[TrialRecord], baseline: Iterable[TrialRecord]) -> str:
    """Why drift may have made the difference, where nothing of the baseline stands between."""
    first, last = fresh[0].number, fresh[-1].number
    if any(first < record.number < last for record in baseline if record.rungs):
        return ""
    return "no launch of the baseline stands between its fresh ones: drift would look the same"


def _not_better(found: Effect, judgement: Judgement | None, objective: Objective) -> str:
    if judgement == "no effect":
        band = objective.decision.equivalence_percent
        return f"no effect beyond noise: inside the band of {band:g} % that counts as none"
    if judgement == "regresses":
        return "regresses"
    more = launches_to_decide(found, objective.decision)
    return "inconclusive" + (f"; {more_words(more)}" if more else "")


def _said(finalist: Finalist) -> str:
    return finalist.effect.judged(finalist.judgement) if finalist.effect else "not measured"


def _best(finalists: Iterable[Finalist]) -> Finalist | None:
    measured = [finalist for finalist in finalists if finalist.effect is not None]
    return max(measured, key=lambda f: f.effect.gain_percent if f.effect else 0.0, default=None)


def _won(winner: Finalist, breaches: Sequence[Breach]) -> str:
    launches = f"from {len(winner.trials)} fresh launches"
    if breaches:
        return (
            f"Keeps to every limit, where the baseline breaks {worst(breaches)}:"
            f" {winner.effect} against the baseline {launches}."
        )
    return f"{winner.effect} over the baseline {launches}."


def _unconfirmed(breaches: Sequence[Breach], limits: Kept, judged: Sequence[Finalist]) -> str:
    best = _best(judged) or next(iter(judged), None)
    why = f"the best that was launched afresh: {best.refused}" if best else "none launched afresh"
    return unconfirmed_words(breaches, limits, why)


def _nothing_won(
    arms: Arms,
    judged: Sequence[Finalist],
    shown: Finalist | None,
    floor: NoiseFloor,
    detectable: float | None,
) -> str:
    if not arms.scores(arms.baseline):
        return "Nothing can be concluded: no launch of the baseline measured the whole ladder."
    if not any(arms.scores(group) for group in arms.candidates().values()):
        broken = broken_words(arms, arms.baseline)
        return (
            "No verdict: nothing but the baseline was measured over the whole ladder yet"
            f"{', and it ' if broken else ''}{broken}."
        )
    if infeasible := infeasible_words((), kept(arms)):
        return infeasible
    if floor.too_noisy and (shown is None or shown.judgement == "inconclusive"):
        return (
            f"No configuration beats the baseline beyond noise. {_noisy(arms, floor, detectable)}"
        )
    likely = f" A gain of {detectable:.1f} % would likely have been found." if detectable else ""
    if shown:
        best = f"The best of {len(judged)} launched afresh" if len(judged) > 1 else "The finalist"
        said = f"{best}: {_said(shown)}, {shown.refused}."
        return f"No configuration beats the baseline beyond noise. {said}{likely}"
    if judged:
        return f"No configuration is shown to beat the baseline: {judged[0].refused}."
    ahead = len(_finalists(arms))
    if ahead:
        return (
            "No configuration is shown to beat the baseline: of those measured"
            f" {ahead} looked faster once, and none was launched afresh."
        )
    return f"No configuration beats the baseline beyond noise: none looked faster.{likely}"


def _noisy(arms: Arms, floor: NoiseFloor, detectable: float | None) -> str:
    """Instead of an interval that says nothing: that none can be had here, and why."""
    band = arms.objective.decision.equivalence_percent
    differ = floor.score.sd_percent if floor.score else 0.0
    seen = f"only a gain of {detectable:.0f} % would likely have been found, " if detectable else ""
    return (
        "This machine is too noisy to decide: launches of one configuration differ by"
        f" {differ:.0f} % (standard deviation), {seen}and {MOST_LAUNCHES} launches of each side"
        f" could not tell whether a gain lies inside the band of {band:g} %; see tuner doctor."
    )


def _drift_words(slope: Drift | None) -> str:
    if slope is None or slope.launches < MIN_DRIFT_LAUNCHES or not slope.beyond_noise:
        return ""
    return (
        f" The baseline itself changed by {slope.change_percent:+.1f} % over its launches"
        f" (interval {slope.low_percent:+.1f} to {slope.high_percent:+.1f})."
    )
