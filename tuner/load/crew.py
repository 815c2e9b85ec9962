"""A rung's requests, played by several processes: one event loop can use no more than one core.

Each process plays a share of the streams on a loop of its own and keeps what came; this one only
decides when they start, when the window is open, and when they stop. `perf_counter` is one clock
for all processes of a machine, so that their stamps can be put side by side.
"""

import asyncio
import os
import subprocess
import sys
from array import array
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from operator import attrgetter
from typing import Any

from tuner.errors import HostError, TunerError
from tuner.load.channels import say_how_reached
from tuner.load.plan import RungPlan, Share, Target
from tuner.load.solo import Brought, Counts, Span

COUNTS_EVERY_S = 0.05
_LONGEST_END_S = 2.0
_DIED_HINT = "Something killed it: see what the kernel says of memory (dmesg)."
_BOOT = "from tuner.load.worker import main; main()"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a process is started with."""

    target: Target
    plan: RungPlan
    share: Share


@dataclass(frozen=True, slots=True)
class Broken:
    """A process cannot go on, for this reason."""

    error: TunerError


class Crew:
    """Plays in so many processes; each ends with this one, in whichever way this one ends.

    Raises: HttpProtocolError where the target's URL cannot be read, HostError where a process died.
    """

    def __init__(self, target: Target, plan: RungPlan, processes: int) -> None:
        say_how_reached(target)
        self.processes = processes
        self._orders = [
            Order(target=target, plan=plan, share=Share(index=index, of=processes))
            for index in range(processes)
        ]
        self._hands: list[_Hand] = []

    async def connect(self) -> None:
        """Start the processes and let them connect ahead."""
        for order in self._orders:
            self._hands.append(_Hand(order))
        await self._all("connect")

    def start(self) -> None:
        """Begin to make requests."""
        self._tell("start")

    def counts(self) -> Counts:
        """How far the load was when the processes last said so; it is over where it is for all."""
        told = [hand.counts for hand in self._hands]
        return Counts(
            events=sum(counts.events for counts in told),
            finished=sum(counts.finished for counts in told),
            under_way=sum(counts.under_way for counts in told),
            heard=sum(counts.heard for counts in told),
            awaited=sum(counts.awaited for counts in told),
            over=all(counts.over for counts in told),
        )

    def mark(self) -> None:
        """The window opens, or ends."""
        self._tell("mark")

    def ease(self) -> None:
        """Take back what waits in a queue."""
        self._tell("ease")

    async def stop(self) -> None:
        """Make no further request and leave what is under way unfinished."""
        await self._all("stop")

    async def brought(self, span: Span) -> Brought:
        """Let every process decode what came to it, and put it together."""
        parts: list[Brought] = await self._all(span)
        lags_s = array("d")
        for part in parts:
            lags_s.extend(part.lags_s)
        timings = [timing for part in parts for timing in part.timings]
        return Brought(
            timings=tuple(sorted(timings, key=attrgetter("sent_s"))),
            lags_s=lags_s,
            stamped=all(part.stamped for part in parts),
            cpu_share=_busiest([part.cpu_share for part in parts]),
            wait_share=_busiest([part.wait_share for part in parts]),
            unsent_s=tuple(sorted(at_s for part in parts for at_s in part.unsent_s)),
        )

    async def close(self) -> None:
        """End the processes, by force where they do not heed."""
        for hand in self._hands:
            hand.let_go()
        await asyncio.gather(*(hand.ended() for hand in self._hands))

    def _tell(self, word: str) -> None:
        for hand in self._hands:
            hand.tell(word)

    async def _all(self, word: str | Span) -> list[Any]:
        asked = (hand.asked(word) for hand in self._hands)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return answers


def _busiest(shares: Sequence[float | None]) -> float | None:
    return max((share for share in shares if share is not None), default=None)


class _Hand:
    """One process and the pipe to it, which it dies without."""

    def __init__(self, order: Order) -> None:
        self._loop = asyncio.get_running_loop()
        self._pipe, theirs = Pipe()
        with theirs:
            self._process = _started(theirs)
        self._answer: asyncio.Future[Any] | None = None
        self._broken: TunerError | None = None
        self._counts = Counts()
        self._loop.add_reader(self._pipe.fileno(), self._readable)
        # A loop's reader made it non-blocking, and a large answer comes in pieces.
        os.set_blocking(self._pipe.fileno(), True)
        self.tell(order)

    @property
    def counts(self) -> Counts:
        """What it last said. Raises what it broke with."""
        if self._broken is not None:
            raise self._broken
        return self._counts

    def tell(self, word: object) -> None:
        """Send it a word; what it died of is raised where it is asked."""
        with suppress(OSError):
            self._pipe.send(word)

    async def asked(self, word: object) -> Any:
        """Send it a word and wait for its answer. Raises what it broke with."""
        self._answer = self._loop.create_future()
        if self._broken is not None:
            raise self._broken
        self.tell(word)
        return await self._answer

    def let_go(self) -> None:
        """Close the pipe: it ends."""
        self._loop.remove_reader(self._pipe.fileno())
        self._pipe.close()

    async def ended(self) -> None:
        """Wait for its end, then make it end."""
        try:
            await asyncio.to_thread(self._process.wait, _LONGEST_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _readable(self) -> None:
        try:
            said = self._pipe.recv()
        except (EOFError, OSError):
            self._loop.remove_reader(self._pipe.fileno())
            said = Broken(HostError("a process of the load generator died", hint=_DIED_HINT))
        if isinstance(said, Counts):
            self._counts = said
        elif isinstance(said, Broken):
            self._broken = said.error
            if self._answer is not None and not self._answer.done():
                self._answer.set_exception(said.error)
        elif self._answer is not None and not self._answer.done():
            self._answer.set_result(said)


def _started(pipe: Connection) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(
            [sys.executable, "-c", _BOOT, str(pipe.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(pipe.fileno(),),
            process_group=0,  # Ctrl-C is for this process to hear
        )
    except OSError as exc:
        message = f"no further process for the load generator could be started: {exc.strerror}"
        raise HostError(message, hint="Free some memory, or raise ulimit -u.") from exc
