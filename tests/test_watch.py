"""Waiting on servers that answer, hang, exit, or print their doom."""

import asyncio
import time
from typing import Any

import pytest

from tests.victims import free_port, python, said
from tuner.failures.classifier import classify
from tuner.hosts.server import Server
from tuner.night.watch import Watch

SERVES = """
import socket, sys, time
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
time.sleep(float(sys.argv[2]))
print(sys.argv[3], flush=True)
time.sleep(float(sys.argv[4]))
"""
DOOM = "[2026-01-01 00:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):"


class Answers:
    """An engine whose generation takes so long, and then says so."""

    name = "sglang"

    def __init__(self, after_s=0.0, says=True):
        self.after_s, self.says = after_s, says

    async def unready(self, http):
        await asyncio.sleep(self.after_s)
        return "" if self.says else "not yet"


@pytest.fixture
def serve(tmp_path):
    servers = []

    def start(quiet_s, line, then_s):
        port = free_port()
        server = Server.start(
            python(SERVES, port, quiet_s, line, then_s),
            folder=tmp_path / str(port),
            port=port,
            cores=(),
            tag=f"watched-{port}",
        )
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.stop()


def ready(server, engine, timeout_s):
    watch: Any = Watch([server])
    return asyncio.run(watch.ready(engine, [None], timeout_s))


def test_a_server_that_listens_and_generates_is_ready(serve):
    assert ready(serve(60, "", 60), Answers(), 30)


def test_a_server_that_listens_and_generates_nothing_is_not(serve):
    assert not ready(serve(60, "", 60), Answers(says=False), 1.5)


def test_a_generation_that_never_ends_is_left_when_the_time_is_up(serve):
    begun = time.monotonic()
    assert not ready(serve(60, "", 60), Answers(after_s=600), 1.5)
    assert time.monotonic() - begun < 30


def test_an_exit_ends_the_wait_at_once(serve):
    begun = time.monotonic()
    assert not ready(serve(0.2, "bye", 0.0), Answers(after_s=600), 600)
    assert time.monotonic() - begun < 60


def test_a_fatal_line_ends_the_wait_though_the_process_lives_on(serve):
    server = serve(0.5, DOOM, 600)
    assert not ready(server, Answers(after_s=600), 600)
    assert server.exit_code() is None


WORKS = """
import sys, time
print("Load weight begin.", flush=True)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    pass
import socket
listener = socket.create_server(("127.0.0.1", int(sys.argv[2])))
time.sleep(600)
"""


def started(tmp_path, program, *arguments):
    port = free_port()
    return Server.start(
        python(program, *arguments, port), folder=tmp_path / "server", port=port, tag="watched"
    )


def test_a_start_that_stands_still_is_given_up_and_said_so(tmp_path):
    program = "import time; print('Load weight begin.', flush=True); time.sleep(600)"
    with started(tmp_path, program) as server:
        watch: Any = Watch([server], stall_s=2.0)
        assert not asyncio.run(watch.ready(Answers(), [None], 600))
    assert watch.failed == 0
    assert watch.stalled.startswith("no sign of life for ")
    assert watch.phase_s.keys() == {"starting", "loading"}
    assert watch.phase_s["loading"] >= 1.5


def test_a_start_that_works_in_silence_is_waited_for(tmp_path):
    with started(tmp_path, WORKS, 8.0) as server:
        watch: Any = Watch([server], stall_s=2.0)
        assert asyncio.run(watch.ready(Answers(), [None], 600))
    assert watch.stalled == ""
    assert watch.phase_s["loading"] > 4 * 1.5


QUITS = """
import sys, time
print("Received sigquit from a child process. It usually means the child failed.", flush=True)
time.sleep(1.0)
print("[2026-01-01 00:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):")
print("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", flush=True)
time.sleep(600)
"""


def test_the_wait_ends_with_the_first_fatal_line_and_the_log_is_read_on(tmp_path):
    """On a machine that is busy with other things one of three is soon enough."""
    took_s = []
    for attempt in range(3):
        with started(tmp_path / str(attempt), QUITS) as server:
            watch: Any = Watch([server])
            noticed: list[float] = []
            said(server, "sigquit")
            said_s = time.monotonic()
            drained = watch._watched[0].drained

            async def notices(noticed=noticed, drained=drained):
                noticed.append(time.monotonic())
                await drained()

            watch._watched[0].drained = notices
            assert not asyncio.run(watch.ready(Answers(), [None], 600))
            took_s.append(noticed[0] - said_s)
            failure = classify(server.log(), engine="sglang")
        assert failure is not None
        assert failure.kind == "oom_kv"
        if took_s[-1] < 2.0:
            return
    raise AssertionError(took_s)


