import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.nights import distribution, objective, rung
from tuner.definitions.models import Rung
from tuner.verdicts import score

LADDER = (1, 10, 256, 1024)
REFERENCE: dict[float, float] = {1: 10.0, 10: 40.0, 256: 350.0, 1024: 1500.0}
NOISE: dict[float, float] = dict.fromkeys(LADDER, 0.01)


def at(ratios):
    return [rung(c, REFERENCE[c] * ratio) for c, ratio in zip(LADDER, ratios, strict=False)]


def test_each_throughput_can_be_the_scored_one():
    measured = rung(1, 10.0, input_tok_s=7.0, total_tok_s=17.0)
    scored = [score.throughput(measured, objective(score=s)) for s in ("output", "total", "input")]
    assert scored == [10.0, 17.0, 7.0]


def test_the_reference_is_the_geometric_mean_of_the_launches_that_have_the_rung():
    launches = [[rung(1, 4.0), rung(10, 30.0)], [rung(1, 9.0)], []]
    found = score.reference(launches, objective((1, 10, 256)))
    assert found == pytest.approx({1: 6.0, 10: 30.0})


def test_the_score_of_the_baseline_itself_is_one():
    assert score.score(at([1, 1, 1, 1]), REFERENCE, objective()) == pytest.approx(1.0)


def test_the_score_weighs_rungs():
    ladder = [Rung(concurrency=1, weight=3.0), Rung(concurrency=10, weight=1.0)]
    found = score.score(at([2.0, 0.5]), {1: 10.0, 10: 40.0}, objective(ladder))
    assert found == pytest.approx(2.0 ** (3 / 4) * 0.5 ** (1 / 4))


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 10), min_size=4, max_size=4), st.floats(0.1, 10))
def test_the_order_of_scores_does_not_depend_on_the_reference(ratios, factor):
    other = {c: rate * (factor if c > 10 else 1.0) for c, rate in REFERENCE.items()}
    quotients = [
        (score.score(at(ratios), ref, objective()) or 0)
        / (score.score(at([1.0] * 4), ref, objective()) or 1)
        for ref in (REFERENCE, other)
    ]
    assert quotients[0] == pytest.approx(quotients[1])


def test_there_is_no_score_until_every_rung_was_measured():
    assert score.score(at([1.1, 1.1, 1.1]), REFERENCE, objective()) is None


def test_there_is_no_score_without_a_baseline():
    assert score.score(at([1, 1, 1, 1]), {}, objective()) is None


def test_a_rung_that_the_baseline_never_reached_does_not_count():
    reference: dict[float, float] = {1: 10.0, 10: 40.0, 256: 350.0}
    assert score.score(at([1, 1, 8, 5]), reference, objective()) == pytest.approx(2.0)


def test_a_rung_without_a_single_token_has_no_ratio_and_no_score():
    measured = at([1, 1, 1, 0])
    assert score.score(measured, REFERENCE, objective()) is None
    assert score.rung_ratios(measured, REFERENCE, objective()).keys() == {1, 10, 256}


def test_a_ladder_of_one_rung_is_scored_by_its_ratio():
    found = score.score([rung(10, 44.0)], {10: 40.0}, objective((10,)))
    assert found == pytest.approx(1.1)


def test_the_best_ratios_are_taken_rung_by_rung():
    found = score.best_ratios([at([1.2, 0.9]), at([1.0, 1.3, 1.1])], REFERENCE, objective())
    assert found == pytest.approx({1: 1.2, 10: 1.3, 256: 1.1})


def test_a_breach_names_the_limit_the_rung_and_what_was_found():
    limits = objective((1,), slos=["ttft_ms p99 <= 120"])
    (breach,) = score.slo_breaches([rung(1, 10.0, ttft_ms=distribution(100.0))], limits)
    assert str(breach) == "ttft_ms p99 <= 120 at 1: found 150"


def test_goodput_is_scored_by_requests_and_its_limits_refuse_nothing():
    slos = ["ttft_ms p99 <= 120", "itl_ms p99 <= 1"]
    limits = objective((1, 10), slos=slos, score="goodput")
    measured = [rung(1, 10.0, goodput_rps=0.5, ttft_ms=distribution(900.0)),
                rung(10, 60.0, goodput_rps=3.0)]  # fmt: skip
    assert [score.throughput(each, limits) for each in measured] == [0.5, 3.0]
    assert {b.limit for b in score.slo_breaches(measured, limits)} == {"itl_ms p99 <= 1"}
    assert score.score(measured, {1: 0.25, 10: 3.0}, limits) == pytest.approx(2**0.5)
    none = score.log_throughputs([rung(1, 10.0, goodput_rps=0.0), rung(10, 60.0)], limits)
    assert none == {}


