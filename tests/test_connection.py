import asyncio
import socket
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import pairwise
from time import perf_counter

import httptools
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.errors import HttpProtocolError, HttpUnreachable
from tuner.http.connection import Connection
from tuner.http.exchange import RawExchange
from tuner.load import run

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n"


@asynccontextmanager
async def server(serve, host="127.0.0.1", *, secure=None):
    """A server on a free port of this machine; waits for what its connections still do."""
    served: list[asyncio.Task[None]] = []

    async def accept(reader, writer):
        try:
            await serve(reader, writer)
            await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def start(reader, writer):
        served.append(asyncio.ensure_future(accept(reader, writer)))

    listener = await asyncio.start_server(start, host, 0, ssl=secure)
    async with listener:
        yield listener.sockets[0].getsockname()[1]
    await asyncio.wait_for(asyncio.gather(*served), 5)


async def exchange_with(serve, *, stall_s: float = 5.0, requests: int = 1) -> list[RawExchange]:
    async with server(serve) as port:
        connection = await Connection.open("127.0.0.1", port)
        raws = [
            await connection.exchange(b"GET / HTTP/1.1\r\n\r\n", stall_s=stall_s)
            for _ in range(requests)
        ]
        connection.cut()
        return raws


def answering(*pieces: bytes, pause_s: float = 0.0, close: bool = True):
    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            if pause_s:
                await asyncio.sleep(pause_s)
        if close:
            writer.close()

    return serve


async def split_evenly(data: bytes, cuts: list[int]) -> RawExchange:
    edges = [0, *sorted(cuts), len(data)]
    pieces = [data[a:b] for a, b in pairwise(edges) if b > a]
    (raw,) = await exchange_with(answering(*pieces, pause_s=0.001))
    return raw


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, len(CHUNKED) - 1), max_size=12))
def test_a_chunked_answer_is_whole_however_it_is_split(cuts):
    raw = run(split_evenly(CHUNKED, cuts))
    assert (raw.error, raw.status, raw.body) == (None, 200, b"hello world")
    assert raw.done_s is not None


def test_a_terminator_split_over_two_reads_ends_the_answer():
    for cut in range(1, 6):
        raw = run(split_evenly(CHUNKED, [len(CHUNKED) - cut]))
        assert raw.done_s is not None
        assert raw.error is None


class Parsed:
    """What httptools alone makes of an answer, read by read."""

    def __init__(self, reads: list[bytes]) -> None:
        self.pieces: list[tuple[float, bytes]] = []
        self.whole = self.failed = False
        parser = httptools.HttpResponseParser(self)
        for self.at_s, data in enumerate(reads, 1):
            try:
                parser.feed_data(data)
            except httptools.HttpParserError:
                self.failed = True
            if self.whole or self.failed:
                return

    def on_body(self, body: bytes) -> None:
        self.pieces.append((self.at_s, body))

    def on_message_complete(self) -> None:
        self.whole = True


@contextmanager
def fake() -> Iterator[Connection]:
    """A connection to nobody: what it hears is said to it."""
    near, far = socket.socketpair()
    near.setblocking(False)
    connection = Connection("http://fake", near)
    with far:
        yield connection
        connection.cut()


LONG = b"x" * 5000
END = b"0\r\n\r\n"


