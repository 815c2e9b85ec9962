"""httpx's API over recorded connections; fails as every httpx transport does."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator

import httpx

from tuner.errors import HttpProtocolError, HttpUnreachable
from tuner.http.connection import Connection
from tuner.http.exchange import RawExchange


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
            while read < len(self._raw.pieces):
                yield self._raw.pieces[read]
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
    raw = connection.begin(head_bytes(request) + body, stall_s=stall_s, head=head)
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


def head_bytes(request: httpx.Request) -> bytes:
    """The request line and the headers as they go over the wire."""
    lines = [b"%s %s HTTP/1.1" % (request.method.encode("ascii"), request.url.raw_path)]
    lines += [b"%s: %s" % header for header in request.headers.raw]
    return b"\r\n".join(lines) + b"\r\n\r\n"
