"""The open loop against servers that are slow, mute, absent or at fault."""

import asyncio
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tuner.http.exchange import Tally
from tuner.load import Played, RungPlan, Target, play, run
from tuner.load.open_loop import FAILURES_TO_GIVE_UP
from tuner.load.pool import LEAST_SPARES, Pool
from tuner.load.prompts import Asking
from tuner.load.source import Asker, Ending, Question
from tuner.measuring.measurement import RungMeasurement, measure
from tuner.measuring.validity import doubts, trial_doubts

REPOSITORY = Path(__file__).parent.parent
PATIENCE_S = 30.0


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


def plan(rate: float, **other: Any) -> RungPlan:
    values: dict[str, Any] = {
        "lengths": ((16, 20),),
        "warmup_s": 0.3,
        "window_s": 1.0,
        "prompt_seed": 1,
        "order_seed": 2,
        "rung_index": 0,
        "arrivals": "constant",
    }
    return RungPlan(request_rate=rate, **values | other)


def played(url: str, plan: RungPlan, *, replicas: tuple[str, ...] = ()) -> Played:
    return run(play(Target(base_url=url, replicas=replicas, api="completions", model="m"), plan))


@contextmanager
def mute() -> Iterator[tuple[str, list[socket.socket]]]:
    """The address of a server that takes every connection and never answers, and what it took."""
    taken: list[socket.socket] = []

    def accept(listener: socket.socket) -> None:
        while True:
            try:
                taken.append(listener.accept()[0])
            except OSError:
                return

    with socket.create_server(("127.0.0.1", 0), backlog=4096) as listener:
        thread = threading.Thread(target=accept, args=(listener,))
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", taken
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    for one in taken:
        one.close()


def test_requests_are_due_at_absolute_times_and_sent_then(truth):
    result = played(f"{truth}/ttft_ms=300,interval_ms=5", plan(20.0, window_s=2.0))
    due = sorted(t.due_s for t in result.timings if t.due_s is not None)
    assert len(due) == len(result.timings) > 40
    # A late send does not shift those after it: every gap of the plan is exact to the last.
    assert [b - a for a, b in pairwise(due)] == pytest.approx([0.05] * (len(due) - 1))
    late = [t.sent_s - t.due_s for t in result.timings if t.due_s is not None]
    assert min(late) >= 0
    assert median(late) < 0.05


def test_a_server_that_is_slow_is_sent_no_less(truth):
    """Twenty a second for two seconds and more, each of which takes a second and a half."""
    result = played(f"{truth}/ttft_ms=1500,interval_ms=1", plan(20.0, warmup_s=2.0))
    window = [t for t in result.timings if t.due_s and result.start_s < t.due_s <= result.end_s]
    assert len(window) == pytest.approx(20, abs=1)
    assert all(t.error is None for t in result.timings)


def test_the_window_waits_for_as_many_answers_as_are_under_way(truth):
    """An answer takes 0.6 s; a warm-up of 0.3 s alone would still be the ramp."""
    result = played(f"{truth}/ttft_ms=500,interval_ms=5", plan(20.0))
    assert result.start_s > 0.9


def test_requests_are_dealt_over_all_servers_in_turn(truth):
    result = played(f"{truth}/tokens=2", plan(40.0), replicas=(f"{truth}/tokens=4",))
    tokens: dict[int, set[int]] = {0: set(), 1: set()}
    for timing in result.timings:
        tokens[timing.stream % 2] |= {count for _, count in timing.events[:-1]}
    assert tokens == {0: {2}, 1: {4}}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core, one process")
def test_two_processes_send_each_request_once_and_together_at_the_rate(truth):
    result = played(f"{truth}/ttft_ms=20,interval_ms=2", plan(50.0, warmup_s=1.0, processes=2))
    assert result.processes == 2
    numbers = sorted(t.stream for t in result.timings)
    assert numbers == sorted(set(numbers))
    window = [t for t in result.timings if t.due_s and result.start_s < t.due_s <= result.end_s]
    assert {t.stream % 2 for t in window} == {0, 1}
    assert len(window) == pytest.approx(50, abs=4)


def test_recorded_arrivals_come_with_their_lengths_in_their_order(truth):
    lengths = ((16, 8), (32, 4), (48, 2))
    result = played(
        f"{truth}/interval_ms=2",
        plan(30.0, lengths=lengths, arrivals="trace", offsets_s=(0.0, 0.0, 9.0)),
    )
    asked = sorted((t.stream, t.due_s, t.requested_tokens, t.input_tokens) for t in result.timings)
    assert [(wanted, given) for _, _, wanted, given in asked[:6]] == [(8, 16), (4, 32), (2, 48)] * 2
    due = [at for _, at, _, _ in asked[:4] if at is not None]
    assert [b - due[0] for b in due] == pytest.approx([0, 0, 2 / 30, 0.1])


