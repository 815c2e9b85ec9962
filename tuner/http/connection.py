"""One HTTP connection for load: what came is stamped and kept, and read when the clock stopped.

Framing by httptools on a `Wire`, whose reads carry the kernel's time of arrival. A stamp is taken
just before a request is written; between the two nothing is decoded, so that the client's own work
does not show up as the server's latency.
"""

import asyncio
import errno
import os
import socket
from time import perf_counter

import httptools

from tuner.errors import HttpError, HttpProtocolError, HttpUnreachable
from tuner.http.exchange import RawExchange, Tally
from tuner.http.wire import Wire, connected

CONNECT_TIMEOUT_S = 10.0
STALL_S = 300.0
MAX_BODY_BYTES = 256_000_000
"""Far above any honest answer, and what this machine's memory bears of a broken one."""
_NO_BODY = (204, 304)
_CRLF = b"\r\n"
_FAST_BYTES = 4096
"""A read that is longer is the parser's: the tables below have an entry for each length."""
_PIECES_BETWEEN_SUMS = 8192
"""So seldom are a stream's pieces added up: each is shorter than the above."""


def _chunk_starts() -> list[tuple[bytes, ...]]:
    """For each length of a read that may be one whole chunk, the first lines that it has then, as
    servers write them."""
    starts: list[tuple[bytes, ...]] = [()] * _FAST_BYTES
    for size in range(1, _FAST_BYTES):
        start = b"%x\r\n" % size
        if (whole := len(start) + size + len(_CRLF)) < _FAST_BYTES:
            starts[whole] = start, b"%X\r\n" % size
    return starts


_CHUNK_STARTS = _chunk_starts()
_BODY_AT = [len(starts[0]) if starts else 0 for starts in _CHUNK_STARTS]


