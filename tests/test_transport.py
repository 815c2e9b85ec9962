import asyncio

import httpx
import pytest

from tests.test_connection import CHUNKED, OK, answering, server
from tuner.http.exchange import RawExchange
from tuner.http.transport import RecordingTransport
from tuner.load import run


def client() -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=RecordingTransport(), trust_env=False, timeout=2.0)


def test_a_response_is_httpxs_own_and_carries_what_was_recorded():
    async def ask():
        async with server(answering(CHUNKED)) as port, client() as http:
            return await http.get(f"http://127.0.0.1:{port}/x?y=1")

    response = run(ask())
    assert (response.status_code, response.text) == (200, "hello world")
    raw: RawExchange = response.extensions["exchange"]
    assert raw.body == b"hello world"
    assert raw.done_s is not None
    assert raw.done_s > raw.sent_s


def test_a_body_streams_while_it_comes():
    async def ask():
        pieces = [CHUNKED[:60], CHUNKED[60:]]
        async with (
            server(answering(*pieces, pause_s=0.1)) as port,
            client() as http,
            http.stream("GET", f"http://127.0.0.1:{port}") as response,
        ):
            return [
                (chunk, response.extensions["exchange"].done_s is None)
                async for chunk in response.aiter_raw()
            ]

    chunks = run(ask())
    assert chunks[0] == (b"hello", True)
    assert b"".join(chunk for chunk, _ in chunks) == b"hello world"


def test_connections_are_kept_and_a_stale_one_is_replaced():
    opened = 0

    async def serve(reader, writer):
        nonlocal opened
        opened += 1
        for number in range(2):
            head = await reader.readuntil(b"\r\n\r\n")
            writer.write(OK + b"content-length: %d\r\n\r\n%s" % (len(head), head))
            await writer.drain()
            if opened == 1 and number == 1:
                writer.close()

    async def ask():
        async with server(serve) as port, client() as http:
            for number in range(3):
                response = await http.get(f"http://127.0.0.1:{port}/{number}")
                assert response.text.startswith(f"GET /{number} HTTP/1.1\r\nHost: 127.0.0.1")
                await asyncio.sleep(0.05)

    run(ask())
    assert opened == 2


def test_a_kept_connection_that_closes_on_the_next_request_is_replaced_once():
    answers = 0

    async def serve(reader, writer):
        nonlocal answers
        await reader.readuntil(b"\r\n\r\n")
        if answers < 2:
            answers += 1
            writer.write(OK + b"content-length: 2\r\n\r\nok")
            await reader.readuntil(b"\r\n\r\n")
        writer.close()

    async def ask():
        async with server(serve) as port, client() as http:
            url = f"http://127.0.0.1:{port}"
            assert [(await http.get(url)).text, (await http.get(url)).text] == ["ok", "ok"]
            with pytest.raises(httpx.ReadError, match="closed before any answer"):
                await http.get(url)

    run(ask())


def test_a_posted_body_arrives():
    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(9)
        writer.write(OK + b"content-length: 9\r\n\r\n" + body)

    async def ask():
        async with server(serve) as port, client() as http:
            return await http.post(f"http://127.0.0.1:{port}", json={"a": 123})

    assert run(ask()).json() == {"a": 123}


def test_an_answer_to_head_has_no_body():
    async def ask():
        async with server(answering(OK + b"content-length: 99\r\n\r\n")) as port, client() as http:
            return await http.head(f"http://127.0.0.1:{port}")

    response = run(ask())
    assert response.headers["content-length"] == "99"
    assert response.content == b""


@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        (b"", httpx.ReadError),
        (b"nonsense\r\n\r\n", httpx.RemoteProtocolError),
        (CHUNKED[:60], httpx.RemoteProtocolError),
    ],
)
def test_failures_are_httpxs_own(sent, kind):
    async def ask():
        async with server(answering(sent)) as port, client() as http:
            await http.get(f"http://127.0.0.1:{port}")

    with pytest.raises(kind, match=r"http://127\.0\.0\.1:\d+: "):
        run(ask())


def test_a_refused_connection_is_httpxs_own():
    async def ask():
        async with server(answering()) as port:
            pass
        async with client() as http:
            await http.get(f"http://127.0.0.1:{port}")

    with pytest.raises(httpx.ConnectError, match="refused"):
        run(ask())


def test_a_silent_server_is_a_read_error_after_the_timeout():
    async def ask():
        async with server(answering(close=False)) as port, client() as http:
            await http.get(f"http://127.0.0.1:{port}", timeout=0.1)

    with pytest.raises(httpx.ReadError, match=r"silent for 0\.1 s"):
        run(ask())


def test_a_body_left_unread_closes_its_connection():
    async def ask():
        async with (
            server(answering(CHUNKED[:60], close=False)) as port,
            client() as http,
            http.stream("GET", f"http://127.0.0.1:{port}") as response,
        ):
            return response.extensions["exchange"]

    raw = run(ask())
    assert (raw.done_s, raw.error) == (None, None)


def test_tls_is_not_recorded():
    async def ask():
        async with client() as http:
            await http.get("https://127.0.0.1:9")

    with pytest.raises(httpx.UnsupportedProtocol, match="only plain HTTP is recorded"):
        run(ask())
