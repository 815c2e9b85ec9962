"""How far apart two launches are, from what one scores of the other's words."""

import math

import pytest

from tuner.measuring.fidelity import (
    FLOOR_NAT,
    FLOOR_SHARE,
    MOST_NAT,
    TIMES,
    Distance,
    TokenScore,
    distance,
    tolerance,
)

RIGHT = TokenScore(said=-0.1, best=-0.1, second=-3.0)
TIE = TokenScore(said=-0.701, best=-0.7, second=-0.701)
WRONG = TokenScore(said=-5.1, best=-0.1, second=-3.0)
NO_NUMBER = TokenScore(said=-math.inf, best=-0.1, second=-3.0)


def apart(gap_nat: float, *, flips: int = 0, missing: int = 0, lead_nat: float = 2.0) -> Distance:
    return Distance(
        level=8,
        tokens=100,
        gap_nat=gap_nat,
        lead_nat=lead_nat,
        flips=flips,
        sure=90,
        missing=missing,
    )


def test_a_distance_is_the_mean_lead_of_what_the_baseline_would_have_said():
    found = distance(8, 4, [[RIGHT, TIE], [WRONG, RIGHT]])
    assert found.gap_nat == pytest.approx((0.001 + 5.0) / 4)
    assert (found.tokens, found.flips, found.sure) == (4, 1, 3)
    assert found.missing == 4
    assert found.lead_nat == pytest.approx((3 * 2.9 + 0.001) / 4)


def test_a_tie_that_rounding_decided_is_no_flip():
    found = distance(1, 2, [[TIE, TIE]])
    assert found.flips == 0
    assert found.gap_nat == pytest.approx(0.001)


def test_what_is_no_number_counts_as_one_wrong_token_and_not_as_infinitely_many():
    assert distance(1, 1, [[NO_NUMBER]]).gap_nat == MOST_NAT


def test_an_answer_without_a_token_is_missing_and_not_right():
    found = distance(1, 32, [[], []])
    assert (found.tokens, found.missing, found.missing_share) == (0, 64, 1.0)


def test_one_launch_of_the_baseline_tolerates_nothing_yet():
    assert tolerance([[apart(0.001)]]) is None
    assert tolerance([[apart(0.001)], []]) is None


def test_what_the_baselines_own_launches_differ_by_is_tolerated_several_times_over_a_floor():
    found = tolerance([[apart(0.001), apart(0.004)], [apart(0.0, flips=1)]])
    assert found is not None
    assert found.gap_nat == pytest.approx(FLOOR_NAT + TIMES * 0.004)
    assert found.flip_share == pytest.approx(FLOOR_SHARE + TIMES * 0.01)
    assert (found.own_nat, found.own_share, found.launches) == (0.004, 0.01, 2)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (apart(0.03), ""),
        (
            apart(0.04),
            "0.04 nat per token from the baseline's at 8, with 0 % of tokens that it would"
            " not have said (limit 0.032 nat; the baseline's own launches: at most 0.004)",
        ),
        (
            apart(0.02, flips=9),
            "with 9 % of tokens that it would not have said (limit 2 %; the baseline's own"
            " launches: at most 0 %)",
        ),
        (apart(0.0, missing=3), ""),
        (apart(0.0, missing=100), "short of 50 % of the tokens that were asked for"),
    ],
)
def test_a_launch_is_beyond_it_by_its_gap_its_flips_or_what_is_missing(found, said):
    limit = tolerance([[apart(0.004)], [apart(0.003)]])
    assert limit is not None
    assert said in limit.exceeded(found)
    assert bool(limit.exceeded(found)) == bool(said)


def test_where_all_tokens_are_nearly_alike_the_floor_is_lower():
    flat = [[apart(0.0, lead_nat=0.1)], [apart(0.0, lead_nat=0.1)]]
    limit = tolerance(flat)
    assert limit is not None
    assert limit.gap_nat == pytest.approx(0.002)
    assert limit.exceeded(apart(0.01, lead_nat=0.1))
