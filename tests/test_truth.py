"""Throughput held against a server whose every token is known, by its own clock.

The server is a C program (tests/benchmarks/truth.c), so that it is never what is late: it logs
when it wrote, on the clock that ours is too.
"""

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tuner.load import Played, RungPlan, Target, play, run
from tuner.load.plan import processes_for
from tuner.measuring.measurement import RungMeasurement, measure
from tuner.measuring.validity import doubts

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "tests" / "benchmarks" / "truth.c"
BOUND = 0.002
REPEATS = 3
MOST_REPEATS = 7
CLIENT = {"lateness", "client_cpu", "client_wait", "together", "reached", "offered"}
"""Rules by which the client doubts itself: such a repeat shows the machine and is made again."""
TOKENS = 40
TTFT_US = 100_000

pytestmark = pytest.mark.skipif(
    shutil.which("cc") is None and "CI" not in os.environ, reason="needs a C compiler"
)


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the server."""
    program = tmp_path_factory.mktemp("truth") / "truth"
    subprocess.run(["cc", "-O2", "-o", program, SOURCE], check=True)
    with subprocess.Popen([program, "0"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
        server.kill()


@dataclass(frozen=True)
class Answered:
    """What the server logged of one request, in seconds of `perf_counter`."""

    first_s: float
    last_s: float
    tokens: int
    wanted: int


def log_of(truth: str) -> list[Answered]:
    """What was answered since the log was read last."""
    with urllib.request.urlopen(f"{truth}/log") as answer:
        lines = answer.read().decode().splitlines()
    rows = [[int(word) for word in line.split()] for line in lines]
    return [Answered(first / 1e9, last / 1e9, *tokens) for _, first, last, *tokens in rows]


def true_tok_s(
    log: list[Answered], span: tuple[float, float], interval_s: float, step: int
) -> float:
    """Tokens a second that the server wrote between two instants of its clock.

    The first event's stand at its writing, those of a further one are spread evenly over the time
    since the event before, and what a cut request had under way over the interval. The server
    writes at an even pace, `step` at a time; the last of an answer may be fewer.
    """
    start_s, end_s = span

    def inside(since_s: float, until_s: float) -> float:
        return max(0.0, min(until_s, end_s) - max(since_s, start_s))

    tokens = 0.0
    for one in log:
        first = min(step, one.tokens)
        tokens += first if start_s < one.first_s <= end_s else 0
        gaps, rest = divmod(one.tokens - first, step)
        if rest:
            gaps += 1
        if gaps:
            gap_s = (one.last_s - one.first_s) / gaps
            full_s = one.last_s - gap_s if rest else one.last_s
            tokens += step * inside(one.first_s, full_s) / gap_s
            tokens += rest * inside(full_s, one.last_s) / gap_s
        coming = min(step, one.wanted - one.tokens)
        tokens += coming * inside(one.last_s, one.last_s + interval_s) / interval_s
    return tokens / (end_s - start_s)


def played(truth: str, interval_us: int, step: int, **load: Any) -> tuple[Played, RungMeasurement]:
    plan = RungPlan(
        lengths=((16, TOKENS),),
        warmup_s=1.0,
        window_s=2.0,
        prompt_seed=1,
        order_seed=2,
        rung_index=0,
        **load,
    )
    how = f"ttft_us={TTFT_US},interval_us={interval_us},tokens={step}"
    target = Target(base_url=f"{truth}/{how}", api="completions", model="truth")
    result = run(play(target, plan))
    ours = measure(
        result.timings,
        concurrency=plan.concurrency,
        request_rate=plan.request_rate,
        start_s=result.start_s,
        end_s=result.end_s,
        gpus=1,
    )
    return result, ours


CLOSED = [
    (1, 5_000, 1),
    (1, 20_000, 4),
    (10, 10_000, 1),
    (64, 20_000, 1),
    (64, 40_000, 4),
    (256, 40_000, 1),
    (256, 80_000, 4),
    (1024, 200_000, 1),
    (1024, 200_000, 4),
]


@pytest.mark.parametrize(("streams", "interval_us", "step"), CLOSED)
def test_a_closed_loop_reads_the_truth(truth, streams, interval_us, step):
    holds(truth, interval_us, step, concurrency=streams, processes=processes_for(streams))


@pytest.mark.parametrize("arrivals", ["poisson", "constant"])
@pytest.mark.parametrize(("rate", "interval_us", "step"), [(20.0, 10_000, 1), (60.0, 40_000, 4)])
def test_an_open_loop_reads_the_truth(truth, rate, interval_us, step, arrivals):
    holds(truth, interval_us, step, request_rate=rate, arrivals=arrivals)


def holds(truth: str, interval_us: int, step: int, **load: Any) -> None:
    """The median of `REPEATS` repeats that the client does not doubt; none is left out for what it
    reads. On a machine too busy for so many in `MOST_REPEATS` the client itself says that nothing
    can be told, and so does this test."""
    off: list[float] = []
    sound: list[float] = []
    while len(sound) < REPEATS and len(off) < MOST_REPEATS:
        log_of(truth)
        result, ours = played(truth, interval_us, step, **load)
        true = true_tok_s(log_of(truth), result.real_s, interval_us / 1e6, step)
        assert ours.requests_failed == 0
        assert true > 0
        off.append(ours.output_tok_s / true - 1)
        if not CLIENT & {doubt.rule for doubt in doubts(ours, result.observed())}:
            sound.append(off[-1])
    if len(sound) < REPEATS:
        pytest.skip(f"the client doubts {len(off) - len(sound)} of {len(off)} repeats")
    said = ", ".join(f"{each:+.3%}" for each in sound)
    print(f"{len(sound)} of {len(off)} repeats are sound; off by {said}")
    assert abs(median(sound)) <= BOUND, f"off by {said}"


STARVED = """
import os, sys
os.sched_setaffinity(0, {{{core}}})
sys.argv = ["tuner", *{words!r}]
from tuner.cli import main
main()
"""
BUSY = "import os\nos.sched_setaffinity(0, {{{core}}})\nprint(flush=True)\nwhile True: pass"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="the server needs a core of its own")
def test_a_client_that_is_starved_of_its_core_says_so_with_the_numbers(truth, tmp_path):
    """One busy loop on the core that the client is held on; the server keeps to the others."""
    core = max(os.sched_getaffinity(0))
    objective = tmp_path / "objective.yaml"
    objective.write_text(
        "ladder: [{concurrency: 512}]\ninput_tokens: 16\noutput_tokens: 40\n"
        "warmup_s: 2\nwindow_s: 4\n"
    )
    words = ["measure", f"{truth}/ttft_us=100000,interval_us=10000", "--json",
             "--objective", str(objective)]  # fmt: skip
    client = [sys.executable, "-c", STARVED.format(core=core, words=words)]
    with subprocess.Popen(
        [sys.executable, "-c", BUSY.format(core=core)], stdout=subprocess.PIPE
    ) as busy:
        assert busy.stdout is not None
        busy.stdout.readline()
        try:
            done = subprocess.run(client, cwd=ROOT, capture_output=True, text=True, check=False)
        finally:
            busy.kill()
    assert done.returncode == 5, done.stderr
    found = json.loads(done.stdout)
    assert not found["valid"]
    (rung,) = found["rungs"]
    assert rung["observed"]["wait_share"] > 0.25
    waits = [d for d in rung["doubts"] if d["rule"] == "client_wait"]
    assert waits[0]["voids"]
    assert f"waited for a core in {rung['observed']['wait_share']:.0%}" in waits[0]["said"]
    assert any(waits[0]["said"] in reason for reason in found["reasons"])
