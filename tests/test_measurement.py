import random
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.measuring.measurement import RequestTiming, RungMeasurement, measure
from tuner.measuring.observing import observe
from tuner.measuring.open_load import answered
from tuner.measuring.replicas import Replicas


def request(sent_s=0.0, events=(), done_s=None, **other) -> RequestTiming:
    values = {
        "stream": 0,
        "index": 0,
        "input_tokens": 0,
        "output_tokens": sum(tokens for _, tokens in events),
        "requested_tokens": 100,
    }
    return RequestTiming(sent_s=sent_s, events=tuple(events), done_s=done_s, **values | other)


def seen(*timings: RequestTiming, start_s=10.0, end_s=20.0, gpus=1, **other) -> RungMeasurement:
    return measure(
        timings, concurrency=len(timings), start_s=start_s, end_s=end_s, gpus=gpus, **other
    )


def test_tokens_count_where_they_fall_in_time():
    # Two tokens at 9 s lie outside; half of the 4 of (9, 11] and a quarter of the 8 of (18, 26].
    one = request(sent_s=8.0, events=[(9.0, 2), (11.0, 4), (18.0, 7), (26.0, 8)], done_s=26.0)
    assert seen(one).output_tok_s == pytest.approx((2 + 7 + 2) / 10)


def test_a_first_event_counts_when_it_arrives():
    assert seen(request(9.0, [(11.0, 5)], 11.0)).output_tok_s == pytest.approx(0.5)
    assert seen(request(9.0, [(10.0, 5)], 10.0)).output_tok_s == 0
    assert seen(request(9.0, [(20.0, 5)], 20.0)).output_tok_s == pytest.approx(0.5)


def test_one_server_of_several_counts_for_all_with_latencies_of_its_own():
    # Eight users on a host of two such servers: four are played, each 2 tokens a second.
    each = [
        request(10.0, [(10.5 + n / 2, 1) for n in range(20)], 20.0, input_tokens=40) for _ in "1234"
    ]
    alone = seen(*each, gpus=8)
    whole = measure(
        each,
        concurrency=8,
        start_s=10.0,
        end_s=20.0,
        gpus=8,
        replicas=Replicas(launched=1, of=2),
    )
    assert (whole.concurrency, whole.played, whole.factor) == (8, 4, 2.0)
    assert whole.output_tok_s == pytest.approx(2 * 8.0) == 2 * alone.output_tok_s
    assert whole.input_tok_s == pytest.approx(2 * 16.0) == 2 * alone.input_tok_s
    assert whole.total_tok_s == whole.output_tok_s + whole.input_tok_s
    assert whole.tok_s_per_gpu == pytest.approx(16.0 / 8)
    assert whole.tok_s_per_user == alone.tok_s_per_user
    assert (whole.itl_ms, whole.ttft_ms, whole.e2e_ms) == (
        alone.itl_ms,
        alone.ttft_ms,
        alone.e2e_ms,
    )
    assert whole.requests_completed == 4


def test_events_of_one_instant_count_there():
    one = request(9.0, [(11.0, 1), (11.0, 3), (20.5, 0)], 20.5)
    assert seen(one).output_tok_s == pytest.approx(0.4)


def test_input_counts_while_it_was_processed():
    one = request(8.0, [(12.0, 1)], 12.0, input_tokens=100)
    measured = seen(one)
    assert measured.input_tok_s == pytest.approx(5.0)
    assert measured.total_tok_s == pytest.approx(5.0 + 0.1)


def test_input_of_a_request_cut_in_its_prefill_counts_by_the_usual_time():
    usual = request(10.0, [(14.0, 1)], 14.0, input_tokens=100)
    cut = request(18.0, [], None, input_tokens=100)
    assert seen(usual, cut).input_tok_s == pytest.approx((100 + 50) / 10)
    longer = request(12.0, [], None, input_tokens=100)
    assert seen(usual, longer).input_tok_s == pytest.approx(100 / 10)
    assert seen(cut).input_tok_s == 0


