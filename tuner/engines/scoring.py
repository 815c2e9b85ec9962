"""What servers answer to a continuation and to its scoring, in the forms of both engines. Pure."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.errors import HttpProtocolError
from tuner.measuring.fidelity import TokenScore

SCORING_TIMEOUT_S = 300.0
"""The first scores of a launch may have to compile what they need."""
BEST = 2
"""How many of the likeliest tokens are asked for at each place: what the baseline would have said,
and how sure it was."""
GREEDY = {"temperature": 0, "repetition_penalty": 1.0, "ignore_eos": True}
"""No sampling, and no penalty that a model's own files may set: a scored token has none either."""


def token_ids(value: Any, what: str) -> list[int]:
    """A list of token ids. Raises HttpProtocolError for anything else, naming `what` it is of."""
    if isinstance(value, list) and all(isinstance(each, int) for each in value):
        return value
    raise HttpProtocolError(f"{what}: found {_short(value)}, expected a list of token ids")


def named_scores(rows: Any, output: Sequence[int]) -> list[TokenScore]:
    """vLLM's: at each place of the prompt the log-probability by token id, its own id among them.

    Raises HttpProtocolError.
    """
    _long_enough("prompt_logprobs", rows, output)
    found = []
    for token, row in zip(output, rows[-len(output) :], strict=True):
        values = {name: _number(told) for name, told in _mapping(row).items()}
        if str(token) not in values:
            raise HttpProtocolError(f"prompt_logprobs: no score for the token {token}")
        found.append(_score(values[str(token)], list(values.values())))
    return found


def listed_scores(said: Any, likeliest: Any, output: Sequence[int]) -> list[TokenScore]:
    """SGLang's: two lists, `[logprob, id, text]` of the prompt's tokens and of the likeliest at
    each place. Raises HttpProtocolError."""
    _long_enough("input_token_logprobs", said, output)
    _long_enough("input_top_logprobs", likeliest, output)
    rows = zip(said[-len(output) :], likeliest[-len(output) :], strict=True)
    return [_of_lists(own, _sequence(best)) for own, best in rows]


def _of_lists(own: Any, best: Sequence[Any]) -> TokenScore:
    said, token = _pair(own)
    values = {token: said, **{each: value for value, each in map(_pair, best)}}
    return _score(said, list(values.values()))


def _score(said: float, values: Sequence[float]) -> TokenScore:
    ordered = sorted(values, reverse=True)
    return TokenScore(said=said, best=ordered[0], second=ordered[min(1, len(ordered) - 1)])


def _long_enough(name: str, rows: Any, output: Sequence[int]) -> None:
    if not isinstance(rows, list) or len(rows) < len(output) or not output:
        raise HttpProtocolError(f"{name}: found {_short(rows)}, expected {len(output)} scores")


def _mapping(row: Any) -> Mapping[str, Any]:
    if isinstance(row, dict):
        return row
    raise HttpProtocolError(f"prompt_logprobs: found {_short(row)}, expected scores by token id")


def _sequence(row: Any) -> Sequence[Any]:
    if isinstance(row, list):
        return row
    raise HttpProtocolError(f"input_top_logprobs: found {_short(row)}, expected a list")


def _number(told: Any) -> float:
    return _as_number(told.get("logprob") if isinstance(told, dict) else None)


def _pair(row: Any) -> tuple[float, int]:
    """A log-probability and the id of its token."""
    if isinstance(row, list) and len(row) >= 2 and isinstance(row[1], int):
        return _as_number(row[0]), row[1]
    raise HttpProtocolError(f"a score: found {_short(row)}, expected [logprob, id]")


def _as_number(value: Any) -> float:
    """JSON has no way to write what is no number, and engines write null: that is no likelihood."""
    if value is None:
        return -math.inf
    if isinstance(value, int | float):
        return float(value)
    raise HttpProtocolError(f"a score: found {_short(value)}, expected a number")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
