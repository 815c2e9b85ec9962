"""What a rung is named by: how many requests at a time, or how many a second. Pure."""

from typing import Annotated

from pydantic import PlainSerializer


def _plain(level: float) -> float:
    return int(level) if level.is_integer() else level


Level = Annotated[float, PlainSerializer(lambda level: _plain(float(level)), when_used="json")]
"""A rung's concurrency or its request rate, whichever its ladder goes by; 8 in JSON and not 8.0."""


def level_words(level: float, *, by_rate: bool) -> str:
    """`8` streams, or `2.5 req/s`, as it stands behind 'at'."""
    return f"{level:g} req/s" if by_rate else f"{level:g}"
