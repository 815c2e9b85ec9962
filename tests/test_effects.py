import math
import random
import statistics

import pytest

from tuner.definitions.models import Decision
from tuner.verdicts.effects import (
    Effect,
    Noise,
    Sample,
    detectable_percent,
    drift,
    effect,
    judge,
    launches_to_decide,
    more_words,
    odd_ones,
    pooled_noise,
    t_quantile,
    too_noisy,
)

DECISION = Decision()


def group(*values, start=0.0, step=1.0):
    return [Sample(position=start + step * i, value=value) for i, value in enumerate(values)]


def made(gain_percent, half_percent, *, df=10, launches=3, control_launches=8):
    """An effect with this gain and half width (in percent of the log)."""
    error = half_percent / 100 / t_quantile(0.95, df)
    gain = math.log1p(gain_percent / 100)
    return Effect(
        gain_percent=gain_percent,
        low_percent=100 * math.expm1(gain - half_percent / 100),
        high_percent=100 * math.expm1(gain + half_percent / 100),
        launches=launches,
        control_launches=control_launches,
        df=df,
        confidence=0.95,
        standard_error=error,
    )


@pytest.mark.parametrize(("df", "t"), [(1, 12.706), (4, 2.776), (10, 2.228), (120, 1.980)])
def test_quantiles_are_those_of_the_printed_tables(df, t):
    assert t_quantile(0.95, df) == pytest.approx(t, abs=5e-4)


def test_the_interval_is_the_textbook_two_sample_t_interval():
    a, b = [0.10, 0.14, 0.12], [0.01, 0.05]
    found = effect(group(*a), group(*b))
    pooled = (2 * statistics.variance(a) + statistics.variance(b)) / 3
    error = math.sqrt(pooled * (1 / 3 + 1 / 2))
    assert found.df == 3
    assert found.standard_error == pytest.approx(error)
    assert found.log_gain == pytest.approx(0.09)
    assert found.low_percent == pytest.approx(100 * math.expm1(0.09 - 3.182446 * error), rel=1e-6)
    assert found.high_percent == pytest.approx(100 * math.expm1(0.09 + 3.182446 * error), rel=1e-6)


def test_other_repeated_configurations_lend_their_noise():
    arm, control, other = group(0.1), group(0.0, 0.02), group(5.0, 5.02, 5.04)
    assert effect(arm, control).df == 1
    shared = effect(arm, control, others=[other])
    assert shared.df == 3
    assert shared.gain_percent == effect(arm, control).gain_percent


def test_without_any_repetition_there_is_a_gain_and_no_interval():
    found = effect(group(0.1), group(0.0))
    assert found.gain_percent == pytest.approx(100 * math.expm1(0.1))
    assert (found.low_percent, found.high_percent, found.standard_error) == (None, None, None)
    assert "nothing was launched twice" in str(found)
    assert judge(found, DECISION) == "inconclusive"
    assert launches_to_decide(found, DECISION) is None


def test_identical_launches_have_no_noise_and_say_so():
    found = effect(group(0.1, 0.1), group(0.02, 0.02, 0.02))
    assert found.low_percent == found.high_percent == found.gain_percent
    assert "no noise was seen" in str(found)
    assert judge(found, DECISION) == "helps"
    assert judge(effect(group(0.02), group(0.02, 0.02)), DECISION) == "no effect"


def test_no_effect_is_said_with_the_interval_that_it_rests_on():
    found = effect(group(0.013, 0.013), group(-0.009, 0.0, 0.009))
    assert judge(found, DECISION) == "no effect"
    assert (found.high_percent or 0) > 3 > (found.narrowed.high_percent or 9)
    assert found.judged("no effect") == "+1.3 % (90 % interval -0.3 to +2.9)"
    assert found.judged("helps") == str(found) == "+1.3 % (95 % interval -0.8 to +3.5)"


def test_one_launch_is_no_launches():
    assert more_words(1) == "1 more launch of each side would decide"
    assert more_words(2) == "2 more launches of each side would decide"


