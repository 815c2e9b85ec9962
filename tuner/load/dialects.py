"""How load is spoken: the body of a request, and the tokens that an answer brought.

Tokens are the server's own count, wherever it stands: in every event, in the last one, or in a
JSON answer that is no stream. An event is never taken for a token.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter, sub
from typing import Protocol

import msgspec

from tuner.errors import HttpProtocolError
from tuner.http.exchange import RawExchange
from tuner.load import sse
from tuner.load.chat import Chat
from tuner.load.clock import PERF_COUNTER, Clock
from tuner.load.events import (
    NO_USAGE,
    Event,
    Heard,
    Said,
    Usage,
    all_said,
    ended_by,
    short_bytes,
    understood,
)
from tuner.load.plan import Api
from tuner.load.prompts import Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer, decoded: (arrival, new tokens) of each event that brought tokens.

    `uncounted` are the arrivals of events whose tokens the server had not counted when the
    exchange was cut. `error` says why the answer is not whole; None also where it was cut.
    """

    events: tuple[tuple[float, int], ...] = ()
    uncounted: tuple[float, ...] = ()
    input_tokens: int | None = None
    text: str = ""
    error: str | None = None

    @property
    def output_tokens(self) -> int:
        """All tokens that came."""
        return sum(map(itemgetter(1), self.events))


class Dialect(Protocol):
    """One way to ask for a generation; one that does not take token ids takes text."""

    path: str
    takes_ids: bool

    def body(self, model: str, prompt: Prompt, output_tokens: int) -> bytes:
        """The request for exactly `output_tokens` greedy tokens, streamed."""
        ...

    def hear(self, data: bytes) -> Heard:
        """What an event says. Raises HttpProtocolError where it is not of this dialect."""
        ...

    def said(self, data: Sequence[bytes]) -> Sequence[Said | None]:
        """What events of one line each say where it is nothing else; None for the others. Shorter
        than the data where they cannot be read so."""
        ...


class _Choice(msgspec.Struct, gc=False):
    text: str | None = None
    finish_reason: str | None = None


_NO_CHOICE = _Choice()


class _Completion(Event, gc=False):
    choices: list[_Choice] | None = None
    usage: Usage | None = None


class _Reason(msgspec.Struct, gc=False):
    type: str | None = None
    message: str | None = None


class _Meta(Usage, gc=False):
    finish_reason: _Reason | None = None


class _Generation(Event, gc=False):
    text: str | None = None
    meta_info: _Meta | None = None


