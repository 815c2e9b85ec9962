"""Requests as somebody recorded them: JSON lines, or one JSON list, checked one by one.

A request holds the tokens of its prompt and of its answer, by any of the pairs of names that traces
use, and may say when it came; or it is a conversation, of which the first question and its answer
are taken. Whatever else it holds (hashes, models) is left alone.
"""

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import Field

from tuner.definitions.counted import counted
from tuner.definitions.findings import found
from tuner.definitions.models import MAX_TOKENS
from tuner.errors import Problem
from tuner.frozen import Frozen

NAMES = (
    ("input_length", "output_length"),
    ("input_tokens", "output_tokens"),
    ("prompt_tokens", "completion_tokens"),
    ("prompt_len", "output_len"),
)
"""What traces call the two lengths, the first being mooncake's."""
TIME = "timestamp"
"""When a request came, in milliseconds since any moment: mooncake's."""
CONVERSATIONS = "conversations"
"""Where ShareGPT's requests have their turns, each with who says it (`from`) and what (`value`)."""
ASKS = frozenset({"human", "user"})
ANSWERS = frozenset({"gpt", "assistant", "bing", "chatgpt", "bard"})
CHARACTERS_PER_TOKEN = 4
"""How texts are counted without a tokenizer: about what English takes with any of them."""
MAX_BYTES = 50_000_000
MAX_MS = 10**15
"""Thirty thousand years after 1970: a number that is no time."""
MAX_PROBLEMS = 5
"""The faults of a file that a program wrote are alike: the first few say it all."""

Tokens = Annotated[int, Field(ge=1)]


class Trace(Frozen):
    """Requests in the order in which they were recorded, as (input, output) tokens.

    `offsets_s` says when each came, in seconds since the first; None where the trace does not say.
    `texts` are the prompts themselves where the trace has conversations; lengths are then an
    estimate, four characters a token, and `left_out` counts those in which nothing was answered.
    """

    lengths: tuple[tuple[Tokens, Tokens], ...]
    offsets_s: tuple[float, ...] | None = None
    texts: tuple[str, ...] = Field(default=(), repr=False)
    left_out: int = 0

    @property
    def estimated(self) -> bool:
        """True where nobody counted the tokens."""
        return bool(self.texts)


