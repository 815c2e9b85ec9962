import json
import math

import pytest

from tuner.definitions.surface import Surface
from tuner.flags.sglang import parse
from tuner.rehearsal.behaviour import Behaviour, resolve
from tuner.rehearsal.pacing import Pacer, Stream

TABLE = [
    {"concurrency": 1, "output_tok_s": 9.17, "ttft_ms": 370.0},
    {"concurrency": 10, "output_tok_s": 38.03, "ttft_ms": 650.0},
    {"concurrency": 256, "output_tok_s": 352.79, "ttft_ms": 2400.0},
    {"concurrency": 1024, "output_tok_s": 1520.55, "ttft_ms": 4200.0},
]
SCALE = 50.0


def pacer(**changes):
    document = {"time_scale": SCALE, "table": TABLE, "max_events_per_s": 4000, **changes}
    surface = Surface.model_validate_json(json.dumps(document))
    arguments = resolve(surface, parse(["--model-path", "m"]), {}).arguments
    return Pacer(behaviour=Behaviour(surface, arguments, "n"), now_s=0.0)


class Loop:
    """A closed loop in simulated time; tokens as (real second, count)."""

    def __init__(self, made, concurrency, *, tokens, turnaround_s=0.0, late_s=0.0):
        self.pacer, self.tokens, self.late_s = made, tokens, late_s
        self.turnaround_s = turnaround_s
        self.now_s = 0.0
        self.got: list[tuple[float, int]] = []
        self.finished_at: list[float] = []
        self.events = 0
        self.waiting: list[float] = []
        for index in range(concurrency):
            self.send(1 + int(tokens * (index + 0.5) / concurrency))

    def send(self, tokens):
        self.pacer.submit(self.now_s, Stream(owner=[0], tokens=tokens))

    def run(self, until_s):
        while self.now_s < until_s:
            due_s = self.pacer.next_s()
            awake_s = until_s if due_s is None else max(due_s, self.now_s) + self.late_s
            self.now_s = min(awake_s, until_s, *self.waiting)
            for stream in self.pacer.advance(self.now_s):
                self.got.append((self.now_s, stream.sent - stream.owner[0]))
                stream.owner[0] = stream.sent
                self.events += 1
                if stream.finished:
                    self.finished_at.append(self.now_s)
                    self.waiting.append(self.now_s + self.turnaround_s)
            while self.waiting and self.waiting[0] <= self.now_s:
                self.waiting.pop(0)
                self.send(self.tokens)

    def tok_s(self, since_s):
        """Per surface second."""
        span_s = (self.now_s - since_s) * SCALE
        return sum(count for at_s, count in self.got if at_s > since_s) / span_s


@pytest.mark.parametrize("point", TABLE, ids=lambda point: f"{point['concurrency']} streams")
@pytest.mark.parametrize("tokens", [64, 256])
def test_a_closed_loop_sees_the_tables_throughput_whatever_the_length(point, tokens):
    loop = Loop(pacer(), point["concurrency"], tokens=tokens)
    loop.run(8.0)
    assert loop.tok_s(2.0) == pytest.approx(point["output_tok_s"], rel=0.01)


def test_a_client_that_takes_a_moment_to_send_again_costs_nothing():
    loop = Loop(pacer(), 10, tokens=128, turnaround_s=0.02)
    loop.run(8.0)
    assert loop.tok_s(2.0) == pytest.approx(38.03, rel=0.01)


def test_a_client_that_takes_longer_than_the_turnaround_costs_throughput():
    loop = Loop(pacer(turnaround_s=0.01), 1, tokens=128, turnaround_s=0.1)
    loop.run(8.0)
    assert loop.tok_s(2.0) < 0.85 * 9.17


def test_waking_up_late_does_not_add_up():
    loop = Loop(pacer(), 10, tokens=128, late_s=0.004)
    loop.run(8.0)
    assert loop.tok_s(2.0) == pytest.approx(38.03, rel=0.01)


def test_first_tokens_come_after_the_tables_time():
    made = pacer()
    made.submit(0.0, Stream(owner=None, tokens=128))
    assert made.next_s() == pytest.approx(0.370 / SCALE)


def test_first_token_time_is_counted_from_the_arrival_also_after_a_turnaround():
    made = pacer()
    made.submit(0.0, Stream(owner=None, tokens=1))
    made.advance(0.370 / SCALE)
    made.submit(0.030, Stream(owner=None, tokens=128))
    assert made.next_s() == pytest.approx(0.030 + 0.370 / SCALE)


def test_tokens_after_the_first_are_evenly_spaced_and_the_last_is_in_time():
    stream = Stream(owner=None, tokens=11)
    stream.start(0.0, 0.0, 1.0, 1)
    gaps = [stream.due(count + 1) - stream.due(count) for count in range(1, 11)]
    assert gaps == pytest.approx([1.0] * 10)
    assert stream.due(11) == pytest.approx(11.0)


def test_a_first_token_time_longer_than_the_request_is_cut():
    stream = Stream(owner=None, tokens=10)
    stream.start(0.0, 0.0, 500.0, 1)
    assert stream.due(1) == pytest.approx(9.0)
    assert stream.due(10) == pytest.approx(10.0)


def test_events_are_bounded_with_exact_counts():
    loop = Loop(pacer(max_events_per_s=500), 256, tokens=256)
    loop.run(4.0)
    assert loop.events / 4.0 < 1000
    assert all(count >= 1 for _, count in loop.got)


def test_few_streams_send_every_token_by_itself():
    loop = Loop(pacer(), 1, tokens=128)
    loop.run(2.0)
    assert {count for _, count in loop.got} == {1}


