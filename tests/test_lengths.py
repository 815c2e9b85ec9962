"""Lengths that vary: what mean, spread and bounds mean, and that they are drawn once."""

from random import Random
from statistics import fmean, median, pstdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.definitions.lengths import DRAWS, WARM_PROMPTS, drawn, highest, lengths_of
from tuner.definitions.models import LengthDistribution, Objective, Rung, Seeds
from tuner.definitions.trace import Trace


def spread(kind="lognormal", mean=700.0, sd=400.0, **other) -> LengthDistribution:
    return LengthDistribution.model_validate(
        {"distribution": kind, "mean": mean, "sd": sd, **other}
    )


def objective(**other) -> Objective:
    values = {"ladder": [Rung(concurrency=1)], "input_tokens": 64, "output_tokens": 32}
    return Objective.model_validate(values | other)


@pytest.mark.parametrize("kind", ["normal", "lognormal"])
@pytest.mark.parametrize("seed", range(5))
def test_mean_and_spread_are_those_of_the_tokens_whatever_the_seed(kind, seed):
    tokens = drawn(spread(kind, sd=200.0), DRAWS, Random(seed))
    assert fmean(tokens) == pytest.approx(700, rel=0.002)
    assert pstdev(tokens) == pytest.approx(200, rel=0.02)
    assert tokens != sorted(tokens)


def test_a_lognormal_has_its_middle_below_its_mean_and_a_normal_has_not():
    # mean 700 and sd 400: sigma^2 = ln(1 + (4/7)^2), median = 700 exp(-sigma^2 / 2) = 607.8
    assert median(drawn(spread(), DRAWS, Random(1))) == pytest.approx(607.8, rel=0.01)
    assert median(drawn(spread("normal", sd=100.0), DRAWS, Random(1))) == pytest.approx(
        700, rel=0.01
    )


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["normal", "lognormal"]),
    st.floats(1, 5000),
    st.floats(0.1, 20000),
    st.integers(1, 50),
    st.integers(0, 99),
)
def test_no_length_leaves_its_bounds(kind, mean, sd, low, seed):
    lengths = spread(kind, mean, sd, low=low)
    high = highest(lengths)
    tokens = drawn(lengths, 200, Random(seed))
    assert len(tokens) == 200
    if low <= high:
        assert all(low <= each <= high for each in tokens)


def test_without_a_high_it_is_ten_times_the_mean():
    assert highest(spread(mean=70.0)) == 700
    assert highest(spread(high=900)) == 900


def test_lengths_are_drawn_once_by_the_seed_of_orders():
    asked = objective(input_tokens=spread(), output_tokens=spread(mean=90.0, sd=50.0))
    lengths = lengths_of(asked)
    assert len(lengths) == DRAWS
    assert lengths == lengths_of(asked)
    other = lengths_of(asked.model_copy(update={"seeds": Seeds(order=9)}))
    assert lengths != other
    assert fmean(given for given, _ in lengths) == pytest.approx(700, rel=0.002)
    assert fmean(wanted for _, wanted in other) == pytest.approx(90, rel=0.01)
    # Inputs and outputs are drawn apart: a long question has no longer answer.
    middle = median(given for given, _ in lengths)
    long = [wanted for given, wanted in lengths if given > middle]
    assert fmean(long) == pytest.approx(90, rel=0.1)


def test_one_length_may_stand_beside_a_distribution():
    lengths = lengths_of(objective(output_tokens=spread(mean=90.0)))
    assert {given for given, _ in lengths} == {64}
    assert len({wanted for _, wanted in lengths}) > 100


def test_a_warm_set_has_a_stated_number_of_prompts():
    assert lengths_of(objective()) == ((64, 32),)
    assert lengths_of(objective(prefix="warm")) == ((64, 32),) * WARM_PROMPTS
    assert len(lengths_of(objective(prefix="warm", input_tokens=spread()))) == WARM_PROMPTS
    trace = Trace(lengths=((1, 2), (3, 4)))
    asked = objective(prefix="warm", input_tokens=None, output_tokens=None, trace="t.jsonl")
    assert lengths_of(asked, trace) == trace.lengths
