"""Another Python answers a question, or nothing is known."""

import sys

import pytest

from tuner.flags.python import Python

ECHO = "import json, os, sys; print('loading'); print(json.dumps([sys.argv[1:], os.environ['X']]))"


def asked(source: str, *arguments: str, words=(sys.executable,), timeout_s: float = 30.0):
    return Python(words=words, env={"X": "of the launch"}).answer(
        source, *arguments, timeout_s=timeout_s
    )


def test_the_last_line_counts_and_the_variables_are_those_of_the_launch():
    assert asked(ECHO, "a", "b c") == [["a", "b c"], "of the launch"]


@pytest.mark.parametrize(
    "source",
    [
        "",
        "print('no JSON')",
        "raise SystemExit(1)",
        "import sys; sys.stdout.buffer.write(b'\\xff')",
    ],
)
def test_no_answer_is_none(source):
    assert asked(source) is None


def test_who_does_not_run_or_never_answers_has_said_nothing():
    assert asked(ECHO, words=("/nowhere/python",)) is None
    assert asked("import time; time.sleep(60)", timeout_s=0.2) is None
