import pytest

from tuner.definitions.slo import Slo
from tuner.measuring.measurement import RungMeasurement, measure
from tuner.measuring.observing import observe
from tuner.measuring.open_rules import (
    keeps_up,
    offered,
    sent_late,
    trial_offered,
    trial_sent_late,
)
from tuner.measuring.timing import RequestTiming
from tuner.measuring.validity import doubts


def request(due_s, *, late_s=0.0, took_s=1.0, done=True, error=None) -> RequestTiming:
    sent_s = due_s + late_s
    return RequestTiming(
        stream=0,
        index=0,
        due_s=due_s,
        sent_s=sent_s,
        events=((sent_s + took_s / 2, 1), (sent_s + took_s, 1)) if done else (),
        done_s=sent_s + took_s if done else None,
        input_tokens=10,
        output_tokens=2 if done else 0,
        requested_tokens=2,
        error=error,
    )


def steady(rate=10, until_s=30.0, **other):
    return [request(n / rate, **other) for n in range(int(until_s * rate))]


def measured(timings, *, start_s=10.0, end_s=20.0, unsent_s=()) -> RungMeasurement:
    return measure(
        timings, request_rate=10.0, start_s=start_s, end_s=end_s, gpus=1, unsent_s=unsent_s
    )


def said(rule, timings, **other):
    rung = measured(timings, **other)
    seen = observe(timings, start_s=10.0, end_s=20.0)
    return rule(rung, seen, ())


def test_a_steady_load_is_offered_sent_and_answered_alike_and_nothing_is_said_of_it():
    timings = steady()
    load = measured(timings).open_load
    assert load is not None
    assert (load.due, load.late_out, load.unsent, load.late_ms) == (100, 0, 0, 0.0)
    assert (load.due_rps, load.sent_rps, load.answered_rps) == pytest.approx((10, 10, 10))
    assert (load.under_way_first, load.under_way_last) == pytest.approx((10, 10))
    assert not load.grows
    rules = {d.rule for d in doubts(measured(timings), observe(timings, start_s=10.0, end_s=20.0))}
    assert rules.isdisjoint({"offered", "lateness", "keeps_up", "reached"})


def test_a_closed_loop_has_no_open_load():
    timing = RequestTiming(
        stream=0, index=0, sent_s=11.0, events=((12.0, 1),), done_s=12.0,
        input_tokens=1, output_tokens=1, requested_tokens=1,
    )  # fmt: skip
    rung = measure([timing], concurrency=1, start_s=10.0, end_s=20.0, gpus=1)
    assert rung.open_load is None
    seen = observe([timing], start_s=10.0, end_s=20.0)
    assert [rule(rung, seen, ()) for rule in (offered, sent_late, keeps_up)] == [[], [], []]


def test_what_could_not_be_sent_voids_the_rung_with_the_numbers():
    timings = steady()
    (doubt,) = said(offered, timings, unsent_s=[5.0, 15.0, 16.0, 25.0])
    assert (doubt.rule, doubt.voids, doubt.found) == ("offered", True, pytest.approx(2 / 102))
    assert "2 of 102 requests were not sent while they were due, 2 of them never:" in doubt.said
    assert "10.2 a second were offered and 10 sent" in doubt.said


def test_what_leaves_the_window_unsent_is_no_load_either():
    late = [request(n / 10, late_s=0.0 if n < 180 else 3.0) for n in range(300)]
    (doubt,) = said(offered, late)
    assert doubt.voids
    assert "21 of 100 requests were not sent while they were due: 10 a second" in doubt.said
    edge = [request(n / 10, late_s=3.0 if n in (199, 200) else 0.0) for n in range(300)]
    assert said(offered, edge) == []


def test_a_client_that_sends_late_voids_the_rung_with_the_numbers():
    """A first token takes half a second, the whole answer ten times as long."""
    answers = [request(n / 10, late_s=0.004, took_s=1.0) for n in range(300)]
    assert said(sent_late, answers) == []
    (doubt,) = said(sent_late, steady(late_s=0.02))
    assert doubt.voids
    assert "sent 20 ms late on average (p99 20 ms), 3.8% of the mean TTFT" in doubt.said
    assert said(trial_sent_late, steady(late_s=0.01)) == []
    assert [doubt.limit for doubt in said(trial_sent_late, steady(late_s=0.02))] == [0.03]


def test_the_latest_requests_are_held_against_a_limit_on_first_tokens():
    """One in fifty was 20 ms late, 0.4 ms on average."""
    some = [request(n / 10, late_s=0.0 if n % 50 else 0.02) for n in range(300)]
    rung, seen = measured(some), observe(some, start_s=10.0, end_s=20.0)
    loose, tight = Slo.parse("ttft_ms p99 <= 1000"), Slo.parse("ttft_ms p99 <= 500")
    for rule in (sent_late, trial_sent_late):
        assert rule(rung, seen, [loose, Slo.parse("tpot_ms p99 <= 1")]) == []
        (doubt,) = rule(rung, seen, [loose, tight])
        assert "4.0% of what ttft_ms p99 <= 500 allows, the p99, at most 3%" in doubt.said


def test_a_server_that_does_not_keep_up_is_said_and_not_held_invalid():
    slower = [request(n / 10, took_s=1 + n / 20) for n in range(300)]
    (doubt,) = said(keeps_up, slower)
    assert not doubt.voids
    assert "of 10 requests a second it answered 6.6" in doubt.said
    assert "grew from 43 to 70 in the window" in doubt.said


def test_a_swing_of_the_arrivals_is_no_growth():
    """Ten under way, then sixteen: three times the root of sixteen is twelve."""
    more = [*steady(10, 17.0), *(request(17 + n / 16) for n in range(60))]
    assert said(keeps_up, more) == []


def test_requests_that_are_never_answered_grow():
    mute = [request(n / 10, done=False) for n in range(300)]
    (doubt,) = said(keeps_up, mute)
    assert "it answered 0" in doubt.said


def test_a_load_of_which_nothing_was_sent_grows_and_is_not_offered():
    unsent = [n / 10 for n in range(300)]
    load = measured([], unsent_s=unsent).open_load
    assert load is not None
    assert (load.due, load.late_out, load.unsent) == (100, 100, 100)
    assert (load.due_rps, load.sent_rps, load.answered_rps) == pytest.approx((10, 0, 0))
    assert load.under_way_last - load.under_way_first == pytest.approx(80, abs=1)
    assert said(offered, [], unsent_s=unsent)[0].voids
    assert said(keeps_up, [], unsent_s=unsent)


def test_what_a_configuration_lets_in_too_slowly_is_its_own_and_what_a_client_leaves_is_not():
    assert said(trial_offered, steady(), unsent_s=[15.0, 16.0]) == []
    late = [request(n / 10, late_s=0.0 if n < 180 else 3.0) for n in range(300)]
    (doubt,) = said(trial_offered, late, unsent_s=[15.0, 16.0])
    assert doubt.voids


def test_a_window_in_which_nothing_was_due_or_that_never_opened_has_offered_nothing():
    for start_s, end_s in ((10.0, 10.0), (10.01, 10.02)):
        rung = measured(steady(), start_s=start_s, end_s=end_s)
        assert rung.open_load is not None
        assert (rung.open_load.due, rung.open_load.late_share) == (0, None)
        assert offered(rung, observe([], start_s=start_s, end_s=end_s), ()) == []
