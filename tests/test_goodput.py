import pytest

from tuner.definitions.slo import Slo
from tuner.measuring.goodput import goodput_rps
from tuner.measuring.measurement import measure
from tuner.measuring.replicas import Replicas
from tuner.measuring.timing import RequestTiming

LIMITS = ("ttft_ms p99 <= 500", "tpot_ms p99 <= 50")


def request(ttft_ms=100.0, tpot_ms=20.0, tokens=11, **other) -> RequestTiming:
    first_s = 1 + ttft_ms / 1000
    events = tuple((first_s + n * tpot_ms / 1000, 1) for n in range(tokens))
    values = {
        "stream": 0,
        "index": 0,
        "sent_s": 1.0,
        "events": events,
        "done_s": events[-1][0],
        "input_tokens": 10,
        "output_tokens": tokens,
        "requested_tokens": tokens,
    }
    return RequestTiming(**values | other)


def goodput(*ended, limits=LIMITS, length_s=10.0):
    return goodput_rps(ended, [Slo.parse(text) for text in limits], length_s)


def test_a_request_counts_where_it_keeps_all_limits_at_once():
    found = goodput(request(), request(ttft_ms=501), request(tpot_ms=51), request(500.0, 49.0))
    assert found == pytest.approx(0.2)


def test_without_a_limit_on_single_requests_there_is_none():
    assert goodput(request(), limits=()) is None
    assert goodput(request(), limits=("itl_ms p99 <= 50", "output_tok_s >= 10")) is None
    assert goodput(request(), length_s=0.0) is None


def test_of_two_limits_on_one_latency_the_looser_is_for_every_request():
    both = ("ttft_ms p50 <= 200", "ttft_ms p99 <= 500")
    assert goodput(request(400.0), request(600.0), limits=both) == pytest.approx(0.1)
    assert goodput(request(400.0), request(600.0), limits=both[::-1]) == pytest.approx(0.1)


def test_the_end_to_end_limit_counts_from_when_a_request_was_due():
    limits = ("e2e_ms max <= 1000",)
    assert goodput(request(), limits=limits) == pytest.approx(0.1)
    assert goodput(request(due_s=0.2), limits=limits) == 0


def test_one_token_has_no_pace_to_keep():
    assert goodput(request(tokens=1), limits=("tpot_ms p99 < 1",)) == pytest.approx(0.1)


def test_a_measurement_counts_the_window_and_all_replicas():
    ended = [request(), request(ttft_ms=900), request(error="reset"), request(done_s=20.0)]
    measured = measure(
        ended,
        request_rate=2.0,
        start_s=0.0,
        end_s=10.0,
        gpus=2,
        slos=[Slo.parse(text) for text in LIMITS],
        replicas=Replicas(launched=1, of=2),
    )
    assert measured.goodput_rps == pytest.approx(2 * 0.1)
    bare = measure(ended, request_rate=2.0, start_s=0.0, end_s=10.0, gpus=2)
    assert bare.goodput_rps is None
