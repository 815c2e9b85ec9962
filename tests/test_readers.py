"""Many sockets read together."""

import asyncio
import socket
from math import inf

import pytest
import uvloop

from tuner.http import readers as readers_module
from tuner.http.readers import LONGEST_REST_S, Readers, _Counts, rest_s

LOOPS = pytest.mark.parametrize(
    "new_loop", [uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"]
)


def run(coroutine, new_loop=uvloop.new_event_loop):
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(coroutine)


class Pair:
    """Two connected sockets; what one sends, the other's callback reads."""

    def __init__(self, readers: Readers, heard: list[bytes]) -> None:
        self.far, self.near = socket.socketpair()
        self.near.setblocking(False)
        self.readers = readers
        self.heard = heard
        readers.add(self.near.fileno(), self)

    def read(self) -> int:
        try:
            self.heard.append(self.near.recv(100))
        except BlockingIOError:
            return 0
        return len(self.heard[-1])

    def close(self) -> None:
        if self.near.fileno() >= 0:
            self.readers.remove(self.near.fileno())
            self.near.close()
            self.far.close()


async def until(condition) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


@LOOPS
def test_what_comes_is_read_at_once(new_loop):
    async def one():
        heard: list[bytes] = []
        pair = Pair(Readers.of(asyncio.get_running_loop()), heard)
        pair.far.send(b"token")
        await until(lambda: heard)
        pair.close()
        return heard

    assert run(one(), new_loop) == [b"token"]


@LOOPS
def test_where_much_comes_the_sockets_are_left_alone_between_looks(new_loop):
    async def pour():
        loop = asyncio.get_running_loop()
        heard: list[bytes] = []
        readers = Readers.of(loop)
        pairs = [Pair(readers, heard) for _ in range(64)]
        sent = 0
        async with asyncio.timeout(10):
            while not readers._rest_s:
                for pair in pairs:
                    pair.far.send(b"x")
                sent += len(pairs)
                await asyncio.sleep(0.01)  # a faster stream is never left alone
            assert not loop.remove_reader(readers._epoll)  # nobody wakes for a socket
            await until(lambda: sum(map(len, heard)) == sent)
            while readers._rest_s:
                pairs[0].far.send(b"x")
                sent += 1
                await asyncio.sleep(0.01)
        pairs[0].far.send(b"x")
        await until(lambda: sum(map(len, heard)) == sent + 1)
        for pair in pairs:
            pair.close()

    run(pour(), new_loop)


def test_a_socket_that_was_let_go_of_in_the_same_look_is_not_called():
    async def close_both():
        heard: list[bytes] = []
        wrong: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: wrong.append(what))
        readers = Readers.of(asyncio.get_running_loop())
        pairs = [Pair(readers, heard) for _ in range(2)]

        def read_and_close():
            heard.append(b"closed")
            for pair in pairs:
                pair.close()
            return 0

        for pair in pairs:
            pair.read = read_and_close  # type: ignore[method-assign]
            pair.far.send(b"x")
        await until(lambda: heard)
        await asyncio.sleep(0.01)
        return heard, wrong

    assert run(close_both()) == ([b"closed"], [])


def test_readers_end_with_their_last_socket_and_begin_anew():
    async def twice():
        loop = asyncio.get_running_loop()
        heard: list[bytes] = []
        seen = []
        for _ in range(2):
            readers = Readers.of(loop)
            seen.append(readers)
            pair = Pair(readers, heard)
            pair.far.send(b"x")
            await until(lambda: len(heard) == len(seen))
            pair.close()
            assert readers._epoll.closed
        return seen[0] is not seen[1]

    assert run(twice())


