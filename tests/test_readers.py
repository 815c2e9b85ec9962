"""Many sockets read together."""

import asyncio
import socket
import time

import pytest
import uvloop

from tuner.http.readers import RESTFUL_EVENTS_S, Readers

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
        readers.add(self.near.fileno(), self.read)

    def read(self) -> None:
        self.heard.append(self.near.recv(100))

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
        heard: list[bytes] = []
        readers = Readers.of(asyncio.get_running_loop())
        pairs = [Pair(readers, heard) for _ in range(64)]
        looks, look = 0, readers._look

        def counted():
            nonlocal looks
            looks += 1
            look()

        readers._look = counted  # type: ignore[method-assign]  # what rests call
        sent, began_s = 0, time.perf_counter()
        while looks < 20 and time.perf_counter() - began_s < 10:
            for pair in pairs:
                pair.far.send(b"x")
            sent += len(pairs)
            await asyncio.sleep(0.002)
        await until(lambda: sum(map(len, heard)) == sent)
        resting = readers._resting
        await asyncio.sleep(0.2)
        pairs[0].far.send(b"last")
        await until(lambda: b"last" in heard)
        for _ in range(3):  # so little comes that it is waited for again
            await asyncio.sleep(0.05)
            pairs[0].far.send(b"one")
        await until(lambda: heard.count(b"one") == 3)
        rested = readers._resting
        for pair in pairs:
            pair.close()
        return resting, rested, sent / looks

    resting, rested, a_look = run(pour(), new_loop)
    assert resting
    assert not rested
    assert a_look > RESTFUL_EVENTS_S / 1000


def test_a_socket_that_was_let_go_of_in_the_same_look_is_not_called():
    async def close_both():
        heard: list[bytes] = []
        readers = Readers.of(asyncio.get_running_loop())
        pairs = [Pair(readers, heard) for _ in range(2)]

        def read_and_close():
            heard.append(b"closed")
            for pair in pairs:
                pair.close()

        for pair in pairs:
            readers._readable[pair.near.fileno()] = read_and_close
            pair.far.send(b"x")
        await until(lambda: heard)
        await asyncio.sleep(0.01)
        return heard

    assert run(close_both()) == [b"closed"]


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
