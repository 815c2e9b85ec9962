"""A connected socket whose reads carry the time at which the kernel had them.

Events that arrive while the client is busy wait in the socket; a stamp taken when they are read
would blame the server for it. Linux notes the arrival of each packet (SO_TIMESTAMPNS), also on
loopback, and tells it with the read. Where several packets are read at once, the last one's time
is told.
"""

import asyncio
import errno
import os
import socket
import struct
from abc import ABC, abstractmethod
from contextlib import suppress
from time import perf_counter, time_ns

from tuner.http.readers import READ_BYTES, Readers

_SO_TIMESTAMPNS = 35  # asm-generic/socket.h; the socket module does not name it
_TIMESPEC = struct.Struct("@ll")
_unpacked = _TIMESPEC.unpack
_recvmsg = socket.socket.recvmsg
_ANCILLARY_BYTES = socket.CMSG_SPACE(_TIMESPEC.size)
_LONGEST_LAG_NS = 60_000_000_000
"""More than this is a clock that was set, not a client that was late."""


class Wire(ABC):
    """A socket on the running loop; reads as soon as something is there, and is what hears it."""

    __slots__ = ("_loop", "_readers", "_sock", "_unsent")

    def __init__(self, sock: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._unsent = b""
        self._readers = Readers.of(self._loop)
        self._readers.add(sock.fileno(), self)

    @abstractmethod
    def heard_bytes(self, data: bytes, at_s: float, lag_s: float | None) -> None:
        """Bytes came: when the kernel had them, in seconds of `perf_counter`, and how much later
        they were read, in seconds, None where the kernel did not say."""

    @abstractmethod
    def lost(self, exc: OSError | None) -> None:
        """The other side closed (None), or the connection broke; said once."""

    def write(self, data: bytes) -> None:
        """Send now what the socket takes, and the rest when it takes more."""
        if self._unsent:
            self._unsent += data
            return
        sent = 0
        try:
            sent = self._sock.send(data)
        except BlockingIOError:
            pass
        except OSError as exc:
            self._loop.call_soon(self._break, exc)
            return
        if sent < len(data):
            self._unsent = data[sent:]
            self._loop.add_writer(self._sock, self._writable)

    def abort(self) -> None:
        """Let go of the socket at once; nothing is told any more."""
        if self._sock.fileno() >= 0:
            self._readers.remove(self._sock.fileno())
            if self._unsent:
                self._loop.remove_writer(self._sock)
            self._sock.close()

    def read(self) -> int:
        """Read what is there; returns how many bytes, 0 where there were none."""
        try:
            data, ancillary, _, _ = _recvmsg(self._sock, READ_BYTES, _ANCILLARY_BYTES)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as exc:
            self._break(exc)
            return 0
        now_s, now_ns = perf_counter(), time_ns()  # one instant: a gap would be taken for lag
        if not data:
            self._break(None)
            return 0
        # Nothing else was asked to be told beside the data.
        lag_s = lag_of(ancillary[0][2], now_ns) if ancillary else None
        self.heard_bytes(data, now_s if lag_s is None else now_s - lag_s, lag_s)
        return len(data)

    def _writable(self) -> None:
        data, self._unsent = self._unsent, b""
        self._loop.remove_writer(self._sock)
        self.write(data)

    def _break(self, exc: OSError | None) -> None:
        if self._sock.fileno() >= 0:
            self.abort()
            self.lost(exc)


async def connected(host: str, port: int) -> socket.socket:
    """A socket to the first of the host's addresses that answers. Raises: OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    failure: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in found:
        try:
            return await _connected(family, kind, protocol, address)
        except OSError as exc:
            failure = exc
    raise failure


async def _connected(
    family: int, kind: int, protocol: int, address: tuple[object, ...]
) -> socket.socket:
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with suppress(OSError):  # without it a read is stamped when it is made
            sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        await _connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


async def _connect(sock: socket.socket, address: tuple[object, ...]) -> None:
    """As the loop's own `sock_connect`, which looks the kind of socket up again and again."""
    error = sock.connect_ex(address)
    if error == errno.EINPROGRESS:
        loop = asyncio.get_running_loop()
        ready = loop.create_future()
        loop.add_writer(sock.fileno(), _tell, ready)
        try:
            await ready
        finally:
            loop.remove_writer(sock.fileno())
        error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error:
        raise OSError(error, os.strerror(error))


def _tell(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def lag_of(stamp: bytes, now_ns: int) -> float | None:
    """How long before `now_ns` a stamp of the kernel is, in seconds; None where a clock was set.

    Both are of the clock of wall time.
    """
    seconds, nanoseconds = _unpacked(stamp)
    lag_ns: int = now_ns - seconds * 1_000_000_000 - nanoseconds
    return lag_ns / 1e9 if 0 <= lag_ns < _LONGEST_LAG_NS else None
