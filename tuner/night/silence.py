"""Servers that gave no token in a window: slow ones and dead ones look alike. Pure.

A window may be shorter than the time to a first token, or hold no request of one of several
servers. So silence voids a rung at first; it is held against a server that was asked and gave
nothing in the second window either, which is longer and opens later.
"""

from collections.abc import Iterator, Sequence

from tuner.load import Played
from tuner.measuring.measurement import RequestTiming, RungMeasurement
from tuner.measuring.observed import Doubt

SILENCE = "silence"
_ASKED_SHARE = 0.5
"""Of a window: a request that was under way for less of it is no reason to expect a token."""


def silent(played: Played, servers: int) -> set[int]:
    """The places, of so many servers, of those that gave no token in the window though one of
    their requests was under way for half of it."""
    return {place for place, timings in _by_place(played, servers) if _silent(played, timings)}


def _by_place(played: Played, servers: int) -> Iterator[tuple[int, list[RequestTiming]]]:
    for place in range(servers):
        yield place, [t for t in played.timings if t.stream % servers == place]


def _silent(played: Played, timings: Sequence[RequestTiming]) -> bool:
    heard = any(played.start_s < at_s <= played.end_s for t in timings for at_s, _ in t.events)
    return not heard and any(_asked(played, timing) for timing in timings)


def _asked(played: Played, timing: RequestTiming) -> bool:
    ended_s = played.end_s if timing.done_s is None else min(timing.done_s, played.end_s)
    under_way_s = ended_s - max(timing.sent_s, played.start_s)
    return 0 < under_way_s >= _ASKED_SHARE * (played.end_s - played.start_s)


def silences(rung: RungMeasurement, played: Played, servers: int) -> list[Doubt]:
    """The doubts of a rung in which nobody gave a token, or one of several servers did not."""
    mute = silent(played, servers)
    if rung.output_tok_s > 0 and not mute:
        return []
    one = f" from server {min(mute) + 1} of {servers}" if 0 < len(mute) < servers else ""
    return [
        Doubt.of(
            SILENCE,
            rung.said,
            0.0,
            1.0,
            f"no token{one} in a window of {rung.window_s:.3g} s",
            "Raise window_s in the objective above the time to the first token.",
        )
    ]
