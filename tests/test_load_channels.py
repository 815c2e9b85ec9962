import asyncio
import logging
import ssl

import pytest

from tests.test_connection import CHUNKED, OK, answering, server
from tuner.errors import HttpProtocolError, HttpUnreachable
from tuner.http.client import StockChannel
from tuner.load import run
from tuner.load.channels import Channel, RecordedChannel, open_channels


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def stock(url: str) -> StockChannel:
    return StockChannel(url, 2.0, ssl.create_default_context())


def recorded(url: str) -> Channel:
    (channel,) = open_channels(url, 1, stall_s=2.0)
    return channel


BOTH = pytest.mark.parametrize("channel_of", [recorded, stock])


@BOTH
def test_a_channel_posts_a_body_and_records_the_answer(channel_of):
    seen = []

    async def serve(reader, writer):
        for _ in range(2):
            seen.append(await reader.readuntil(b"\r\n\r\n"))
            seen.append(await reader.readexactly(4))
            writer.write(CHUNKED[:60])
            await writer.drain()
            await asyncio.sleep(0.05)
            writer.write(CHUNKED[60:])

    async def ask():
        async with server(serve) as port:
            channel = channel_of(f"http://127.0.0.1:{port}/v1/completions%25?a=1")
            await channel.open()
            raws = [await channel.post(b"body"), await channel.post(b"more")]
            await channel.close()
            return raws

    raws = run(ask())
    for raw in raws:
        assert (raw.status, raw.body, raw.error) == (200, b"hello world", None)
        assert raw.sent_s < raw.arrivals_s[0] < raw.arrivals_s[-1]
        assert raw.done_s is not None
        assert raw.arrivals_s[-1] <= raw.done_s
    assert [seen[1], seen[3]] == [b"body", b"more"]
    assert seen[0].startswith(b"POST /v1/completions%25?a=1 HTTP/1.1\r\n")
    head = seen[0].lower()
    assert head.count(b"content-length: 4\r\n") == 1
    assert b"content-type: application/json\r\n" in head
    assert b"accept-encoding: identity\r\n" in head


@BOTH
def test_a_cut_channel_keeps_what_came(channel_of):
    async def ask():
        async with server(answering(CHUNKED[:60], close=False)) as port:
            channel = channel_of(f"http://127.0.0.1:{port}/")
            posting = asyncio.ensure_future(channel.post(b"{}"))
            await asyncio.sleep(0.3)
            channel.cut()
            raw = await posting
            await channel.close()
            return raw

    raw = run(ask())
    assert (raw.body, raw.done_s, raw.error) == (b"hello", None, None)


@BOTH
@pytest.mark.parametrize("sent", [b"", CHUNKED[:60], b"SSH-2.0\r\n"])
def test_a_failure_stands_in_the_exchange(channel_of, sent):
    async def ask():
        async with server(answering(sent)) as port:
            channel = channel_of(f"http://127.0.0.1:{port}/")
            raw = await channel.post(b"{}")
            await channel.close()
            return raw

    raw = run(ask())
    assert raw.error is not None
    assert "http://127.0.0.1" in raw.error.message
    assert raw.done_s is None
    assert raw.failed_s is not None


@BOTH
def test_a_channel_that_cannot_connect_raises(channel_of):
    async def ask():
        async with server(answering()) as port:
            pass
        channel = channel_of(f"http://127.0.0.1:{port}/")
        try:
            await channel.post(b"{}")
        finally:
            await channel.close()

    with pytest.raises(HttpUnreachable):
        run(ask())


def test_a_kept_connection_that_was_closed_is_opened_again():
    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK + b"content-length: 2\r\n\r\nok")
        writer.close()

    async def ask():
        async with server(serve) as port:
            channel = recorded(f"http://127.0.0.1:{port}/")
            bodies = []
            for pause_s in (0.0, 0.05, 0.0):
                await asyncio.sleep(pause_s)
                bodies.append((await channel.post(b"")).body)
            await channel.close()
            return bodies

    assert run(ask()) == [b"ok", b"ok", b"ok"]


def test_plain_http_is_recorded_and_says_nothing(caplog):
    channels = open_channels("http://127.0.0.1:8000/generate", 3)
    assert [type(channel) for channel in channels] == [RecordedChannel] * 3
    assert caplog.text == ""


def test_tls_goes_through_stock_httpx_and_says_so(caplog):
    with caplog.at_level(logging.WARNING):
        channels = open_channels("https://user:secret@host/generate", 2)
    assert [type(channel) for channel in channels] == [StockChannel] * 2
    assert "https://host/generate is reached over TLS: timed through stock httpx" in caplog.text
    run(close(channels))


def test_a_proxy_goes_through_stock_httpx_and_says_so(caplog, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with caplog.at_level(logging.WARNING):
        channels = open_channels("http://host/generate", 1)
    assert type(channels[0]) is StockChannel
    assert "reached through a proxy" in caplog.text
    run(close(channels))


async def close(channels):
    for channel in channels:
        await channel.close()


def test_an_address_that_is_none_is_refused():
    with pytest.raises(HttpProtocolError, match="is not the address of a server"):
        open_channels("host:80/generate", 1)
