"""One stream's way to the server: recorded where it is plain HTTP, stock httpx elsewhere."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tuner.http.client import (
    StockChannel,
    needs_proxy,
    public_url,
    request_head,
    server_url,
    tls_context,
)
from tuner.http.connection import STALL_S, Connection
from tuner.http.exchange import RawExchange, Tally
from tuner.load.dialects import DIALECTS
from tuner.load.plan import Target

log = logging.getLogger(__name__)


class Channel(Protocol):
    """One stream's way to one path of the server; one request at a time."""

    @property
    def heard(self) -> bool:
        """True once the server answered something."""
        ...

    @property
    def pieces(self) -> int:
        """How many pieces of an answer under way came so far."""
        ...

    @property
    def ready(self) -> bool:
        """True where the next request need not wait for a connection, as far as is known."""
        ...

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


def open_channels(
    url: str,
    count: int,
    *,
    stall_s: float = STALL_S,
    key: str | None = None,
    tally: Tally | None = None,
) -> list[Channel]:
    """Channels to a URL, one a stream, not yet connected; says so where they are not recorded.

    `key` is the server's API key; what they hear counts in the tally.

    Raises: HttpProtocolError where the URL cannot be read.
    """
    parsed = server_url(url)
    how = _how_reached(url)
    if how is None:
        route = Route(head=request_head("POST", url, key), host=parsed.host, port=parsed.port or 80)
        return [RecordedChannel(route, stall_s, tally or Tally()) for _ in range(count)]
    log.warning("%s", how)
    context = tls_context()
    return [StockChannel(url, stall_s, context, key, tally) for _ in range(count)]


def say_how_reached(target: Target) -> None:
    """Say which servers of a target are not recorded. Raises: HttpProtocolError."""
    for url in (target.base_url, *target.replicas):
        how = _how_reached(url.rstrip("/") + DIALECTS[target.api].path)
        if how is not None:
            log.warning("%s", how)


def _how_reached(url: str) -> str | None:
    """Why requests to a URL are not recorded, None where they are."""
    parsed = server_url(url)
    proxied = needs_proxy(parsed)
    if parsed.scheme == "http" and not proxied:
        return None
    way = "through a proxy" if proxied else "over TLS"
    shown = public_url(url)
    return f"{shown} is reached {way}: timed through stock httpx, whose own latency is included"


def channels_to(target: Target, streams: Sequence[int], tally: Tally) -> list[Channel]:
    """A channel for each of these streams, whose answers count in the tally; with several servers
    each gets every so manieth stream.

    Raises: HttpProtocolError where a URL cannot be read.
    """
    path = DIALECTS[target.api].path
    urls = [url.rstrip("/") + path for url in (target.base_url, *target.replicas)]
    channels: dict[int, Channel] = {}
    for place, url in enumerate(urls):
        dealt = [stream for stream in streams if stream % len(urls) == place]
        if dealt:
            opened = open_channels(url, len(dealt), key=target.key, tally=tally)
            channels |= zip(dealt, opened, strict=True)
    return [channels[stream] for stream in streams]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where all streams of a server go; `head` is that of every request but for its length."""

    head: bytes
    host: str
    port: int


class RecordedChannel:
    """A kept-alive `Connection`, opened again whenever the server closed it."""

    def __init__(self, route: Route, stall_s: float, tally: Tally) -> None:
        self._route = route
        self._stall_s = stall_s
        self._tally = tally
        self._connection: Connection | None = None

    @property
    def heard(self) -> bool:
        """True once the server answered something."""
        return self._connection is not None and self._connection.heard

    @property
    def pieces(self) -> int:
        """How many pieces of an answer under way came so far."""
        return 0 if self._connection is None else self._connection.pieces

    @property
    def ready(self) -> bool:
        """True where the next request need not wait for a connection."""
        return self._connection is not None and self._connection.idle

    async def open(self) -> None:
        """Connect ahead of the first request. Raises: HttpUnreachable."""
        await self._connected()

    async def post(self, body: bytes) -> RawExchange:
        """Send a body and wait for the end of the answer. Raises: HttpUnreachable."""
        request = b"%scontent-length: %d\r\n\r\n%s" % (self._route.head, len(body), body)
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
        if self._connection is not None:
            self._connection.cut()

    async def _connected(self) -> Connection:
        if self._connection is None or not self._connection.idle:
            self._connection = await Connection.open(
                self._route.host, self._route.port, tally=self._tally
            )
        return self._connection
