"""The process beside a load: real /proc, a real rehearsal's metrics, and every way to lose it."""

import asyncio
import http.server
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from tests.rehearsed import serving
from tests.samples import rung
from tuner.engines.sglang import SGLangEngine
from tuner.engines.vllm import VLLMEngine
from tuner.hosts import gpu_use, processes
from tuner.measuring.machine import MachineUse
from tuner.observers import observer as observer_module
from tuner.observers.observer import Observer, Seen, Subject, beside
from tuner.observers.watcher import Watched, Watcher

PAGE = """\
vllm:num_requests_running{engine="0"} 3.0
vllm:num_requests_waiting{engine="0"} 2.0
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:num_preemptions_total{engine="0"} %d
vllm:prefix_cache_queries_total{engine="0"} %d
vllm:prefix_cache_hits_total{engine="0"} %d
"""


async def watched(observer: Observer, lasts_s: float = 0.5) -> Seen:
    """What is seen of a window; the process has begun to look before it opens."""
    now_s = perf_counter()
    await observer.seen(now_s, now_s)
    since_s = perf_counter()
    await asyncio.sleep(lasts_s)
    return await observer.seen(since_s, perf_counter())


def seen_of(subject: Subject, lasts_s: float = 0.5) -> Seen:
    with Observer(subject, every_s=0.1) as observer:
        return asyncio.run(watched(observer, lasts_s))


@contextmanager
def pages(status: int = 200) -> Iterator[tuple[str, list[str]]]:
    """A server whose counters grow with every look, and the keys that it was shown."""
    keys: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            keys.append(self.headers.get("authorization", ""))
            n = len(keys)
            body = (PAGE % (2 * n, 100 * n, 30 * n)).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", keys
        server.shutdown()
        thread.join()


@contextmanager
def a_busy_core() -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            yield
        finally:
            busy.kill()


def test_the_host_is_seen_and_what_is_not_there_is_said() -> None:
    with a_busy_core():
        seen = seen_of(Subject())
    assert seen.load is None
    assert 0 < (seen.machine.host_cpu_share or 0) <= 1
    assert (seen.machine.host_memory_mb or 0) > (seen.machine.available_memory_mb or 0) > 0
    assert (seen.machine.swapped_bytes_s or 0) >= 0
    if seen.machine.power_w is None:
        (said,) = seen.machine.unobserved
        assert "not observed" in said


def test_an_engine_is_asked_by_its_own_names_with_its_key() -> None:
    with pages() as (url, keys):
        seen = seen_of(Subject(urls=[url], names=VLLMEngine.metrics, key="sk-1"))
    assert seen.load is not None
    assert (seen.load.running_mean, seen.load.queued_max) == (3.0, 2.0)
    assert seen.load.kv_usage_mean == 0.25
    assert seen.load.prefix_found_share == pytest.approx(0.3)
    assert set(keys) == {"Bearer sk-1"}


def test_the_metrics_of_a_rehearsal_are_read(tmp_path: Any) -> None:
    with serving(tmp_path, "--enable-metrics") as engine:
        url = f"http://127.0.0.1:{engine.port}"
        seen = seen_of(Subject(urls=[url, url], names=SGLangEngine.metrics))
    assert seen.load is not None
    assert (seen.load.running_mean, seen.load.queued_mean) == (0.0, 0.0)
    assert seen.load.samples >= 1
    assert seen.load.kv_usage_mean is None


def test_a_server_without_metrics_is_asked_once() -> None:
    with pages(status=404) as (url, keys):
        seen = seen_of(Subject(urls=[url], names=VLLMEngine.metrics))
    assert seen.load is None
    assert len(keys) == 1
    assert "no metrics (status 404): the engine's own counts not observed" in (
        seen.machine.unobserved
    )


def test_a_server_that_does_not_answer_has_no_load_and_holds_nobody_up() -> None:
    seen = seen_of(Subject(urls=["http://127.0.0.1:9"], names=VLLMEngine.metrics))
    assert seen.load is None
    assert seen.machine.host_cpu_share is not None


def test_a_server_elsewhere_leaves_this_machine_out() -> None:
    machine = seen_of(Subject(here=False)).machine
    assert machine == MachineUse(unobserved=["the server runs elsewhere: its machine not observed"])


def test_a_server_whose_gpus_cannot_be_told_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 0)
    watched = Watched(1.0, None, [], [os.getpid()], True, [], [], None)
    found = Watcher(watched).told(0.0, 1.0)
    assert found.unobserved == [
        "it computes on no GPU that can be told from here: power not observed"
    ]
    assert Watcher(watched._replace(gpus=[])).told(0.0, 1.0).unobserved == []


