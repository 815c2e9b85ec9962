"""Flags and variables as text, for any engine."""

import pytest

from tuner.engines.spelling import (
    canonical,
    is_secret,
    is_variable,
    shell_word,
    shown_argv,
    shown_env,
    spell,
    unset_references,
)


def test_a_flag_has_one_name_however_it_is_written():
    assert canonical("--tp_size") == canonical("tp-size") == "tp-size"
    assert canonical("--compilation_config.cudagraph_mode") == "compilation-config.cudagraph_mode"


def test_flags_are_spelt_in_the_order_they_were_asked_for():
    flags = {"b": 1, "--a": 0.5, "c": None, "d_e": True, "f": "", "g": -0.5}
    assert spell(flags, {}) == ("--b", "1", "--a", "0.5", "--d-e", "--f", "", "--g", "-0.5")


def test_a_style_holds_for_every_spelling_of_its_flag():
    assert spell({"a-b": False}, {"--a_b": "negation"}) == ("--no-a-b",)


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "OPENAI_API_KEY", "APITOKEN", "AWS_ACCESS_KEY_ID", "--api-key", "ssl-password"],
)
def test_names_of_secrets_are_known(name):
    assert is_secret(name, "x")


@pytest.mark.parametrize(
    "name",
    [
        *("max-num-batched-tokens", "tokenizer", "long-prefill-token-threshold", "keyframes"),
        *("SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION", "TOKENIZERS_PARALLELISM", "MONKEY"),
    ],
)
def test_names_that_only_look_like_secrets_are_not(name):
    assert not is_secret(name, "x")


def test_a_password_in_an_address_is_a_secret_under_any_name():
    assert is_secret("PROXY", "http://me:pw@host:1")
    assert not is_secret("PROXY", "http://host:1/a@b")


def test_a_secret_that_is_a_reference_already_stays_what_it_was():
    assert shown_env({"HF_TOKEN": "${MY_TOKEN}"}) == {"HF_TOKEN": "${MY_TOKEN}"}
    assert shown_env({"HF_TOKEN": "hf-${X}"}) == {"HF_TOKEN": "${HF_TOKEN}"}


def test_secrets_are_hidden_in_both_ways_to_give_a_flag_a_value():
    argv = ("p", "--api-key", "sk-1", "--x.password=pw", "--flag", "--other", "v")
    assert shown_argv(argv) == (
        *("p", "--api-key", "${API_KEY}", "--x.password=${X_PASSWORD}", "--flag", "--other", "v"),
    )


def test_only_whole_references_are_left_to_the_shell():
    assert shell_word("plain") == "plain"
    assert shell_word("") == "''"
    assert shell_word("$A ${A-b}") == "'$A ${A-b}'"
    assert shell_word("x ${A}") == "'x '\"${A:?set A}\""


def test_references_that_nothing_sets_are_found(monkeypatch):
    monkeypatch.setenv("SET_HERE", "1")
    assert unset_references(["${SET_HERE} ${B_NOT}", "${A_NOT}", "${B_NOT}"]) == ["A_NOT", "B_NOT"]


def test_a_shell_assigns_names_of_letters_digits_and_underscores():
    assert is_variable("A_1")
    assert not is_variable("1A")
    assert not is_variable("A-B")
