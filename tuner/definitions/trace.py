"""Lengths of requests as somebody recorded them: one JSON object a line, checked line by line.

A line holds the tokens of one request's prompt and of its answer, by any of the pairs of names that
traces use; whatever else it holds (times, hashes) is left alone.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from tuner.definitions.findings import found
from tuner.errors import Problem
from tuner.frozen import Frozen

NAMES = (
    ("input_length", "output_length"),
    ("input_tokens", "output_tokens"),
    ("prompt_tokens", "completion_tokens"),
    ("prompt_len", "output_len"),
)
"""What traces call the two lengths, the first being mooncake's."""
MAX_BYTES = 50_000_000
MAX_TOKENS = 2_000_000
"""Longer than any model's context: a number that is no length."""
MAX_PROBLEMS = 5
"""The faults of a file that a program wrote are alike: the first few say it all."""

Tokens = Annotated[int, Field(ge=1)]


class Trace(Frozen):
    """Requests in the order in which they were recorded, as (input, output) tokens."""

    lengths: tuple[tuple[Tokens, Tokens], ...]


def read_trace(path: Path, name: str) -> Trace | list[Problem]:
    """The trace in a file, called `name` in messages, or what is wrong with it."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        return [_problem(name, f"cannot be read: {error.strerror or error}")]
    if len(data) > MAX_BYTES:
        return [_problem(name, f"larger than {MAX_BYTES // 1_000_000} MB", "keep a part of it")]
    lengths: list[tuple[int, int]] = []
    problems: list[Problem] = []
    for number, line in enumerate(data.splitlines(), start=1):
        if not line.strip():
            continue
        read = _lengths(line)
        if isinstance(read, tuple):
            lengths.append(read)
        else:
            problems += [_problem(f"{name}:{number}:1", message) for message in read]
    if not lengths and not problems:
        problems = [_problem(name, "the trace is empty, expected one request a line", _EXAMPLE)]
    return _few(problems) if problems else Trace(lengths=tuple(lengths))


_EXAMPLE = 'such as {"input_length": 6755, "output_length": 500}'


def _problem(where: str, message: str, hint: str = "") -> Problem:
    return Problem(where=where, path="", message=message, hint=hint)


def _few(problems: list[Problem]) -> list[Problem]:
    shown, rest = problems[:MAX_PROBLEMS], problems[MAX_PROBLEMS:]
    return shown + [_problem(r.where, f"{len(rest)} more faults from here on") for r in rest[:1]]


def _lengths(line: bytes) -> tuple[int, int] | list[str]:
    """The two lengths of a line, or what is wrong with it."""
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        return [f"not JSON, expected one object a line, {_EXAMPLE}"]
    if not isinstance(request, dict):
        return [f"found {found(request, ())}, expected an object {_EXAMPLE}"]
    names = next((pair for pair in NAMES if request.keys() & set(pair)), None)
    if names is None:
        return [f"no lengths, expected {' or '.join(' and '.join(pair) for pair in NAMES)}"]
    first, second = names
    return _pair(request, first, second)


def _pair(request: dict[str, Any], first: str, second: str) -> tuple[int, int] | list[str]:
    faults = [fault for name in (first, second) for fault in _faults(request, name)]
    return faults or (request[first], request[second])


def _faults(request: dict[str, Any], name: str) -> Iterator[str]:
    if name not in request:
        yield f"missing key '{name}'"
        return
    tokens = request[name]
    if isinstance(tokens, bool) or not isinstance(tokens, int):
        yield f"{name}: found {found(tokens, ())}, expected a whole number of tokens"
    elif tokens < 1:
        yield f"{name}: found {tokens}, expected at least 1"
    elif tokens > MAX_TOKENS:
        yield f"{name}: found {tokens}, expected at most {MAX_TOKENS}, which no context exceeds"
