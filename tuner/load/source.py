"""What a player plays: a source of requests, and what every source is made of."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

from tuner.errors import HttpUnreachable
from tuner.http.exchange import RawExchange, Tally
from tuner.load.channels import Channel
from tuner.load.dialects import DIALECTS, decode
from tuner.load.plan import Target
from tuner.load.prompts import Asking, Prompts


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request that was made, and its exchange as it came; nothing of it is decoded.

    `prompt` is a hash of the recorded question that was asked, empty where none was. `due_s` is
    when it should have been sent, on the exchange's clock, where there is such a time.
    """

    stream: int
    index: int
    input_tokens: int
    output_tokens: int
    raw: RawExchange
    prompt: str = ""
    due_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A request as it will be sent."""

    body: bytes
    input_tokens: int
    output_tokens: int
    prompt: str


class Ending:
    """The end of a load, which everyone heeds."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    @property
    def over(self) -> bool:
        """True once no further request is to be made."""
        return self._event.is_set()

    def now(self) -> None:
        """End it."""
        self._event.set()

    async def pause(self, duration_s: float) -> None:
        """Wait so many real seconds, but not beyond the end."""
        until_s = perf_counter() + duration_s
        # uvloop's timers count milliseconds and may ring early.
        while not self.over and (left_s := until_s - perf_counter()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._event.wait()


class Source(Protocol):
    """Makes requests from `run` on until the ending, answered or not; owns its channels."""

    @property
    def asked(self) -> Sequence[Asked]:
        """Every request whose exchange is over, however it ended."""
        ...

    @property
    def under_way(self) -> int:
        """Requests that were sent and whose answers are not whole."""
        ...

    @property
    def finished(self) -> int:
        """Requests whose exchange is over."""
        ...

    @property
    def events(self) -> int:
        """Pieces of answers that came so far, an event each as a rule."""
        ...

    @property
    def unsent(self) -> Sequence[float]:
        """When requests were due that could not be sent."""
        ...

    @property
    def unanswered(self) -> bool:
        """Whether nothing but failures came of late: who plays them all may end the load."""
        ...

    @property
    def heard(self) -> int:
        """How many of those that are awaited have heard something, if only a failure."""
        ...

    @property
    def awaited(self) -> int:
        """How many must have heard something before the load stands as it was asked for."""
        ...

    async def connect(self) -> None:
        """Connect ahead, as far as that is possible."""
        ...

    async def run(self) -> None:
        """Make requests until the load is over."""
        ...

    def ease(self) -> None:
        """Take back what waits in a queue, so that the engine is as full as before and a further
        request need not wait for all of them."""
        ...

    def cut(self) -> None:
        """Leave what is under way unfinished, at once."""
        ...

    async def close(self) -> None:
        """Let go of every channel."""
        ...


class Asker:
    """Makes one request after another, with prompts of its own; keeps each with what came."""

    def __init__(self, target: Target, prompts: Prompts[int] | Prompts[str]) -> None:
        self._dialect = DIALECTS[target.api]
        self._model = target.model
        self._prompts = prompts
        self.asked: list[Asked] = []
        self.under_way = 0

    def question(self, asking: Asking) -> Question:
        """The next request, written before it is due."""
        prompt = self._prompts.next(asking)
        return Question(
            body=self._dialect.body(self._model, prompt, asking.output_tokens),
            input_tokens=asking.prompt_tokens,
            output_tokens=asking.output_tokens,
            prompt=self._prompts.name_of(asking),
        )

    def seems_well(self, raw: RawExchange) -> bool:
        """True unless the next request should wait; only decoding tells for sure, and is left for
        afterwards but of an answer in one piece that may be a refusal."""
        if raw.status != 200 or raw.error is not None or not raw.pieces:
            return False
        if len(raw.pieces) > 1 or b'"error"' not in raw.pieces[0]:
            return True
        return decode(raw, self._dialect).error is None

    async def ask(
        self,
        channel: Channel,
        question: Question,
        *,
        stream: int,
        index: int,
        due_s: float | None = None,
    ) -> RawExchange:
        """Make a request and wait for its end; a failure stands in the exchange."""
        asked_s = perf_counter()
        self.under_way += 1
        try:
            raw = await channel.post(question.body)
        except HttpUnreachable as exc:
            raw = RawExchange(sent_s=asked_s, failed_s=perf_counter(), error=exc)
        finally:
            self.under_way -= 1
        self.asked.append(
            Asked(
                stream=stream,
                index=index,
                input_tokens=question.input_tokens,
                output_tokens=question.output_tokens,
                prompt=question.prompt,
                raw=raw,
                due_s=due_s,
            )
        )
        return raw


class Loop:
    """What every source tells of what it asked."""

    def __init__(self, asker: Asker, ending: Ending) -> None:
        self._asker = asker
        self._ending = ending
        self._tally = Tally()

    @property
    def asked(self) -> Sequence[Asked]:
        """Every request whose exchange is over."""
        return self._asker.asked

    @property
    def events(self) -> int:
        """Pieces of answers that came so far."""
        return self._tally.pieces

    @property
    def under_way(self) -> int:
        """Requests whose answers are not whole."""
        return self._asker.under_way

    @property
    def finished(self) -> int:
        """Requests whose exchange is over."""
        return len(self._asker.asked)
