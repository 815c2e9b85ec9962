"""How load is spoken: the body of a request, and the tokens that an answer brought.

Tokens are the server's own count, wherever it stands: in every event, in the last one, or in a
JSON answer that is no stream. An event is never taken for a token.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import orjson

from tuner.errors import HttpProtocolError
from tuner.http.connection import RawExchange
from tuner.load import sse
from tuner.load.plan import Api

_QUOTED_BYTES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """One event, understood; `counted` and `whole_text` are totals so far, None where not said."""

    speaks: bool = True
    text: str = ""
    whole_text: str | None = None
    counted: int | None = None
    input_tokens: int | None = None
    finished: bool = False
    error: str | None = None


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
        return sum(tokens for _, tokens in self.events)


class Dialect(Protocol):
    """One way to ask for a generation."""

    path: str

    def body(self, model: str, prompt: Sequence[int], output_tokens: int) -> bytes:
        """The request for exactly `output_tokens` greedy tokens, streamed."""
        ...

    def hear(self, payload: Mapping[str, Any]) -> Heard:
        """What an event says. Raises HttpProtocolError where it is not of this dialect."""
        ...


class Completions:
    """OpenAI's `/v1/completions`, with the usage of every event where the server gives it."""

    path = "/v1/completions"

    def body(self, model: str, prompt: Sequence[int], output_tokens: int) -> bytes:
        """The request for exactly `output_tokens` greedy tokens, streamed."""
        return orjson.dumps(
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

    def hear(self, payload: Mapping[str, Any]) -> Heard:
        """What an event says. Raises HttpProtocolError."""
        error = _error(payload)
        if error is not None:
            return Heard(error=error)
        choices = _field(payload, "choices", list)
        usage = _field(payload, "usage", dict, {})
        choice = _mapping(choices[0]) if choices else {}
        reason = _field(choice, "finish_reason", str, None)
        return Heard(
            speaks=bool(choices),
            text=_field(choice, "text", str, "") if choices else "",
            counted=_count(usage, "completion_tokens"),
            input_tokens=_count(usage, "prompt_tokens"),
            finished=reason is not None,
            error=f"the server ended it: {reason}" if reason in ("abort", "error") else None,
        )


class Generate:
    """SGLang's own `/generate`; its text is all text so far, unless it streams increments."""

    path = "/generate"

    def body(self, model: str, prompt: Sequence[int], output_tokens: int) -> bytes:
        """The request for exactly `output_tokens` greedy tokens, streamed."""
        return orjson.dumps(
            {
                "input_ids": prompt,
                "sampling_params": {
                    "max_new_tokens": output_tokens,
                    "min_new_tokens": output_tokens,
                    "ignore_eos": True,
                    "temperature": 0,
                },
                "stream": True,
            }
        )

    def hear(self, payload: Mapping[str, Any]) -> Heard:
        """What an event says. Raises HttpProtocolError."""
        error = _error(payload)
        if error is not None:
            return Heard(error=error)
        meta = _field(payload, "meta_info", dict)
        counted = _count(meta, "completion_tokens")
        if counted is None:
            raise HttpProtocolError(f"an event without completion_tokens: {_short(payload)}")
        reason = _field(meta, "finish_reason", dict, None)
        aborted = reason is not None and reason.get("type") == "abort"
        return Heard(
            whole_text=_field(payload, "text", str, ""),
            counted=counted,
            input_tokens=_count(meta, "prompt_tokens"),
            finished=reason is not None,
            error=f"the server ended it: {_short(reason)}" if aborted else None,
        )


DIALECTS: Mapping[Api, Dialect] = {"completions": Completions(), "generate": Generate()}


def decode(raw: RawExchange, dialect: Dialect) -> Reply:
    """The tokens of an exchange that is over; a fault of the answer stands in `error`."""
    if raw.error is not None and raw.status is None:
        return Reply(error=raw.error.message)
    if raw.status is not None and raw.status != 200:
        return Reply(error=f"status {raw.status}: {_short_bytes(raw.body)}")
    listener = _Listener(dialect)
    fault: str | None = None
    try:
        listener.listen(raw)
        if raw.done_s is not None:
            listener.end()
    except HttpProtocolError as exc:
        fault = exc.message
    return listener.reply(fault or (raw.error.message if raw.error else None))


def spread(tokens: int, arrivals: Sequence[float]) -> list[tuple[float, int]]:
    """`tokens` dealt evenly over events, as whole numbers; events that get none are left out."""
    count = len(arrivals)
    if count == 1:  # what nearly every event is
        return [(arrivals[0], tokens)] if tokens else []
    edges = [tokens * index // count for index in range(count + 1)]
    shares = [after - before for before, after in pairwise(edges)]
    return [(at, share) for at, share in zip(arrivals, shares, strict=True) if share]


class _Listener:
    """Adds up one answer, event by event."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._events: list[tuple[float, int]] = []
        self._with_text: list[float] = []
        self._speaking: list[float] = []
        self._counted = 0
        self._input_tokens: int | None = None
        self._text: list[str] = []
        self._finished = False
        self._error: str | None = None

    def listen(self, raw: RawExchange) -> None:
        """Hear all events. Raises HttpProtocolError."""
        if b"json" in raw.header(b"content-type"):
            if raw.done_s is not None:
                self._hear(raw.done_s, raw.body)
            return
        for now, data in sse.events(raw.chunks):
            if data == b"[DONE]":
                self._finished = True
            else:
                self._hear(now, data)

    def end(self) -> None:
        """The answer is complete. Raises HttpProtocolError where that cannot be."""
        if self._error is not None:
            return
        if not self._finished:
            raise HttpProtocolError("the stream ended before the answer was done")
        if self._pending():
            raise HttpProtocolError("the answer brought text but no usage: no token was counted")
        if not self._events:
            raise HttpProtocolError("the answer brought no token")

    def reply(self, error: str | None) -> Reply:
        """What was heard so far."""
        return Reply(
            events=tuple(self._events),
            uncounted=tuple(self._pending()),
            input_tokens=self._input_tokens,
            text="".join(self._text),
            error=self._error or error,
        )

    def _hear(self, now: float, data: bytes) -> None:
        try:
            payload = _mapping(orjson.loads(data))
        except orjson.JSONDecodeError as exc:
            raise HttpProtocolError(f"an event that is not JSON: {_short_bytes(data)}") from exc
        heard = self._dialect.hear(payload)
        self._error = self._error or heard.error
        self._finished = self._finished or heard.finished
        if heard.input_tokens is not None:
            self._input_tokens = heard.input_tokens
        self._add_text(heard)
        if heard.text:
            self._with_text.append(now)
        if heard.speaks and heard.error is None:
            self._speaking.append(now)
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
        self._counted = counted

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


def _error(payload: Mapping[str, Any]) -> str | None:
    error = payload.get("error")
    if error is None and payload.get("object") == "error":
        error = payload.get("message", "an error without a message")
    if isinstance(error, dict):
        error = error.get("message") or _short(error)
    return None if error is None else str(error)


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise HttpProtocolError(f"expected a JSON object, found {_short(value)}")
    return value


def _field(payload: Mapping[str, Any], name: str, kind: type, *default: Any) -> Any:
    value = payload.get(name)
    if value is None and default:
        return default[0]
    if not isinstance(value, kind):
        raise HttpProtocolError(
            f"expected {name} to be a {kind.__name__}, found {_short(value)} in {_short(payload)}"
        )
    return value


def _count(usage: Mapping[str, Any], name: str) -> int | None:
    count: int | None = _field(usage, name, int, None)
    if count is not None and count < 0:
        raise HttpProtocolError(f"expected {name} to be a count, found {count}")
    return count


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _QUOTED_BYTES else text[:_QUOTED_BYTES] + "..."


def _short_bytes(data: bytes) -> str:
    return repr(data[:_QUOTED_BYTES].decode("utf-8", "replace")) if data else "an empty body"