def test_what_exceeds_the_pool_waits_and_runs_at_the_pools_speed():
    loop = Loop(pacer(max_running_requests=10), 100, tokens=128)
    assert (loop.pacer.running, loop.pacer.queued) == (10, 90)
    loop.run(8.0)
    assert (loop.pacer.running, loop.pacer.queued) == (10, 90)
    assert loop.tok_s(2.0) == pytest.approx(38.03, rel=0.01)


def test_a_cancelled_request_sends_nothing_and_frees_its_place():
    made = pacer(max_running_requests=1)
    gone, waiting, never = (Stream(owner=None, tokens=8) for _ in range(3))
    for stream in (gone, waiting, never):
        made.submit(0.0, stream)
    made.cancel(0.001, never)
    made.cancel(0.001, gone)
    assert (made.running, made.queued) == (1, 0)
    sent = {id(stream) for step in range(2000) for stream in made.advance(0.001 + step / 100)}
    assert sent == {id(waiting)}


def test_cancelling_what_is_over_changes_nothing():
    made = pacer()
    stream = Stream(owner=None, tokens=1)
    made.submit(0.0, stream)
    assert made.advance(10.0) == [stream]
    made.cancel(10.0, stream)
    assert made.running == 0


def test_nothing_comes_any_more_from_a_stalled_engine():
    made = pacer()
    made.submit(0.0, Stream(owner=None, tokens=8))
    made.stalled = True
    assert made.next_s() is None
    assert made.advance(100.0) == []
    assert made.running == 1


def test_an_idle_engine_asks_for_no_wake_up():
    made = pacer()
    assert made.next_s() is None
    made.submit(0.0, Stream(owner=None, tokens=1))
    made.advance(1.0)
    made.advance(2.0)
    assert made.next_s() is None


def test_noise_within_a_run_changes_the_pace_but_not_the_mean():
    loop = Loop(pacer(noise={"run_sd": 0.05, "run_period_s": 2}), 10, tokens=128)
    loop.run(20.0)
    parts = []
    for second in range(4, 20):
        tokens = sum(count for at_s, count in loop.got if second < at_s <= second + 1)
        parts.append(tokens / SCALE)
    assert max(parts) / min(parts) > 1.02
    assert loop.tok_s(2.0) == pytest.approx(38.03, rel=0.01)


def test_the_nights_wave_is_felt_by_the_wall_clock():
    """Up for the first real second, down for the next."""
    made = pacer(drift={"percent": 10, "period_s": 2 * SCALE}, noise={"run_period_s": 1})
    loop = Loop(made, 10, tokens=128)
    loop.run(9.0)
    up, down = (
        sum(count for at_s, count in loop.got if at_s > 3 and int(at_s) % 2 == half)
        for half in (0, 1)
    )
    assert up / down == pytest.approx((1 + 0.2 / math.pi) / (1 - 0.2 / math.pi), rel=0.02)


class Arrivals(Loop):
    """An open loop in simulated time: requests at `rate` a surface second, whoever waits."""

    def __init__(self, made, rate, *, tokens):
        super().__init__(made, 0, tokens=tokens)
        self.gap_s, self.next_s = 1 / rate / SCALE, 0.0
        self.there: list[tuple[float, int]] = []

    def run(self, until_s):
        while self.now_s < until_s:
            due_s = self.pacer.next_s()
            self.now_s = min(until_s, self.next_s, until_s if due_s is None else due_s)
            for stream in self.pacer.advance(self.now_s):
                self.got.append((self.now_s, stream.sent - stream.owner[0]))
                stream.owner[0] = stream.sent
            if self.now_s >= self.next_s:
                self.send(self.tokens)
                self.next_s += self.gap_s
            self.there.append((self.now_s, self.pacer.running + self.pacer.queued))

    def at_a_time(self, since_s):
        """Running and waiting requests, on average over time."""
        spans = [
            ((after_s - at_s), number)
            for (at_s, number), (after_s, _) in zip(self.there, self.there[1:], strict=False)
            if at_s > since_s
        ]
        return sum(span_s * number for span_s, number in spans) / sum(span_s for span_s, _ in spans)


@pytest.mark.parametrize(("point", "share"), [(1, 1.0), (1, 0.7), (2, 1.0)])
def test_an_open_loop_runs_as_many_as_the_table_needs_for_its_rate(point, share):
    """By Little's law: where the rate asks for the throughput of a point, its concurrency runs;
    where for less, fewer do."""
    tokens, wanted = 128, share * TABLE[point]["output_tok_s"]
    loop = Arrivals(pacer(turnaround_s=0.0), wanted / tokens, tokens=tokens)
    loop.run(100.0)
    assert loop.tok_s(50.0) == pytest.approx(wanted, rel=0.02)
    there = loop.at_a_time(50.0)
    if share == 1.0:
        assert there == pytest.approx(TABLE[point]["concurrency"], rel=0.1)
    else:
        assert 1 < there < 0.8 * TABLE[point]["concurrency"]


def test_a_rate_beyond_the_pools_capacity_makes_a_queue_that_grows():
    """Ten run at 38.03 tokens a second; what comes beyond that waits, and ever more does."""
    tokens, rate = 128, 2 * 38.03 / 128
    loop = Arrivals(pacer(max_running_requests=10, turnaround_s=0.0), rate, tokens=tokens)
    loop.run(20.0)
    first = loop.pacer.queued
    loop.run(40.0)
    assert loop.pacer.running == 10
    assert loop.tok_s(20.0) == pytest.approx(38.03, rel=0.02)
    assert loop.pacer.queued - first == pytest.approx(20.0 * SCALE * rate / 2, rel=0.05)