def test_prompts_that_wait_in_a_queue_are_not_processed():
    """One prompt a second of 100 tokens, five a second sent: 100 tokens a second."""
    sent = [number / 5 for number in range(100)]
    queue = [
        request(at, [(number + 1.0, 1)] if number < 20 else [], None, input_tokens=100)
        for number, at in enumerate(sent)
    ]
    assert 100 <= seen(*queue).input_tok_s <= 110.1  # one may be under way


def test_tokens_that_are_read_at_one_instant_are_tokens_of_a_user():
    together = request(10.0, [(11.0, 1), (12.0, 1), (12.0, 1), (12.0, 1), (13.0, 1)], 13.0)
    measured = seen(together)
    assert measured.tok_s_per_user == pytest.approx(4 / 2)
    assert measured.tpot_ms is not None
    assert measured.tpot_ms.p50 == pytest.approx(500)


def test_what_a_cut_request_had_under_way_follows_its_own_pace():
    cut = request(10.0, [(11.0, 4), (15.0, 4), (19.0, 4)], None)
    assert seen(cut).output_tok_s == pytest.approx((12 + 1) / 10)


def test_a_cut_request_with_one_event_follows_the_pace_of_the_others():
    other = request(10.0, [(12.0, 4), (16.0, 8)], 16.0)
    cut = request(10.0, [(19.0, 4)], None)
    assert seen(other, cut).output_tok_s == pytest.approx((12 + 4 + 2) / 10)
    assert seen(cut).output_tok_s == pytest.approx(0.4)


def test_silence_earns_one_event_at_the_most():
    silent = request(0.0, [(10.5, 4), (10.6, 4)], None)
    assert seen(silent).output_tok_s == pytest.approx((8 + 4) / 10)
    long_silent = request(0.0, [(1.0, 4), (1.1, 4)], None)
    assert seen(long_silent).output_tok_s == pytest.approx(4 * 10 / 18.9 / 10)


def test_a_cut_request_gets_no_more_than_it_asked_for():
    """Two tokens are left, which come after half the time of four."""
    cut = request(10.0, [(11.0, 4), (15.0, 4), (19.0, 4)], None, requested_tokens=14)
    assert seen(cut).output_tok_s == pytest.approx((12 + 1) / 10)
    cut = request(10.0, [(11.0, 4), (14.0, 4), (17.0, 4)], None, requested_tokens=14)
    assert seen(cut).output_tok_s == pytest.approx((12 + 2) / 10)


@pytest.mark.parametrize(("tokens", "chunk"), [(128, 19), (40, 4), (40, 1), (7, 40)])
def test_throughput_is_exact_whatever_the_events_carry(tokens, chunk):
    """Streams at every phase of a closed loop whose truth is known: a first token after 2 s, the
    others at 5 a second, told `chunk` at a time; one answer begins where the last one ended. Which
    events the window cuts apart must not matter."""
    streams, ttft_s, gap_s = 400, 2.0, 0.2
    cycle_s = ttft_s + (tokens - 1) * gap_s
    timings = []
    for stream in range(streams):
        for turn in range(int(100 / cycle_s) + 1):
            sent_s = (stream / streams + turn) * cycle_s
            told = sorted({1, *range(1 + chunk, tokens, chunk), tokens})
            events = [
                (sent_s + ttft_s + (count - 1) * gap_s, count - before)
                for before, count in zip([0, *told], told, strict=False)
            ]
            came = [event for event in events if event[0] <= 100.0]
            done_s = events[-1][0] if came == events else None
            if sent_s < 100.0:
                timings.append(request(sent_s, came, done_s, requested_tokens=tokens))
    measured = seen(*timings, start_s=37.0, end_s=100.0)
    assert measured.output_tok_s == pytest.approx(streams * tokens / cycle_s, rel=5e-4)


