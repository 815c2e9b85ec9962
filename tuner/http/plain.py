"""A text from a URL, for a process that imports little; no stream, no question that matters."""

import http.client
import io
import socket
import urllib.error
import urllib.request
from functools import partial
from ipaddress import ip_address
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

MAX_BYTES = 20_000_000


class NotThere(Exception):
    """The server answers, but has no such page: asking again would only disturb it."""


def get_text(url: str, key: str | None, timeout_s: float) -> str | None:
    """What a page says; None where no whole answer came in `timeout_s` seconds, however little of
    it came at a time.

    Raises: NotThere.
    """
    in_time = _InTime(perf_counter() + timeout_s)
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310  # the server's own address
    direct = [urllib.request.ProxyHandler({})] if _is_here(url) else []
    try:
        with urllib.request.build_opener(in_time, *direct).open(request) as answer:
            return str(answer.read(MAX_BYTES).decode(errors="replace"))
    except urllib.error.HTTPError as error:
        with error:
            if 400 <= error.code < 500:
                raise NotThere(f"status {error.code}") from error
        return None
    except (OSError, http.client.HTTPException, ValueError):
        return None


class _InTime(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    """Opens no page and reads none after a moment; urllib's own timeout is for each read anew."""

    def __init__(self, until_s: float) -> None:
        super().__init__()
        self._until_s = until_s

    def do_open(self, http_class: Any, req: urllib.request.Request, **options: Any) -> Any:
        """Connect and ask, with what is left of the time."""

        def connection(host: str, **given: Any) -> http.client.HTTPConnection:
            made: http.client.HTTPConnection = http_class(host, **given)
            made.response_class = partial(_Answer, self._until_s)  # type: ignore[assignment]
            return made

        req.timeout = _left_s(self._until_s)
        return super().do_open(connection, req, **options)


class _Answer(http.client.HTTPResponse):
    """An answer whose reads end at a moment."""

    def __init__(self, until_s: float, sock: socket.socket, **options: Any) -> None:
        super().__init__(sock, **options)
        self.fp = io.BufferedReader(_Reads(until_s, sock, self.fp.detach()))


class _Reads(io.RawIOBase):
    """What a socket says until a moment; `raw` is its file, which keeps it open."""

    def __init__(self, until_s: float, sock: socket.socket, raw: io.RawIOBase) -> None:
        self._until_s, self._sock, self._raw = until_s, sock, raw

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read what comes next. Raises OSError where nothing does in time."""
        self._sock.settimeout(_left_s(self._until_s))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        """Let go of the socket."""
        self._raw.close()
        super().close()


def _left_s(until_s: float) -> float:
    left_s = until_s - perf_counter()
    if left_s <= 0:
        raise TimeoutError("no whole answer in time")
    return left_s


def _is_here(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