class Between:
    """A server that prints only between two looks, when it is asked whether it is lost."""

    def __init__(self, *prints):
        self.prints, self.reads = list(prints), 0
        self.port = 0

    def log_since(self, offset):
        self.reads += 1
        if self.reads % 2 or not self.prints:
            return "", offset
        line = self.prints.pop(0)
        return line, offset + len(line)

    def log_bytes(self):
        return 0

    def work(self):
        return None

    def listening(self):
        return False

    def exit_code(self):
        return None if self.prints else 1


@pytest.mark.parametrize("last", ["bye\n", DOOM + "\n"])
def test_no_line_of_a_start_is_kept_from_who_tells_its_phase(last):
    server: Any = Between("Load weight begin.\n", f"Capture cuda graph begin.\n{last}")
    watch: Any = Watch([server])
    assert not asyncio.run(watch.ready(Answers(), [None], 60))
    assert list(watch.phase_s) == ["starting", "loading", "capturing"]


def test_what_is_logged_under_load_is_not_kept():
    one: Any = Between(*(f"line {n}\n" for n in range(100)))
    watched: Any = Watch([one])._watched[0]
    one.listening = lambda: True
    assert asyncio.run(watched.ready(Answers(), None, time.monotonic() + 60))
    while one.prints:
        watched.lost()
    assert watched._unheard == ""


def test_work_on_a_healthy_server_comes_through(serve):
    server = serve(60, "", 60)

    async def work():
        watch: Any = Watch([server])
        assert await watch.ready(Answers(), [None], 30)
        return await watch.unless_doomed(asyncio.sleep(0.2, "done"))

    assert asyncio.run(work()) == "done"


@pytest.mark.parametrize(("line", "then_s"), [(DOOM, 600), ("bye", 0.0)])
def test_work_is_left_when_the_server_is_lost(serve, line, then_s):
    server = serve(1.0, line, then_s)
    assert asyncio.run(Watch([server]).unless_doomed(asyncio.sleep(600, "done"))) is None


def test_a_doom_that_came_while_the_work_ended_still_counts(serve):
    server = serve(0.0, DOOM, 600)

    async def work():
        while DOOM not in server.log():
            await asyncio.sleep(0.02)
        return await Watch([server]).unless_doomed(asyncio.sleep(0, "done"))

    assert asyncio.run(work()) is None


def test_what_the_work_raises_is_raised(serve):
    server = serve(60, "", 60)

    async def fails():
        raise RuntimeError("a bug")

    async def work():
        watch: Any = Watch([server])
        assert await watch.ready(Answers(), [None], 30)
        await watch.unless_doomed(fails())

    with pytest.raises(RuntimeError, match="a bug"):
        asyncio.run(work())


def test_a_set_is_ready_once_all_are(serve):
    servers = [serve(60, "", 60), serve(60, "", 60)]

    async def both():
        watch: Any = Watch(servers)
        assert await watch.ready(Answers(after_s=0.3), [None, None], 30)
        assert watch.failed is None
        return await watch.unless_doomed(asyncio.sleep(0.2, "done"))

    assert asyncio.run(both()) == "done"


def test_a_set_is_not_ready_while_one_generates_nothing(serve):
    class OneOfTwo:
        name = "sglang"

        async def unready(self, http):
            return "" if http == "generates" else "status 500"

    watch: Any = Watch([serve(60, "", 60), serve(60, "", 60)])
    assert not asyncio.run(watch.ready(OneOfTwo(), ["generates", "does not"], 2.0))
    assert watch.failed == 1
    assert watch.heard == "status 500"


def test_the_death_of_one_ends_the_wait_for_all(serve):
    servers = [serve(60, "", 60), serve(0.2, "bye", 0.0)]
    watch: Any = Watch(servers)
    begun = time.monotonic()
    assert not asyncio.run(watch.ready(Answers(after_s=600), [None, None], 600))
    assert time.monotonic() - begun < 60
    assert watch.failed == 1


def test_work_on_a_set_is_left_when_one_is_lost(serve):
    servers = [serve(60, "", 60), serve(1.0, DOOM, 600)]
    watch = Watch(servers)
    assert asyncio.run(watch.unless_doomed(asyncio.sleep(600, "done"))) is None
    assert watch.failed == 1