class Connection(Wire):
    """One keep-alive connection that carries one exchange at a time.

    It is its own wire: of a thousand that are read in turn, each object less is a cache line less.
    """

    __slots__ = (
        "_between_chunks",
        "_changed",
        "_ends_with_connection",
        "_exchanges",
        "_finished",
        "_head",
        "_now",
        "_parser",
        "_raw",
        "_received",
        "_stall_s",
        "_sums_at",
        "_tally",
        "_timer",
        "closed",
        "where",
    )

    def __init__(self, where: str, sock: socket.socket, tally: Tally | None = None) -> None:
        super().__init__(sock)
        self.where = where
        self._tally = tally or Tally()
        self.closed = False
        self._parser: httptools.HttpResponseParser
        self._finished: asyncio.Future[None]
        self._changed: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._raw: RawExchange | None = None
        self._exchanges = 0
        self._received = 0
        self._sums_at = 0
        self._stall_s = STALL_S
        self._now = 0.0
        self._head = False
        self._ends_with_connection = False
        self._between_chunks = False

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        timeout_s: float | None = CONNECT_TIMEOUT_S,
        tally: Tally | None = None,
    ) -> "Connection":
        """Connect; what is heard counts in the tally. Raises: HttpUnreachable."""
        where = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        try:
            async with asyncio.timeout(timeout_s):
                return cls(where, await connected(host, port), tally)
        except TimeoutError as exc:
            raise HttpUnreachable(f"{where}: no connection in time") from exc
        except OSError as exc:
            raise HttpUnreachable(f"{where}: {_said(exc)}", hint=_open_hint(exc)) from exc

    @property
    def idle(self) -> bool:
        """True where the next exchange can start."""
        return not self.closed and self._raw is None

    @property
    def heard(self) -> bool:
        """True once some of an answer's body came, or an exchange ended without."""
        if self._raw is None or self._exchanges > 1:
            return self._exchanges > 0
        return bool(self._raw.pieces)

    @property
    def pieces(self) -> int:
        """How many pieces of the body under way came so far."""
        return 0 if self._raw is None else len(self._raw.pieces)

    async def exchange(self, request: bytes, *, stall_s: float = STALL_S) -> RawExchange:
        """Send a request and wait for the end of the answer, however it ends.

        A failure stands in the result's `error`; only a cancellation is raised, and closes the
        connection. `stall_s` is the longest silence, not the longest answer.
        """
        raw = self.begin(request, stall_s=stall_s)
        try:
            await self._finished
        except asyncio.CancelledError:
            self.cut()
            raise
        return raw

    def begin(
        self, request: bytes, *, stall_s: float | None = STALL_S, head: bool = False
    ) -> RawExchange:
        """Send a request and return the exchange, which fills as the answer arrives.

        `head` says that the answer has no body whatever its headers say.
        """
        if self._raw is not None:
            raise RuntimeError(f"{self.where}: a second request before the first was answered")
        self._finished = self._loop.create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._head = head
        self._ends_with_connection = False
        self._between_chunks = False
        self._exchanges += 1
        self._received = 0
        self._sums_at = _PIECES_BETWEEN_SUMS
        raw = self._raw = RawExchange(sent_s=perf_counter())
        if self.closed:
            raw.stale = True
            self._fail(HttpUnreachable(f"{self.where}: the server closed the idle connection"))
            return raw
        if stall_s is not None:
            self._stall_s = stall_s
            self._timer = self._loop.call_later(stall_s, self._check_stall)
        self._now = raw.sent_s = perf_counter()
        self.write(request)
        return raw

    async def wait_for_change(self) -> bool:
        """Return once more of the answer came, or it ended; False where nothing is under way."""
        if self._raw is None:
            return False
        self._changed = self._loop.create_future()
        try:
            await self._changed
        finally:
            self._changed = None
        return True

    def cut(self) -> None:
        """Close the connection now; an exchange under way is left unfinished."""
        self.closed = True
        self.abort()
        self._end()

    # What the wire calls.

    def heard_bytes(self, data: bytes, at_s: float, lag_s: float | None) -> None:
        """Find the pieces of the body in what arrived at that time."""
        # This runs for every event, with a thousand streams in turn: what costs most is how many
        # objects it touches that others have pushed out of the processor's cache.
        raw = self._raw
        if raw is None:
            self.cut()  # nobody asked: what follows could not be told from an answer
            return
        if lag_s is not None:
            raw.lags_s.append(lag_s)
        size = len(data)
        if (
            self._between_chunks
            and size < _FAST_BYTES
            and data.startswith(_CHUNK_STARTS[size])
            and data.endswith(_CRLF)
        ):
            # One whole chunk, as nearly every read of a stream is: the parser need not be asked.
            before_s = raw.arrivals_s[-1] if raw.arrivals_s else self._now
            raw.arrivals_s.append(at_s if at_s > before_s else before_s)
            raw.pieces.append(data[_BODY_AT[size] : -2])
            self._tally.pieces += 1
            if len(raw.pieces) >= self._sums_at:
                self._sums_at = len(raw.pieces) + _PIECES_BETWEEN_SUMS
                self._check_size(sum(map(len, raw.pieces)))
            if self._changed is not None:
                self._wake()
            return
        self._received += size
        self._parse(data, at_s)
        self._check_size(self._received)
        self._wake()

    def _parse(self, data: bytes, at_s: float) -> None:
        self._now = max(at_s, self._last_s)  # two clocks read one after the other are not exact
        self._between_chunks = False
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as exc:
            self._fail(
                HttpProtocolError(
                    f"{self.where}: expected an HTTP answer, found {data[:60]!r} ({exc})"
                )
            )
        # The parser tells of no chunk line that it has half of: what it has is whole where a line
        # ends that it did not tell of.
        self._between_chunks = self._between_chunks and data.endswith(_CRLF)

    @property
    def _last_s(self) -> float:
        """When the last of the exchange came, or it was sent."""
        arrivals_s = self._raw.arrivals_s if self._raw is not None else ()
        return max(self._now, arrivals_s[-1]) if arrivals_s else self._now

    def _check_size(self, size: int) -> None:
        if size > MAX_BODY_BYTES and self._raw is not None:
            self._fail(
                HttpProtocolError(f"{self.where}: an answer of more than {MAX_BODY_BYTES} bytes")
            )

    def lost(self, exc: OSError | None) -> None:
        """End the exchange under way: complete only where its body ends with the connection."""
        self.closed = True
        raw = self._raw
        if raw is None:
            return
        self._now = perf_counter()
        if self._ends_with_connection and exc is None:
            raw.done_s = self._now
            self._end()
        elif raw.status is None and not raw.headers:
            raw.stale = self._exchanges > 1
            self._fail(HttpUnreachable(f"{self.where}: {_lost(exc)} before any answer"))
        else:
            size = sum(map(len, raw.pieces))
            message = f"{self.where}: {_lost(exc)} after {size} bytes of an unfinished answer"
            self._fail(HttpProtocolError(message) if exc is None else HttpUnreachable(message))

    # What httptools calls.

    def on_message_begin(self) -> None:
        """Refuse more than one answer to one question."""
        if self._raw is None:
            self.cut()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header."""
        if self._raw is not None:
            self._raw.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Learn the status and how the body will end."""
        raw = self._raw
        if raw is None:
            return
        status = self._parser.get_status_code()
        if status < 200:
            return
        raw.status = status
        encodings = [value for key, value in raw.headers if key.lower() == b"transfer-encoding"]
        framed = encodings or raw.header(b"content-length")
        self._ends_with_connection = not framed and status not in _NO_BODY
        self._between_chunks = encodings == [b"chunked"]
        if self._head:
            self._complete()
        self._wake()

    def on_chunk_header(self) -> None:
        """Another chunk begins."""
        self._between_chunks = False

    def on_chunk_complete(self) -> None:
        """A chunk is over."""
        self._between_chunks = True

    def on_body(self, body: bytes) -> None:
        """Keep a piece of the body with the time of its read."""
        if self._raw is not None:
            self._raw.add(self._now, body)
            self._tally.pieces += 1

    def on_message_complete(self) -> None:
        """End the exchange, unless this was only a 1xx."""
        raw = self._raw
        if raw is None:
            return
        if raw.status is None:
            raw.headers.clear()
        else:
            self._complete()

    # How an exchange ends.

    def _complete(self) -> None:
        if self._raw is not None:
            self._raw.done_s = self._now
        self._readers.answered()
        if not self._parser.should_keep_alive():
            self.closed = True
            self.abort()
        self._end()

    def _fail(self, error: HttpError) -> None:
        if self._raw is not None:
            self._raw.error = error
            self._raw.failed_s = perf_counter()
        self.cut()

    def _end(self) -> None:
        if self._raw is None:
            return
        self._raw = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._finished.done():
            self._finished.set_result(None)
        self._wake()

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    def _check_stall(self) -> None:
        # One timer per exchange that looks at the last stamp: none is touched on a read.
        quiet_s = perf_counter() - self._last_s
        if quiet_s >= self._stall_s:
            self._fail(HttpUnreachable(f"{self.where}: silent for {quiet_s:.1f} s"))
        else:
            self._timer = self._loop.call_later(self._stall_s - quiet_s, self._check_stall)


def _said(exc: OSError) -> str:
    if exc.errno is not None and exc.errno > 0:  # below: a resolver's, with words of its own
        return os.strerror(exc.errno)
    return exc.strerror or str(exc) or type(exc).__name__


def _open_hint(exc: OSError) -> str:
    if exc.errno in (errno.EMFILE, errno.ENFILE):
        return "Raise the limit of open files (ulimit -n)."
    return ""


def _lost(exc: OSError | None) -> str:
    return "closed" if exc is None else _said(exc).lower()
