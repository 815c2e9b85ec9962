"""Traces: each pair of names, and each fault with its line."""

import json

import pytest

from tuner.definitions.models import MAX_TOKENS
from tuner.definitions.trace import Trace, read_trace


@pytest.fixture
def read(tmp_path):
    def read(*lines):
        path = tmp_path / "t.jsonl"
        path.write_text("\n".join(x if isinstance(x, str) else json.dumps(x) for x in lines))
        return read_trace(path, "t.jsonl")

    return read


def said(problems):
    return [f"{problem.where}: {problem.message}" for problem in problems]


@pytest.mark.parametrize(
    "line",
    [
        {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]},
        {"prompt_tokens": 6955, "completion_tokens": 52, "model": "m"},
        {"input_tokens": 6955, "output_tokens": 52},
        {"prompt_len": 6955, "output_len": 52},
    ],
)
def test_lengths_have_several_names(read, line):
    assert read(line).lengths == ((6955, 52),)


def test_times_are_seconds_since_the_first_request(read):
    lines = [{"timestamp": at, "input_length": 2, "output_length": 1} for at in (500, 500, 3250.5)]
    assert read(*lines) == Trace(lengths=((2, 1),) * 3, offsets_s=(0.0, 0.0, 2.7505))


def turns(*said):
    return {"conversations": [{"from": who, "value": what} for who, what in said]}


def test_of_a_conversation_the_first_question_that_is_answered_is_asked(read):
    told = turns(("system", "Be brief."), ("human", "x" * 40), ("gpt", "y" * 8), ("human", "more"))
    other = turns(("user", "Hi"), ("assistant", "Hello there."))
    found = read(told | {"id": "a"}, other)
    assert found == Trace(lengths=((10, 2), (1, 3)), texts=("x" * 40, "Hi"))
    assert found.estimated


def test_a_trace_may_be_one_list(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(json.dumps([turns(("human", "Hi"), ("gpt", "Hello"))] * 2, indent=1))
    assert read_trace(path, "t.json") == Trace(lengths=((1, 1),) * 2, texts=("Hi", "Hi"))
    path.write_text('[{"input_length": 1}, 3]')
    assert said(read_trace(path, "t.json")) == [
        "t.json: entry 1: missing key 'output_length'",
        "t.json: entry 2: found the number 3, expected an object such as "
        '{"input_length": 6755, "output_length": 500}',
    ]


def test_conversations_without_an_answer_are_left_out_and_counted(read):
    silent = [turns(), turns(("human", "Hi")), turns(("gpt", "a"), ("human", " "), ("gpt", "b"))]
    assert read(*silent, turns(("human", "Hi"), ("gpt", "Ho"))).left_out == 3
    assert said(read(*silent)) == ["t.jsonl: no question is answered in 3 conversations"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (turns(("human", "a"), ("gpt", "b")), "found a conversation, and the requests before are"),
        ({"input_length": 1, "output_length": 1}, "missing key 'timestamp', which the requests be"),
        (
            {"input_length": 1, "output_length": 1, "timestamp": 4},
            "timestamp: found 4, expected at least 5, that of the request before",
        ),
    ],
)
def test_a_request_is_like_those_before_it(read, line, message):
    first = {"input_length": 1, "output_length": 1, "timestamp": 5}
    assert said(read(first, line))[0].startswith(f"t.jsonl:2:1: {message}")


def test_a_time_stands_at_all_requests_or_at_none(read):
    plain = {"input_length": 1, "output_length": 1}
    assert said(read(plain, plain | {"timestamp": 1})) == [
        "t.jsonl:2:1: found a timestamp, and the requests before have none"
    ]


def test_requests_keep_their_order_and_empty_lines_are_skipped(read):
    first, second = ({"input_tokens": n, "output_tokens": 1} for n in (2, 1))
    assert read(first, "", second, "  ") == Trace(lengths=((2, 1), (1, 1)))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", 'not JSON, expected one object a line, such as {"input_length": 6755, "output_'),
        ("[1, 2]", "found a list, expected an object such as"),
        ("12", "found the number 12, expected an object such as"),
        ({"timestamp": 1}, "no lengths, expected input_length and output_length or input_tokens"),
        ({"input_length": 1}, "missing key 'output_length'"),
        ({"input_length": -1, "output_length": 1}, "input_length: found -1, expected at least 1"),
        ({"input_length": 1, "output_length": 0}, "output_length: found 0, expected at least 1"),
        (
            {"prompt_tokens": 10**9, "completion_tokens": 1},
            f"prompt_tokens: found 1000000000, expected at most {MAX_TOKENS}, which no context",
        ),
        (
            {"input_tokens": "7", "output_tokens": 1},
            "input_tokens: found the text '7', expected a whole number of tokens",
        ),
        ({"input_tokens": 7.5, "output_tokens": 1}, "input_tokens: found the number 7.5, expected"),
        ({"input_tokens": True, "output_tokens": 1}, "input_tokens: found true, expected a whole"),
        (
            {"input_length": 1, "output_length": 1, "timestamp": "noon"},
            "timestamp: found the text 'noon', expected milliseconds, 0 or more",
        ),
        ({"conversations": "Hi"}, "conversations: found the text 'Hi', expected a list of turns"),
        ({"conversations": [3]}, "conversations: turn 1: found the number 3, expected an object"),
        ({"conversations": [{"from": "human"}]}, "conversations: turn 1: missing key 'value'"),
        (
            {"conversations": [{"from": "human", "value": None}]},
            "conversations: turn 1: value: found nothing (null), expected a text",
        ),
    ],
)
def test_a_fault_is_told_with_its_line(read, line, message):
    good = {"input_length": 1, "output_length": 1}
    (found,) = said(read(good, line))
    assert found.startswith(f"t.jsonl:2:1: {message}")


def test_an_empty_trace_is_a_fault(read):
    assert said(read("")) == ["t.jsonl: the trace is empty, expected one request a line"]


def test_many_faults_are_counted(read):
    found = said(read(*(["x"] * 12)))
    assert len(found) == 6
    assert found[-1] == "t.jsonl:6:1: 7 more faults from here on"


def test_what_is_no_text_at_all_is_a_fault_of_its_line(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"\xff\xfe\x00\x01\n" + b"[" * 100_000)
    found = said(read_trace(path, "t.jsonl"))
    assert [line.partition(": ")[2][:8] for line in found] == ["not JSON", "not JSON"]


def test_a_trace_that_cannot_be_read_or_is_huge_is_a_fault(tmp_path, monkeypatch):
    assert said(read_trace(tmp_path / "no", "no")) == [
        "no: cannot be read: No such file or directory"
    ]
    monkeypatch.setattr("tuner.definitions.trace.MAX_BYTES", 10)
    (tmp_path / "t").write_text("x" * 11)
    assert said(read_trace(tmp_path / "t", "t")) == ["t: larger than 0 MB"]
