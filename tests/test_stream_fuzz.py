"""Answers as bytes on a real socket, split and corrupted at random: nothing hangs, nothing is lost.

About 10,000 cases, the same ones each time. `STREAM_FUZZ_TIMES=50 pytest tests/test_stream_fuzz.py`
runs fifty times as many, new ones each time.
"""

import asyncio
import json
import os
import random
import socket
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Literal, TypeVar

import httpx
import pytest
import uvloop
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tuner.errors import HttpError
from tuner.http.connection import Connection, RawExchange
from tuner.http.transport import RecordingTransport
from tuner.load.channels import Channel, open_channels
from tuner.load.dialects import DIALECTS, Reply, decode
from tuner.load.plan import Api

TIMES = int(os.environ.get("STREAM_FUZZ_TIMES", "1"))
REQUEST = b"POST /x HTTP/1.1\r\nhost: x\r\n\r\n"
PATIENCE_S = 30.0
"""No case waits for anything: one that takes so long would have hung."""
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
Result = TypeVar("Result")


def cases(times: float) -> Callable[[Any], Any]:
    """So many cases of a test; those of CI are the same each time."""
    return settings(
        max_examples=int(times * TIMES),
        deadline=None,
        derandomize=TIMES == 1,
        database=None,
        phases=[Phase.generate],  # a seed says nothing to a search for a smaller one
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


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


# The wire.


@contextmanager
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        server.setblocking(False)
        yield server


class Fuzzed:
    """A listener of this machine, and a loop that cases are run on."""

    def __init__(self, runner: asyncio.Runner, server: socket.socket) -> None:
        self._runner = runner
        self.server = server
        self.url = f"http://127.0.0.1:{server.getsockname()[1]}/x"

    def run(self, case: Coroutine[Any, Any, Result]) -> Result:
        """A case; one that hangs fails."""
        return self._runner.run(asyncio.wait_for(case, PATIENCE_S))

    async def connected(self) -> tuple[Connection, socket.socket]:
        """Both ends of a new connection."""
        opening = asyncio.ensure_future(Connection.open(*self.server.getsockname()[:2]))
        theirs = await self.accepted()
        return await opening, theirs

    async def accepted(self) -> socket.socket:
        theirs, _ = await asyncio.get_running_loop().sock_accept(self.server)
        theirs.setblocking(False)
        theirs.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return theirs

    async def read(self, pieces: Sequence[bytes], *, reset: bool = False) -> RawExchange:
        """One exchange on a connection of its own, which the server then closes."""
        connection, theirs = await self.connected()
        asking = asyncio.ensure_future(connection.exchange(REQUEST))
        await asked(theirs)
        await send(theirs, pieces)
        if reset:
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        theirs.close()
        raw = await asking
        connection.cut()
        return raw


async def send(theirs: socket.socket, pieces: Sequence[bytes]) -> None:
    """Each piece by itself, once the other side could read the one before."""
    loop = asyncio.get_running_loop()
    for piece in pieces:
        try:
            await loop.sock_sendall(theirs, piece)
        except ConnectionError:  # it heard enough
            return
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def asked(theirs: socket.socket) -> bytes | None:
    """A request, with a body of a byte if it has one; None where the other side hung up."""
    loop, heard = asyncio.get_running_loop(), b""
    while b"\r\n\r\n" not in heard or (b"content-length: 1" in heard and heard.endswith(b"\n")):
        try:
            piece = await loop.sock_recv(theirs, 4096)
        except ConnectionError:
            return None
        if not piece:
            return None
        heard += piece
    return heard


@pytest.fixture(scope="module")
def wire() -> Iterator[Fuzzed]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, listening() as server:
        yield Fuzzed(runner, server)


# What must be so.


def read_in(reply: Reply) -> tuple[Any, ...]:
    return (
        [n for _, n in reply.events],
        len(reply.uncounted),
        reply.input_tokens,
        reply.text,
        reply.error,
    )


def assert_true(reply: Reply, truth: Answer) -> None:
    assert (reply.error, reply.text, reply.input_tokens) == (None, truth.text, INPUT_TOKENS)
    assert reply.output_tokens == sum(truth.tokens)
    if truth.usage == "each":
        assert [tokens for _, tokens in reply.events] == list(truth.tokens)


def assert_settled(raw: RawExchange) -> None:
    """It came to its end, or it says what is wrong; never both."""
    assert (raw.done_s is None) != (raw.error is None)
    assert (raw.failed_s is None) == (raw.error is None)
    assert raw.error is None or isinstance(raw.error, HttpError)


def assert_typed(raw: RawExchange, api: Api) -> None:
    """Whatever came, the decoder says tokens that came, or what is wrong."""
    reply = decode(raw, DIALECTS[api])
    assert all(tokens > 0 and at_s >= raw.sent_s for at_s, tokens in reply.events)
    if reply.error is None:
        assert raw.error is None
        assert reply.output_tokens > 0
        assert not reply.uncounted
    else:
        assert reply.error.strip()
        assert len(reply.error) < 1000


SEEDS = st.integers(0, 2**64 - 1)  # drawing each byte by hypothesis would take ten times as long


@cases(3500)
@given(seed=SEEDS)
def test_any_split_of_an_answer_reads_as_the_whole_does(wire: Fuzzed, seed: int) -> None:
    rng = random.Random(seed)
    truth = answer(rng)
    sent = truth.bytes_on_the_wire(rng)
    raw = wire.run(wire.read(split(rng, sent, most=12)))
    assert_settled(raw)
    reply = decode(raw, DIALECTS[truth.api])
    assert_true(reply, truth)
    whole = wire.run(wire.read([sent]))
    assert raw.body == whole.body == truth.body
    assert read_in(reply) == read_in(decode(whole, DIALECTS[truth.api]))


@cases(150)
@given(seed=SEEDS)
def test_an_answer_byte_by_byte_reads_as_the_whole_does(wire: Fuzzed, seed: int) -> None:
    rng = random.Random(seed)
    truth = answer(rng)
    sent = truth.bytes_on_the_wire(rng)
    raw = wire.run(wire.read([sent[at : at + 1] for at in range(len(sent))]))
    assert_settled(raw)
    assert_true(decode(raw, DIALECTS[truth.api]), truth)


@cases(4000)
@given(seed=SEEDS)
def test_corrupted_bytes_are_an_answer_or_a_typed_error(wire: Fuzzed, seed: int) -> None:
    rng = random.Random(seed)
    truth = answer(rng)
    sent = corrupted(rng, truth.bytes_on_the_wire(rng))
    raw = wire.run(wire.read(split(rng, sent, most=6), reset=rng.random() < 0.2))
    assert_settled(raw)
    assert_typed(raw, truth.api)


@cases(1500)
@given(seed=SEEDS)
def test_an_event_of_any_json_is_tokens_or_a_typed_error(wire: Fuzzed, seed: int) -> None:
    """Framing and JSON are right; types, numbers and keys are not."""
    rng = random.Random(seed)
    truth = answer(rng)
    api: Api = truth.api
    events = [event_of(api, "a", "a" * n, n, last=n == 3) for n in range(1, rng.choice([2, 4]))]
    for _ in range(rng.randrange(1, 3)):
        event = events[rng.randrange(len(events))]
        misplace(rng, event)
    body = sse(rng, events)
    wrong = Answer(api=api, usage="each", framing="chunked", body=body, tokens=(), text="")
    raw = wire.run(wire.read(split(rng, wrong.bytes_on_the_wire(rng), most=3)))
    assert raw.done_s is not None
    assert_typed(raw, api)


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


@cases(600)
@given(seed=SEEDS)
def test_no_request_of_a_stream_is_lost_whatever_its_neighbours_were(
    wire: Fuzzed, seed: int
) -> None:
    """A channel asks five times; each answer is whole, broken or refused, and read as its own."""
    rng = random.Random(seed)
    truths = [answer(rng) for _ in range(5)]
    faulty = [rng.random() < 0.4 for _ in truths]
    (channel,) = open_channels(wire.url, 1)
    raws = wire.run(ask_all(wire, channel, truths, faulty, rng))
    assert len(raws) == len(truths)
    for raw, truth, fault_near in zip(raws, truths, near(faulty), strict=True):
        assert_settled(raw)
        assert_typed(raw, truth.api)
        if not fault_near:
            assert_true(decode(raw, DIALECTS[truth.api]), truth)


def near(faulty: Sequence[bool]) -> list[bool]:
    """Whether an answer or the one before is broken: what a server sends beyond an answer's end may
    come when the next was asked for, and nobody could tell it from that one's."""
    return [fault or before for fault, before in zip(faulty, [False, *faulty], strict=False)]


async def ask_all(
    wire: Fuzzed,
    channel: Channel,
    truths: Sequence[Answer],
    faulty: Sequence[bool],
    rng: random.Random,
) -> list[RawExchange]:
    sent = [truth.bytes_on_the_wire(rng) for truth in truths]
    sent = [
        corrupted(rng, each) if fault else each for each, fault in zip(sent, faulty, strict=True)
    ]
    answers = [split(rng, each, most=4) for each in sent]
    ends = [fault or truth.framing == "close" for truth, fault in zip(truths, faulty, strict=True)]
    serving = asyncio.ensure_future(serve(wire, answers, ends))
    try:
        return [await channel.post(b"%d" % number) for number in range(len(truths))]
    finally:
        await channel.close()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def serve(wire: Fuzzed, answers: Sequence[Sequence[bytes]], ends: Sequence[bool]) -> None:
    """Each request gets the answer of its number; some connections end with theirs."""

    async def converse(theirs: socket.socket) -> None:
        with theirs:
            while (request := await asked(theirs)) is not None:
                number = int(request.rpartition(b"\r\n")[2])
                await send(theirs, answers[number])
                if ends[number]:
                    return

    async with asyncio.TaskGroup() as conversations:
        while True:
            conversations.create_task(converse(await wire.accepted()))


@cases(500)
@given(seed=SEEDS)
def test_small_questions_end_in_an_answer_or_an_error_of_httpxs(wire: Fuzzed, seed: int) -> None:
    rng = random.Random(seed)
    truth = answer(rng)
    sent = truth.bytes_on_the_wire(rng)
    pieces = split(rng, corrupted(rng, sent) if rng.random() < 0.7 else sent, most=4)
    with suppress(httpx.TransportError):
        assert wire.run(question(wire, pieces)) is not None


async def question(wire: Fuzzed, pieces: Sequence[bytes]) -> bytes:
    async def serve_one() -> None:
        theirs = await wire.accepted()
        await asked(theirs)
        await send(theirs, pieces)
        theirs.close()

    serving = asyncio.ensure_future(serve_one())
    try:
        async with httpx.AsyncClient(transport=RecordingTransport(), trust_env=False) as http:
            return (await http.get(wire.url)).content
    finally:
        await serving


@pytest.mark.parametrize("depth", [300, 900, 5000, 200_000])
@pytest.mark.parametrize("api", ["completions", "chat", "generate"])
def test_json_nested_without_end_is_a_typed_error(api: Api, depth: int) -> None:
    for inner in (b'{"error":%s%s}', b'{"x":%s%s}', b'{"choices":%s%s}', b"%s%s"):
        raw = RawExchange(sent_s=0.0, status=200, done_s=1.0)
        raw.chunks.append((1.0, b"data: " + inner % (b"[" * depth, b"]" * depth) + b"\n\n"))
        assert decode(raw, DIALECTS[api]).error