@pytest.mark.parametrize(("sd", "noisy"), [(0.01, False), (0.08, False), (0.1, True), (0.5, True)])
def test_noise_is_too_large_where_fifty_launches_of_each_side_could_not_settle_the_band(sd, noisy):
    assert too_noisy(Noise(sd=sd, df=8), DECISION) is noisy
    assert not too_noisy(None, DECISION)


def test_an_effect_needs_both_sides():
    with pytest.raises(ValueError, match="at least one launch of each side"):
        effect([], group(0.1))


def test_a_drift_is_taken_out_where_the_baseline_was_launched_around():
    slope = 0.01
    noise = [0.001, -0.001, 0.0, 0.001, -0.001, 0.0]
    positions = [0, 1, 2, 10, 20, 22]
    control = [
        Sample(position=p, value=slope * p + e) for p, e in zip(positions, noise, strict=True)
    ]
    arm = [Sample(position=p, value=0.08 + slope * p) for p in (19, 21)]
    found = effect(arm, control)
    assert found.drift_adjusted
    assert found.log_gain == pytest.approx(0.08, abs=0.002)


def test_a_drift_is_never_extrapolated():
    control = group(0.0, 0.01, 0.02, 0.03)
    found = effect(group(0.3, start=30.0), control)
    assert not found.drift_adjusted


def test_three_launches_of_the_baseline_carry_no_drift():
    assert not effect(group(0.1, start=1.0), group(0.0, 0.01, 0.02)).drift_adjusted


def test_adjusting_agrees_with_least_squares_on_the_whole_design():
    numpy = pytest.importorskip("numpy")
    rng = random.Random(7)
    control = [Sample(position=p, value=rng.gauss(0, 1)) for p in (0, 1, 2, 9, 17, 24)]
    arm = [Sample(position=p, value=rng.gauss(1, 1)) for p in (20, 22, 23)]
    found = effect(arm, control)
    samples = [*control, *arm]
    design = numpy.array([[s in control, s in arm, s.position] for s in samples], dtype=float)
    values = numpy.array([s.value for s in samples])
    fitted, residual, *_ = numpy.linalg.lstsq(design, values)
    covariance = numpy.linalg.inv(design.T @ design) * residual[0] / (9 - 3)
    contrast = numpy.array([-1.0, 1.0, 0.0])
    assert found.df == 6
    assert found.log_gain == pytest.approx(contrast @ fitted)
    assert found.standard_error == pytest.approx(math.sqrt(contrast @ covariance @ contrast))


def test_noise_is_pooled_within_configurations_never_between():
    noise = pooled_noise([group(1.0, 1.2), group(5.0), group(9.0, 9.2, 9.4)])
    assert noise is not None
    assert noise.df == 3
    assert noise.sd == pytest.approx(math.sqrt((0.02 + 0.08) / 3))
    assert noise.sd_percent == pytest.approx(100 * noise.sd)


def test_noise_is_unknown_where_nothing_was_repeated():
    assert pooled_noise([group(1.0), group(2.0)]) is None


def test_a_drift_is_the_slope_over_the_whole_span():
    found = drift([Sample(position=p, value=-0.002 * p) for p in (0, 1, 2, 10, 20)])
    assert found is not None
    assert found.change_percent == pytest.approx(100 * math.expm1(-0.04))
    assert found.beyond_noise


def test_the_interval_of_a_drift_is_that_of_a_regression_slope():
    values = [0.01, -0.02, 0.03, 0.0, 0.05]
    found = drift(group(*values))
    slope, intercept = statistics.linear_regression(range(5), values)
    residual = sum((y - slope * x - intercept) ** 2 for x, y in enumerate(values))
    error = math.sqrt(residual / 3 / 10)
    assert found is not None
    assert found.high_percent == pytest.approx(100 * math.expm1(4 * (slope + 3.182446 * error)))


