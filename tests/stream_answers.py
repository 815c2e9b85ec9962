"""Answers of every dialect, framing and spelling, drawn at random, and their faults."""

import json
import random
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Literal

from tuner.load.plan import Api

INPUT_TOKENS = 7
WORDS = [
    "a",
    " b",
    "",
    "\u00e9",
    "\u4e16\u754c",
    "\ufeff",
    '"',
    "\\",
    "\n",
    "data: x",
    "0\r\n\r\n",
    "[DONE]",
]
ODD: list[bytes] = [
    *(b"", b"\n", b"\r", b"\r\n", b"\r\n\r\n", b"\0", b"\xff", b"\xef\xbb\xbf", b":", b","),
    *(b"0\r\n\r\n", b"5\r\nhello\r\n", b"ffffffffffffffffffff\r\n", b"-1\r\n", b"zz\r\n", b";x=y"),
    *(
        b"data: ",
        b"data: [DONE]\n\n",
        b"data: {}\n\n",
        b"data: null\n\n",
        b'data: {"error": 1}\n\n',
    ),
    *(
        b'data: {"error": ' + b"[" * 5000 + b"\n\n",
        b"9" * 400,
        b"null",
        b"-1",
        b"1e999",
        b'"\\ud800"',
    ),
    *(
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 101 X\r\n\r\n",
    ),
    *(b"content-length: 3\r\n", b"transfer-encoding: chunked\r\n", b"connection: close\r\n"),
]
JSON_OF_ANY_KIND: list[Any] = [
    *(None, True, False, 0, -1, 1, 3, 2**31, 2**64 - 1, 2**64, 10**40, 0.5, -0.0, 1e308, 1e999),
    *("", "x", "length", "abort", "error", [], [[]], [None], {}, {"message": None}, [{}], "\u0000"),
]

