"""The first quality gate: servers that answer fast with nothing in it."""

import random

import numpy as np
import pytest

from tuner.measuring.measurement import RequestTiming
from tuner.measuring.quality import OutputQuality, _tail, output_quality, wrong_output

PROSE = (
    "The quick brown fox jumps over the lazy dog, then sits down by the river and counts the boats "
    "that pass under an old stone bridge while evening falls on the quiet town."
)
HONEST = OutputQuality(requests=100)


def request(text=PROSE, *, tokens=32, requested=32, done_s=1.0, error=None):
    return RequestTiming(
        stream=0,
        index=0,
        sent_s=0.0,
        events=((0.5, tokens),),
        done_s=done_s,
        input_tokens=8,
        output_tokens=tokens,
        requested_tokens=requested,
        error=error,
        text=text,
    )


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (PROSE, None),
        ("", "empty"),
        ("  \n", "empty"),
        ("!" * 32, "repeated"),
        ("nan " * 64, "repeated"),
        ("the cat sat " * 20, "repeated"),
        (PROSE + "!" * len(PROSE), "repeated"),
        (f"{PROSE} {PROSE[:80]}", None),
    ],
)
def test_each_fault_is_seen_and_prose_is_not_one(text, fault):
    found = output_quality([request(text)])
    expected = {"requests": 1, "empty": 0, "repeated": 0, "short": 0}
    if fault:
        expected[fault] = 1
    assert found.model_dump() == expected


def test_random_tokens_of_an_untrained_model_are_not_repetition():
    rng = random.Random(1)
    words = [f"{rng.choice('bcdfg')}{rng.choice('aeiou')}{n}" for n in range(500)]
    text = " ".join(rng.choice(words) for _ in range(32))
    assert output_quality([request(text)]).repeated == 0


def test_an_answer_shorter_than_asked_is_short_but_one_cut_by_the_window_is_not():
    assert output_quality([request(tokens=20)]).short == 1
    assert output_quality([request(tokens=20, done_s=None)]).short == 0


def test_failed_and_barely_begun_requests_are_not_judged():
    assert output_quality([request(error="reset"), request(tokens=3, done_s=None)]).requests == 0


def test_a_candidate_that_repeats_itself_is_wrong_and_both_shares_are_named():
    found = wrong_output(OutputQuality(requests=10, repeated=10), HONEST)
    assert found == "output is repeated in 100% of the requests, in the baseline's 0%"


def test_a_smaller_share_is_wrong_where_chance_would_hardly_make_it():
    assert wrong_output(OutputQuality(requests=100, empty=15), OutputQuality(requests=300))
    assert wrong_output(OutputQuality(requests=1000, short=100), OutputQuality(requests=500))
    assert wrong_output(OutputQuality(requests=1000, repeated=49), OutputQuality(requests=1000))


@pytest.mark.parametrize(
    ("found", "baseline"),
    [
        (OutputQuality(requests=2, repeated=2), HONEST),
        (OutputQuality(requests=100, repeated=6), HONEST),
        (OutputQuality(requests=100, repeated=94), OutputQuality(requests=100, repeated=80)),
        (OutputQuality(requests=10_000, repeated=100), OutputQuality(requests=10_000)),
        (OutputQuality(requests=300, repeated=8), OutputQuality(requests=300)),
        (OutputQuality(requests=100, repeated=90), OutputQuality(requests=100, repeated=80)),
        (OutputQuality(requests=10, repeated=10), OutputQuality()),
        (OutputQuality(), HONEST),
    ],
)
def test_what_may_be_chance_or_is_the_models_own_habit_passes(found, baseline):
    assert wrong_output(found, baseline) is None


def test_counts_add_up_over_rungs():
    total = OutputQuality(requests=1, empty=1) + OutputQuality(requests=2, short=1)
    assert total == OutputQuality(requests=3, empty=1, short=1)


def test_the_chance_of_an_excess_is_fishers():
    from scipy.stats import fisher_exact

    for faulty, of, usual, among in [(15, 100, 0, 300), (8, 30, 2, 90), (100, 1000, 40, 500)]:
        table = np.array([[faulty, of - faulty], [usual, among - usual]])
        expected = fisher_exact(table, alternative="greater").pvalue
        assert _tail(faulty, faulty + usual, of, of + among) == pytest.approx(expected)
