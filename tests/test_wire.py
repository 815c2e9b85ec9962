"""A socket whose reads carry the kernel's time of arrival."""

import asyncio
import socket
import time
from time import perf_counter

import pytest

from tests.test_connection import server
from tuner.http import wire
from tuner.http.wire import Wire, connected
from tuner.load import run


class Told(Wire):
    """A wire that tells what it hears."""

    __slots__ = ("hear", "lose")

    def __init__(self, sock, hear, lose):
        super().__init__(sock)
        self.hear, self.lose = hear, lose

    @classmethod
    async def open(cls, host, port, hear, lose):
        return cls(await connected(host, port), hear, lose)

    def heard_bytes(self, data, at_s, lag_s):
        self.hear(data, at_s, lag_s)

    def lost(self, exc):
        self.lose(exc)


async def heard_from(serve, *, say=b"", until=1):
    """What a wire heard of a server that answers each connection with `serve(writer, said)`."""
    heard, lost, enough = [], [], asyncio.Event()

    def hear(data, at_s, lag_s):
        heard.append((bytes(data), at_s, lag_s, perf_counter()))
        if len(heard) >= until:
            enough.set()

    def lose(exc):
        lost.append(exc)
        enough.set()

    async with server(serve) as port:
        opened = await Told.open("127.0.0.1", port, hear, lose)
        opened.write(say)
        await asyncio.wait_for(enough.wait(), 10)
        opened.abort()
        return heard, lost


def saying(*pieces, close=False):
    async def serve(reader, writer):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        if close:
            writer.close()

    return serve


@pytest.fixture(scope="module")
def stamping():
    """Whether the kernel stamps, which it begins a moment after any socket asked for it first."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.setsockopt(socket.SOL_SOCKET, wire._SO_TIMESTAMPNS, 1)
        asking.bind(("127.0.0.1", 0))
        asking.settimeout(1)
        until_s = perf_counter() + 10
        stamps: list[tuple[int, int, bytes]] = []
        while not stamps and perf_counter() < until_s:
            asking.sendto(b"now?", asking.getsockname())
            _, stamps, _, _ = asking.recvmsg(16, 64)
        yield bool(stamps)


@pytest.mark.parametrize("runner", [run, asyncio.run], ids=["uvloop", "asyncio"])
def test_a_read_carries_the_kernels_time(stamping, runner):
    assert stamping
    [(data, at_s, lag_s, read_s)], _ = runner(heard_from(saying(b"token")))
    assert data == b"token"
    assert lag_s is not None
    assert 0 <= lag_s < 1
    assert at_s <= read_s


def test_a_client_that_is_busy_does_not_blame_the_server():
    """The server's bytes come from a thread while the loop sleeps; read late, stamped on time."""
    heard, written = [], []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        peer, _ = listener.accept()
        time.sleep(0.1)
        written.append(perf_counter())
        peer.sendall(b"token")
        time.sleep(0.5)
        peer.close()

    async def ask():
        done = asyncio.Event()

        def hear(data, at_s, lag_s):
            heard.append((at_s, lag_s, perf_counter()))
            done.set()

        opened = await Told.open("127.0.0.1", listener.getsockname()[1], hear, lambda exc: None)
        thread = asyncio.get_running_loop().run_in_executor(None, serve)
        time.sleep(0.4)
        await asyncio.wait_for(done.wait(), 5)
        opened.abort()
        await thread

    run(ask())
    listener.close()
    (at_s, lag_s, read_s), (written_s,) = heard[0], written
    assert lag_s > 0.2
    assert abs(at_s - written_s) < (read_s - written_s) / 4


def test_a_body_larger_than_the_sockets_buffer_arrives_whole():
    size = 8 << 20

    async def serve(reader, writer):
        await asyncio.sleep(0.1)
        got = await reader.readexactly(size)
        writer.write(b"%d" % len(got))

    heard, _ = run(heard_from(serve, say=b"x" * size))
    assert heard[0][0] == b"%d" % size


def test_what_is_written_while_the_socket_is_full_follows_in_order():
    async def ask():
        got = bytearray()

        async def accept(reader, writer):
            await asyncio.sleep(0.1)
            got.extend(await reader.readexactly((4 << 20) + 3))
            writer.write(b"k")

        done = asyncio.Event()
        async with server(accept) as port:
            opened = await Told.open("127.0.0.1", port, lambda *_: done.set(), lambda exc: None)
            opened.write(b"a" * (4 << 20))
            opened.write(b"end")
            await asyncio.wait_for(done.wait(), 10)
            opened.abort()
        return bytes(got[-4:])

    assert run(ask()) == b"aend"


def test_a_close_is_told_once_and_without_an_error():
    _, lost = run(heard_from(saying(close=True), until=2))
    assert lost == [None]


def test_a_reset_is_told_with_its_error():
    async def serve(reader, writer):
        linger = b"\1\0\0\0\0\0\0\0"
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()

    _, [exc] = run(heard_from(serve, until=2))
    assert isinstance(exc, ConnectionResetError)


def test_nothing_is_heard_after_an_abort():
    async def ask():
        heard: list[object] = []

        async def accept(reader, writer):
            await asyncio.sleep(0.05)
            writer.write(b"late")

        async with server(accept) as port:
            opened = await Told.open(
                "127.0.0.1", port, lambda *said: heard.append(said), heard.append
            )
            opened.abort()
            opened.abort()
            await asyncio.sleep(0.15)
        return heard

    assert run(ask()) == []


def test_a_stamp_of_a_clock_that_was_set_is_not_believed():
    def stamped(at_ns):
        return wire.lag_of(wire._TIMESPEC.pack(*divmod(at_ns, 1_000_000_000)), time.time_ns())

    now_ns = time.time_ns()
    assert stamped(now_ns - 5_000_000) == pytest.approx(0.005, abs=0.05)
    assert stamped(now_ns + 3_600_000_000_000) is None
    assert stamped(now_ns - 3_600_000_000_000) is None
