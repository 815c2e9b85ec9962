import json

import pytest

from tuner.definitions.findings import Findings
from tuner.definitions.models import Objective
from tuner.definitions.objective_checks import check_objective
from tuner.definitions.yaml_source import parse
from tuner.errors import DefinitionError

LOAD = "input_tokens: 8\noutput_tokens: 8\n"


def said_of(text, load=LOAD):
    source, findings = parse(text + load, name="x"), Findings()
    check_objective(source, Objective.model_validate_json(json.dumps(source.value)), findings)
    try:
        findings.settled(())
    except DefinitionError as error:
        return [f"{problem.where}: {problem.message}" for problem in error.problems]
    return []


def test_nothing_is_said_of_rising_falling_and_bounded_rungs():
    assert said_of("ladder: [{concurrency: 8}, {concurrency: 1, slos: [ttft_ms p99 <= 5]}]\n") == []


def test_a_rung_that_comes_again_is_told_each_time():
    said = said_of("ladder: [{concurrency: 1}, {concurrency: 1}, {concurrency: 1}]\n")
    assert said == [
        "x:1:42: concurrency 1 again, first on line 1",
        "x:1:60: concurrency 1 again, first on line 1",
    ]


def test_slos_are_read_for_all_rungs_and_for_each():
    text = "slos: [a]\nladder: [{concurrency: 1, slos: [b, tpot_ms p50 < 9]}]\n"
    assert [line.split(":")[2] for line in said_of(text)] == ["8", "34"]


@pytest.mark.parametrize(
    ("lengths", "said"),
    [
        ("trace: t.jsonl\n", []),
        ("input_tokens: 8\n", ["missing key 'output_tokens'"]),
        ("", ["missing key 'input_tokens'", "missing key 'output_tokens'"]),
        (
            "trace: t.jsonl\noutput_tokens: 8\n",
            ["stands beside a trace, which has lengths of its own"],
        ),
    ],
)
def test_lengths_are_said_once(lengths, said):
    found = said_of("ladder: [{concurrency: 1}]\n", lengths)
    assert [problem.partition(": ")[2] for problem in found] == said
