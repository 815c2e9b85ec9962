"""What servers answer to a scoring: right, short, of another form."""

import math
from typing import Any

import pytest

from tuner.engines.scoring import listed_scores, named_scores, token_ids
from tuner.errors import HttpProtocolError
from tuner.measuring.fidelity import TokenScore

NAMED = [
    None,
    {"5": {"logprob": -9.0, "rank": 40}, "7": {"logprob": -0.1, "rank": 1}},
    {"9": {"logprob": -0.2, "rank": 1}, "3": {"logprob": -2.0, "rank": 2}},
    {
        "1": {"logprob": -6.0, "rank": 12},
        "2": {"logprob": -0.3, "rank": 1},
        "4": {"logprob": -1.0, "rank": 2},
    },
]
SAID = [[None, 5, None], [-0.2, 9, None], [-6.0, 1, None]]
LIKELIEST = [None, [[-0.2, 9, None], [-2.0, 3, None]], [[-0.3, 2, None], [-1.0, 4, None]]]
EXPECTED = [
    TokenScore(said=-0.2, best=-0.2, second=-2.0),
    TokenScore(said=-6.0, best=-0.3, second=-1.0),
]


def test_both_forms_say_the_same():
    assert named_scores(NAMED, [9, 1]) == EXPECTED
    assert listed_scores(SAID, LIKELIEST, [9, 1]) == EXPECTED


def test_a_likelihood_that_json_cannot_write_is_none():
    rows = [{"1": {"logprob": None}, "2": {"logprob": -0.3}}]
    assert named_scores(rows, [1])[0].said == -math.inf


@pytest.mark.parametrize(
    "rows",
    [None, [], "text", [None], [{"2": {"logprob": -0.3}}], [{"1": {"logprob": "x"}}], [[1]]],
)
def test_any_other_form_is_an_error_of_the_protocol(rows):
    with pytest.raises(HttpProtocolError, match=r"prompt_logprobs|a score"):
        named_scores(rows, [1])


@pytest.mark.parametrize(
    ("said", "likeliest"),
    [(None, None), (SAID, None), (SAID[:1], LIKELIEST), ([[-0.1]] * 2, LIKELIEST), (SAID, [1, 2])],
)
def test_any_other_list_is_an_error_of_the_protocol(said, likeliest):
    with pytest.raises(HttpProtocolError):
        listed_scores(said, likeliest, [9, 1])


def test_only_a_list_of_numbers_is_one_of_token_ids():
    assert token_ids([1, 2], "x") == [1, 2]
    values: list[Any] = [None, "text", ["a"], {"ids": []}]
    for value in values:
        with pytest.raises(HttpProtocolError, match="expected a list of token ids"):
            token_ids(value, "x")
