"""What an event may say, whatever the dialect: text, counts, that it failed."""

from collections.abc import Callable, Sequence
from operator import methodcaller
from typing import Annotated, Any, TypeVar

import msgspec

from tuner.errors import HttpProtocolError

_QUOTED_BYTES = 200


class Heard(msgspec.Struct, frozen=True, gc=False):
    """One event, understood; `counted` and `whole_text` are totals so far, None where not said."""

    speaks: bool = True
    text: str = ""
    counted: int | None = None
    input_tokens: int | None = None
    finished: bool = False
    error: str | None = None
    whole_text: str | None = None


Said = tuple[str, int, int | None]
"""What nearly every event is and nothing else: new text, output tokens so far, input tokens."""


class Event(msgspec.Struct, gc=False):
    """What every dialect's event may be instead: an error."""

    error: Any = None
    object: Any = None
    message: Any = None

    def failure(self) -> str | None:
        """The error that the event tells of."""
        error = self.error
        if error is None and self.object == "error":
            error = self.message or "an error without a message"
        if isinstance(error, dict):
            error = error.get("message") or _short(error)
        return None if error is None else str(error) or "an error without a message"


Count = Annotated[int, msgspec.Meta(ge=0)]


class Usage(msgspec.Struct, gc=False):
    """The server's own count of tokens, so far or in all."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None


NO_USAGE = Usage()
ENDED_BY_ITSELF = ("abort", "error")
"""Reasons that say of an answer that it is not whole."""

Understood = TypeVar("Understood", bound=Event)


def understood(decoder: msgspec.json.Decoder[Understood], data: bytes) -> Understood:
    """An event of its kind. Raises HttpProtocolError."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as exc:
        said = str(exc).replace("`", "")
        raise HttpProtocolError(f"an event of another form: {said}: {short_bytes(data)}") from exc
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise HttpProtocolError(f"an event that is not JSON: {short_bytes(data)}") from exc


def all_said(
    decoder: msgspec.json.Decoder[Understood],
    data: Sequence[bytes],
    said: Callable[[Understood], Said | None],
) -> Sequence[Said | None]:
    """What events of one line each say by `said`, at a fraction of the cost of one by one; nothing
    where any is not of their kind, which `understood` can say."""
    try:
        events = decoder.decode_lines(b"\n".join(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    # It passes over empty lines, and reads several events in one or one in several.
    one_each = len(events) == len(data) and all(map(_begins, data)) and all(map(_ends, data))
    return [said(event) for event in events] if one_each else []


_begins, _ends = methodcaller("startswith", b"{"), methodcaller("endswith", b"}")


def ended_by(reason: str | None) -> str | None:
    """What is wrong with an answer that ended for such a reason."""
    return f"the server ended it: {reason}" if reason in ENDED_BY_ITSELF else None


def short_bytes(data: bytes) -> str:
    """The start of a body, as it may be quoted."""
    return repr(data[:_QUOTED_BYTES].decode("utf-8", "replace")) if data else "an empty body"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _QUOTED_BYTES else text[:_QUOTED_BYTES] + "..."
