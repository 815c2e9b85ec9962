"""httpx over recorded connections, and the channels that load goes through.

A channel is one stream's way to the server. Plain HTTP is recorded by `tuner.connection`; TLS and
proxies go through stock httpx, whose own work is part of what is then measured.
"""

import asyncio
import logging
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator
from time import perf_counter
from typing import Any, Protocol
from urllib.request import getproxies, proxy_bypass

import httpx

from tuner.connection import STALL_S, Connection, RawExchange
from tuner.errors import HttpError, HttpProtocolError, HttpUnreachable
from tuner.http import is_loopback, public_url, translated

log = logging.getLogger(__name__)

_HEADERS = {"content-type": "application/json", "accept": "*/*", "accept-encoding": "identity"}


class Channel(Protocol):
    """One stream's way to one path of the server; one request at a time."""

    async def open(self) -> None:
        """Connect ahead of the first request. Raises HttpUnreachable."""
        ...

    async def post(self, body: bytes) -> RawExchange:
        """Send a body and wait for the end of the answer; raises HttpUnreachable where it could
        not even connect, any later failure stands in the result."""
        ...

    def cut(self) -> None:
        """Leave what is under way unfinished, at once."""
        ...

    async def close(self) -> None:
        """Cut, and let go of everything."""
        ...


def open_channels(url: str, count: int, *, stall_s: float = STALL_S) -> list[Channel]:
    """Channels to a URL, one a stream, not yet connected; says so where they are not recorded.

    Raises: HttpProtocolError where the URL cannot be read.
    """
    with translated("POST", url):
        parsed = httpx.URL(url)
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise HttpProtocolError(f"{public_url(url)} is not the address of a server")
    proxied = _needs_proxy(parsed)
    if parsed.scheme == "http" and not proxied:
        return [RecordedChannel(parsed, stall_s) for _ in range(count)]
    log.warning(
        "%s is reached %s: timed through stock httpx, whose own latency is included",
        public_url(url),
        "through a proxy" if proxied else "over TLS",
    )
    context = httpx.create_ssl_context()
    return [StockChannel(parsed, stall_s, context) for _ in range(count)]


class RecordedChannel:
    """A kept-alive `Connection`, opened again whenever the server closed it."""

    def __init__(self, url: httpx.URL, stall_s: float) -> None:
        request = httpx.Request("POST", url, headers=_HEADERS)
        # The headers are the same for every request but for the length, which comes last.
        del request.headers["content-length"]
        self._head = _request_head(request)[:-2] + b"content-length: "
        self._address = url.host, url.port or 80
        self._stall_s = stall_s
        self._connection: Connection | None = None

    async def open(self) -> None:
        """Connect ahead of the first request. Raises: HttpUnreachable."""
        await self._connected()

    async def post(self, body: bytes) -> RawExchange:
        """Send a body and wait for the end of the answer. Raises: HttpUnreachable."""
        request = self._head + b"%d\r\n\r\n" % len(body) + body
        connection = await self._connected()
        raw = await connection.exchange(request, stall_s=self._stall_s)
        if raw.stale:
            connection = await self._connected()
            raw = await connection.exchange(request, stall_s=self._stall_s)
        return raw

    def cut(self) -> None:
        """Leave what is under way unfinished, at once."""
        if self._connection is not None:
            self._connection.cut()

    async def close(self) -> None:
        """Cut, and let go of everything."""
        self.cut()

    async def _connected(self) -> Connection:
        if self._connection is None or not self._connection.idle:
            self._connection = await Connection.open(*self._address)
        return self._connection


