"""Answers as bytes on a real socket, split and corrupted at random: nothing hangs, nothing is lost.

About 10,000 cases, the same ones each time: hypothesis draws a seed for each, and
a generator of Python's makes all else of it. So nothing is sought or made smaller: what fails is
told by its seed. `STREAM_FUZZ_TIMES=50 pytest tests/test_stream_fuzz.py` runs fifty times as many,
new ones each time.
"""

import asyncio
import os
import random
import re
import socket
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import httpx
import pytest
import uvloop
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.exchanges import came
from tests.stream_answers import (
    INPUT_TOKENS,
    Answer,
    answer,
    corrupted,
    event_of,
    misplace,
    split,
    sse,
)
from tuner.errors import HttpError
from tuner.http.connection import Connection
from tuner.http.exchange import RawExchange
from tuner.http.transport import RecordingTransport
from tuner.load.channels import Channel, open_channels
from tuner.load.dialects import DIALECTS, Reply, decode
from tuner.load.plan import Api

TIMES = int(os.environ.get("STREAM_FUZZ_TIMES", "1"))
REQUEST = b"POST /x HTTP/1.1\r\nhost: x\r\n\r\n"
PATIENCE_S = 30.0
"""No case waits for anything: one that takes so long would have hung."""
COUNT = re.compile(
    rb'"completion_tokens"(?:\s|data:)*:(?:\s|data:)*([0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)'
)
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
    """Whatever came, the decoder says tokens that came, or what is wrong; of tokens never more than
    the largest count that stands in it, which is all that is known of a stream that is broken."""
    reply = decode(raw, DIALECTS[api])
    assert reply.output_tokens <= max((float(n) for n in COUNT.findall(raw.body)), default=0)
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
        data = b"data: " + inner % (b"[" * depth, b"]" * depth) + b"\n\n"
        raw = came((1.0, data), done_s=1.0)
        assert decode(raw, DIALECTS[api]).error
