import asyncio
import gzip
import json
from contextlib import asynccontextmanager

import httpx
import pytest

from tuner.errors import HttpError, HttpProtocolError, HttpStatusError, HttpUnreachable
from tuner.http.client import TRANSLATION, Http, needs_proxy, public_url, server_url, translated
from tuner.load import run


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@asynccontextmanager
async def answering(*answers: bytes):
    """A server whose every connection gets the answers in turn, one a request."""

    async def serve(reader, writer):
        for answer in answers:
            head = await reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
            seen.append((head, await reader.readexactly(int(length or 0))))
            writer.write(answer)
        writer.close()

    seen: list[tuple[bytes, bytes]] = []
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        yield f"http://127.0.0.1:{port}", seen


def answer(body: bytes, status: int = 200, extra: bytes = b"") -> bytes:
    return b"HTTP/1.1 %d X\r\n%scontent-length: %d\r\n\r\n%s" % (status, extra, len(body), body)


def all_exceptions_of_httpx() -> list[type[Exception]]:
    members = [getattr(httpx, name) for name in httpx.__all__]
    return [m for m in members if isinstance(m, type) and issubclass(m, Exception)]


def test_every_exception_of_httpx_is_translated():
    assert set(all_exceptions_of_httpx()) == set(TRANSLATION)


@pytest.mark.parametrize("kind", all_exceptions_of_httpx())
def test_a_foreign_exception_becomes_ours_with_method_and_url(kind):
    foreign = kind.__new__(kind, "broken")  # some cannot be made from a message
    with (
        pytest.raises(HttpError, match=r"^GET http://host/x: broken$"),
        translated("GET", "http://user:secret@host/x?key=secret"),
    ):
        raise foreign


def test_json_text_and_status_are_asked_over_one_connection():
    async def ask():
        answers = [answer(b'{"a": 1}'), answer(b"text"), answer(b"", 503), answer(b"[2]")]
        async with answering(*answers) as (url, seen), Http(url + "/") as http:
            assert await http.get_json("/json") == {"a": 1}
            assert await http.get_text("/text") == "text"
            assert await http.status("/health") == 503
            assert await http.post_json("/post", {"b": 2}) == [2]
        assert [head.split(b"\r\n")[0] for head, _ in seen] == [
            b"GET /json HTTP/1.1",
            b"GET /text HTTP/1.1",
            b"GET /health HTTP/1.1",
            b"POST /post HTTP/1.1",
        ]
        assert json.loads(seen[3][1]) == {"b": 2}

    run(ask())


def test_an_error_status_is_raised_with_what_was_said():
    async def ask():
        async with answering(answer(b"queue is full", 503)) as (url, _), Http(url) as http:
            await http.get_json("/generate")

    with pytest.raises(HttpStatusError, match=r"GET http://.*/generate: status 503, 'queue") as got:
        run(ask())
    assert got.value.status == 503


def test_an_answer_that_is_not_json_is_quoted():
    async def ask():
        async with answering(answer(b"<html>" + b"x" * 500)) as (url, _), Http(url) as http:
            await http.get_json("/info")

    with pytest.raises(HttpProtocolError, match=r"/info: expected JSON, found '<html>x+\.\.\.'$"):
        run(ask())


def test_a_compressed_answer_is_read():
    async def ask():
        body = answer(gzip.compress(b'{"a": 1}'), extra=b"content-encoding: gzip\r\n")
        async with answering(body) as (url, _), Http(url) as http:
            return await http.get_json("/")

    assert run(ask()) == {"a": 1}


def test_nobody_listening_is_unreachable():
    async def ask():
        async with answering() as (url, _):
            pass
        async with Http(url) as http:
            await http.status("/health")

    with pytest.raises(HttpUnreachable, match=r"GET http://127.0.0.1:\d+/health: .*refused"):
        run(ask())


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n"])
def test_a_connection_that_closes_early_is_an_error(sent):
    async def ask():
        async with answering(sent) as (url, _), Http(url) as http:
            await http.get_text("/")

    with pytest.raises(HttpError, match=r"GET http://.*: closed (before|after)"):
        run(ask())


def test_a_dripping_answer_ends_with_the_timeout():
    async def drip(reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"x")
            await asyncio.sleep(0.02)

    async def ask():
        server = await asyncio.start_server(drip, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server, Http(url, timeout_s=0.3) as http:
            with pytest.raises(HttpUnreachable, match=r"/slow: no full answer within 0\.3 s"):
                await http.get_text("/slow")
            await asyncio.sleep(0.1)  # the server notices that nobody listens any more

    run(ask())


def test_the_server_that_closed_a_kept_connection_is_asked_again():
    async def ask():
        async with answering(answer(b"1")) as (url, seen), Http(url) as http:
            first = await http.get_json("/a")
            await asyncio.sleep(0.05)
            return first, await http.get_json("/b"), len(seen)

    assert run(ask()) == (1, 1, 2)


def test_a_proxy_of_the_environment_never_reaches_this_machine(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("all_proxy", "http://127.0.0.1:9")

    async def ask():
        async with answering(answer(b"[]")) as (url, _), Http(url) as http:
            return await http.get_json("/")

    assert run(ask()) == []
    assert not needs_proxy(server_url("http://localhost:1"))
    assert not needs_proxy(server_url("http://[::1]:1"))
    assert needs_proxy(server_url("http://example.org"))
    monkeypatch.setenv("no_proxy", "example.org")
    assert not needs_proxy(server_url("http://example.org"))


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host", "http://", "http://host:port"])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(HttpProtocolError):
        Http(url)


def test_a_shown_url_has_no_secrets():
    assert public_url("http://user:secret@host:80/v1?key=secret#x") == "http://host/v1"


@pytest.mark.parametrize(
    "body",
    [b"[" * 100_000, b'"\\ud800"', b"9" * 5000, b"\x80\x81", b"", b'{"a": 1'],
    ids=["deep", "half a character", "long number", "binary", "empty", "truncated"],
)
def test_what_python_cannot_take_as_json_is_no_json(body):
    async def ask():
        async with answering(answer(body)) as (url, _), Http(url) as http:
            await http.get_json("/info")

    with pytest.raises(HttpProtocolError, match="/info: expected JSON, found "):
        run(ask())


def test_a_server_that_sends_elsewhere_is_not_followed():
    async def ask(port):
        place = b"location: http://user:secret@elsewhere:%d/x?key=secret\r\n" % port
        async with answering(answer(b"", 302, place)) as (url, _), Http(url) as http:
            await http.get_json("/info")

    with pytest.raises(HttpStatusError, match=r"/info: sends on to http://elsewhere/x, ex"):
        run(ask(80))


@pytest.mark.parametrize("squeezed", [False, True])
def test_an_answer_without_end_is_left(squeezed, monkeypatch):
    piece = gzip.compress(bytes(30_000_000)) if squeezed else bytes(1_000_000)
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n"
        if squeezed
        else b"HTTP/1.1 200 OK\r\n\r\n"
    )

    async def pour(reader, writer):
        writer.write(head)
        try:
            while not writer.is_closing():
                writer.write(piece)
                await writer.drain()
        except OSError:
            pass

    async def ask():
        server = await asyncio.start_server(pour, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server, Http(url) as http:
            with pytest.raises(HttpProtocolError, match="an answer of more than 20000000 bytes"):
                await http.get_text("/metrics")

    run(ask())
