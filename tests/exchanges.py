"""Exchanges as they might have come."""

from typing import Any

from tuner.http.exchange import RawExchange


def came(*chunks: tuple[float, bytes], **other: Any) -> RawExchange:
    """An answer with status 200 whose body came in these pieces, at these times."""
    raw = RawExchange(**{"sent_s": 0.0, "status": 200, **other})
    for at_s, piece in chunks:
        raw.add(at_s, piece)
    return raw
