import asyncio
import functools
import gc
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from tuner.definitions.models import SharedPrefix
from tuner.load import Api, Played, RungPlan, Target, play, readying, run
from tuner.load.closed_loop import FAILURES_TO_GIVE_UP
from tuner.measuring.measurement import RungMeasurement, measure

REPOSITORY = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server whose every answer is known."""
    port_file = tmp_path_factory.mktemp("truth") / "port"
    command = [sys.executable, "-m", "tests.truth_server", str(port_file)]
    with subprocess.Popen(command, cwd=REPOSITORY) as process:
        while not (port_file.exists() and port_file.read_text()):
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port_file.read_text()}"
        process.kill()


def at_last(check: Callable[..., None]) -> Callable[..., None]:
    """A busy machine shifts single stamps: what is checked must hold in one of five runs."""

    @functools.wraps(check)
    def checked(**fixtures: Any) -> None:
        for _ in range(4):
            with suppress(AssertionError):
                return check(**fixtures)
        return check(**fixtures)

    return checked


def log_of(truth: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{truth}/log") as answer:
        entries: list[dict[str, Any]] = json.load(answer)
        return entries


def plan(concurrency: int = 4, **other) -> RungPlan:
    values: dict[str, Any] = {
        "lengths": ((16, 40),),
        "warmup_s": 0.3,
        "window_s": 1.0,
        "prompt_seed": 1,
        "order_seed": 2,
        "rung_index": 0,
    }
    return RungPlan(concurrency=concurrency, **values | other)


def played(
    truth: str,
    how: str,
    plan: RungPlan,
    *,
    api: Api = "completions",
    time_scale: float = 1.0,
) -> Played:
    log_of(truth)
    target = Target(base_url=f"{truth}/{how}", api=api, model="m", time_scale=time_scale)
    return run(play(target, plan))


def measured(result: Played, concurrency: int) -> RungMeasurement:
    return measure(
        result.timings,
        concurrency=concurrency,
        start_s=result.start_s,
        end_s=result.end_s,
        gpus=1,
        lags_s=result.lags_s,
    )


def true_tok_s(result: Played, log: list[dict[str, Any]]) -> float:
    """What the server wrote inside the window, by its own clock and its own plan for the rest."""
    offset = min(e["received"] for e in log) - min(t.sent_s for t in result.timings)
    start, end = result.start_s + offset, result.end_s + offset
    tokens: float = 0.0
    for entry in log:
        events = list(map(tuple, entry["events"]))
        if entry["next"] is not None and events:
            events.append((entry["next"], entry["next_tokens"]))
        if events and start < events[0][0] <= end:
            tokens += events[0][1]
        for (before, _), (at, count) in pairwise(events):
            inside = max(0.0, min(at, end) - max(before, start))
            tokens += count * inside / (at - before)
    return float(tokens / (end - start))


def test_a_chat_is_asked_in_words_that_the_server_counts_to_the_length(truth):
    result = played(truth, "interval_ms=5", plan(2, lengths=((45, 20),)), api="chat")
    *_, last = (timing for timing in result.timings if timing.done_s is not None)
    entries = log_of(truth)
    assert [entry["input"] for entry in entries[:2]] == [2 * 8 + 5, 2 * 72 + 5]
    assert (last.input_tokens, last.output_tokens, last.error) == (45, 20, None)
    assert len({tuple(entry["first"]) for entry in entries}) == len(entries)


def test_the_first_token_of_a_chat_is_not_the_event_that_says_who_speaks(truth):
    result = played(truth, "ttft_ms=100,interval_ms=5,usage=last", plan(2), api="chat")
    firsts = [timing.events[0][0] - timing.sent_s for timing in result.timings if timing.events]
    assert len(firsts) > 4
    assert min(firsts) > 0.095


def test_a_shared_start_is_asked_once_of_every_server_before_the_load(truth):
    log_of(truth)
    target = Target(
        base_url=f"{truth}/tokens=2", replicas=(f"{truth}/tokens=4",), api="generate", model="m"
    )
    half = SharedPrefix(shared=0.5)
    run(play(target, plan(2, lengths=((16, 40), (40, 40)), prefix=half)))
    primers, load = (entries := log_of(truth))[:2], entries[2:]
    assert [entry["input"] for entry in primers] == [20, 20]
    assert primers[0]["first"] == primers[1]["first"]
    assert {tuple(entry["first"]) for entry in load} == {tuple(primers[0]["first"])}


def test_a_warm_set_is_asked_whole_before_the_load_and_then_over_and_over(truth):
    log_of(truth)
    target = Target(base_url=f"{truth}/interval_ms=2", api="completions", model="m")
    lengths = ((16, 10), (24, 10), (32, 10))
    result = run(play(target, plan(2, lengths=lengths, prefix="warm")))
    primers, load = log_of(truth), result.timings
    assert len(load) > 10
    known = {tuple(entry["first"]) for entry in primers[:3]}
    assert len(known) == 3
    assert sorted(entry["input"] for entry in primers[:3]) == [16, 24, 32]
    assert {tuple(entry["first"]) for entry in primers[3:]} == known


def test_a_warm_set_that_is_refused_is_counted_and_doubted(truth):
    target = Target(base_url=f"{truth}/refuse=4,owner=primed", api="completions", model="m")
    result = run(play(target, plan(2, lengths=((16, 10),) * 20, prefix="warm")))
    assert result.primers == 20
    assert result.primed == 3
    seen = result.observed()
    assert (seen.primers, seen.primed) == (20, 3)


def test_a_server_that_never_answers_is_not_told_for_ever(truth, monkeypatch):
    monkeypatch.setattr(readying, "LONGEST_PRIMING_S", 0.5)
    target = Target(base_url=f"{truth}/fault=silent", api="completions", model="m")
    warm = plan(2, lengths=((16, 10),) * 20, prefix="warm")
    ready = run(asyncio.wait_for(readying.readied(target, warm), timeout=20))
    assert (ready.primers, ready.primed) == (20, 0)


def test_a_recorded_question_is_asked_and_named_by_its_hash(truth):
    texts = ("one two three four", "five six")
    how = plan(2, lengths=((4, 10), (2, 10)), texts=texts, prefix="warm")
    result = played(truth, "interval_ms=2", how, api="chat")
    names = {timing.prompt for timing in result.timings}
    assert len(names) == 2
    firsts = {tuple(entry["first"][:2]) for entry in log_of(truth)[2:]}
    assert firsts == {("one", "one"), ("five", "five")}
    assert {timing.prompt for timing in played(truth, "x=1", plan(2)).timings} == {""}


@pytest.mark.parametrize(("streams", "second"), [(5, {1, 3}), (1, set())])
def test_streams_are_dealt_over_all_servers_evenly(truth, streams, second):
    target = Target(
        base_url=f"{truth}/tokens=2",
        replicas=(f"{truth}/tokens=4/",),
        api="completions",
        model="m",
    )
    result = run(play(target, plan(streams)))
    event_tokens = {stream: set[int]() for stream in range(streams)}
    for timing in result.timings:
        assert timing.error is None
        event_tokens[timing.stream] |= {tokens for _, tokens in timing.events[:-1]}
    assert {stream for stream, tokens in event_tokens.items() if tokens == {4}} == second
    assert {stream for stream, tokens in event_tokens.items() if tokens == {2}} == (
        set(range(streams)) - second
    )


@pytest.mark.parametrize(
    ("concurrency", "how", "api"),
    [
        (1, "interval_ms=5", "completions"),
        (1, "interval_ms=40,tokens=8", "generate"),
        (10, "interval_ms=10", "completions"),
        (10, "interval_ms=50,tokens=5,style=crlf,keep=0", "completions"),
        (64, "interval_ms=40", "generate"),
        (64, "interval_ms=100,tokens=4,split=40", "completions"),
    ],
)
def test_throughput_is_the_servers_own_within_half_a_percent(truth, concurrency, how, api):
    # A busy machine shifts single stamps; a bias would be in every repeat.
    deviations: list[float] = []
    for _ in range(5):
        result = played(truth, how, plan(concurrency, window_s=2.0), api=api)
        ours = measured(result, concurrency)
        assert ours.requests_failed == 0
        deviations.append(ours.output_tok_s / true_tok_s(result, log_of(truth)) - 1)
        if abs(fmean(deviations)) <= 0.005:
            return
    pytest.fail(f"off by {deviations}")


@at_last
def test_latencies_are_the_servers_own(truth):
    ours = measured(played(truth, "ttft_ms=80,interval_ms=20,tokens=4", plan(4)), 4)
    assert ours.ttft_ms is not None
    assert ours.itl_ms is not None
    assert ours.tpot_ms is not None
    assert ours.ttft_ms.p50 == pytest.approx(80, rel=0.1)
    assert ours.itl_ms.p50 == pytest.approx(5, rel=0.1)
    assert ours.tpot_ms.p50 == pytest.approx(5, rel=0.1)
    assert ours.tok_s_per_user == pytest.approx(200, rel=0.1)


@at_last
def test_the_client_says_how_late_it_was_itself(truth):
    result = played(truth, "ttft_ms=20,interval_ms=5", plan(4))
    reads = sum(len(timing.events) for timing in result.timings)
    assert len(result.lags_s) > reads / 2
    assert all(0 <= lag_s < 5 for lag_s in result.lags_s)
    assert any(result.lags_s)
    lag_ms = measured(result, 4).instrument_lag_ms
    assert lag_ms is not None
    assert lag_ms.max == pytest.approx(1000 * max(result.lags_s))


@at_last
def test_a_surface_is_measured_in_its_own_seconds(truth):
    scaled = plan(4, warmup_s=10.0, window_s=30.0)
    result = played(truth, "ttft_ms=80,interval_ms=20,tokens=4", scaled, time_scale=20.0)
    assert result.start_s == pytest.approx(10.0, abs=2.0)
    assert result.end_s - result.start_s == pytest.approx(30.0)
    ours = measured(result, 4)
    assert ours.window_s == pytest.approx(30)
    assert ours.tok_s_per_user == pytest.approx(200 / 20, rel=0.1)
    assert ours.ttft_ms is not None
    assert ours.ttft_ms.p50 == pytest.approx(1600, rel=0.1)


def test_the_window_waits_for_the_first_token_of_every_stream(truth):
    result = played(truth, "ttft_ms=450,interval_ms=20,tokens=4", plan(4, warmup_s=0.2))
    firsts = [t.events[0][0] for t in result.timings if t.index == 0]
    assert len(firsts) == 4
    assert max(firsts) <= result.start_s + 0.05


def test_the_window_does_not_wait_for_ever(truth):
    result = played(truth, "ttft_ms=3000,interval_ms=20,tokens=4", plan(4, warmup_s=0.1))
    assert 0.1 <= result.start_s < 2.5


def test_usage_at_the_end_alone_is_enough(truth):
    result = played(truth, "usage=last,interval_ms=20,tokens=4", plan(4))
    ours = measured(result, 4)
    assert ours.requests_failed == 0
    assert ours.output_tok_s == pytest.approx(true_tok_s(result, log_of(truth)), rel=0.05)
    cut = [t for t in result.timings if t.done_s is None]
    assert cut
    assert all(t.output_tokens < t.requested_tokens for t in cut)


def test_without_any_usage_nothing_is_counted(truth):
    ours = measured(played(truth, "usage=none,interval_ms=5", plan(2)), 2)
    assert (ours.output_tok_s, ours.requests_completed) == (0, 0)
    assert ours.requests_failed > 0
    assert ours.first_error is not None
    assert "no token was counted" in ours.first_error


def test_a_server_that_counts_more_than_was_asked_gets_nothing(truth):
    ours = measured(played(truth, "lie=7,interval_ms=5", plan(2)), 2)
    assert ours.requests_completed == 0
    assert ours.requests_failed > 2
    assert ours.first_error is not None
    assert "40 tokens were asked and 47 counted" in ours.first_error


def test_streams_start_as_if_they_had_run_for_long(truth):
    result = played(truth, "interval_ms=5", plan(8, lengths=((16, 80),)))
    first = {t.stream: t for t in result.timings if t.index == 0}
    assert len(first) == 8
    assert len({t.requested_tokens for t in first.values()}) == 8
    for timing in result.timings:
        assert timing.input_tokens + timing.requested_tokens == 16 + 80 or timing.index > 0
        if timing.index:
            assert (timing.input_tokens, timing.requested_tokens) == (16, 80)
        if timing.done_s is not None:
            assert timing.output_tokens == timing.requested_tokens


def test_each_stream_sends_its_next_request_when_the_last_ended(truth):
    result = played(truth, "interval_ms=5", plan(4))
    log = log_of(truth)
    assert len({tuple(entry["first"]) for entry in log}) == len(log) == len(result.timings)
    for stream in range(4):
        own = [t for t in result.timings if t.stream == stream]
        assert [t.index for t in own] == list(range(len(own)))
        for before, after in pairwise(own):
            assert before.done_s is not None
            assert 0 <= after.sent_s - before.done_s < 0.05


def test_what_is_under_way_at_the_end_is_cut_not_awaited(truth):
    begun = time.perf_counter()
    result = played(truth, "interval_ms=100", plan(4, lengths=((16, 4000),)))
    assert time.perf_counter() - begun < 4
    assert len(result.timings) == 4
    for timing in result.timings:
        assert (timing.done_s, timing.error) == (None, None)
        assert 8 < timing.output_tokens < 30
    assert all(t.sent_s < result.end_s for t in result.timings)


def test_a_silent_server_is_cut_as_well(truth):
    result = played(truth, "fault=silent", plan(4, window_s=0.5))
    assert [(t.done_s, t.error, t.events) for t in result.timings] == [(None, None, ())] * 4
    assert measured(result, 4).output_tok_s == 0


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("503", 'status 503: \'{"error": "refused"}\''),
        ("400", "status 400"),
        ("reset", "of an unfinished answer"),
        ("fin", "of an unfinished answer"),
        ("garbage-head", "expected an HTTP answer, found b'SSH"),
    ],
)
def test_a_server_that_fails_every_request_ends_the_load_early(truth, fault, error):
    result = played(truth, f"fault={fault},interval_ms=5", plan(4, window_s=30.0))
    assert result.end_s < 10
    assert all(t.error is not None and error in t.error for t in result.timings if t.done_s)
    failures = measured(result, 4).requests_failed
    assert failures > 0 or result.start_s < result.end_s
    assert len(result.timings) < 4 * FAILURES_TO_GIVE_UP * 3


def test_a_server_that_says_when_to_come_again_is_waited_for(truth):
    result = played(truth, "fault=503", plan(1, window_s=30.0))
    waits = [after.sent_s - (before.done_s or 0.0) for before, after in pairwise(result.timings)]
    assert len(waits) == FAILURES_TO_GIVE_UP - 1
    assert min(waits) >= 1.0  # what it says; the client's own first would be 0.05


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("error", "scheduler died"),
        ("garbage", "an event that is not JSON"),
        ("short", "the stream ended before the answer was done"),
    ],
)
def test_faults_inside_a_stream_are_failures_and_score_nothing(truth, fault, error):
    ours = measured(played(truth, f"fault={fault},interval_ms=5,at=4", plan(4)), 4)
    assert ours.requests_completed == 0
    assert ours.requests_failed > 4
    assert ours.first_error is not None
    assert error in ours.first_error
    assert ours.output_tok_s < 30  # what was cut before its fault; an honest server gives 700


def test_a_dead_server_ends_the_load_at_once_with_all_its_failures():
    target = Target(base_url="http://127.0.0.1:9", api="completions", model="m")
    begun = time.perf_counter()
    result = run(play(target, plan(8, window_s=60.0)))
    assert time.perf_counter() - begun < 10
    assert len(result.timings) >= 8 * FAILURES_TO_GIVE_UP
    assert all(t.error is not None and "refused" in t.error for t in result.timings)
    ours = measured(result, 8)
    assert ours.output_tok_s == 0
    assert ours.requests_failed >= 8


def test_an_open_window_says_how_much_of_it_is_left(truth):
    left_s: list[float] = []
    target = Target(
        base_url=f"{truth}/interval_ms=20", api="completions", model="m", time_scale=10.0
    )
    run(play(target, plan(2, warmup_s=3.0, window_s=12.0), progress=left_s.append))
    assert left_s[0] == pytest.approx(12.0, abs=1.0)
    assert left_s == sorted(left_s, reverse=True)
    assert min(left_s) >= 0
    assert 2 <= len(left_s) <= 6


def test_a_load_that_ended_before_its_window_has_no_shares_of_a_core():
    """They would be of a moment, and the window is all of it then."""
    target = Target(base_url="http://127.0.0.1:9", api="completions", model="m")
    result = run(play(target, plan(2, window_s=60.0)))
    assert result.start_s == 0.0 < result.end_s
    assert (result.cpu_share, result.wait_share) == (None, None)


def test_the_collector_rests_in_the_window_and_works_again_afterwards(truth):
    seen: list[bool] = []
    target = Target(base_url=f"{truth}/interval_ms=20", api="completions", model="m")
    watch = lambda _: seen.append(gc.isenabled())  # noqa: E731
    run(play(target, plan(2, window_s=0.3), progress=watch))
    assert seen
    assert not any(seen)
    assert gc.isenabled()


def test_a_cancelled_load_leaves_no_connection(truth):
    async def cancel() -> int:
        target = Target(base_url=f"{truth}/interval_ms=50", api="completions", model="m")
        playing = asyncio.create_task(play(target, plan(4, window_s=60.0)))
        await asyncio.sleep(0.5)
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing
        return len(asyncio.all_tasks())

    begun = time.perf_counter()
    assert run(cancel()) == 1
    assert time.perf_counter() - begun < 5
