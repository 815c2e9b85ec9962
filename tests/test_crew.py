"""A rung that several processes play together."""

import asyncio
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.test_load_player import REPOSITORY, log_of, measured, plan, true_tok_s
from tests.test_load_player import truth as truth  # a fixture
from tuner.errors import HostError
from tuner.load import Target, play, run
from tuner.load.closed_loop import FAILURES_TO_GIVE_UP
from tuner.load.crew import Crew
from tuner.load.plan import RungPlan, Share, processes_for
from tuner.load.player import players_for
from tuner.load.solo import Solo

TWO_CORES = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="one core has one process of a client"
)


def target(truth: str, how: str, **other) -> Target:
    return Target(base_url=f"{truth}/{how}", api="completions", model="m", **other)


def children_of(pid: int) -> set[int]:
    try:
        return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    except FileNotFoundError:
        return set()


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def until(condition, limit_s: float = 20.0) -> None:
    end_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.02)


@TWO_CORES
def test_two_processes_play_a_rung_as_one_would(truth):
    log_of(truth)
    result = run(play(target(truth, "interval_ms=10"), plan(7, processes=2)))
    log = log_of(truth)
    assert result.processes == 2
    assert {timing.stream for timing in result.timings} == set(range(7))
    assert all(timing.error is None for timing in result.timings)
    for stream in range(7):
        own = [timing for timing in result.timings if timing.stream == stream]
        assert [timing.index for timing in own] == list(range(len(own)))
        assert all(after.sent_s >= (before.done_s or 0) for before, after in pairwise(own))
    assert len({tuple(entry["first"]) for entry in log}) == len(log) == len(result.timings)
    ours = measured(result, 7)
    assert ours.output_tok_s == pytest.approx(true_tok_s(result, log), rel=0.05)
    assert result.stamped
    assert len(result.lags_s) > 100
    assert result.cpu_share is not None
    assert 0 < result.cpu_share < 1


@TWO_CORES
def test_streams_have_the_same_server_whichever_process_they_are_in(truth):
    both = target(truth, "tokens=2", replicas=(f"{truth}/tokens=4",))
    result = run(play(both, plan(6, processes=2)))
    sizes: dict[int, set[int]] = {stream: set() for stream in range(6)}
    for timing in result.timings:
        sizes[timing.stream] |= {tokens for _, tokens in timing.events[:-1]}
    assert {stream for stream, found in sizes.items() if found == {4}} == {1, 3, 5}
    assert {stream for stream, found in sizes.items() if found == {2}} == {0, 2, 4}


@TWO_CORES
def test_an_open_loop_sends_every_request_once(truth):
    given = RungPlan(
        request_rate=60.0,
        arrivals="constant",
        lengths=((16, 10),),
        warmup_s=0.5,
        window_s=1.0,
        prompt_seed=1,
        order_seed=2,
        rung_index=0,
        processes=2,
    )
    result = run(play(target(truth, "interval_ms=5"), given))
    numbers = [timing.stream for timing in result.timings]
    assert sorted(numbers) == list(range(len(numbers)))
    due_s = sorted(timing.due_s for timing in result.timings if timing.due_s is not None)
    gaps = [after - before for before, after in pairwise(due_s)]
    assert len(due_s) == len(numbers) > 60
    assert sum(gaps) / len(gaps) == pytest.approx(1 / 60, rel=0.05)