def read_trace(path: Path, name: str) -> Trace | list[Problem]:
    """The trace in a file, called `name` in messages, or what is wrong with it."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        return [_problem(name, f"cannot be read: {error.strerror or error}")]
    if len(data) > MAX_BYTES:
        return [_problem(name, f"larger than {MAX_BYTES // 1_000_000} MB", "keep a part of it")]
    one_list = data.lstrip().startswith(b"[")
    return _read(_of_a_list(data, name) if one_list else _of_lines(data, name), name)


_HALF = re.compile("[\ud800-\udfff]")
"""Of what UTF-16 writes as two: JSON can name one alone, no request can carry it."""
_EXAMPLE = 'such as {"input_length": 6755, "output_length": 500}'
_TURNS = 'such as [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello."}]'
_Entry: TypeAlias = tuple[str, Any]
"""Where a request stands, and what stands there."""


class _Unreadable:
    """What is not JSON."""


_UNREADABLE = _Unreadable()


@dataclass(frozen=True, slots=True)
class _Request:
    tokens: tuple[int, int]
    at_ms: float | None = None
    text: str | None = None


def _of_lines(data: bytes, name: str) -> list[_Entry]:
    lines = enumerate(data.splitlines(), start=1)
    return [(f"{name}:{number}:1", _parsed(line)) for number, line in lines if line.strip()]


def _of_a_list(data: bytes, name: str) -> list[_Entry]:
    """The entries of a file that is one list; its lines where it is not."""
    parsed = _parsed(data)
    if not isinstance(parsed, list):
        return _of_lines(data, name)
    return [(f"{name}: entry {number}", each) for number, each in enumerate(parsed, start=1)]


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _UNREADABLE


def _read(entries: Sequence[_Entry], name: str) -> Trace | list[Problem]:
    requests: list[_Request] = []
    problems: list[Problem] = []
    left_out = 0
    for where, entry in entries:
        read = _request(entry)
        if read is None:
            left_out += 1
            continue
        faults = read if isinstance(read, list) else list(_unlike(read, requests))
        problems += [_problem(where, message) for message in faults]
        if isinstance(read, _Request) and not faults:
            requests.append(read)
    if not requests and not problems:
        problems = [_nothing(name, left_out)]
    return _few(problems) if problems else _trace(requests, left_out)


def _nothing(name: str, left_out: int) -> Problem:
    if left_out:
        message = f"no question is answered in {counted(left_out, 'conversation')}"
        return _problem(name, message, _TURNS)
    return _problem(name, "the trace is empty, expected one request a line", _EXAMPLE)


def _trace(requests: Sequence[_Request], left_out: int) -> Trace:
    times = [request.at_ms for request in requests if request.at_ms is not None]
    return Trace(
        lengths=tuple(request.tokens for request in requests),
        offsets_s=tuple((at_ms - times[0]) / 1000 for at_ms in times) if times else None,
        texts=tuple(request.text for request in requests if request.text is not None),
        left_out=left_out,
    )


def _problem(where: str, message: str, hint: str = "") -> Problem:
    return Problem(where=where, path="", message=message, hint=hint)


def _few(problems: list[Problem]) -> list[Problem]:
    shown, rest = problems[:MAX_PROBLEMS], problems[MAX_PROBLEMS:]
    return shown + [_problem(r.where, f"{len(rest)} more faults from here on") for r in rest[:1]]


def _unlike(request: _Request, before: Sequence[_Request]) -> Iterator[str]:
    """How a request differs from what the trace was so far."""
    if not before:
        return
    first, last = before[0], before[-1]
    if (request.text is None) != (first.text is None):
        kinds = ("lengths", "a conversation")
        here, there = kinds[request.text is not None], kinds[first.text is not None]
        yield f"found {here}, and the requests before are {there}: expected one kind"
    if first.at_ms is None and request.at_ms is not None:
        yield f"found a {TIME}, and the requests before have none"
    if first.at_ms is not None and request.at_ms is None:
        yield f"missing key '{TIME}', which the requests before have"
    if last.at_ms is not None and request.at_ms is not None and request.at_ms < last.at_ms:
        yield (
            f"{TIME}: found {request.at_ms:g}, expected at least {last.at_ms:g}, that of the "
            "request before"
        )


def _request(entry: Any) -> _Request | list[str] | None:
    """A request, or what is wrong with it; None for a conversation without an answer."""
    if isinstance(entry, _Unreadable):
        return [f"not JSON, expected one object a line, {_EXAMPLE}"]
    if not isinstance(entry, dict):
        return [f"found {found(entry, ())}, expected an object {_EXAMPLE}"]
    if CONVERSATIONS in entry:
        return _conversation(entry[CONVERSATIONS])
    names = next((pair for pair in NAMES if entry.keys() & set(pair)), None)
    if names is None:
        pairs = " or ".join(" and ".join(pair) for pair in NAMES)
        return [f"no lengths, expected {pairs}, or {CONVERSATIONS}"]
    faults = [fault for name in names for fault in _faults(entry, name)]
    faults += _time_faults(entry)
    if faults:
        return faults
    first, second = names
    return _Request((entry[first], entry[second]), at_ms=entry.get(TIME))


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


def _time_faults(request: dict[str, Any]) -> Iterator[str]:
    if TIME not in request:
        return
    at_ms = request[TIME]
    if isinstance(at_ms, bool) or not isinstance(at_ms, int | float) or not 0 <= at_ms < math.inf:
        yield f"{TIME}: found {found(at_ms, ())}, expected milliseconds, 0 or more"
    elif at_ms > MAX_MS:
        yield f"{TIME}: found more than 15 digits, expected at most {MAX_MS} milliseconds"


def _conversation(turns: Any) -> _Request | list[str] | None:
    """The first question of a conversation with its answer; None where there is none."""
    if not isinstance(turns, list):
        return [f"{CONVERSATIONS}: found {found(turns, ())}, expected a list of turns, {_TURNS}"]
    for place, turn in enumerate(turns):
        fault = _turn_fault(turn)
        if fault:
            return [f"{CONVERSATIONS}: turn {place + 1}: {fault}"]
    for (asker, question), (answerer, answer) in pairwise((t["from"], t["value"]) for t in turns):
        if asker in ASKS and answerer in ANSWERS and question.strip() and answer.strip():
            return _Request((_estimate(question), _estimate(answer)), text=question)
    return None


def _turn_fault(turn: Any) -> str | None:
    if not isinstance(turn, dict):
        return f"found {found(turn, ())}, expected an object with 'from' and 'value'"
    for name in ("from", "value"):
        if name not in turn:
            return f"missing key '{name}'"
        if not isinstance(turn[name], str):
            return f"{name}: found {found(turn[name], ())}, expected a text"
    half = _HALF.search(turn["value"])
    if half:
        return f"value: found half of a character (\\u{ord(half[0]):04x}), expected a text"
    return None


def _estimate(text: str) -> int:
    return max(1, round(len(text) / CHARACTERS_PER_TOKEN))
