"""Waiting on servers without missing a death: an exit, or a log that says it is doomed."""

import asyncio
import time
from collections.abc import Awaitable, Sequence
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
    """Looks at the servers of one launch while something else goes on: one lost is all lost.

    `failed` is the place of the first that was found lost, or did not get ready; `heard` is what
    that one answered instead, empty where it did not listen.
    """

    def __init__(self, servers: Sequence[Server]) -> None:
        self._watched = [_Watched(server) for server in servers]
        self.failed: int | None = None
        self.heard = ""

    async def ready(self, engine: Engine, https: Sequence[Http], timeout_s: float) -> bool:
        """Wait until all generate; False once one is doomed or the time is up."""
        deadline = time.monotonic() + timeout_s
        asked = [
            asyncio.create_task(self._comes(place, engine, http, deadline))
            for place, http in enumerate(https)
        ]
        try:
            for answer in asyncio.as_completed(asked):
                if not await answer:
                    return False
            return True
        finally:
            for task in asked:
                await _ended(task)

    async def _comes(self, place: int, engine: Engine, http: Http, deadline: float) -> bool:
        if await self._watched[place].ready(engine, http, deadline):
            return True
        self._failed(place)
        return False

    async def unless_doomed(self, work: Awaitable[T]) -> T | None:
        """The result of the work, or None where a server was lost before or while it was done."""
        lost, task = asyncio.create_task(self._until_lost()), asyncio.ensure_future(work)
        try:
            await asyncio.wait([lost, task], return_when=asyncio.FIRST_COMPLETED)
            for place, watched in enumerate(self._watched):
                if not watched.serves():
                    self._failed(place)
                    await watched.drained()
                    return None
            return task.result()
        finally:
            await _ended(lost)
            await _ended(task)

    async def _until_lost(self) -> None:
        while not any(watched.lost() for watched in self._watched):
            await asyncio.sleep(POLL_S)

    def _failed(self, place: int) -> None:
        if self.failed is None:
            self.failed = place
            self.heard = self._watched[place].heard


class _Watched:
    """One server and how far its log was read."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._read = 0
        self._doomed = False
        self.heard = ""

    async def ready(self, engine: Engine, http: Http, deadline: float) -> bool:
        """Wait until it generates; False once it is doomed or its time is up."""
        while time.monotonic() < deadline and not self.lost():
            if self._server.listening() and await self._answers(engine, http, deadline):
                return True
            await asyncio.sleep(POLL_S)
        if self.lost():
            await self.drained()
        return False

    async def _answers(self, engine: Engine, http: Http, deadline: float) -> bool:
        """Ask once; an answer that does not come is left when the server or the time is lost."""
        asked = asyncio.ensure_future(engine.unready(http))
        try:
            while not asked.done() and time.monotonic() < deadline and not self.lost():
                await asyncio.wait([asked], timeout=POLL_S)
            if not asked.done():
                self.heard = self.heard or "a small request is not answered"
                return False
            self.heard = asked.result()
            return not self.heard
        finally:
            await _ended(asked)

    def lost(self) -> bool:
        """Whether it has exited, or its log holds a line after which it will."""
        if not self._doomed:
            text, self._read = self._server.log_since(self._read)
            self._doomed = fatal_line(text) is not None
        return self._doomed or self._server.exit_code() is not None

    def serves(self) -> bool:
        """Whether it is not lost and still listens."""
        return not self.lost() and self._server.listening()

    async def drained(self) -> None:
        """Give what is dying the time to say why, and its supervisor the time to see it dead."""
        deadline = time.monotonic() + DRAIN_S
        while time.monotonic() < deadline and self._server.exit_code() is None:
            await asyncio.sleep(POLL_S)


async def _ended(task: "asyncio.Task[Any] | asyncio.Future[Any]") -> None:
    task.cancel()
    await asyncio.wait([task])
