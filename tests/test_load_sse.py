import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.load.sse import events, plain

SEEDS = st.integers(0, 2**32)  # drawing each piece by hypothesis would take ten times as long
ALPHABET = 'ab :\u00e9\u4e16\ufeff{}"'
NOISE = ["", ": ping", ":", "event: x", "id: 7", "retry: 10", "dat: a", "datax"]
# CR then LF would be one line end, so a stream that uses CR alone uses nothing else.
ENDS = [["\r"], ["\n"], ["\n", "\r\n"]]


def valid_stream(rng: random.Random) -> tuple[bytes, list[bytes]]:
    """A valid stream and the data of its events."""
    ends = rng.choice(ENDS)
    body, expected = rng.choice(["", "\ufeff"]), []
    for _ in range(rng.randrange(6)):
        lines = [
            "".join(rng.choices(ALPHABET, k=rng.randrange(6))) for _ in range(rng.choice([1, 1, 3]))
        ]
        for line in lines:
            noise = rng.choice(NOISE)
            body += noise + rng.choice(ends) if noise else ""
            # One space after the colon is not part of the value; without it none may lead.
            space = " " if line.startswith(" ") else rng.choice(["", " "])
            body += f"data:{space}{line}" + rng.choice(ends)
        body += rng.choice(ends)
        expected.append("\n".join(lines).encode())
        body += rng.choice(["", rng.choice(ends)])
    return body.encode() + rng.choice([b"", b"data: unfinished"]), expected


def split(rng: random.Random, body: bytes) -> list[bytes]:
    if rng.random() < 0.2:
        return [body[at : at + 1] for at in range(len(body))]
    edges = [0, *sorted(rng.choices(range(len(body) + 1), k=rng.randrange(10))), len(body)]
    return [body[before:after] for before, after in pairwise(edges)]


def heard(*pieces: bytes) -> list[tuple[float, bytes]]:
    return list(events((float(at), piece) for at, piece in enumerate(pieces)))


@settings(max_examples=2000, deadline=None)
@given(SEEDS)
def test_any_split_of_a_valid_stream_gives_the_same_events(seed):
    rng = random.Random(seed)
    body, expected = valid_stream(rng)
    assert [data for _, data in heard(*split(rng, body))] == expected


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_no_bytes_at_all_are_an_error_here(pieces):
    whole = [data for _, data in heard(b"".join(pieces))]
    assert [data for _, data in heard(*pieces)] == whole


def test_an_event_arrives_with_the_byte_that_completes_it():
    pieces = [b"data: a\n\n", b"data: b\n", b"\ndata: c\n\ndata: d\n\n", b": x\n", b"data: e\r\n\r"]
    assert heard(*pieces) == [(0, b"a"), (2, b"b"), (2, b"c"), (2, b"d"), (4, b"e")]


@pytest.mark.parametrize("tail", [b"data: lost", b"data: lost\n", b"data: lost\r\n", b"da"])
def test_an_unfinished_event_is_dropped(tail):
    assert heard(b"data: a\n\n" + tail) == [(0, b"a")]


def test_only_one_space_is_cut_and_empty_data_is_data():
    assert heard(b"data:  a\n\ndata\n\ndata:\n\n:\n\n") == [(0, b" a"), (0, b""), (0, b"")]


def test_a_read_that_looks_like_an_event_may_be_the_rest_of_one():
    assert heard(b"data: a\n\n", b"data: b", b"data: c\n\n") == [(0, b"a"), (2, b"bdata: c")]
    assert heard(b"data: a\n\n", b"data: b\n", b"data: c\n\n") == [(0, b"a"), (2, b"b\nc")]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(st.sampled_from(["data: ", "a", "\n", "\n\n", "\r", ":", "\ufeff"]))))
def test_events_that_come_alone_are_read_as_any_others(pieces):
    body = ["data: " + "".join(piece) + "\n\n" for piece in pieces]
    for chunks in (body, ["".join(piece) for piece in pieces]):
        pieces = [chunk.encode() for chunk in chunks]
        alone = plain(pieces)
        if alone is not None:
            assert list(enumerate(alone)) == list(events(enumerate(pieces)))


def test_events_of_one_line_that_come_alone_are_seen_to():
    pieces = [b"data: a\n\n", b"data: \n\n", b"data: [DONE]\n\n"]
    assert plain(pieces) == [b"a", b"", b"[DONE]"]
    assert plain([]) == []


@pytest.mark.parametrize(
    "chunk",
    [
        b"",
        b": ping\n\n",
        b"data:a\n\n",
        b"data: a\n",
        b"data: a\nb\n\n",
        b"data: a\r\n\n",
        b"data: a\n\ndata: b\n\n",
        b"\xef\xbb\xbfdata: a\n\n",
    ],
)
def test_what_is_more_or_less_than_one_line_is_left_to_the_whole_parser(chunk):
    assert plain([b"data: a\n\n", chunk]) is None


@pytest.mark.parametrize(
    "pieces", [[b"data: a\n", b"\ndata: b\n\n"], [b"data: a\n\nda", b"ta: b\n\n"]]
)
def test_events_that_end_within_a_piece_are_left_to_the_whole_parser(pieces):
    assert plain(pieces) is None