class StockChannel:
    """A stock httpx client of its own: its pool slows down with every live connection."""

    def __init__(self, url: httpx.URL, stall_s: float, context: ssl.SSLContext) -> None:
        self._url = url
        self._client = httpx.AsyncClient(
            timeout=stall_s, verify=context, trust_env=not is_loopback(url.host)
        )
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Nothing: httpx connects when it must."""

    async def post(self, body: bytes) -> RawExchange:
        """Send a body and wait for the end of the answer. Raises: HttpUnreachable."""
        raw = RawExchange(sent_s=perf_counter())
        self._task = asyncio.ensure_future(self._fill(raw, body))
        try:
            await asyncio.wait([self._task])
        finally:
            self._task.cancel()
        if not self._task.cancelled():
            self._task.result()
        return raw

    def cut(self) -> None:
        """Leave what is under way unfinished, at once."""
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """Cut, and let go of everything."""
        self.cut()
        await self._client.aclose()

    async def _fill(self, raw: RawExchange, body: bytes) -> None:
        async def trace(event: str, info: dict[str, Any]) -> None:
            if event.endswith("send_request_headers.started"):
                raw.sent_s = perf_counter()

        try:
            with translated("POST", str(self._url)):
                async with self._client.stream(
                    "POST", self._url, content=body, headers=_HEADERS, extensions={"trace": trace}
                ) as response:
                    raw.status, raw.headers = response.status_code, response.headers.raw
                    async for chunk in response.aiter_raw():
                        raw.chunks.append((perf_counter(), chunk))
            raw.done_s = perf_counter()
        except HttpError as exc:
            if isinstance(exc.__cause__, httpx.ConnectError | httpx.ConnectTimeout):
                raise
            raw.error, raw.failed_s = exc, perf_counter()


class RecordingTransport(httpx.AsyncBaseTransport):
    """httpx's API over recorded connections: plain HTTP/1.1, no proxy; a response's
    `extensions["exchange"]` is its RawExchange.

    A body is kept as it comes, however slowly it is read. Idle connections are kept for reuse.

    Raises: httpx.TransportError and its kinds, as every httpx transport.
    """

    def __init__(self) -> None:
        self._idle: defaultdict[tuple[str, int], list[Connection]] = defaultdict(list)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; returns when the headers are there."""
        if request.url.scheme != "http":
            raise httpx.UnsupportedProtocol(f"{request.url.scheme}: only plain HTTP is recorded")
        body = await request.aread()
        timeouts = request.extensions.get("timeout", {})
        address = request.url.host, request.url.port or 80
        while True:
            kept = self._kept(address)
            connection = kept or await _open(*address, timeouts.get("connect"))
            raw = await _ask(connection, request, body, timeouts.get("read"))
            if kept is None or not raw.stale:
                break
        if raw.status is None:
            raise _as_httpx(raw)
        return httpx.Response(
            raw.status,
            headers=raw.headers,
            stream=_Body(self, address, connection, raw),
            extensions={"exchange": raw, "http_version": b"HTTP/1.1"},
        )

    async def aclose(self) -> None:
        """Close the idle connections."""
        for connections in self._idle.values():
            for connection in connections:
                connection.cut()
        self._idle.clear()

    def release(self, address: tuple[str, int], connection: Connection) -> None:
        """Take a connection back once its answer was read; cut it where it was not."""
        if connection.idle:
            self._idle[address].append(connection)
        else:
            connection.cut()

    def _kept(self, address: tuple[str, int]) -> Connection | None:
        connections = self._idle[address]
        while connections:
            connection = connections.pop()
            if connection.idle:
                return connection
        return None


class _Body(httpx.AsyncByteStream):
    def __init__(
        self,
        owner: RecordingTransport,
        address: tuple[str, int],
        connection: Connection,
        raw: RawExchange,
    ) -> None:
        self._owner = owner
        self._address = address
        self._connection = connection
        self._raw = raw

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read = 0
        while True:
            while read < len(self._raw.chunks):
                yield self._raw.chunks[read][1]
                read += 1
            if self._raw.error is not None:
                raise _as_httpx(self._raw)
            if self._raw.done_s is not None:
                return
            if not await self._connection.wait_for_change():
                raise httpx.ReadError(f"{self._connection.where}: cut")

    async def aclose(self) -> None:
        self._owner.release(self._address, self._connection)


async def _open(host: str, port: int, timeout_s: float | None) -> Connection:
    try:
        return await Connection.open(host, port, timeout_s=timeout_s)
    except HttpUnreachable as exc:
        late = isinstance(exc.__cause__, TimeoutError)
        raise (httpx.ConnectTimeout if late else httpx.ConnectError)(exc.message) from exc


async def _ask(
    connection: Connection, request: httpx.Request, body: bytes, stall_s: float | None
) -> RawExchange:
    head = request.method == "HEAD"
    raw = connection.begin(_request_head(request) + body, stall_s=stall_s, head=head)
    try:
        while raw.status is None and raw.error is None:
            await connection.wait_for_change()
    except asyncio.CancelledError:
        connection.cut()
        raise
    return raw


def _as_httpx(raw: RawExchange) -> httpx.TransportError:
    kind = (
        httpx.RemoteProtocolError if isinstance(raw.error, HttpProtocolError) else httpx.ReadError
    )
    return kind(str(raw.error))


def _request_head(request: httpx.Request) -> bytes:
    lines = [b"%s %s HTTP/1.1" % (request.method.encode("ascii"), request.url.raw_path)]
    lines += [b"%s: %s" % header for header in request.headers.raw]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def _needs_proxy(url: httpx.URL) -> bool:
    return not is_loopback(url.host) and url.scheme in getproxies() and not proxy_bypass(url.host)