def test_limits_of_a_rung_hold_for_it_alone():
    ladder = [Rung(concurrency=1, slos=["output_tok_s >= 50"]), Rung(concurrency=10)]
    breaches = score.slo_breaches([rung(1, 10.0), rung(10, 10.0)], objective(ladder))
    assert [(b.at, b.found) for b in breaches] == [("1", 10.0)]


def test_limits_of_the_objective_hold_for_every_rung():
    limits = objective((1, 10), slos=["output_tok_s >= 50"])
    breaches = score.slo_breaches([rung(1, 10.0), rung(10, 60.0)], limits)
    assert [b.at for b in breaches] == ["1"]


def test_a_limit_that_the_window_could_not_show_is_not_kept():
    limits = objective((1,), slos=["tpot_ms mean <= 50"])
    (breach,) = score.slo_breaches([rung(1, 10.0, tpot_ms=None)], limits)
    assert breach.found is None
    assert "nothing to show it" in str(breach)


@pytest.mark.parametrize(("failed", "breaks"), [(0, False), (1, False), (2, True)])
def test_more_than_one_percent_of_failed_requests_is_a_breach(failed, breaks):
    measured = rung(1, 10.0, requests_completed=99, requests_failed=failed)
    assert bool(score.slo_breaches([measured], objective((1,)))) is breaks


def test_a_rung_without_requests_has_no_failed_ones():
    measured = rung(1, 10.0, requests_completed=0, requests_failed=0)
    assert score.slo_breaches([measured], objective((1,))) == ()


def hopeless(ratios, best=None, noise=NOISE, **options):
    return score.hopeless(at(ratios), REFERENCE, noise, objective(), best, **options)


def test_a_configuration_that_lost_three_rungs_is_given_up_with_the_numbers():
    why = hopeless([0.6, 0.7, 0.7])
    assert why == (
        "0.60x at 1, 0.70x at 10, 0.70x at 256 of the baseline; even with 1.50x at 1024 it would"
        " reach 0.81x, below the baseline by more than the noise (3.0 %)"
    )


def test_slower_at_one_leaves_hope_for_a_thousand():
    assert hopeless([0.6]) is None
    assert hopeless([0.75, 0.9]) is None


def test_a_loss_that_the_noise_of_the_ladder_could_hide_is_no_reason():
    assert hopeless([0.95, 1.0, 1.0, 1.0]) is None


def test_the_best_so_far_raises_the_bar():
    assert hopeless([0.95, 0.9, 0.9]) is None
    why = hopeless([0.95, 0.9, 0.9], best=1.3)
    assert why is not None
    assert "the best so far (1.30x)" in why


def test_a_best_below_the_baseline_does_not_lower_the_bar():
    assert hopeless([0.6, 0.7, 0.7], best=0.7) == hopeless([0.6, 0.7, 0.7])


def test_what_the_study_saw_a_rung_gain_is_held_plausible():
    assert hopeless([0.6, 0.7, 0.7], ceilings={1024: 6.0}) is None


def test_a_finished_ladder_is_judged_without_hope():
    why = hopeless([0.9, 0.9, 0.9, 0.9])
    assert why is not None
    assert "it reaches 0.90x" in why


def test_unknown_noise_is_taken_as_large():
    assert hopeless([0.87, 0.87, 0.87, 0.87], noise={}) is None
    assert hopeless([0.87, 0.87, 0.87, 0.87]) is not None


def test_nothing_is_given_up_before_a_baseline_or_a_rung():
    assert score.hopeless(at([0.1]), {}, NOISE, objective(), None) is None
    assert hopeless([]) is None


@settings(deadline=None)
@given(
    st.lists(st.floats(-3.0, 20.0), min_size=1, max_size=4),
    st.floats(0.0, 0.2),
    st.floats(0.5, 10.0),
)
def test_within_noise_of_the_baseline_nothing_is_ever_given_up(deviations, sd, best):
    floor = max(sd, score.MIN_SD)
    ratios = [math.exp(0.999 * deviation * floor) for deviation in deviations]
    assert hopeless(ratios, best=best, noise=dict.fromkeys(LADDER, sd)) is None


@settings(deadline=None)
@given(st.lists(st.floats(0.05, 3.0), min_size=1, max_size=3), st.floats(1.0, 2.0))
def test_whoever_is_given_up_could_not_win_with_a_plausible_rest(ratios, best):
    if hopeless(ratios, best=best) is not None:
        rest = [score.PLAUSIBLE_RATIO] * (4 - len(ratios))
        reached = score.score(at([*ratios, *rest]), REFERENCE, objective())
        assert reached is not None
        assert reached < best
