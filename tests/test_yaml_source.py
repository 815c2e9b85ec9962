import contextlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.definitions.yaml_source import parse, parse_foreign, read
from tuner.errors import DefinitionError


def value_of(text):
    return parse(text, name="x.yaml").value


def refusal(text):
    with pytest.raises(DefinitionError) as error:
        parse(text, name="x.yaml")
    return str(error.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1E3", 1000.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("-1.5e-3", -0.0015),
        ("0", 0),
        ("-12", -12),
        ("0x1F", 31),
        ("0o17", 15),
        ("true", True),
        ("True", True),
        ("TRUE", True),
        ("false", False),
        ("False", False),
        ("FALSE", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("12:30", "12:30"),
        ("07:30", "07:30"),
        ("1:30:00", "1:30:00"),
        ("2024-01-01", "2024-01-01"),
        ("2024-01-01T10:00:00Z", "2024-01-01T10:00:00Z"),
        ("y", "y"),
        ("=", "="),
        ("1.2.3", "1.2.3"),
        ("fp8_e4m3", "fp8_e4m3"),
        ("4MB", "4MB"),
        ("'1'", "1"),
        ('"on"', "on"),
        ("'010'", "010"),
        ("../a b.yaml", "../a b.yaml"),
    ],
)
def test_unquoted_scalars_mean_what_yaml_1_2_says(text, value):
    found = value_of(f"a: {text}\n")["a"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "write"),
    [
        ("yes", "true"),
        ("No", "false"),
        ("ON", "true"),
        ("off", "false"),
        ("010", "10"),
        ("-007", "-7"),
        ("1_000", "1000"),
        ("0b101", "5"),
        ("-0b1_0", "-2"),
        ("0x_ff", "255"),
        ("1_0.5", "10.5"),
    ],
)
def test_what_yaml_versions_read_differently_is_refused_with_what_to_write(text, write):
    message = refusal(f"a: {text}\n")
    assert message.startswith(f"x.yaml:1:4: a: found {text}, which ")
    assert f'write {write}, or quote it if the text is meant: "{text}"' in message


def test_a_number_that_fits_no_float_or_integer_is_refused():
    assert "not" not in refusal("a: 1e999\n")
    assert "too large" in refusal("a: 1e999\n")
    assert "too large" in refusal(f"a: {'9' * 5000}\n")


def test_every_key_and_value_has_its_line_and_column():
    source = parse("a:\n  - b: 1\n    c: {d: x}\n", name="x.yaml")
    assert source.where(("a",)) == "x.yaml:2:3"
    assert source.mark(("a",)) == (2, 3)
    assert source.where(("a",), key=True) == "x.yaml:1:1"
    assert source.where(("a", 0, "b")) == "x.yaml:2:8"
    assert source.where(("a", 0, "c"), key=True) == "x.yaml:3:5"
    assert source.where(("a", 0, "c", "d")) == "x.yaml:3:12"


def test_a_place_that_is_not_there_stands_where_its_parent_does():
    source = parse("a: {b: 1}\n", name="x.yaml")
    assert source.where(("a", "z", 3)) == "x.yaml:1:4"
    assert source.where(("z",)) == "x.yaml:1:1"


def test_an_alias_repeats_a_value_with_marks_of_its_own_place():
    source = parse("a: &x {b: 1}\nc: *x\n", name="x.yaml")
    assert source.value == {"a": {"b": 1}, "c": {"b": 1}}
    assert source.where(("c", "b")) == "x.yaml:1:11"


def test_whole_numbers_as_keys_are_the_text_they_are_written_as():
    assert value_of("a: {1: x, 256: y}\n") == {"a": {"1": "x", "256": "y"}}
    assert "duplicate key '1'" in refusal('a: {1: x, "1": y}\n')


def test_all_faults_of_a_document_are_told_at_once():
    assert refusal("a: on\na: 2\nb: 010\n").count("x.yaml:") == 3


def test_quoting_a_key_makes_it_a_text():
    assert value_of('"on": 1\n"true": 2\n') == {"on": 1, "true": 2}