def test_noise_alone_is_no_drift():
    found = drift(group(0.01, -0.01, 0.012, -0.008, 0.01))
    assert found is not None
    assert not found.beyond_noise
    assert found.low_percent is not None
    assert found.low_percent < 0


@pytest.mark.parametrize("launches", [group(1.0, 2.0), group(1.0, 2.0, 3.0, step=0.0), []])
def test_a_drift_needs_three_launches_at_different_times(launches):
    assert drift(launches) is None


def test_a_launch_that_does_not_belong_is_named_with_its_distance():
    cold = group(-0.15, 0.0, 0.01, -0.01, 0.0)
    ((sample, distance),) = odd_ones(cold)
    assert sample.position == 0
    assert distance == pytest.approx(100 * math.expm1(-0.15))


def test_among_identical_launches_any_other_is_odd():
    assert [sample.value for sample, _ in odd_ones(group(1.0, 1.0, 1.0, 1.1))] == [1.1]
    assert odd_ones(group(1.0, 1.0, 1.0, 1.0)) == []


def test_three_launches_show_nothing_odd():
    assert odd_ones(group(0.0, 0.0, 5.0)) == []


def test_noise_is_taken_for_odd_as_often_as_stated():
    rng = random.Random(2)
    groups = [group(*(rng.gauss(0, 0.01) for _ in range(7))) for _ in range(1000)]
    assert 0.03 < sum(bool(odd_ones(g)) for g in groups) / 1000 < 0.07


@pytest.mark.parametrize(
    ("gain", "half", "word"),
    [
        (8.0, 2.0, "helps"),
        (4.0, 3.0, "helps"),
        (-8.0, 2.0, "regresses"),
        (0.2, 1.0, "no effect"),
        (1.5, 1.0, "no effect"),
        (-1.5, 1.0, "no effect"),
        (1.0, 2.2, "no effect"),
        (1.0, 2.6, "inconclusive"),
        (2.0, 5.0, "inconclusive"),
        (0.0, 6.0, "inconclusive"),
    ],
)
def test_three_way_verdicts(gain, half, word):
    assert judge(made(gain, half), DECISION) == word


def test_a_wider_band_counts_more_as_nothing():
    assert judge(made(8.0, 1.0), Decision(equivalence_percent=10.0)) == "no effect"


def test_the_launches_that_would_decide_are_enough_and_no_more():
    found = made(2.0, 5.0)
    more = launches_to_decide(found, DECISION)
    assert more is not None
    sd = found.standard_error / math.sqrt(1 / 3 + 1 / 8)

    def half(extra):
        error = sd * math.sqrt(1 / (3 + extra) + 1 / (8 + extra))
        return t_quantile(0.95, 10 + 2 * extra) * error

    assert half(more) < math.log1p(0.02) <= half(more - 1)


def test_a_question_that_needs_too_many_launches_is_said_to_have_no_answer():
    assert launches_to_decide(made(1.5, 60.0), DECISION) is None


def test_what_is_detectable_shrinks_with_launches():
    noise = Noise(sd=0.01, df=8)
    found = [detectable_percent(noise, n, 8) or 0.0 for n in (1, 2, 3, 8)]
    assert found == sorted(found, reverse=True)
    assert found[2] == pytest.approx(2.2, abs=0.1)


def test_nothing_is_detectable_without_noise_or_launches():
    assert detectable_percent(None, 3, 8) is None
    assert detectable_percent(Noise(sd=0.01, df=8), 3, 0) is None


def test_the_detectable_gain_is_found_at_the_stated_power():
    rng = random.Random(3)
    found = 0
    for _ in range(1500):
        control = group(*(rng.gauss(0, 0.01) for _ in range(6)), step=0.0)
        noise = Noise(sd=0.01, df=7)
        gain = math.log1p((detectable_percent(noise, 3, 6) or 0) / 100)
        arm = group(*(rng.gauss(gain, 0.01) for _ in range(3)), step=0.0)
        low = effect(arm, control).low_percent
        found += low is not None and low > 0
    assert 0.75 < found / 1500 < 0.87