class Completions:
    """OpenAI's `/v1/completions`, with the usage of every event where the server gives it."""

    path = "/v1/completions"
    takes_ids = True
    _decoder = msgspec.json.Decoder(_Completion)

    def body(self, model: str, prompt: Prompt, output_tokens: int) -> bytes:
        """The request for exactly `output_tokens` greedy tokens, streamed."""
        return msgspec.json.encode(
            {
                "model": model,
                "prompt": prompt,
                "max_tokens": output_tokens,
                "min_tokens": output_tokens,
                "ignore_eos": True,
                "temperature": 0,
                "stream": True,
                "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            }
        )

    def hear(self, data: bytes) -> Heard:
        """What an event says. Raises HttpProtocolError."""
        event = understood(self._decoder, data)
        if event.error is not None or event.object == "error":
            return Heard(error=event.failure())
        if event.choices is None:
            raise HttpProtocolError(f"an event without choices: {short_bytes(data)}")
        usage = event.usage or NO_USAGE
        choice = event.choices[0] if event.choices else _NO_CHOICE
        reason = choice.finish_reason
        return Heard(
            speaks=bool(event.choices),
            text=choice.text or "",
            counted=usage.completion_tokens,
            input_tokens=usage.prompt_tokens,
            finished=reason is not None,
            error=ended_by(reason),
        )

    def said(self, data: Sequence[bytes]) -> Sequence[Said | None]:
        """What events say that are text and its tokens; None for the others."""
        return all_said(self._decoder, data, _said)


def _said(event: _Completion) -> Said | None:
    choices, usage = event.choices, event.usage
    if not choices or usage is None or event.error is not None or event.object == "error":
        return None
    choice, counted = choices[0], usage.completion_tokens
    if not choice.text or choice.finish_reason is not None or counted is None:
        return None
    return choice.text, counted, usage.prompt_tokens


class Generate:
    """SGLang's own `/generate`; its text is all text so far, unless it streams increments."""

    path = "/generate"
    takes_ids = True
    _decoder = msgspec.json.Decoder(_Generation)

    def body(self, model: str, prompt: Prompt, output_tokens: int) -> bytes:
        """The request for exactly `output_tokens` greedy tokens, streamed."""
        return msgspec.json.encode(
            {
                "text" if isinstance(prompt, str) else "input_ids": prompt,
                "sampling_params": {
                    "max_new_tokens": output_tokens,
                    "min_new_tokens": output_tokens,
                    "ignore_eos": True,
                    "temperature": 0,
                },
                "stream": True,
            }
        )

    def hear(self, data: bytes) -> Heard:
        """What an event says. Raises HttpProtocolError."""
        event = understood(self._decoder, data)
        if event.error is not None or event.object == "error":
            return Heard(error=event.failure())
        meta = event.meta_info
        if meta is None or meta.completion_tokens is None:
            raise HttpProtocolError(f"an event without completion_tokens: {short_bytes(data)}")
        reason = meta.finish_reason
        aborted = reason if reason is not None and reason.type == "abort" else None
        return Heard(
            whole_text=event.text or "",
            counted=meta.completion_tokens,
            input_tokens=meta.prompt_tokens,
            finished=reason is not None,
            error=f"the server ended it: {aborted.message or 'abort'}" if aborted else None,
        )

    def said(self, data: Sequence[bytes]) -> Sequence[Said | None]:
        """Nothing: what is new of a text is not in its event alone."""
        return []


DIALECTS: Mapping[Api, Dialect] = {
    "completions": Completions(),
    "chat": Chat(),
    "generate": Generate(),
}


def decode(raw: RawExchange, dialect: Dialect, clock: Clock = PERF_COUNTER) -> Reply:
    """The tokens of an exchange that is over, by a clock; a fault of the answer stands in
    `error`."""
    if raw.error is not None and raw.status is None:
        return Reply(error=raw.error.message)
    if raw.status is not None and raw.status != 200:
        return Reply(error=f"status {raw.status}: {short_bytes(raw.body)}")
    listener = _Listener(dialect, clock)
    fault: str | None = None
    try:
        listener.listen(raw)
        if raw.done_s is not None:
            listener.end()
    except HttpProtocolError as exc:
        fault = exc.message
    return listener.reply(fault or (raw.error.message if raw.error else None))


def spread(tokens: int, arrivals: Sequence[float]) -> list[tuple[float, int]]:
    """`tokens` dealt evenly over events, as whole numbers, the first event first; those that get
    none are left out."""
    count = len(arrivals)
    if count == 1:  # what nearly every event is
        return [(arrivals[0], tokens)] if tokens else []
    edges = [-(-tokens * index // count) for index in range(count + 1)]
    shares = [after - before for before, after in pairwise(edges)]
    return [(at, share) for at, share in zip(arrivals, shares, strict=True) if share]


_DONE = b"[DONE]"


class _Listener:
    """Adds up one answer, event by event."""

    def __init__(self, dialect: Dialect, clock: Clock) -> None:
        self._dialect = dialect
        self._clock = clock
        self._events: list[tuple[float, int]] = []
        self._with_text: list[float] = []
        self._speaking: list[float] = []
        self._counted = 0
        self._settled = False
        self._input_tokens: int | None = None
        self._text: list[str] = []
        self._finished = False
        self._error: str | None = None

    def listen(self, raw: RawExchange) -> None:
        """Hear all events. Raises HttpProtocolError."""
        if b"json" in raw.header(b"content-type"):
            if raw.done_s is not None:
                self._hear(self._clock.at(raw.done_s), self._dialect.hear(raw.body))
            return
        arrivals = self._clock.all_at(raw.arrivals_s)
        plain = sse.plain(raw.pieces)
        if plain is None:
            for now, data in sse.events(zip(arrivals, raw.pieces, strict=True)):
                self._hear_event(now, data)
            return
        said = self._dialect.said(plain[:-1] if plain[-1:] == [_DONE] else plain)
        at = 0
        while at < len(plain):
            end = next((n for n in range(at, len(said)) if said[n] is None), len(said))
            if not self._hear_run(arrivals[at:end], said[at:end]):
                end = max(end, at + 1)
                for now, data in zip(arrivals[at:end], plain[at:end], strict=True):
                    self._hear_event(now, data)
            at = end

    def _hear_run(self, arrivals: Sequence[float], said: Sequence[Said | None]) -> bool:
        """Hear events at once that are nothing but text and its tokens: all that `_hear` would do,
        for a fraction of the cost. False where they must be heard one by one."""
        told = [*filter(None, said)]
        if not told or self._with_text or self._speaking:
            return False
        texts, counted, inputs = zip(*told, strict=True)
        new = [*map(sub, counted, (self._counted, *counted))]
        if min(new) <= 0:
            return False
        self._text += texts
        self._events += zip(arrivals, new, strict=True)
        self._counted, self._settled = counted[-1], True
        told_inputs = (count for count in reversed(inputs) if count is not None)
        self._input_tokens = next(told_inputs, self._input_tokens)
        return True

    def end(self) -> None:
        """The answer is complete. Raises HttpProtocolError where that cannot be."""
        if self._error is not None:
            return
        if not self._finished:
            raise HttpProtocolError("the stream ended before the answer was done")
        if self._pending() and not self._settled:
            raise HttpProtocolError("the answer brought text but no usage: no token was counted")
        if not self._events:
            raise HttpProtocolError("the answer brought no token")

    def reply(self, error: str | None) -> Reply:
        """What was heard so far."""
        return Reply(
            events=tuple(self._events),
            uncounted=() if self._settled else tuple(self._pending()),
            input_tokens=self._input_tokens,
            text="".join(self._text),
            error=self._error or error,
        )

    def _hear_event(self, now: float, data: bytes) -> None:
        if data == _DONE:
            self._finished = True
        else:
            self._hear(now, self._dialect.hear(data))

    def _hear(self, now: float, heard: Heard) -> None:
        self._error = self._error or heard.error
        self._finished = self._finished or heard.finished
        if heard.input_tokens is not None:
            self._input_tokens = heard.input_tokens
        self._add_text(heard)
        if heard.text:
            self._with_text.append(now)
        if heard.speaks and heard.error is None:
            self._speaking.append(now)
            self._settled = False
        if heard.counted is not None:
            self._count(now, heard.counted)

    def _count(self, now: float, counted: int) -> None:
        new = counted - self._counted
        if new < 0:
            raise HttpProtocolError(f"completion_tokens fell from {self._counted} to {counted}")
        if new or not self._with_text:
            self._events += spread(new, self._pending() or [now])
            self._with_text.clear()
            self._speaking.clear()
        self._counted, self._settled = counted, True

    def _pending(self) -> list[float]:
        # Events that carried no text (half a character) get tokens only where none carried any.
        return self._with_text or self._speaking

    def _add_text(self, heard: Heard) -> None:
        if heard.whole_text is None:
            self._text.append(heard.text)
        elif self._text and heard.whole_text.startswith(self._text[0]):
            self._text[0] = heard.whole_text
        else:
            self._text = ["".join(self._text) + heard.whole_text]