def test_strangers_on_its_gpus_are_told_from_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """This test's process computes, and so does one that it started; one of them is the server."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        on_it = [SimpleNamespace(pid=pid) for pid in (os.getpid(), child.pid)]
        monkeypatch.setattr(gpu_use, "_may_use_gpu", lambda _: True)
        for name, answer in {
            "nvmlInit": lambda: None,
            "nvmlDeviceGetHandleByUUID": lambda uuid: uuid,
            "nvmlDeviceGetComputeRunningProcesses": lambda _: on_it,
        }.items():
            monkeypatch.setattr(pynvml, name, answer)
        watched = Watched(1.0, ["GPU-a"], [], [child.pid], True, [], [], None)
        (look,) = Watcher(watched).told(0.0, 1.0).looks
        assert look.foreign == [os.getpid()]
        (look,) = Watcher(watched._replace(roots=[os.getpid()])).told(0.0, 1.0).looks
        assert look.foreign == []
        on_it[:] = [SimpleNamespace(pid=4_194_305)]  # above the highest number that Linux gives
        told = Watcher(watched).told(0.0, 1.0)
        assert told.looks[-1].foreign == []
        assert "foreign processes not observed" in told.unobserved[0]
        child.communicate(b"\n")


def test_an_observer_that_was_killed_costs_its_numbers_alone() -> None:
    async def killed() -> Seen:
        with Observer(Subject(), every_s=0.1) as observer:
            await watched(observer, 0.1)
            assert observer._process is not None
            os.kill(observer._process.pid, signal.SIGKILL)
            return await watched(observer, 0.1)

    seen = asyncio.run(killed())
    assert seen == Seen(
        machine=MachineUse(unobserved=["the observer does not answer: nothing observed"]),
        load=None,
    )


def test_an_observer_that_does_not_die_of_a_kill_is_left_and_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(observer_module, "_END_S", 0.1)
    with Observer(Subject()) as observer:
        process = observer._process
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)
        kill = process.kill
        monkeypatch.setattr(process, "kill", lambda: None)
        late = threading.Timer(5.0, kill)  # who waits without a limit comes back, too late
        late.start()
    late.cancel()
    assert process.returncode is None
    assert f"the observer (process {process.pid}) is alive" in caplog.text
    kill()
    process.wait()


def test_a_late_answer_is_of_no_later_window(monkeypatch: pytest.MonkeyPatch) -> None:
    async def late() -> tuple[Seen, Seen, float, list[float]]:
        with Observer(Subject(), every_s=60.0) as observer:
            await watched(observer, 0.1)
            process = observer._process
            assert process is not None
            assert process.stdout is not None
            os.kill(process.pid, signal.SIGSTOP)
            with monkeypatch.context() as patience:
                patience.setattr(observer_module, "_ANSWER_S", 0.1)
                missed = await watched(observer, 0.1)
            os.kill(process.pid, signal.SIGCONT)
            assert select.select([process.stdout], [], [], 60)[0]  # both its answers come late
            asked_s = perf_counter()
            looks = (await asyncio.to_thread(observer._ask, asked_s, asked_s)).looks
            return missed, await watched(observer), asked_s, [look.at_s for look in looks]

    missed, seen, asked_s, looks_s = asyncio.run(late())
    assert missed.machine.unobserved == ["the observer does not answer: nothing observed"]
    assert looks_s[-1] >= asked_s
    assert seen.machine.host_cpu_share is not None


def test_nothing_is_left_of_it_when_its_owner_is_killed() -> None:
    owner = (
        "import asyncio\n"
        "from tuner.observers.observer import Observer, Subject\n"
        "with Observer(Subject()) as o:\n"
        "    asyncio.run(o.seen(0.0, 0.0))\n"
        "    print(o._process.pid, flush=True)\n"
        "    input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", owner], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        watcher = processes.read(int(process.stdout.readline()))
        assert watcher is not None
        process.kill()
    deadline_s = perf_counter() + 30
    while processes.alive(watcher.pid, watcher.started):
        assert perf_counter() < deadline_s
        time.sleep(0.01)


def test_what_was_seen_stands_beside_what_was_measured() -> None:
    measured = rung(4, 100.0)
    tokens = measured.output_tok_s * measured.window_s
    seen = Seen(machine=MachineUse(energy_j=tokens / 2), load=None)
    found = measured.model_copy(update=beside(seen, measured))
    assert found.machine is not None
    assert found.machine.tok_per_joule == pytest.approx(2.0)
    assert beside(None, measured) == {}


def test_a_server_that_stood_for_two_counts_its_own_tokens_against_its_own_energy() -> None:
    measured = rung(4, 100.0).model_copy(update={"factor": 2.0})
    seen = Seen(machine=MachineUse(energy_j=50.0 * measured.window_s), load=None)
    found = measured.model_copy(update=beside(seen, measured))
    assert found.machine is not None
    assert found.machine.tok_per_joule == pytest.approx(1.0)
