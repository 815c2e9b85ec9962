"""Windows over real HTTP: they wait for a server to settle, and end when enough is known."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tuner.load import Played, RungPlan, Target, play, run
from tuner.measuring.measurement import measure
from tuner.measuring.validity import trial_doubts

REPOSITORY = Path(__file__).parent.parent
HOGS = 4


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that paces tokens by the clock."""
    port_file = tmp_path_factory.mktemp("truth") / "port"
    command = [sys.executable, "-m", "tests.truth_server", str(port_file)]
    with subprocess.Popen(command, cwd=REPOSITORY) as process:
        while not (port_file.exists() and port_file.read_text()):
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port_file.read_text()}"
        process.kill()


def plan(**other: Any) -> RungPlan:
    values: dict[str, Any] = {
        "concurrency": 4,
        "lengths": ((16, 40),),
        "warmup_s": 0.4,
        "window_s": 1.0,
        "prompt_seed": 1,
        "order_seed": 2,
        "rung_index": 0,
    }
    return RungPlan(**values | other)


def played(truth: str, how: str, plan: RungPlan) -> Played:
    target = Target(base_url=f"{truth}/{how}", api="completions", model="m")
    return run(play(target, plan))


def doubted(seen: Played) -> dict[str, bool]:
    """The rules that the window breaks, and whether they void it."""
    rung = measure(seen.timings, concurrency=4, start_s=seen.start_s, end_s=seen.end_s, gpus=1)
    return {doubt.rule: doubt.voids for doubt in trial_doubts(rung, seen.observed())}


def test_a_server_that_warms_up_is_waited_for(truth):
    """Asked for 0.4 s of warm-up; it comes to its speed in 1.2."""
    seen = played(truth, "ttft_ms=5,settles_s=1.2", plan())
    assert seen.start_s > 0.6
    assert seen.warmup_s == pytest.approx(seen.start_s)


def test_a_server_that_never_settles_is_measured_and_void(truth):
    how = "ttft_ms=5,interval_ms=8,settles_s=6"
    seen = played(truth, how, plan(concurrency=32, warmup_s=1.2))
    assert seen.start_s > 3.0
    assert not seen.stable
    assert doubted(seen)["warm_up"]


def test_a_window_ends_once_throughput_is_known(truth):
    seen = played(truth, "ttft_ms=5", plan(window_s=30.0, precision_percent=10.0))
    assert seen.ended == "tight"
    assert 7.5 <= seen.end_s - seen.start_s < 30.0


def test_a_window_waits_for_the_requests_of_a_percentile(truth):
    """An answer takes about 0.1 s, so that one stream has ten after a second."""
    seen = played(
        truth,
        "ttft_ms=20",
        plan(concurrency=1, lengths=((16, 8),), window_s=0.5, least_requests=10),
    )
    inside = [t for t in seen.timings if t.done_s and seen.start_s < t.done_s <= seen.end_s]
    began = [t for t in seen.timings if t.events and seen.start_s < t.events[0][0] <= seen.end_s]
    length_s = seen.end_s - seen.start_s
    assert length_s > 0.8
    assert min(len(inside), len(began)) >= 10 or length_s == pytest.approx(2.0, rel=0.2)


STARVE = """
import json, os, subprocess, sys
sys.path.insert(0, {repository!r})
from tests.test_load_pace import HOGS, doubted, plan, played
os.sched_setaffinity(0, {{{core}}})
hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(HOGS)]
try:
    os.nice(10)
    seen = played({truth!r}, "ttft_ms=5,interval_ms=2", plan())
finally:
    for hog in hogs:
        hog.kill()
print(json.dumps({{"wait": seen.wait_share, "doubted": doubted(seen)}}))
"""


def test_a_starved_client_says_so_and_its_window_is_void(truth):
    """Busy loops share its core, and go before it."""
    core = max(os.sched_getaffinity(0))
    script = STARVE.format(repository=str(REPOSITORY), core=core, truth=truth)
    ran = subprocess.run(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True
    )
    said = json.loads(ran.stdout)
    assert said["wait"] > 0.5, said
    assert said["doubted"].get("lateness") or said["doubted"].get("client_wait"), said