def test_windows_files_are_read(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_bytes("\ufeffa: 1\r\nb: ü\r\n".encode())
    source = read(path)
    assert source.value == {"a": 1, "b": "ü"}
    assert source.where(("b",)) == f"{path}:2:4"


@pytest.mark.parametrize("name", ["HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD"])
def test_what_may_be_a_secret_is_never_shown(name):
    for text in (f"env: {{{name}: 0123456}}\n", f"{name}: 0123456\n", f"env: {{{name}: on}}\n"):
        message = refusal(text)
        assert "123456" not in message
        assert "found on" not in message
        assert name in message


def test_flags_that_count_tokens_are_no_secrets():
    assert "found 010" in refusal("max-num-batched-tokens: 010\n")


def test_a_file_that_is_not_there_cannot_be_read(tmp_path):
    with pytest.raises(DefinitionError, match=r"a\.yaml: no such file"):
        read(tmp_path / "a.yaml")


@pytest.fixture
def nobody():
    """No more rights than a stranger: root may read everything."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    yield
    os.seteuid(user)


@pytest.fixture
def forbidden(tmp_path):
    path = tmp_path / "a.yaml"
    path.touch(mode=0)
    return path


def test_a_file_without_permission_cannot_be_read(forbidden, nobody):
    with pytest.raises(DefinitionError, match="cannot be read: Permission denied"):
        read(forbidden)


def test_only_regular_files_are_read(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, kind in {pipe: "not a regular file", tmp_path: "a folder"}.items():
        with pytest.raises(DefinitionError, match=f"found {kind}, expected a YAML file"):
            read(path)
    with pytest.raises(DefinitionError, match="cannot be read: Not a directory"):
        read(Path(__file__) / "a.yaml")
    with pytest.raises(DefinitionError, match="not a path that a file can have"):
        read(Path("a\0b"))
    with pytest.raises(DefinitionError, match="cannot be read: File name too long"):
        read(tmp_path / ("x" * 300))


def test_a_file_that_no_person_wrote_is_not_read(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("a: 1\n" * 200_000)
    with pytest.raises(DefinitionError, match="larger than 500000 bytes"):
        read(path)


def test_the_name_in_messages_can_be_chosen(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("a: on\n")
    with pytest.raises(DefinitionError, match=r"^study\.yaml:1:4: a: found on"):
        read(path, name="study.yaml")


LETTERS = st.characters(codec="ascii", exclude_categories=["Cc"]) | st.sampled_from("äß漢")
TEXTS = st.text(LETTERS, max_size=6)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner),
    max_leaves=8,
)


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(st.text(st.characters(codec="ascii", categories=["L"]), min_size=1), JSON))
def test_json_is_yaml_with_the_same_values(value):
    if value:
        assert value_of(json.dumps(value, ensure_ascii=False)) == value


@settings(deadline=None)
@given(st.text(alphabet="0123456789_abxoe+-.", min_size=1, max_size=24))
def test_anything_like_a_number_is_a_value_or_is_refused(text):
    with contextlib.suppress(DefinitionError):
        assert isinstance(value_of(f"a: {text}\n")["a"], int | float | str | list | None)


@pytest.mark.parametrize("text", ["0" * 5000, "0b" + "1" * 9000, "0x" + "_f" * 9000, "1_" * 9000])
def test_numbers_without_end_are_no_matter(text):
    with contextlib.suppress(DefinitionError):
        assert value_of(f"a: {text}\n")["a"] == text


def test_half_of_a_surrogate_pair_is_no_text():
    assert "found half of a character" in refusal('"\\ud800": a\n')
    assert "found half of a character" in refusal('a: "\\ud800"\n')


@settings(deadline=None, max_examples=60)
@given(st.text(alphabet="ab:-[]{}#&*!|>'\"%@`,? \n\t0_.", max_size=40))
def test_any_text_is_a_value_or_is_refused_with_a_place(text):
    places = []
    try:
        parse(text, name="x.yaml")
    except DefinitionError as error:
        places = [problem.where for problem in error.problems]
    assert all(place.startswith("x.yaml:") for place in places)


def test_somebody_elses_file_is_read_as_texts():
    text = "a: &x {p: 12:30, q: yes, r: 010, s: 1e3}\nb: {<<: *x, n: ~, m:}\n---\nc: [1, 'null']\n"
    base = {"p": "12:30", "q": "yes", "r": "010", "s": "1e3"}
    assert parse_foreign(text, name="x.yaml") == [
        {"a": base, "b": {**base, "n": None, "m": None}},
        {"c": ["1", "null"]},
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: !reset x", "x.yaml:1:4: not YAML: could not determine a constructor"),
        ("a: [", "x.yaml:1:5"),
        ("a: *q", "x.yaml:1:4: found an alias"),
        ("- " * 40, "nested deeper than 30 levels"),
        ("a: \x01", "the control character U+0001"),
    ],
)
def test_what_is_wrong_with_somebody_elses_file_is_said_alike(text, message):
    with pytest.raises(DefinitionError) as error:
        parse_foreign(text, name="x.yaml")
    assert message in str(error.value)


@pytest.mark.parametrize("text", [r'a: "x\0y"', r'"a\x1b": 1', r'a: "\u0085"'])
def test_a_control_character_that_is_written_as_an_escape_is_refused(text):
    with pytest.raises(
        DefinitionError, match=r"found the control character U\+00.., expected text"
    ):
        parse(text, name="a.yaml")


def test_tabs_and_line_ends_are_text():
    assert parse(r'a: "x\ty\n"', name="a.yaml").value == {"a": "x\ty\n"}