@pytest.mark.parametrize(
    "reads",
    [
        [b"2\r\nab\r\n", b"3\r\ncde\r\n", END],
        [b"A\r\n0123456789\r\n", b"a\r\n0123456789\r\n", b"0a\r\n0123456789\r\n", END],
        [b"2\r\nab\r\n3", b"\r\ncde\r\n", END],
        [b"2\r\nab\r\n3\r\n", b"1\r\n", b"\r\n", END],
        [b"2\r\nab\r\n5\r\n", b"1\r\na\r\n", b"1\r\na\r\n", END],
        [b"2\r\n\r\n\r\n", b"2\r\n\r\n\r\n", END],
        [b"6\r\n1\r\na\r\n\r\n", END],
        [b"1;last=no\r\na\r\n", b"1388\r\n" + LONG + b"\r\n", b"1\r\na\r\n", END],
        [b"1\r\na\r\n1\r\nb\r\n", b"1\r\nc\r\n" + END],
        [b"1\r\na\r\n1", b"1\r\na\r\n", b"0123456789abcd\r\n", END],
        [b"1\r\na\r\n", b"0\r\nsum: 1\r\n", b"1\r\na\r\n", b"\r\n"],
        [b"1\r\na\r\n", b"-1\r\n\r\n"],
        [b"1\r\na\r\n", b"1_\r\na\r\n"],
        [b"1\r\na\r\n", b"1\r\nab\r\n"],
        [b"1\r\na\r\n", b"2\r\na\r\n", b"1\r\na\r\n"],
        [b"1\r\na\r\n", b"\r\n", b"1\r\na\r\n"],
    ],
)
def test_a_read_that_is_one_whole_chunk_is_what_the_parser_makes_of_it(reads):
    reads = [OK + b"transfer-encoding: chunked\r\n\r\n", *reads]

    async def hear():
        with fake() as connection:
            raw = connection.begin(b"GET / HTTP/1.1\r\n\r\n")
            for number, data in enumerate(reads, 1):
                if connection.idle or connection.closed:
                    break
                connection.heard_bytes(data, raw.sent_s + number, None)
            return raw

    raw = asyncio.run(hear())
    parsed = Parsed(reads)
    came_s = [round(at_s - raw.sent_s) for at_s in raw.arrivals_s]
    assert list(zip(came_s, raw.pieces, strict=True)) == parsed.pieces
    assert (raw.done_s is not None, raw.error is not None) == (parsed.whole, parsed.failed)


def test_every_read_has_its_stamp_and_the_request_the_first():
    pieces = [
        OK + b"transfer-encoding: chunked\r\n\r\n",
        b"1\r\na\r\n",
        b"1\r\nb\r\n",
        b"0\r\n\r\n",
    ]
    (raw,) = run(exchange_with(answering(*pieces, pause_s=0.03)))
    assert raw.pieces == [b"a", b"b"]
    first_s, second_s = raw.arrivals_s
    assert raw.done_s is not None
    assert raw.sent_s + 0.02 < first_s < second_s - 0.02 < raw.done_s - 0.04


def test_headers_that_drip_are_waited_for_and_no_part_of_the_body():
    (raw,) = run(exchange_with(answering(*(CHUNKED[i : i + 1] for i in range(60)), CHUNKED[60:])))
    assert (raw.error, raw.status, raw.body) == (None, 200, b"hello world")
    assert raw.header(b"transfer-encoding") == b"chunked"


def test_headers_that_never_end_are_silence():
    (raw,) = run(exchange_with(answering(CHUNKED[:30], close=False), stall_s=0.1))
    assert isinstance(raw.error, HttpUnreachable)
    assert "silent for 0.1 s" in raw.error.message


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (CHUNKED, None),
        (CHUNKED[:-1], "closed after 11 bytes of an unfinished answer"),
        (b"", "closed before any answer"),
    ],
)
def test_a_server_that_closes_only_its_own_side_has_said_all(sent, error):
    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(sent)
        writer.write_eof()

    (raw,) = run(exchange_with(serve))
    assert (raw.done_s is None) == (error is not None)
    assert raw.error is None or error in raw.error.message


def test_several_requests_share_a_connection():
    async def serve(reader, writer):
        for number in range(3):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(OK + b"content-length: 1\r\n\r\n%d" % number)
        writer.close()

    raws = run(exchange_with(serve, requests=3))
    assert [raw.body for raw in raws] == [b"0", b"1", b"2"]