Usage = Literal["each", "last"]
Framing = Literal["chunked", "length", "close"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole answer: its body, and what must be read out of it."""

    api: Api
    usage: Usage
    framing: Framing
    body: bytes
    tokens: tuple[int, ...]
    text: str
    stream: bool = True

    def bytes_on_the_wire(self, rng: random.Random) -> bytes:
        """Head and body as this framing has them."""
        kind = "text/event-stream" if self.stream else "application/json"
        head = f"{rng.choice(['HTTP/1.1 200 OK', 'HTTP/1.1 200 '])}\r\nContent-Type: {kind}\r\n"
        before = rng.choice([b"", b"", b"", b"HTTP/1.1 100 Continue\r\nx: y\r\n\r\n"])
        if self.framing == "chunked":
            framed = head.encode() + b"Transfer-Encoding: Chunked\r\n\r\n" + chunked(rng, self.body)
        elif self.framing == "length":
            framed = head.encode() + b"content-LENGTH: %d\r\n\r\n" % len(self.body) + self.body
        else:
            framed = head.encode() + b"connection: close\r\n\r\n" + self.body
        return before + framed


def chunked(rng: random.Random, body: bytes) -> bytes:
    """A body in HTTP chunks whose edges have nothing to do with its events."""
    sizes = rng.choice(["%x", "%X", "%04x"])
    out = b""
    for piece in split(rng, body, most=8):
        more = rng.choice([b"", b"", b";x=y", b';x="y"'])
        out += (sizes % len(piece)).encode() + more + b"\r\n" + piece + b"\r\n" if piece else b""
    return (
        out + rng.choice([b"0", b"0", b"000"]) + b"\r\n" + rng.choice([b"", b"x: y\r\n"]) + b"\r\n"
    )


def split(rng: random.Random, data: bytes, *, most: int) -> list[bytes]:
    """Pieces that are the data together; now and then single bytes at its end."""
    edges = sorted(rng.choices(range(len(data) + 1), k=rng.randrange(most)))
    if rng.random() < 0.3:
        edges = sorted({*edges, *range(max(0, len(data) - 12), len(data))})
    return [data[before:after] for before, after in pairwise([0, *edges, len(data)])]


def event_of(api: Api, text: str, whole: str, counted: int | None, *, last: bool) -> dict[str, Any]:
    usage = {"prompt_tokens": INPUT_TOKENS, "completion_tokens": counted}
    if api == "generate":
        return {
            "text": whole,
            "meta_info": usage | {"finish_reason": {"type": "length"} if last else None},
        }
    choice = {"index": 0, "finish_reason": "length" if last else None}
    said = {"text": text} if api == "completions" else {"delta": {"content": text}}
    return {"choices": [choice | said]} | ({} if counted is None else {"usage": usage})


def answer(rng: random.Random) -> Answer:
    """A valid answer of any dialect, framing and spelling."""
    api: Api = rng.choice(["completions", "chat", "generate"])
    usage: Usage = "each" if api == "generate" else rng.choice(["each", "last"])
    tokens = tuple(rng.choice([1, 1, 1, 2, 5]) for _ in range(rng.randrange(1, 7)))
    words = [rng.choice(WORDS) for _ in tokens]
    wholes, totals = list(accumulate(words)), list(accumulate(tokens))
    events = [
        event_of(api, word, whole, total if usage == "each" else None, last=total == totals[-1])
        for word, whole, total in zip(words, wholes, totals, strict=True)
    ]
    if usage == "last":
        counts = {"prompt_tokens": INPUT_TOKENS, "completion_tokens": totals[-1]}
        events.append({"choices": [], "usage": counts})
    if api == "chat" and rng.random() < 0.7:
        events.insert(0, {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
    stream = rng.random() < 0.9
    body = (
        sse(rng, events) if stream else json.dumps(whole_of(api, wholes[-1], totals[-1])).encode()
    )
    return Answer(
        api=api,
        usage=usage,
        framing=rng.choice(["chunked", "chunked", "chunked", "length", "close"]),
        body=body,
        tokens=tokens if stream else (totals[-1],),
        text=wholes[-1],
        stream=stream,
    )


def whole_of(api: Api, text: str, counted: int) -> dict[str, Any]:
    event = event_of(api, text, text, counted, last=True)
    if api == "chat":
        choice = event["choices"][0]
        choice["message"] = {"role": "assistant"} | choice.pop("delta")
    return event


def sse(rng: random.Random, events: Sequence[dict[str, Any]]) -> bytes:
    """Events in the spelling of one server or another."""
    # CR then LF would be one line end: a stream that uses CR alone uses nothing else.
    ends = rng.choice([["\n"], ["\n"], ["\r\n"], ["\r"], ["\n", "\r\n"]])
    body = rng.choice(["", "", "\ufeff"])
    for event in events:
        if rng.random() < 0.2:
            body += rng.choice([": ping", ":", "event: x", "id: 7", "retry: 9"]) + rng.choice(ends)
            body += rng.choice(["", rng.choice(ends)])
        text = json.dumps(
            event, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, None, 1])
        )
        body += "".join(
            f"data:{rng.choice([' ', ''])}{line}{rng.choice(ends)}" for line in text.split("\n")
        )
        body += rng.choice(ends)
    done = f"data: [DONE]{rng.choice(ends)}{rng.choice(ends)}" if rng.random() < 0.7 else ""
    return (body + done).encode()


def corrupted(rng: random.Random, data: bytes) -> bytes:
    """The data with a few faults in it."""
    found = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(found) + 1)
        match rng.randrange(6):
            case 0:
                found[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                found[at:at] = rng.choice(ODD)
            case 2:
                del found[at : at + rng.choice([1, 2, 8, 60])]
            case 3:
                del found[at:]
            case 4:
                found[at:at] = found[max(0, at - rng.choice([2, 20, 200])) : at]
            case _:  # what counts most: sizes, numbers, quotes
                digits = [i for i, byte in enumerate(found) if byte in b'0123456789"{}:\r\n']
                if digits:
                    found[rng.choice(digits)] = rng.choice(b'09aZ"{}: \r\n-')
    return bytes(found)


def misplace(rng: random.Random, value: dict[str, Any]) -> None:
    """Put something of another kind somewhere."""
    key = rng.choice([*value, "error", "object", "usage", "choices"])
    inner = value.get(key)
    if isinstance(inner, dict) and rng.random() < 0.7:
        misplace(rng, inner)
    elif isinstance(inner, list) and inner and isinstance(inner[0], dict) and rng.random() < 0.7:
        misplace(rng, inner[0])
    else:
        value[key] = deepcopy(rng.choice(JSON_OF_ANY_KIND))  # else it may come to hold itself