@pytest.mark.parametrize("of", [1, 2, 3, 4])
@pytest.mark.parametrize("servers", [1, 2, 3, 4])
def test_each_process_has_as_many_streams_of_every_server(of, servers):
    shares = [Share(index=index, of=of) for index in range(of)]
    numbers = range(of * math.lcm(of, servers))
    dealt = [[n for n in numbers if share.has(n, servers)] for share in shares]
    assert sorted(n for own in dealt for n in own) == list(numbers)
    assert all(own[0] < of for own in dealt)
    each = {(p, n % servers): 0 for p, own in enumerate(dealt) for n in numbers}
    for process, own in enumerate(dealt):
        for number in own:
            each[process, number % servers] += 1
    assert set(each.values()) == {len(numbers) // of // servers}


@TWO_CORES
def test_a_server_that_is_gone_takes_no_more_than_its_own_requests_away(truth):
    """Two servers, of which one refuses: half of the load fails, and goes on."""
    given = RungPlan(
        request_rate=80.0,
        arrivals="constant",
        lengths=((16, 10),),
        warmup_s=1.0,
        window_s=1.5,
        prompt_seed=1,
        order_seed=2,
        rung_index=0,
        processes=2,
    )
    result = run(play(target(truth, "interval_ms=5", replicas=("http://127.0.0.1:9",)), given))
    assert result.processes == 2
    assert result.end_s - result.start_s == pytest.approx(1.5, abs=0.2)
    window = [t for t in result.timings if result.start_s < (t.due_s or 0) <= result.end_s]
    failed = [t for t in window if t.error is not None]
    assert len(window) + len(result.unsent_s) >= 80 * 1.5 - 2
    assert len(failed) == pytest.approx(len(window) / 2, abs=2)
    assert {t.stream % 2 for t in failed} == {1}


@pytest.mark.parametrize("how", [{"request_rate": 100.0}, {"concurrency": 2}])
def test_who_hears_nothing_but_failures_goes_on_until_it_is_told_to_stop(truth, how):
    """It may be one of several, and the others hear answers: only who leads them ends the load."""

    async def failing() -> tuple[int, int]:
        given = replace(plan(2), **{"concurrency": None, **how})
        solo = Solo(target(truth, "fault=400"), given)
        solo.start()
        limit_s = time.monotonic() + 20.0
        finished = 0
        while not finished or solo.counts().finished <= 2 * finished:
            assert time.monotonic() < limit_s
            if solo.counts().over:
                finished = finished or solo.counts().finished
            await asyncio.sleep(0.02)
        found = finished, solo.counts().finished
        await solo.stop()
        await solo.close()
        return found

    then, later = run(failing())
    assert 0 < 2 * then < later


@TWO_CORES
def test_progress_and_what_comes_afterwards_are_this_process_own(truth):
    asked = []

    async def afterwards() -> None:
        asked.append(os.getpid())

    given = plan(4, processes=2, window_s=0.6)
    here = target(truth, "interval_ms=10")
    run(play(here, given, progress=lambda _: asked.append(os.getpid()), afterwards=afterwards))
    assert len(asked) > 1
    assert set(asked) == {os.getpid()}


@TWO_CORES
def test_a_dead_server_ends_the_load_in_all_processes():
    begun = time.perf_counter()
    dead = Target(base_url="http://127.0.0.1:9", api="completions", model="m")
    result = run(play(dead, plan(4, processes=2, window_s=60.0)))
    assert time.perf_counter() - begun < 20
    assert len(result.timings) >= 4 * FAILURES_TO_GIVE_UP
    assert measured(result, 4).requests_failed >= 4


@TWO_CORES
def test_a_process_that_is_killed_is_told_and_ends_the_others(truth):
    async def kill_one() -> set[int]:
        before = children_of(os.getpid())
        given = plan(4, processes=2, window_s=60.0)
        playing = asyncio.create_task(play(target(truth, "interval_ms=10"), given))
        while len(own := children_of(os.getpid()) - before) < 2:
            await asyncio.sleep(0.05)
        await asyncio.sleep(1.0)
        os.kill(min(own), signal.SIGKILL)
        with pytest.raises(HostError, match="a process of the load generator died"):
            await playing
        return own

    assert not [pid for pid in run(kill_one()) if alive(pid)]


@TWO_CORES
def test_a_cancelled_load_leaves_no_process(truth):
    async def cancel() -> set[int]:
        before = children_of(os.getpid())
        given = plan(4, processes=2, window_s=60.0)
        playing = asyncio.create_task(play(target(truth, "interval_ms=10"), given))
        while len(own := children_of(os.getpid()) - before) < 2:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing
        return own

    assert not [pid for pid in run(cancel()) if alive(pid)]


_PLAYS = """
import json, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
from tests.test_load_player import plan
from tuner.load import Target, play, run
target = Target(base_url=sys.argv[1], api="completions", model="m")
run(play(target, plan(4, processes=2, window_s=60.0)))
"""


@TWO_CORES
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_processes_die_with_the_one_that_started_them(truth, number):
    log_of(truth)
    command = [sys.executable, "-c", _PLAYS, f"{truth}/interval_ms=10"]
    with subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.DEVNULL) as parent:
        try:
            until(lambda: len(children_of(parent.pid)) == 2)
            workers = children_of(parent.pid)
            until(lambda: log_of(truth))  # they play
            assert all(map(alive, workers))
            parent.send_signal(number)
            until(lambda: not any(map(alive, workers)))
        finally:
            parent.kill()


def test_one_process_plays_where_more_are_of_no_use(truth, monkeypatch):
    async def kinds():
        there = target(truth, "interval_ms=10")
        few = players_for(there, plan(1, processes=3))
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
        return type(few), type(players_for(there, plan(64, processes=3)))

    assert run(kinds()) == (Solo, Solo)


def test_one_process_loads_nothing_of_the_others(truth):
    words = _PLAYS.replace("processes=2, window_s=60.0", "processes=1, window_s=0.2")
    words += "print(json.dumps([m for m in sys.modules if 'crew' in m or 'multiprocessing' in m]))"
    done = subprocess.run(
        [sys.executable, "-c", words, f"{truth}/interval_ms=10"],
        cwd=REPOSITORY,
        capture_output=True,
        check=True,
    )
    assert json.loads(done.stdout) == []


@pytest.mark.parametrize(
    ("streams", "processes"), [(0, 1), (1, 1), (512, 1), (513, 2), (1024, 2), (1536, 3)]
)
def test_processes_are_as_many_as_streams_want(streams, processes):
    assert processes_for(streams) == processes


def test_how_a_server_is_reached_is_said_once(caplog):
    async def made():
        there = Target(base_url="https://localhost:9", api="completions", model="m")
        Crew(there, plan(4, processes=2), 2)

    run(made())
    assert caplog.text.count("reached over TLS") == 1