def test_an_answer_without_a_length_ends_with_its_connection():
    (raw,) = run(exchange_with(answering(OK + b"\r\nall of", b" it", pause_s=0.01)))
    assert (raw.error, raw.body) == (None, b"all of it")
    assert raw.done_s is not None


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_an_answer_that_has_no_body_is_complete(status):
    (raw,) = run(exchange_with(answering(b"HTTP/1.1 " + status + b"\r\n\r\n", close=False)))
    assert raw.done_s is not None


def test_a_100_continue_is_not_the_answer():
    pieces = [b"HTTP/1.1 100 Continue\r\nx: y\r\n\r\n", OK + b"content-length: 2\r\n\r\nok"]
    (raw,) = run(exchange_with(answering(*pieces, pause_s=0.01)))
    assert (raw.status, raw.body, raw.header(b"x")) == (200, b"ok", b"")


@pytest.mark.parametrize("status", [400, 429, 500, 503])
def test_an_error_status_is_an_answer(status):
    head = b"HTTP/1.1 %d No\r\nRetry-After: 7\r\ncontent-length: 2\r\n\r\nno" % status
    (raw,) = run(exchange_with(answering(head)))
    assert (raw.error, raw.status, raw.body) == (None, status, b"no")
    assert raw.header(b"retry-after") == b"7"


@pytest.mark.parametrize(
    ("sent", "kind", "message"),
    [
        (b"", HttpUnreachable, "closed before any answer"),
        (OK, HttpUnreachable, "closed before any answer"),
        (CHUNKED[:-5], HttpProtocolError, "closed after 11 bytes of an unfinished answer"),
        (CHUNKED[:60], HttpProtocolError, "closed after 5 bytes of an unfinished answer"),
        (OK + b"content-length: 9\r\n\r\nabc", HttpProtocolError, "closed after 3 bytes"),
        (b"SSH-2.0-OpenSSH\r\n", HttpProtocolError, "expected an HTTP answer, found b'SSH"),
        (OK + b"transfer-encoding: chunked\r\n\r\nzz\r\n", HttpProtocolError, "expected an HTTP"),
    ],
)
def test_an_answer_that_breaks_off_is_an_error(sent, kind, message):
    (raw,) = run(exchange_with(answering(sent)))
    assert type(raw.error) is kind
    assert message in str(raw.error)
    assert raw.done_s is None
    assert raw.failed_s is not None


def test_a_reset_is_an_error():
    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(CHUNKED[:60])
        await writer.drain()
        writer.transport.abort()

    (raw,) = run(exchange_with(serve))
    assert raw.error is not None
    assert raw.body in (b"hello", b"")


def test_silence_is_an_error_but_a_slow_answer_is_not():
    slow = [CHUNKED[:45], *(CHUNKED[i : i + 4] for i in range(45, len(CHUNKED), 4))]
    (raw,) = run(exchange_with(answering(*slow, pause_s=0.05), stall_s=0.3))
    assert raw.error is None
    assert raw.done_s is not None
    assert raw.done_s - raw.sent_s > 0.3
    (raw,) = run(exchange_with(answering(CHUNKED[:60], close=False), stall_s=0.1))
    assert isinstance(raw.error, HttpUnreachable)
    assert "silent for 0.1 s" in str(raw.error)


def test_a_stream_of_whole_chunks_is_no_silence_however_long():
    head = OK + b"transfer-encoding: chunked\r\n\r\n"
    chunks = [head, *[b"2\r\nab\r\n"] * 12, END]
    (raw,) = run(exchange_with(answering(*chunks, pause_s=0.05), stall_s=0.3))
    assert raw.error is None
    assert raw.done_s is not None
    assert raw.done_s - raw.sent_s > 0.3
    (raw,) = run(exchange_with(answering(head, b"2\r\nab\r\n", close=False), stall_s=0.1))
    assert "silent for 0.1 s" in str(raw.error)


