"""What engines print and answer, read without them."""

import re

from tuner.engines.readback import (
    as_flags,
    labels,
    last_match,
    printed_pairs,
    whole,
)
from tuner.flags.secrets import HIDDEN
from tuner.http.exposition import gauges, number

METRICS = """\
# HELP a:b a gauge
a:b{rank="0",name="say \\"hi\\", {x}"} 1.5
a:b{rank="1"} 2
a:b_total 9
plain 3e2
"""


def test_printed_values_are_read_as_python_prints_them():
    text = "a=1, b='x, y', c=[1, (2, 3)], d={'e': <E.F: 0>, 'g': [1]}, h=H(i=1, j=2), k=None"
    assert printed_pairs(text, between="=") == {
        "a": 1,
        "b": "x, y",
        "c": [1, (2, 3)],
        "d": {"e": "<E.F: 0>", "g": [1]},
        "h": "H(i=1, j=2)",
        "k": None,
    }


def test_a_dict_that_python_cannot_read_back_is_read_part_by_part():
    text = "{'mode': <Mode.NONE: 0>, 'ops': ['a,b', \"it's\"], 'deep': {'x': <Y.Z: 1>, 'n': 2}}"
    assert printed_pairs(f"config={text}", between="=")["config"] == {
        "mode": "<Mode.NONE: 0>",
        "ops": ["a,b", "it's"],
        "deep": {"x": "<Y.Z: 1>", "n": 2},
    }


def test_a_gauge_is_summed_over_its_samples():
    assert gauges(METRICS, "a:b", "plain", "a:c", "a") == [3.5, 300.0, None, None]


def test_what_is_no_sample_counts_for_nothing():
    assert gauges("a:b\na:b \n# a:b 1\n a:b 2\n", "a:b") == [None]
    assert gauges('a:b{x="} 7"} 1 1700000000\na:b\t2\n', "a:b") == [3.0]


def test_labels_are_those_of_the_first_sample():
    assert labels(METRICS, "a:b") == {"rank": "0", "name": 'say \\"hi\\", {x}'}
    assert labels(METRICS, "a:c") == {}


def test_arguments_become_flags_with_their_nests_joined():
    assert as_flags({"a_b": 1, "c_d": {"e_f": {"g": None}}, "h": [1, 2], "i": [{"j": 1}]}) == {
        "a-b": 1,
        "c-d.e_f.g": None,
        "h": "1 2",
        "i": '[{"j": 1}]',
    }


def test_a_secret_that_an_engine_answers_is_hidden():
    assert as_flags({"api_key": "sk-1", "max_tokens": 5, "x": {"hf_token": "hf-1"}}) == {
        "api-key": HIDDEN,
        "max-tokens": 5,
        "x.hf_token": HIDDEN,
    }


def test_the_last_match_of_a_log_counts():
    found = last_match(re.compile(r"n=(\d)"), "n=1\nn=2\n")
    assert found is not None
    assert found[1] == "2"
    assert last_match(re.compile("x"), "") is None


def test_what_is_no_finite_number_is_none():
    assert [number(value) for value in ("1.5", 2, True)] == [1.5, 2.0, 1.0]
    wrong: tuple[object, ...] = ("", "1.2.3", "NaN", "inf", None, [], {}, 10**400, "lots")
    assert [number(value) for value in wrong] == [None] * len(wrong)
    assert [whole(value) for value in ("12,345", 7.0, "x", None)] == [12345, 7, None, None]


def test_samples_that_are_no_numbers_do_not_count():
    assert gauges("a 1\na NaN\na lots\na 2\nb -Inf\n", "a", "b") == [3.0, None]


def test_a_printed_value_that_python_cannot_take_stays_a_text():
    deep = "[" * 5000
    assert printed_pairs(f"a={deep}", between="=") == {"a": deep}
