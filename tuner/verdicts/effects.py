"""Effects of configurations with honest intervals; the launch is the unit of repetition. Pure.

Everything is computed on natural logarithms, so that an effect is a ratio and noise is relative.
One linear model serves all: log value of a launch = its configuration + drift x its position in
the night + noise, with one deviation for all configurations (Montgomery, Design and Analysis of
Experiments, 15.3: analysis of covariance). Without the drift term it is the pooled-variance
t-interval. Quantiles of Student's t are scipy.special's: scipy.stats takes seconds to import.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from scipy.special import stdtrit

from tuner.definitions.models import Decision

Judgement = Literal["helps", "no effect", "inconclusive", "regresses"]

POWER = 0.8
"""A gain is detectable where a night would find it this often."""

MOST_LAUNCHES = 50
"""Beyond so many more launches a question counts as not decidable."""

MIN_CONTROL_FOR_DRIFT = 4
MIN_FOR_ODD = 4
IDENTICAL = 1e-12
"""Logarithms that differ by less are the same value after rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One launch: the log of what it measured, and its place in the order of launches."""

    position: float
    value: float


Group = Sequence[Sample]
"""Launches of one configuration that were not chosen for their result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Launch-to-launch standard deviation of a logarithm (so: relative), and what it rests on."""

    sd: float
    df: int

    @property
    def sd_percent(self) -> float:
        """The deviation in percent of the value."""
        return 100 * self.sd


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """A gain over the control with its interval, in percent.

    The bounds are None where nothing was launched twice, since nothing then tells effect from
    noise; they equal the gain where all repetitions were identical. `standard_error` is that of
    the log ratio. `drift_adjusted` says that a linear drift over the launches was taken out.
    """

    gain_percent: float
    low_percent: float | None
    high_percent: float | None
    launches: int
    control_launches: int
    df: int
    confidence: float
    standard_error: float | None
    drift_adjusted: bool = False

    @property
    def log_gain(self) -> float:
        """The natural logarithm of the ratio."""
        return math.log1p(self.gain_percent / 100)

    def interval(self, confidence: float) -> tuple[float, float] | None:
        """The interval of the log ratio at another confidence; None without repetitions."""
        if self.standard_error is None:
            return None
        half = t_quantile(confidence, self.df) * self.standard_error
        return self.log_gain - half, self.log_gain + half

    @property
    def narrowed(self) -> "Effect":
        """The same gain with the interval that "no effect" rests on, of two one-sided tests each
        at `confidence`: 90 % for 95 %."""
        confidence = 1 - 2 * (1 - self.confidence)
        bounds = self.interval(confidence)
        if bounds is None:
            return self
        low, high = map(percent, bounds)
        return replace(self, low_percent=low, high_percent=high, confidence=confidence)

    def judged(self, judgement: Judgement | None) -> str:
        """The gain in words, with the interval that this judgement rests on."""
        return str(self.narrowed if judgement == "no effect" else self)

    def __str__(self) -> str:
        if self.low_percent is None or self.high_percent is None:
            return f"{self.gain_percent:+.1f} % (no interval: nothing was launched twice)"
        if self.standard_error == 0:
            return f"{self.gain_percent:+.1f} % (all repetitions were identical: no noise was seen)"
        return (
            f"{self.gain_percent:+.1f} % ({100 * self.confidence:.3g} % interval"
            f" {self.low_percent:+.1f} to {self.high_percent:+.1f})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Change of one configuration from its first to its last launch, by a straight line."""

    change_percent: float
    low_percent: float | None
    high_percent: float | None
    launches: int

    @property
    def beyond_noise(self) -> bool:
        """Whether the interval excludes no change at all."""
        return (
            self.low_percent is not None
            and self.high_percent is not None
            and (self.low_percent > 0 or self.high_percent < 0)
        )


def t_quantile(confidence: float, df: int) -> float:
    """Student's t that a two-sided interval of this confidence needs."""
    return float(stdtrit(df, 0.5 + confidence / 2))


def percent(log_ratio: float) -> float:
    """A log ratio as a gain in percent."""
    return 100 * math.expm1(log_ratio)