def test_two_clocks_that_differ_a_little_make_no_gap_below_nothing():
    async def hear():
        with fake() as connection:
            raw = connection.begin(b"GET / HTTP/1.1\r\n\r\n")
            sent_s = raw.sent_s
            reads = [OK + b"transfer-encoding: chunked\r\n\r\n", *[b"1\r\na\r\n"] * 3]
            for data, later_s in zip(reads, (-1e-6, -1e-6, 2.0, 1.999), strict=True):
                connection.heard_bytes(data, sent_s + later_s, None)
            return sent_s, list(raw.arrivals_s)

    sent_s, arrivals_s = asyncio.run(hear())
    assert arrivals_s == [sent_s, sent_s + 2.0, sent_s + 2.0]


def test_an_encoding_on_top_of_chunks_is_the_parsers_to_read():
    reads = [
        OK + b"transfer-encoding: chunked\r\ntransfer-encoding: gzip\r\n\r\n",
        b"2\r\nab\r\n",
    ]

    async def hear():
        with fake() as connection:
            raw = connection.begin(b"GET / HTTP/1.1\r\n\r\n")
            for data in reads:
                if not connection.closed:
                    connection.heard_bytes(data, raw.sent_s, None)
            return raw

    raw = asyncio.run(hear())
    parsed = Parsed(reads)
    assert raw.pieces == [piece for _, piece in parsed.pieces]


def test_a_cut_leaves_what_came_and_no_error():
    async def cut():
        async with server(answering(CHUNKED[:60], close=False)) as port:
            connection = await Connection.open("127.0.0.1", port)
            waiting = asyncio.ensure_future(connection.exchange(b"GET / HTTP/1.1\r\n\r\n"))
            await asyncio.sleep(0.05)
            connection.cut()
            return await waiting, connection.idle

    raw, idle = run(cut())
    assert (raw.body, raw.error, raw.done_s, raw.failed_s) == (b"hello", None, None, None)
    assert not idle


def test_a_cancelled_exchange_closes_its_connection():
    async def cancel():
        async with server(answering(CHUNKED[:60], close=False)) as port:
            connection = await Connection.open("127.0.0.1", port)
            waiting = asyncio.ensure_future(connection.exchange(b"GET / HTTP/1.1\r\n\r\n"))
            await asyncio.sleep(0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            return connection.closed

    assert run(cancel())


def test_a_kept_connection_that_the_server_closed_is_stale():
    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK + b"content-length: 0\r\n\r\n")
        writer.close()

    async def ask():
        async with server(serve) as port:
            connection = await Connection.open("127.0.0.1", port)
            first = await connection.exchange(b"GET / HTTP/1.1\r\n\r\n")
            await asyncio.sleep(0.05)
            second = await connection.exchange(b"GET / HTTP/1.1\r\n\r\n")
            connection.cut()
            return first, second

    first, second = run(ask())
    assert not first.stale
    assert second.stale
    assert "closed the idle connection" in str(second.error)


@pytest.mark.parametrize(
    "tail",
    [
        b"HTTP/1.1 200 OK\r\n",
        OK + b"content-length: 0\r\n\r\n",
        OK + b"content-length: 3\r\n\r\nabc",
        b"?",
    ],
)
def test_more_than_was_asked_for_ends_the_connection(tail):
    async def ask():
        sent = OK + b"content-length: 2\r\n\r\nok" + tail
        async with server(answering(sent, close=False)) as port:
            connection = await Connection.open("127.0.0.1", port)
            raw = await connection.exchange(b"GET / HTTP/1.1\r\n\r\n")
            await asyncio.sleep(0.05)
            idle = connection.idle
            connection.cut()
            return raw, idle

    raw, idle = run(ask())
    assert raw.body == b"ok"
    assert not idle


def test_a_connection_that_is_to_close_is_not_used_again():
    async def ask():
        sent = OK + b"connection: close\r\ncontent-length: 2\r\n\r\nok"
        async with server(answering(sent, close=False)) as port:
            connection = await Connection.open("127.0.0.1", port)
            raw = await connection.exchange(b"GET / HTTP/1.1\r\n\r\n")
            idle = connection.idle
            connection.cut()
            return raw, idle

    raw, idle = run(ask())
    assert (raw.body, raw.error) == (b"ok", None)
    assert not idle


