"""What came, decoded: exchanges → timings, once the clock has stopped."""

from collections.abc import Callable, Sequence

from tuner.load.dialects import Dialect, Reply, decode, spread
from tuner.load.source import Asked
from tuner.measuring.measurement import RequestTiming


def timings_of(
    asked: Sequence[Asked], dialect: Dialect, clock: Callable[[float], float]
) -> tuple[RequestTiming, ...]:
    """What each request brought; `clock` turns a stamp of `perf_counter` into the load's time."""
    replies = [(one, decode(one.raw, dialect)) for one in asked]
    per_event = _tokens_per_event([reply for one, reply in replies if one.raw.done_s is not None])
    return tuple(_timing(one, reply, per_event, clock) for one, reply in replies)


def _timing(
    asked: Asked, reply: Reply, per_event: float | None, clock: Callable[[float], float]
) -> RequestTiming:
    raw = asked.raw
    events, error = _counted(asked, reply, per_event)
    ended_s = raw.done_s if raw.done_s is not None else raw.failed_s
    return RequestTiming(
        stream=asked.stream,
        index=asked.index,
        sent_s=clock(raw.sent_s),
        due_s=None if asked.due_s is None else clock(asked.due_s),
        events=tuple((clock(at), tokens) for at, tokens in events),
        done_s=None if ended_s is None else clock(ended_s),
        input_tokens=reply.input_tokens or asked.input_tokens,
        output_tokens=sum(tokens for _, tokens in events),
        requested_tokens=asked.output_tokens,
        error=error,
        text=reply.text,
        prompt=asked.prompt,
    )


def _counted(
    asked: Asked, reply: Reply, per_event: float | None
) -> tuple[tuple[tuple[float, int], ...], str | None]:
    """The events with their tokens, and what is wrong with them."""
    events, error = reply.events, reply.error
    if reply.uncounted and error is None:
        if per_event is None:
            return events, "tokens are counted at a request's end, and none came to its end"
        left = asked.output_tokens - reply.output_tokens
        estimate = min(round(per_event * len(reply.uncounted)), left)
        events += tuple(spread(estimate, reply.uncounted))
    if reply.output_tokens > asked.output_tokens:
        return (), f"{asked.output_tokens} tokens were asked and {reply.output_tokens} counted"
    return events, error


def _tokens_per_event(replies: Sequence[Reply]) -> float | None:
    """For servers that count at the end only: what an event of theirs carries on average."""
    whole = [reply for reply in replies if reply.error is None]
    events = sum(len(reply.events) for reply in whole)
    return sum(reply.output_tokens for reply in whole) / events if events else None