def pooled_noise(groups: Iterable[Group]) -> Noise | None:
    """The deviation within configurations, pooled over all that were launched more than once.

    s^2 = sum of squared deviations from each configuration's mean / sum of (launches - 1);
    None where nothing was launched twice.
    """
    sums = _within(groups)
    return Noise(sd=math.sqrt(sums.yy / sums.df), df=sums.df) if sums.df else None


def effect(
    arm: Group, control: Group, *, others: Iterable[Group] = (), confidence: float = 0.95
) -> Effect:
    """The gain of `arm` over `control`; `others` lend their repetitions to the noise.

    log gain = mean(arm) - mean(control) - drift x (mean position of arm - of control);
    variance = s^2 (1/n + 1/m + (difference of mean positions)^2 / S_tt), s^2 from the residuals.
    The drift term is in where the control was launched at least four times and around the arm:
    a line may be interpolated, not extrapolated. Raises ValueError where either has no launch.
    """
    if not arm or not control:
        raise ValueError("an effect needs at least one launch of each side")
    sums = _within([arm, control, *others])
    adjusted = _brackets(control, arm) and sums.tt > 0 and sums.df >= 2
    lag = _mean_position(arm) - _mean_position(control)
    gain = _mean(arm) - _mean(control) - (sums.slope * lag if adjusted else 0.0)
    df = sums.df - 1 if adjusted else sums.df
    spread = 1 / len(arm) + 1 / len(control) + (lag**2 / sums.tt if adjusted else 0.0)
    residual = sums.residual if adjusted else sums.yy
    error = math.sqrt(residual / df * spread) if df else None
    half = t_quantile(confidence, df) * error if error is not None else None
    return Effect(
        gain_percent=percent(gain),
        low_percent=None if half is None else percent(gain - half),
        high_percent=None if half is None else percent(gain + half),
        launches=len(arm),
        control_launches=len(control),
        df=df,
        confidence=confidence,
        standard_error=error,
        drift_adjusted=adjusted,
    )


def drift(group: Group, *, confidence: float = 0.95) -> Drift | None:
    """How one configuration changed over its launches; None with fewer than three.

    Least squares: slope = S_ty / S_tt, its variance = residual / (n - 2) / S_tt.
    """
    sums = _within([group])
    if len(group) < 3 or sums.tt == 0:
        return None
    span = max(sample.position for sample in group) - min(sample.position for sample in group)
    change, df = sums.slope * span, len(group) - 2
    half = t_quantile(confidence, df) * math.sqrt(sums.residual / df / sums.tt) * span
    return Drift(
        change_percent=percent(change),
        low_percent=percent(change - half),
        high_percent=percent(change + half),
        launches=len(group),
    )


def odd_ones(group: Group, *, confidence: float = 0.95) -> list[tuple[Sample, float]]:
    """Launches that do not belong with the rest, each with its distance from them in percent.

    Each is held against all others, |x - mean| / (s sqrt(1 + 1 / (n - 1))) beyond Student's t with
    n - 2 degrees of freedom at 1 - (1 - confidence) / n (Weisberg, Applied Linear Regression,
    9.1). Empty with fewer than four launches. None is left out of anything for it.
    """
    n, found = len(group), []
    for i, sample in enumerate(group if n >= MIN_FOR_ODD else ()):
        rest = [*group[:i], *group[i + 1 :]]
        distance = sample.value - _mean(rest)
        error = math.sqrt(_within([rest]).yy / (n - 2) * (1 + 1 / (n - 1)))
        limit = t_quantile(1 - (1 - confidence) / n, n - 2) * error
        if abs(distance) > max(limit, IDENTICAL):
            found.append((sample, percent(distance)))
    return found


def judge(effect: Effect, decision: Decision) -> Judgement:
    """Three-way verdict by two tests on one interval.

    "no effect": inside the band by two one-sided tests, each at 1 - confidence, which is the
    interval at 1 - 2 (1 - confidence) inside the band (Schuirmann, J. Pharmacokinet. Biopharm. 15,
    1987). Else "helps" or "regresses" where the whole interval lies on one side of zero.
    Else "inconclusive".
    """
    band = math.log1p(decision.equivalence_percent / 100)
    narrow = effect.interval(1 - 2 * (1 - effect.confidence))
    wide = effect.interval(effect.confidence)
    if narrow is None or wide is None:
        return "inconclusive"
    if -band < narrow[0] and narrow[1] < band:
        return "no effect"
    if wide[0] > 0:
        return "helps"
    return "regresses" if wide[1] < 0 else "inconclusive"


