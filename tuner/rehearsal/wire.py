"""HTTP/1.1 on one asyncio protocol a connection: no task a request, one write an event."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

_HEAD_END = b"\r\n\r\n"
_MAX_HEAD_BYTES = 64 * 1024
_DONE = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, read whole; `path` is without its query."""

    method: str
    path: str
    body: bytes


class Connection(asyncio.Protocol):
    """Reads one request after the other and hands each to `handle` once the last was answered.

    `lost` is called with the connection when the client goes while an answer is under way.
    """

    def __init__(
        self,
        handle: Callable[["Connection", Request], None],
        lost: Callable[["Connection"], None],
    ) -> None:
        self.work: Any = None
        """What the handler keeps for the answer under way."""
        self._handle = handle
        self._lost = lost
        self._buffer = bytearray()
        self._answering = False
        self._keep_alive = True
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way to write."""
        self._transport = transport  # type: ignore[assignment]  # a stream's is a Transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Say so, where somebody was still writing."""
        if self._answering:
            self._answering = False
            self._lost(self)

    def data_received(self, data: bytes) -> None:
        """Read on."""
        self._buffer += data
        if not self._answering:
            self._next_request()

    def respond(self, status: int, body: bytes, kind: str = "application/json") -> None:
        """Answer at once."""
        self._transport.write(_head(status, kind, f"Content-Length: {len(body)}") + body)
        self._end()

    def respond_json(self, status: int, value: object) -> None:
        """Answer at once with JSON."""
        self.respond(status, json.dumps(value).encode())

    def begin_stream(self) -> None:
        """Answer with server-sent events, which `send` and `end_stream` follow."""
        head = _head(200, "text/event-stream; charset=utf-8", "Transfer-Encoding: chunked")
        self._transport.write(head)

    def send(self, payload: str, *, last: bool = False) -> None:
        """One event, and with `last` the end of the stream."""
        event = f"data: {payload}\n\n".encode()
        chunk = b"%x\r\n%b\r\n" % (len(event), event)
        if not last:
            self._transport.write(chunk)
            return
        self._transport.write(chunk + b"e\r\ndata: [DONE]\n\n\r\n" + _DONE)
        self._end()

    def drop(self) -> None:
        """Reset the connection."""
        self._answering = False
        self._transport.abort()

    def _end(self) -> None:
        self._answering = False
        self.work = None
        if not self._keep_alive:
            self._transport.close()
        elif self._buffer:
            self._next_request()

    def _next_request(self) -> None:
        end = self._buffer.find(_HEAD_END)
        if end < 0:
            if len(self._buffer) > _MAX_HEAD_BYTES:
                self.drop()
            return
        lines = self._buffer[:end].decode("latin-1").split("\r\n")
        method, _, rest = lines[0].partition(" ")
        headers = _headers(lines[1:])
        length = headers.get("content-length", "0")
        if not rest or not length.isdigit() or "transfer-encoding" in headers:
            self._keep_alive = False
            self._answering = True
            self.respond_json(400, {"error": "expected HTTP/1.1 with a Content-Length"})
            return
        start = end + len(_HEAD_END)
        if len(self._buffer) < start + int(length):
            return
        body = bytes(self._buffer[start : start + int(length)])
        del self._buffer[: start + int(length)]
        self._keep_alive = headers.get("connection", "").lower() != "close"
        self._answering = True
        path = rest.partition(" ")[0].partition("?")[0]
        self._handle(self, Request(method=method, path=path, body=body))


def _headers(lines: list[str]) -> dict[str, str]:
    pairs = (line.partition(":") for line in lines)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _head(status: int, kind: str, length: str) -> bytes:
    reason = HTTPStatus(status).phrase
    return (
        f"HTTP/1.1 {status} {reason}\r\nserver: uvicorn\r\nContent-Type: {kind}\r\n{length}\r\n\r\n"
    ).encode()
