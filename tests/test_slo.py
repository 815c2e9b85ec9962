import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.definitions.slo import LATENCIES, RATES, STATS, Slo
from tuner.errors import TunerError


def test_a_latency_has_a_statistic():
    expected = Slo(metric="ttft_ms", stat="p99", op="<=", limit=500.0)
    assert Slo.parse("ttft_ms p99 <= 500") == expected
    assert Slo.parse("  ttft_ms   p99<=5e2 ") == expected


def test_a_rate_has_none():
    assert Slo.parse("output_tok_s >= 1000.5") == Slo(
        metric="output_tok_s", stat=None, op=">=", limit=1000.5
    )


@pytest.mark.parametrize(
    ("text", "met", "missed"),
    [
        ("ttft_ms p99 <= 500", 500, 500.1),
        ("ttft_ms p99 < 500", 499.9, 500),
        ("output_tok_s >= 500", 500, 499.9),
        ("output_tok_s > 500", 500.1, 500),
    ],
)
def test_each_comparison_draws_its_line_where_it_says(text, met, missed):
    slo = Slo.parse(text)
    assert slo.met_by(met)
    assert not slo.met_by(missed)


def test_what_is_not_a_number_meets_nothing():
    assert not Slo.parse("ttft_ms p99 <= 500").met_by(float("nan"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found an empty text"),
        ("ttft p99 <= 500", "unknown metric 'ttft' (did you mean 'ttft_ms'?)"),
        ("ttft_ms p98 <= 500", "unknown statistic 'p98' (did you mean 'p99'?)"),
        ("ttft_ms <= 500", "ttft_ms needs a statistic"),
        ("tok_s_per_gpu p50 >= 5", "found the statistic 'p50', but tok_s_per_gpu is one number"),
        ("ttft_ms p99 == 500", "unknown comparison '=='"),
        ("ttft_ms p99 <= 500ms", "found '500ms', expected a number without a unit"),
        ("ttft_ms p99 <= -5", "found '-5', expected a number without a unit"),
        ("ttft_ms p99 <= inf", "found 'inf', expected a number without a unit"),
        ("ttft_ms p99 <= 1e999", "found '1e999', expected a number without a unit"),
        ("ttft_ms p99 <= 5 6", "found 'ttft_ms p99 <= 5 6', expected METRIC STAT OP NUMBER"),
        ("ttft_ms p99", "found 'ttft_ms p99', expected METRIC STAT OP NUMBER"),
        ("500 >= ttft_ms", "unknown metric '500'"),
    ],
)
def test_what_does_not_parse_is_told_why(text, message):
    with pytest.raises(TunerError) as error:
        Slo.parse(text)
    assert error.value.message.startswith(message)


OPS = st.sampled_from(["<=", "<", ">=", ">"])
LIMITS = st.integers(0, 99_999)


@settings(deadline=None)
@given(st.sampled_from(LATENCIES), st.sampled_from(STATS), OPS, LIMITS)
def test_the_text_of_a_latency_slo_parses_to_itself(metric, stat, op, limit):
    slo = Slo(metric=metric, stat=stat, op=op, limit=float(limit))
    assert Slo.parse(str(slo)) == slo


@settings(deadline=None)
@given(st.sampled_from(RATES), OPS, LIMITS)
def test_the_text_of_a_rate_slo_parses_to_itself(metric, op, limit):
    slo = Slo(metric=metric, stat=None, op=op, limit=float(limit))
    assert Slo.parse(str(slo)) == slo


@settings(deadline=None)
@given(st.text(max_size=30))
def test_any_text_parses_or_is_refused_in_words(text):
    with contextlib.suppress(TunerError):
        assert Slo.parse(text).limit >= 0
