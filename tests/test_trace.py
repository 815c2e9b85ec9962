"""Traces: each pair of names, and each fault with its line."""

import json

import pytest

from tuner.definitions.trace import MAX_TOKENS, Trace, read_trace


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
    assert read(line) == Trace(lengths=((6955, 52),))


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