def test_chunks_are_as_large_as_those_of_the_window_not_as_those_of_the_ramp():
    """A token each while a thousand small events came before the window; ten each in it."""
    ramp = request(0.0, [(n / 200, 1) for n in range(1, 1000)], 5.0)
    usual = request(6.0, [(8.0, 1), (12.0, 10), (16.0, 10), (20.0, 10)], 20.0)
    cut = request(10.0, [(18.0, 1)], None)
    measured = seen(ramp, usual, cut)
    assert measured.output_tok_s == pytest.approx((5 + 10 + 10 + 1 + 5) / 10)


def test_the_pace_of_a_cut_request_is_not_that_of_one_late_event():
    """Forty milliseconds a token, and the one before the last read late: 1 ms after it the last
    came. What is under way is 0.9 of a token, not a whole one."""
    events = [(19.6 + 0.04 * n, 1) for n in range(10)]
    late = [*events[:-2], (events[-1][0] - 0.001, 1), events[-1]]
    cut = request(10.0, late, None)
    since = 20.0 - events[-1][0]
    expected = 10 + since / ((events[-1][0] - events[1][0]) / 8)
    assert seen(cut).output_tok_s == pytest.approx(expected / 10)


def test_latencies_count_from_when_a_request_was_due():
    owed = request(12.0, [(13.0, 1), (14.0, 1)], 15.0, due_s=11.0)
    measured = seen(owed)
    assert measured.ttft_ms is not None
    assert measured.e2e_ms is not None
    assert (measured.ttft_ms.mean, measured.e2e_ms.mean) == (2000.0, 4000.0)


def test_a_failed_request_brings_no_tokens():
    failed = request(11.0, [(12.0, 4), (13.0, 4)], 14.0, input_tokens=9, error="scheduler died")
    measured = seen(failed)
    assert (measured.output_tok_s, measured.input_tok_s) == (0, 0)
    assert (measured.requests_failed, measured.first_error) == (1, "scheduler died")
    assert measured.requests_completed == 0
    assert measured.e2e_ms is None


def test_failures_count_where_they_were_sent_or_ended_inside():
    inside = [request(9.0, done_s=11.0, error="b"), request(19.0, done_s=25.0, error="c")]
    outside = [request(1.0, done_s=2.0, error="a"), request(21.0, done_s=22.0, error="d")]
    measured = seen(*inside, *outside, request(11.0, error="cut and broken"))
    assert measured.requests_failed == 3
    assert measured.first_error == "b"


def test_latencies_are_those_of_their_own_moment():
    one = request(9.0, [(11.0, 1), (13.0, 2), (14.0, 2)], 15.0)
    measured = seen(one, request(1.0, [(2.0, 1), (12.0, 1)], 21.0))
    assert measured.ttft_ms is not None
    assert (measured.ttft_ms.count, measured.ttft_ms.mean) == (1, 2000)
    assert measured.tpot_ms is not None
    assert (measured.tpot_ms.count, measured.tpot_ms.mean) == (1, 750)
    assert measured.e2e_ms is not None
    assert (measured.e2e_ms.count, measured.e2e_ms.mean) == (1, 6000)
    assert measured.requests_completed == 1


def test_a_gap_counts_for_each_token_that_ended_it():
    measured = seen(request(9.0, [(11.0, 1), (13.0, 4), (14.0, 1)], 14.0))
    assert measured.itl_ms is not None
    assert measured.itl_ms.count == 5
    assert measured.itl_ms.mean == pytest.approx((4 * 500 + 1000) / 5)
    assert measured.itl_ms.p50 == 500
    assert measured.itl_ms.max == 1000


def test_percentiles_are_interpolated():
    timings = [request(11.0, [(11.0 + n / 1000, 1)], 12.0) for n in range(1, 101)]
    ttft = seen(*timings).ttft_ms
    assert ttft is not None
    assert ttft.p50 == pytest.approx(50.5)
    assert ttft.p90 == pytest.approx(90.1)
    assert ttft.p99 == pytest.approx(99.01)
    assert ttft.max == pytest.approx(100)