def test_words_from_an_idle_server_end_the_connection():
    async def serve(reader, writer):
        writer.write(b"HTTP/1.1 408 Request Timeout\r\n\r\n")

    async def wait():
        async with server(serve) as port:
            connection = await Connection.open("127.0.0.1", port)
            await asyncio.sleep(0.05)
            idle = connection.idle
            connection.cut()
            return idle

    assert not run(wait())


def test_a_second_request_before_the_answer_is_a_bug():
    async def ask():
        async with server(answering(CHUNKED, close=False)) as port:
            connection = await Connection.open("127.0.0.1", port)
            connection.begin(b"GET / HTTP/1.1\r\n\r\n")
            try:
                connection.begin(b"GET / HTTP/1.1\r\n\r\n")
            finally:
                connection.cut()

    with pytest.raises(RuntimeError, match="a second request before the first was answered"):
        run(ask())


def test_ipv6_is_spoken():
    async def ask():
        async with server(answering(CHUNKED), "::1") as port:
            connection = await Connection.open("::1", port)
            assert connection.where == f"http://[::1]:{port}"
            raw = await connection.exchange(b"GET / HTTP/1.1\r\n\r\n")
            connection.cut()
            return raw

    assert run(ask()).body == b"hello world"


def test_a_refused_connection_is_unreachable():
    async def ask():
        async with server(answering()) as port:
            pass
        await Connection.open("127.0.0.1", port)

    with pytest.raises(HttpUnreachable, match=r"http://127.0.0.1:\d+: .*refused"):
        run(ask())


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=80), st.integers(0, len(CHUNKED)), st.integers(0, 3))
def test_corruption_ends_in_an_answer_or_a_typed_error_never_in_a_hang(noise, at, drop):
    async def ask():
        with fake() as connection:
            raw = connection.begin(b"GET / HTTP/1.1\r\n\r\n")
            data = CHUNKED[:at] + noise + CHUNKED[at + drop :] or b"x"
            connection.heard_bytes(data, perf_counter(), None)
            if raw.done_s is None and raw.error is None:
                connection.lost(None)
            return raw

    raw = asyncio.run(ask())
    assert (raw.done_s is None) != (raw.error is None)


def test_a_body_without_end_is_cut_off(monkeypatch):
    monkeypatch.setattr("tuner.http.connection.MAX_BODY_BYTES", 1000)

    async def pour(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while not writer.is_closing():
            writer.write(bytes(100))
            await asyncio.sleep(0)

    (raw,) = run(exchange_with(pour))
    assert isinstance(raw.error, HttpProtocolError)
    assert "an answer of more than 1000 bytes" in raw.error.message
    assert len(raw.body) < 100_000


@pytest.mark.parametrize(
    "reads",
    [
        [b"a\r\n0123456789\r\n"],
        [b"a\r\n0123456789\r\n", b"1\r\na\r\n1\r\n", b"b\r\n"],  # every other by the parser
    ],
)
def test_a_stream_without_end_is_cut_off_too(monkeypatch, reads):
    monkeypatch.setattr("tuner.http.connection.MAX_BODY_BYTES", 50_000)

    async def hear():
        with fake() as connection:
            raw = connection.begin(b"GET / HTTP/1.1\r\n\r\n")
            connection.heard_bytes(OK + b"transfer-encoding: chunked\r\n\r\n", 1.0, None)
            while raw.error is None and len(raw.pieces) < 100_000:
                for data in reads:
                    if not connection.closed:
                        connection.heard_bytes(data, 1.0, None)
            return raw

    raw = asyncio.run(hear())
    assert isinstance(raw.error, HttpProtocolError)
    assert 40_000 < len(raw.body) < 200_000
