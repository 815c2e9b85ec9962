"""What is written is read back the same, by readers old and new."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tuner.definitions.yaml_source import parse
from tuner.definitions.yaml_writer import write

TRICKY = [
    *("", " ", "a b", "it's", 'say "x"', "$HOME", "100%", "a: b", "a #b", "- x", "--", "---"),
    *("...", "yes", "NO", "on", "y", "true", "null", "~", "1e-3", "010", "0x1F", "1_000", "12:30"),
    *("2026-01-02", ".inf", ".nan", "=", "<<", "!tag", "&a", "*a", "?", "|", ">", "@a", "`a`"),
    *("{a: 1}", "[1, 2]", "line\nbreak", "tab\there", "trailing ", " leading", "größe 数"),
    *("\x1b[0m", "\u2028", "x" * 300, '{"mode": "O3", "sizes": [1, 2]}', "--flag", "-1", "+1"),
    *(".5", "5.", "0b1", "back\\slash"),
]  # fmt: skip


@pytest.mark.parametrize("text", TRICKY)
def test_a_text_stays_that_text(text):
    for value in ({"key": text}, [text], {"a": {text: 1}}):
        written = write(value)
        assert yaml.safe_load(written) == value


@given(st.dictionaries(st.text(), st.one_of(st.text(), st.integers(), st.booleans(), st.none())))
def test_any_values_come_back(value):
    assert yaml.safe_load(write(value)) == value


@pytest.mark.parametrize("text", [t for t in TRICKY if t.isprintable()])
def test_the_reader_of_definitions_agrees(text):
    value = {"key": text, "number": 0.9, "whole": 8192, "off": False, "none": None}
    assert parse(write(value), name="written").value == value


def test_what_only_newer_readers_take_for_a_number_is_quoted():
    assert write({"a": "1e-3", "b": "0o17"}) == 'a: "1e-3"\nb: "0o17"\n'


def test_plain_words_stay_plain_and_keys_in_order():
    assert write({"b": ["--tp-size", "8"], "a": "/models/x"}) == (
        'b:\n  - --tp-size\n  - "8"\na: /models/x\n'
    )


def test_one_value_in_two_places_is_written_twice():
    shared = {"app": "x"}
    assert write({"a": shared, "b": shared}) == "a:\n  app: x\nb:\n  app: x\n"
