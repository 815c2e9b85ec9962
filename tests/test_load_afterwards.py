"""What is asked under a rung's load once its window has ended."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.rehearsed import READY, generate, launched
from tests.test_load_player import measured, plan
from tuner.http.client import Http
from tuner.load import Target, play, run


@contextmanager
def engine(folder: Path, *argv: str, concurrency: int, output_tok_s: float) -> Iterator[str]:
    """The address of an engine in real time."""
    table = [{"concurrency": concurrency, "output_tok_s": output_tok_s, "ttft_ms": 10.0}]
    startup = {"weights_s": 0, "graphs_s": 0}
    with launched(folder, *argv, time_scale=1, table=table, startup=startup) as found:
        found.wait_for(READY)
        yield f"http://127.0.0.1:{found.port}"


def test_what_is_done_afterwards_is_done_under_load_and_leaves_the_window_alone(tmp_path):
    async def afterwards() -> None:
        await asyncio.sleep(0.6)

    with engine(tmp_path, concurrency=4, output_tok_s=800.0) as address:
        target = Target(base_url=address, api="generate", model="m")
        result = run(play(target, plan(4, window_s=0.5), afterwards=afterwards))
    assert 0.5 <= result.end_s - result.start_s < 1.0
    late = [timing for timing in result.timings if timing.sent_s > result.end_s + 0.2]
    assert late, "the load went on"
    only = [timing for timing in result.timings if timing not in late]
    whole, without = measured(result, 4), measured(replace(result, timings=tuple(only)), 4)
    assert whole.output_tok_s == without.output_tok_s


@pytest.mark.parametrize("processes", [1, 2])
def test_who_waits_in_a_queue_is_taken_back_before_what_is_done_afterwards(tmp_path, processes):
    """An engine with four places is asked by 24: a further request waits for none of the queue."""
    took: list[float] = []
    places = ("--max-running-requests", "4")
    with engine(tmp_path, *places, concurrency=1, output_tok_s=100.0) as address:

        async def afterwards() -> None:
            begun = time.perf_counter()
            async with Http(address) as http:
                assert await http.post_json("/generate", generate(2), timeout_s=60)
            took.append(time.perf_counter() - begun)

        asked = plan(24, lengths=((8, 40),), warmup_s=0.2, window_s=1.0, processes=processes)
        result = run(
            play(Target(base_url=address, api="generate", model="m"), asked, afterwards=afterwards)
        )
    # 4 of 24 run, each takes 1.6 s: the queue is worth 8 s
    assert took[0] < 5
    late = [t for t in result.timings if t.events and t.events[-1][0] > result.end_s]
    assert late, "the others went on"


@pytest.mark.parametrize("processes", [1, 2])
def test_a_load_tells_what_it_hears_to_its_very_end(tmp_path, processes):
    heard: list[tuple[int, int]] = []

    async def afterwards() -> None:
        before = len(heard)
        while len(heard) < before + 3:  # told meanwhile, or this test never ends
            await asyncio.sleep(0.05)

    with engine(tmp_path, concurrency=4, output_tok_s=800.0) as address:
        target = Target(base_url=address, api="generate", model="m")
        asked = plan(4, window_s=0.5, processes=processes)
        run(
            play(target, asked, afterwards=afterwards, beat=lambda *told: heard.append(told)),
        )
    pieces = [told for told, _ in heard]
    assert pieces == sorted(pieces)
    assert pieces[-1] > 50
    assert max(under_way for _, under_way in heard) == 4