def launches_to_decide(effect: Effect, decision: Decision) -> int | None:
    """How many more launches of each side would decide, should the gain stay as it is.

    The count at which the half width falls below what separates the gain from zero, or from the
    edge of the band, whichever is further: pyperf's 4 Z^2 s^2 / W^2 with Student's t for Z, for
    two sides. None where noise is unknown, or more than `MOST_LAUNCHES` are needed.
    """
    if effect.standard_error is None:
        return None
    gain, band = abs(effect.log_gain), math.log1p(decision.equivalence_percent / 100)
    room = max(gain, band - gain)
    n, m = effect.launches, effect.control_launches
    sd = effect.standard_error / math.sqrt(1 / n + 1 / m)
    for more in range(1, MOST_LAUNCHES + 1):
        error = sd * math.sqrt(1 / (n + more) + 1 / (m + more))
        if t_quantile(effect.confidence, effect.df + 2 * more) * error < room:
            return more
    return None


def more_words(more: int) -> str:
    """What so many more launches would do."""
    return f"{more} more {'launch' if more == 1 else 'launches'} of each side would decide"


def detectable_percent(
    noise: Noise | None, launches: int, control_launches: int, *, confidence: float = 0.95
) -> float | None:
    """The smallest true gain that such a comparison finds with a probability of `POWER`.

    (t at confidence + t at power) x standard error (Bloom, Evaluation Review 19(5), 1995).
    None where noise is unknown or a side has no launch.
    """
    if noise is None or not launches or not control_launches:
        return None
    error = noise.sd * math.sqrt(1 / launches + 1 / control_launches)
    power_t = float(stdtrit(noise.df, POWER))
    return percent((t_quantile(confidence, noise.df) + power_t) * error)


def too_noisy(noise: Noise | None, decision: Decision) -> bool:
    """Whether this noise leaves a gain of nothing undecided after `MOST_LAUNCHES` of each side.

    The half width of the interval at 1 - 2 (1 - confidence), with all of those launches' degrees of
    freedom, is no smaller than the band then.
    """
    if noise is None:
        return False
    band = math.log1p(decision.equivalence_percent / 100)
    quantile = t_quantile(1 - 2 * (1 - decision.confidence), noise.df + 2 * (MOST_LAUNCHES - 1))
    return quantile * noise.sd * math.sqrt(2 / MOST_LAUNCHES) >= band


@dataclass(frozen=True, slots=True, kw_only=True)
class _Within:
    """Sums of squares and products around each configuration's own means."""

    yy: float
    ty: float
    tt: float
    df: int

    @property
    def slope(self) -> float:
        return self.ty / self.tt

    @property
    def residual(self) -> float:
        """What the common slope leaves of `yy`."""
        left = self.yy - self.ty * self.slope
        return left if left > IDENTICAL**2 else 0.0


def _within(groups: Iterable[Group]) -> _Within:
    yy = ty = tt = 0.0
    df = 0
    for group in groups:
        if len(group) < 2:
            continue
        y_mean, t_mean = _mean(group), _mean_position(group)
        df += len(group) - 1
        for sample in group:
            y, t = sample.value - y_mean, sample.position - t_mean
            yy, ty, tt = yy + y * y, ty + t * y, tt + t * t
    return _Within(yy=yy if yy > IDENTICAL**2 else 0.0, ty=ty, tt=tt, df=df)


def _mean(group: Group) -> float:
    return math.fsum(sample.value for sample in group) / len(group)


def _mean_position(group: Group) -> float:
    return math.fsum(sample.position for sample in group) / len(group)


def _brackets(control: Group, arm: Group) -> bool:
    """Whether the control was launched often enough, before and after the arm's middle."""
    positions = [sample.position for sample in control]
    if len(positions) < MIN_CONTROL_FOR_DRIFT:
        return False
    slack = 0.1 * (max(positions) - min(positions))
    return min(positions) - slack <= _mean_position(arm) <= max(positions) + slack