def test_what_a_mute_server_keeps_waiting_ends_at_the_limit_and_is_told(monkeypatch):
    monkeypatch.setattr("tuner.load.pool.MOST_CHANNELS", 12)
    with mute() as (url, taken):
        result = played(url, plan(100.0, window_s=0.5))
        assert len(taken) == 12
    assert [t.error for t in result.timings] == [None] * 12
    sent = {t.due_s for t in result.timings}
    assert len(result.unsent_s) > 10
    assert not sent & set(result.unsent_s)
    assert any(result.start_s < at_s <= result.end_s for at_s in result.unsent_s)


@contextmanager
def reluctant(connections: int) -> Iterator[str]:
    """The address of a server that takes so many connections, and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        taken: list[socket.socket] = []
        thread = threading.Thread(
            target=lambda: taken.extend(listener.accept()[0] for _ in range(connections))
        )
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()
        for one in taken:
            one.close()


def rung_of(result: Played, rate: float) -> RungMeasurement:
    return measure(
        result.timings,
        request_rate=rate,
        start_s=result.start_s,
        end_s=result.end_s,
        gpus=1,
        unsent_s=result.unsent_s,
    )


def is_whole(result: Played, rate: float) -> None:
    """Sent or not, each request that was due is there, once."""
    due = sorted([*(t.due_s or 0.0 for t in result.timings), *result.unsent_s])
    assert due == pytest.approx([due[0] + number / rate for number in range(len(due))])
    assert due[-1] > result.end_s - 1 / rate
    load = rung_of(result, rate).open_load
    assert load is not None
    assert load.due == pytest.approx(rate * (result.end_s - result.start_s), abs=1)
    assert load.unsent == sum(result.start_s < at_s <= result.end_s for at_s in result.unsent_s)


def test_what_still_waits_for_a_connection_at_the_end_was_due_and_is_unsent():
    with reluctant(LEAST_SPARES) as url:
        result = played(url, plan(40.0))
    assert len(result.unsent_s) > 20
    is_whole(result, 40.0)
    rung = rung_of(result, 40.0)
    assert "offered" in [doubt.rule for doubt in doubts(rung, result.observed()) if doubt.voids]


def test_what_a_client_did_not_come_to_was_due_and_is_unsent(truth, monkeypatch):
    """Four hundred a second, of a client that writes no more than forty."""
    question = Asker.question

    def slow(self: Asker, asking: Asking) -> Question:
        time.sleep(0.025)
        return question(self, asking)

    monkeypatch.setattr(Asker, "question", slow)
    result = played(f"{truth}/interval_ms=1", plan(400.0))
    assert len(result.unsent_s) > 200
    is_whole(result, 400.0)
    rung = rung_of(result, 400.0)
    for rules in (doubts, trial_doubts):
        assert "lateness" in [doubt.rule for doubt in rules(rung, result.observed())]


def test_the_load_is_over_where_nothing_but_failures_come(truth):
    begun = time.monotonic()
    result = played(f"{truth}/fault=503", plan(100.0, warmup_s=60.0))
    assert time.monotonic() - begun < PATIENCE_S
    assert FAILURES_TO_GIVE_UP <= len(result.timings) < 10 * FAILURES_TO_GIVE_UP


def test_a_server_that_is_not_there_is_told_and_waited_for_no_longer(truth):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    result = played(f"http://127.0.0.1:{port}", plan(100.0, warmup_s=60.0))
    assert {t.error is not None for t in result.timings} == {True}
    assert "refused" in str(result.timings[0].error)


def test_connections_stand_open_before_they_are_needed():
    async def scenario(url: str, taken: list[socket.socket]) -> None:
        pool = Pool(Target(base_url=url, api="completions", model="m"), Tally(), rate=1.0)
        await pool.connect()
        first = [pool.take(0) for _ in range(LEAST_SPARES)]
        assert all(channel is not None and channel.ready for channel in first)
        await pool.connect()
        again = pool.take(0)
        assert again is not None
        assert again.ready
        await pool.close()

    with mute() as (url, taken):
        run(scenario(url, taken))


def test_connections_that_the_server_closed_are_opened_again():
    async def scenario(url: str, taken: list[socket.socket]) -> None:
        pool, ending = (
            Pool(Target(base_url=url, api="completions", model="m"), Tally(), rate=1.0),
            Ending(),
        )
        keeping = asyncio.create_task(pool.keep(ending))
        await until(lambda: len(taken) == LEAST_SPARES)
        for one in taken[:]:
            one.close()
        await until(lambda: len(taken) == 2 * LEAST_SPARES)
        await asyncio.sleep(0)
        ready = [pool.take(0) for _ in range(LEAST_SPARES)]
        assert all(channel is not None and channel.ready for channel in ready)
        ending.now()
        await keeping
        await pool.close()

    with mute() as (url, taken):
        run(scenario(url, taken))


async def until(true) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def test_the_limit_of_open_files_is_the_limit_of_connections(monkeypatch):
    target = Target(base_url="http://127.0.0.1:1", api="completions", model="m")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 256))
    limit = Pool(target, Tally(), rate=1.0).limit
    assert 0 < limit < 256 - 64
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert Pool(target, Tally(), rate=1.0).limit == 16_384
