"""Waiting on a server without missing its death: an exit, or a log that says it is doomed."""

import asyncio
import time
from collections.abc import Awaitable
from typing import Any, TypeVar

from tuner.engines.base import Engine
from tuner.failures.classifier import fatal_line
from tuner.hosts.server import Server
from tuner.http.client import Http

POLL_S = 0.1
DRAIN_S = 1.5
"""How long a doomed server's log is still read: the cause may be printed after the alarm."""

T = TypeVar("T")


class Watch:
    """Looks at one server and its log while something else goes on."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._read = 0
        self._doomed = False

    async def ready(self, engine: Engine, http: Http, timeout_s: float) -> bool:
        """Wait until the server generates; False once it is doomed or its time is up."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and not self._lost():
            if self._server.listening() and await self._answers(engine, http, deadline):
                return True
            await asyncio.sleep(POLL_S)
        if self._lost():
            await self._drained()
        return False

    async def _answers(self, engine: Engine, http: Http, deadline: float) -> bool:
        """Ask once; an answer that does not come is left when the server or the time is lost."""
        asked = asyncio.ensure_future(engine.ready(http))
        try:
            while not asked.done() and time.monotonic() < deadline and not self._lost():
                await asyncio.wait([asked], timeout=POLL_S)
            return asked.done() and asked.result()
        finally:
            await _ended(asked)

    async def unless_doomed(self, work: Awaitable[T]) -> T | None:
        """The result of the work, or None where the server was lost before or while it was done."""
        lost, task = asyncio.create_task(self._until_lost()), asyncio.ensure_future(work)
        try:
            await asyncio.wait([lost, task], return_when=asyncio.FIRST_COMPLETED)
            if not self._lost() and self._server.listening():
                return task.result()
            await self._drained()
            return None
        finally:
            await _ended(lost)
            await _ended(task)

    async def _until_lost(self) -> None:
        while not self._lost():
            await asyncio.sleep(POLL_S)

    def _lost(self) -> bool:
        """Whether it has exited, or its log holds a line after which it will."""
        if not self._doomed:
            text, self._read = self._server.log_since(self._read)
            self._doomed = fatal_line(text) is not None
        return self._doomed or self._server.exit_code() is not None

    async def _drained(self) -> None:
        """Give what is dying the time to say why, and its supervisor the time to see it dead."""
        deadline = time.monotonic() + DRAIN_S
        while time.monotonic() < deadline and self._server.exit_code() is None:
            await asyncio.sleep(POLL_S)


async def _ended(task: "asyncio.Task[Any] | asyncio.Future[Any]") -> None:
    task.cancel()
    await asyncio.wait([task])
