"""Waiting on servers without missing a death: an exit, a log that says it is doomed, or silence."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from tuner.engines.base import Engine
from tuner.failures.classifier import fatal_line
from tuner.hosts.server import Server
from tuner.http.client import Http
from tuner.night.patience import STALL_S, Look, Patience, Pulse, Work

POLL_S = 0.1
DRAIN_S = 1.5
"""How long a doomed server's log may be quiet before it is taken for whole: the cause may be
printed after the alarm."""
LONGEST_DRAIN_S = 10.0
_UNANSWERED_S = 1.0
"""A question that is open for so long says more than the answer before it."""
_WORK_LOOKS = 20
"""How often within the time of a stall the work of a server's processes is looked at."""

T = TypeVar("T")


class Watch:
    """Looks at the servers of one launch while something else goes on: one lost is all lost.

    `failed` is the place of the first that was found lost, or did not get ready; `heard` is what
    that one answered instead, empty where it did not listen, and `stalled` why it was waited for no
    longer, empty where it was lost or all the time was up. `phase_s` says how long the one that
    took longest was in each phase of its start. `stall_s` is how long one may show no sign of life.
    """

    def __init__(self, servers: Sequence[Server], *, stall_s: float = STALL_S) -> None:
        self._watched = [_Watched(server, stall_s) for server in servers]
        self._stall_s = stall_s
        self._pulse: Pulse | None = None
        self.failed: int | None = None
        self.heard = ""
        self.stalled = ""
        self.phase_s: dict[str, float] = {}

    async def ready(self, engine: Engine, https: Sequence[Http], timeout_s: float) -> bool:
        """Wait until all generate; False once one is doomed or silent, or the time is up."""
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
        watched = self._watched[place]
        try:
            if await watched.ready(engine, http, deadline):
                return True
            self._failed(place)
            return False
        finally:
            if self.failed in (None, place):
                self.phase_s = watched.phase_s

    async def unless_doomed(self, work: Awaitable[T]) -> T | None:
        """The result of the work, or None where a server was lost before or while it was done, or
        the work that beats heard nothing for too long."""
        self._pulse = None
        lost, task = asyncio.create_task(self._until_lost()), asyncio.ensure_future(work)
        try:
            await asyncio.wait([lost, task], return_when=asyncio.FIRST_COMPLETED)
            for place, watched in enumerate(self._watched):
                if not watched.serves():
                    self._failed(place)
                    await watched.drained()
                    return None
            if self.stalled:
                if len(self._watched) == 1:  # of several, all streams together do not tell which
                    self.failed = 0
                return None
            return task.result()
        finally:
            await _ended(lost)
            await _ended(task)

    def beat(self, pieces: int, under_way: int) -> None:
        """A load says how many pieces of answers came so far, and how many requests wait."""
        now_s = time.monotonic()
        self._pulse = self._pulse or Pulse(now_s, self._stall_s)
        self.stalled = self.stalled or self._pulse.look(now_s, pieces, under_way)

    async def _until_lost(self) -> None:
        while not self.stalled and not any(watched.lost() for watched in self._watched):
            await asyncio.sleep(POLL_S)

    def _failed(self, place: int) -> None:
        if self.failed is None:
            self.failed = place
            self.heard, self.stalled = self._watched[place].heard, self._watched[place].stalled


class _Watched:
    """One server and how far its log was read."""

    def __init__(self, server: Server, stall_s: float) -> None:
        self._server = server
        self._stall_s = stall_s
        self._patience: Patience | None = None
        self._work = _Sampled(server.work, stall_s / _WORK_LOOKS)
        self._read = 0
        self._unheard = ""
        self._waits = False
        self._doomed = False
        self.heard = ""
        self.stalled = ""

    @property
    def phase_s(self) -> dict[str, float]:
        """How long it was in each phase of its start."""
        return dict(self._patience.phase_s) if self._patience else {}

    async def ready(self, engine: Engine, http: Http, deadline: float) -> bool:
        """Wait until it generates; False once it is doomed or silent, or its time is up."""
        self._patience, self._waits = Patience(engine.name, time.monotonic(), self._stall_s), True
        while time.monotonic() < deadline and not self._given_up():
            if self._server.listening() and await self._answers(engine, http, deadline):
                self._look(listens=True)
                self._waits = False
                return True
            await asyncio.sleep(POLL_S)
        if self.lost():
            self._look(listens=False)  # what it said last may be of a later phase
            await self.drained()
        return False

    async def _answers(self, engine: Engine, http: Http, deadline: float) -> bool:
        """Ask once; an answer that does not come is left when the server or the time is lost."""
        asked, begun = asyncio.ensure_future(engine.unready(http)), time.monotonic()
        try:
            while not asked.done() and time.monotonic() < deadline:
                if self._given_up(listens=True):
                    break
                await asyncio.wait([asked], timeout=POLL_S)
            if not asked.done():
                if not self.heard or time.monotonic() - begun > _UNANSWERED_S:
                    self.heard = "a small request is not answered"
                return False
            self.heard = asked.result()
            return not self.heard
        finally:
            await _ended(asked)

    def _given_up(self, *, listens: bool = False) -> bool:
        """Whether it is lost, or silent for too long."""
        self.stalled = self.stalled or self._look(listens=listens)
        return self.lost() or bool(self.stalled)

    def lost(self) -> bool:
        """Whether it has exited, or its log holds a line after which it will."""
        self._read_on()
        return self._doomed or self._server.exit_code() is not None

    def _read_on(self) -> None:
        """Read what is new in its log, and keep it for who looks at its start."""
        if self._doomed:
            return
        text, self._read = self._server.log_since(self._read)
        self._doomed = fatal_line(text) is not None
        if self._waits:
            self._unheard += text

    def _look(self, *, listens: bool) -> str:
        """Why it is waited for no longer, empty while it is."""
        if self._patience is None:
            return ""
        self._read_on()
        lines, self._unheard = self._unheard, ""
        return self._patience.look(
            Look(
                now_s=time.monotonic(),
                lines=lines,
                unfinished=self._server.log_bytes() - self._read,
                listens=listens,
                work=self._work.now(),
            )
        )

    def serves(self) -> bool:
        """Whether it is not lost and still listens."""
        return not self.lost() and self._server.listening()

    async def drained(self) -> None:
        """Give what is dying the time to say why, and its supervisor the time to see it dead."""
        begun = grew = time.monotonic()
        size = self._server.log_bytes()
        while self._server.exit_code() is None and time.monotonic() - begun < LONGEST_DRAIN_S:
            await asyncio.sleep(POLL_S)
            now, bytes_now = time.monotonic(), self._server.log_bytes()
            grew = now if bytes_now > size else grew
            size = bytes_now
            if now - grew > DRAIN_S:
                return


class _Sampled:
    """Something that costs to be looked at, looked at once in a while."""

    def __init__(self, look: Callable[[], tuple[float, float] | None], every_s: float) -> None:
        self._look = look
        self._every_s = every_s
        self._looked_s = -every_s

    def now(self) -> Work | None:
        """A fresh value where one is due."""
        if time.monotonic() - self._looked_s < self._every_s:
            return None
        found = self._look()
        self._looked_s = time.monotonic()
        return None if found is None else Work(cpu_s=found[0], read_bytes=found[1])


async def _ended(task: "asyncio.Task[Any] | asyncio.Future[Any]") -> None:
    task.cancel()
    await asyncio.wait([task])
