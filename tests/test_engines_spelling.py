"""Flags and variables as text, for any engine."""

from tuner.engines.spelling import shell_word, shown_argv, shown_env, spell, unset_references


def test_flags_are_spelt_in_the_order_they_were_asked_for():
    flags = {"b": 1, "--a": 0.5, "c": None, "d_e": True, "f": "", "g": -0.5}
    assert spell(flags, {}) == ("--b", "1", "--a", "0.5", "--d-e", "--f", "", "--g", "-0.5")


def test_a_style_holds_for_every_spelling_of_its_flag():
    assert spell({"a-b": False}, {"--a_b": "negation"}) == ("--no-a-b",)


def test_a_secret_that_is_a_reference_already_stays_what_it_was():
    assert shown_env({"HF_TOKEN": "${MY_TOKEN}"}) == {"HF_TOKEN": "${MY_TOKEN}"}
    assert shown_env({"HF_TOKEN": "hf-${X}"}) == {"HF_TOKEN": "${HF_TOKEN}"}


def test_secrets_are_hidden_in_both_ways_to_give_a_flag_a_value():
    argv = ("p", "--api-key", "sk-1", "--x.password=pw", "--flag", "--other", "v")
    assert shown_argv(argv) == (
        *("p", "--api-key", "${API_KEY}", "--x.password=${X_PASSWORD}", "--flag", "--other", "v"),
    )


def test_a_secret_that_a_prefix_assigns_is_hidden():
    argv = ("env", "HF_TOKEN=hf_abc", "A=b", "--env", "NGC_TOKENS=x", "vllm", "--api-key", "a2V5=")
    assert shown_argv(argv) == (
        *("env", "HF_TOKEN=${HF_TOKEN}", "A=b", "--env", "NGC_TOKENS=${NGC_TOKENS}", "vllm"),
        *("--api-key", "${API_KEY}"),
    )
    assert shown_argv(("env", "HF_TOKEN=${MINE}")) == ("env", "HF_TOKEN=${MINE}")


def test_only_whole_references_are_left_to_the_shell():
    assert shell_word("plain") == "plain"
    assert shell_word("") == "''"
    assert shell_word("$A ${A-b}") == "'$A ${A-b}'"
    assert shell_word("x ${A}") == "'x '\"${A:?set A}\""


def test_references_that_nothing_sets_are_found(monkeypatch):
    monkeypatch.setenv("SET_HERE", "1")
    assert unset_references(["${SET_HERE} ${B_NOT}", "${A_NOT}", "${B_NOT}"]) == ["A_NOT", "B_NOT"]


def test_a_secret_behind_a_short_option_is_hidden_too():
    assert shown_argv(("run", "-e=HF_TOKEN=hf_1", "--env=HF_TOKEN=hf_1", "-e=A=b")) == (
        *("run", "-e=HF_TOKEN=${HF_TOKEN}", "--env=HF_TOKEN=${HF_TOKEN}", "-e=A=b"),
    )
