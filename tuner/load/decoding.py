"""What came, decoded: exchanges → timings, once the clock has stopped."""

from collections.abc import Sequence

from tuner.load.clock import Clock
from tuner.load.dialects import Dialect, Reply, decode, spread
from tuner.load.source import Asked
from tuner.measuring.measurement import RequestTiming


def timings_of(asked: Sequence[Asked], dialect: Dialect, clock: Clock) -> tuple[RequestTiming, ...]:
    """What each request brought, by the load's clock."""
    replies = [(one, decode(one.raw, dialect, clock)) for one in asked]
    per_event: float | None = None
    if any(reply.uncounted for _, reply in replies):
        whole = [reply for one, reply in replies if one.raw.done_s is not None]
        per_event = _tokens_per_event(whole)
    return tuple(_timing(one, reply, per_event, clock) for one, reply in replies)


def _timing(asked: Asked, reply: Reply, per_event: float | None, clock: Clock) -> RequestTiming:
    raw = asked.raw
    events, tokens, error = _counted(asked, reply, per_event)
    ended_s = raw.done_s if raw.done_s is not None else raw.failed_s
    return RequestTiming(
        stream=asked.stream,
        index=asked.index,
        sent_s=clock.at(raw.sent_s),
        due_s=None if asked.due_s is None else clock.at(asked.due_s),
        events=events,
        done_s=None if ended_s is None else clock.at(ended_s),
        input_tokens=reply.input_tokens or asked.input_tokens,
        output_tokens=tokens,
        requested_tokens=asked.output_tokens,
        error=error,
        text=reply.text,
        prompt=asked.prompt,
    )


def _counted(
    asked: Asked, reply: Reply, per_event: float | None
) -> tuple[tuple[tuple[float, int], ...], int, str | None]:
    """The events with their tokens, all these tokens, and what is wrong with them."""
    events, tokens, error = reply.events, reply.output_tokens, reply.error
    if tokens > asked.output_tokens:
        return (), 0, f"{asked.output_tokens} tokens were asked and {tokens} counted"
    if not reply.uncounted or error is not None:
        return events, tokens, error
    if per_event is None:
        return events, tokens, "tokens are counted at a request's end, and none came to its end"
    estimate = min(round(per_event * len(reply.uncounted)), asked.output_tokens - tokens)
    return (*events, *spread(estimate, reply.uncounted)), tokens + estimate, error


def _tokens_per_event(replies: Sequence[Reply]) -> float | None:
    """For servers that count at the end only: what an event of theirs carries on average."""
    whole = [reply for reply in replies if reply.error is None]
    events = sum(len(reply.events) for reply in whole)
    return sum(reply.output_tokens for reply in whole) / events if events else None