@pytest.mark.parametrize(
    ("reads_s", "gap_s", "cycle_s", "expected_s"),
    [
        (0.0, inf, inf, 0.0),
        (50.0, 0.02, inf, 0.0),  # one stream: nothing to gather
        (500.0, 0.02, 10.0, 0.0),  # two reads a rest spare nothing
        (3200.0, 0.04, 6.4, LONGEST_REST_S),
        (25_600.0, 0.02, 2.56, 0.0025),  # 64 reads
        (102_400.0, 0.02, 2.56, 0.001),  # what timers can tell apart
        (25_600.0, 0.0025, 6.4, 0.0),  # two events of a stream would meet
        (12_800.0, 0.02, 0.04, 0.0),  # one event an answer: the next request would be late
        (12_800.0, 0.02, 0.8, 0.0016),  # a fifth of a percent
    ],
)
def test_a_rest_gathers_some_reads_but_not_two_of_a_stream_and_delays_no_request(
    reads_s, gap_s, cycle_s, expected_s
):
    found_s = rest_s(reads_s=reads_s, gap_s=gap_s, cycle_s=cycle_s)
    assert found_s == pytest.approx(expected_s)


class Streams:
    """Sockets that were read at exact times of a clock that goes by events."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        patch.setattr(readers_module, "perf_counter", lambda: self.now_s)
        self.counts = _Counts()

    def rest_s(self, lasts_s: float, *, gaps_s: list[float], events: int = 1 << 30) -> float:
        """How long they may be left alone after a while, each with its gap and answers of so many
        events; the longest of what was judged in the last second."""
        said = [round(1000 * gap_s * n / len(gaps_s)) % 10 for n, gap_s in enumerate(gaps_s)]
        judged = []
        for ms in range(round(1000 * lasts_s)):
            self.now_s += 0.001
            for n, gap_s in enumerate(gaps_s):
                if ms % round(1000 * gap_s) == said[n] % round(1000 * gap_s):
                    self.counts.expect(n)
                    self.counts.reads[n] += 1
                    if (ms // round(1000 * gap_s) + n) % events == 0:
                        self.counts.answered()
            if (rest := self.counts.rest_s()) is not None and ms > 1000 * (lasts_s - 1):
                judged.append(rest)
        return max(judged)


def test_streams_that_were_idle_are_judged_by_what_they_do_now(monkeypatch):
    streams = Streams(monkeypatch)
    before_s = streams.rest_s(4, gaps_s=[0.02] * 64, events=50)
    assert before_s == pytest.approx(0.002, rel=0.3)  # of a cycle of a second
    streams.now_s += 40.0
    assert streams.rest_s(2, gaps_s=[0.02] * 64, events=50) == pytest.approx(before_s, rel=0.3)


def test_answers_of_long_ago_forbid_nothing(monkeypatch):
    streams = Streams(monkeypatch)
    assert streams.rest_s(2, gaps_s=[0.02] * 64, events=1) == 0.0
    assert streams.rest_s(10, gaps_s=[0.02] * 64, events=500) > 0.003


def test_streams_that_are_fast_are_not_left_alone_for_the_sake_of_those_that_are_not(monkeypatch):
    """Eight with a gap of 2 ms, and of the others it does not matter how many there are."""
    assert Streams(monkeypatch).rest_s(2, gaps_s=[0.002] * 8) == 0.0
    assert Streams(monkeypatch).rest_s(2, gaps_s=[*[0.002] * 8, *[0.05] * 200]) == 0.0
    assert Streams(monkeypatch).rest_s(2, gaps_s=[*[0.008] * 8, *[0.05] * 200]) <= 0.0025
    assert Streams(monkeypatch).rest_s(2, gaps_s=[0.05] * 208) > 0.003


def test_while_sockets_rest_it_is_judged_less_often_by_more(monkeypatch):
    streams = Streams(monkeypatch)
    assert streams.rest_s(2, gaps_s=[0.02] * 64) > 0.004
    streams.counts._since_s = streams.now_s
    streams.now_s += 0.19
    assert streams.counts.rest_s() is None
    streams.now_s += 0.02
    assert streams.counts.rest_s() is not None


def test_short_answers_are_read_at_once_however_many_come():
    async def pour():
        readers = Readers.of(asyncio.get_running_loop())
        heard: list[bytes] = []
        pairs = [Pair(readers, heard) for _ in range(64)]
        rested = False
        for _ in range(200):
            for pair in pairs:
                pair.far.send(b"x")
                readers.answered()
            await asyncio.sleep(0.001)
            rested = rested or readers._rest_s > 0
        for pair in pairs:
            pair.close()
        return rested

    assert not run(pour())