def test_speed_per_user_needs_no_request_to_finish():
    slow = request(0.0, [(5.0, 1), (15.0, 10)], None)
    fast = request(0.0, [(10.0, 1), (20.0, 40)], None)
    assert seen(slow, fast).tok_s_per_user == pytest.approx((5 + 40 + 5) / (5 + 10 + 5))


def test_speed_per_user_counts_the_silence_at_the_windows_end():
    silent = request(0.0, [(10.5, 4), (10.6, 4)], None)
    assert seen(silent).tok_s_per_user == pytest.approx((4 + 4) / (0.1 + 9.4))
    answered = request(0.0, [(10.5, 4), (10.6, 4)], None, requested_tokens=8)
    assert seen(answered).tok_s_per_user == pytest.approx(4 / 0.1)


def test_speed_per_user_is_true_where_gaps_are_irregular():
    """Nine in ten are short: the long ones, which take most of the time, are those cut off."""
    rng, gap_s, streams = random.Random(1), 0.4, 400
    timings = []
    for _ in range(streams):
        at_s, events = -rng.random(), []
        while (at_s := at_s + gap_s * (0.5 if rng.random() < 0.9 else 5.5)) < 15:
            events.append((at_s, 4))
        timings.append(request(-100.0, events, None, requested_tokens=10**6))
    measured = seen(*timings, start_s=10.0, end_s=15.0)
    assert measured.tok_s_per_user == pytest.approx(4 / gap_s, rel=0.03)


def test_speed_per_gpu_is_the_output_shared_out():
    one = request(9.0, [(11.0, 80)], 11.0, input_tokens=1000)
    assert seen(one, gpus=8).tok_s_per_gpu == pytest.approx(1.0)


def test_an_empty_window_shows_nothing_and_all_failures():
    early = request(0.0, done_s=0.1, error="refused")
    measured = seen(early, start_s=0.5, end_s=0.5)
    assert measured.output_tok_s == measured.total_tok_s == measured.window_s == 0
    assert (measured.requests_failed, measured.first_error) == (1, "refused")
    assert measured.ttft_ms is None
    assert measured.tok_s_per_user is None


@pytest.mark.parametrize(
    ("done_s", "error", "well"),
    [(0.0, None, True), (-1.0, None, False), (1.0, None, True), (1.1, None, False),
     (None, None, False), (0.5, "reset", False)],
)  # fmt: skip
def test_a_window_holds_what_ended_well_in_it_at_the_clocks_zero_too(done_s, error, well):
    timing = request(-2.0, [(-1.5, 4)], done_s, error=error)
    measured = seen(timing, start_s=-1.0, end_s=1.0)
    assert measured.requests_completed == well == len(answered([timing], -1.0, 1.0))
    assert observe([timing], start_s=-1.0, end_s=1.0).short == well


@given(
    st.lists(st.tuples(st.floats(0.001, 3), st.integers(1, 8)), min_size=1, max_size=30),
    st.floats(0, 20),
    st.floats(0.1, 20),
)
def test_windows_side_by_side_share_out_every_token(gaps, edge, length):
    at, events = 0.0, []
    for gap, tokens in gaps:
        at += gap
        events.append((at, tokens))
    one = request(0.0, events, at, input_tokens=50)
    edges = [(-1.0, edge), (edge, edge + length), (edge + length, 200.0)]
    parts = [seen(one, start_s=a, end_s=b) for a, b in edges]
    assert sum(p.output_tok_s * p.window_s for p in parts) == pytest.approx(one.output_tokens)
    assert sum(p.input_tok_s * p.window_s for p in parts) == pytest.approx(50)


def test_values_are_imported_without_numpy():
    code = "import sys, tuner.measuring.measurement; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
