"""A shell text is read as a shell reads it, and what would have to be run is said, not guessed."""

import subprocess
from pathlib import Path

import pytest

from tuner.starting.shell import PLACEHOLDER, Unreadable, read

HOME = {"HOME": "/home/me"}


def words(text: str, **variables: str) -> list[tuple[str, ...]]:
    return [command.words for command in read(text, Path("/w"), {**HOME, **variables}).commands]


def bash(text: str) -> list[str]:
    """The words that a real shell hands to a program called `say`."""
    script = f"say() {{ printf '%s\\0' \"$@\"; }}\n{text}\n"
    done = subprocess.run(
        ["bash", "-c", script], env=HOME, cwd="/", capture_output=True, text=True, check=True
    )
    return done.stdout.split("\0")[:-1]


@pytest.mark.parametrize(
    "text",
    [
        'M=${M:-zai-org/GLM-4.6-FP8}; say $M x${N:-8-0}y "${O:=a-b-c}" ${P--1} ${Q:-a.b-c_d/e:f}',
        'A=(\n  # one\n  --tp 4   # four\n  --x\n)\nA+=(--y  # more\n)\nsay "${A[@]}"',
        "say a 'b c' \"d e\" f\\ g",
        'say --x=\'{"a": [1, 2], "b": "c d"}\' --y="{\\"a\\": 1}"',
        "say 'it'\\''s' \"it's\" \"a\\nb\" 'a\\nb' $'a\\tb'",
        "say a \\\n  b \\\n  c # a comment",
        "say a#b '#c' -1 -0.5 1e-3 007",
        'A=1; say $A ${A} "$A" "x${A}y" x$A\'$A\'',
        'A="--tp 8"; say $A "$A" x $B y',
        "A=(--tp 8 'a b'); A+=(c); say \"${A[@]}\"",
        "A=x; A+=y; say $A",
        "say ~/models ~ '~/x' a~/b --p=~/x",
        'say "  $HOME  " " a "',
        "say ${A:-b} ${A-b} ${HOME:-x} ${A:-$HOME/c}",
        'say "a\'b" \'a"b\' "\\$A \\` \\\\"',
        "(cd /tmp; say a) && say b || say c",
        "{ say a; }; say b | cat",
        "say a > /dev/null; say b 2>&1 < /dev/null &",
        "declare X=1; export Y=2 Z; say $X$Y",
        "say größe 数 'é'",
        'say "$(pwd)x"',
    ],
)
def test_words_are_those_of_a_real_shell(text):
    # What has no value is kept as a reference here, and nothing in a shell without it.
    read_words = [
        w
        for command in read(text, Path("/"), HOME).commands
        for w in command.words[1:]
        if command.words[0] == "say" and not w.startswith("${")
    ]
    said = bash(text.replace(" > /dev/null", "").replace(" &&", ";").replace(" || say c", ""))
    assert [w for w in read_words if w != "c" or "||" not in text] == said


def test_what_is_exported_reaches_the_command_and_what_is_only_set_does_not():
    script = read("export A=1\nB=2\nC=3 run x", Path("/w"), {})
    assert dict(script.commands[-1].env) == {"A": "1", "C": "3"}


def test_a_variable_without_a_value_stays_a_reference():
    assert words('run "$HF_TOKEN" ${X}/y') == [("run", "${HF_TOKEN}", "${X}/y")]


def test_a_default_is_taken_and_said():
    script = read("run ${TP:-8} $TP ${PP:=2} $PP", Path("/w"), {})
    assert script.commands[0].words == ("run", "8", "${TP}", "2", "2")
    assert script.defaults[0] == "TP was taken as its default, '8'"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$ run a \\\n>   b", ("run", "a", "b")),
        ("(env) me@host:~/x$ run a", ("run", "a")),
        ("!run a", ("run", "a")),
        ("```bash\nrun a\n```", ("run", "a")),
        ("run a \\  \n  b", ("run", "a", "b")),
        ("run a \\\r\n  b\r\n", ("run", "a", "b")),
    ],
)
def test_prompts_fences_and_blanks_of_a_paste_are_no_part_of_it(text, expected):
    assert words(text) == [expected]


def test_a_placeholder_is_a_word_and_no_file():
    assert words("run -e A=<your token> <model> < in.txt") == [
        ("run", "-e", f"A={PLACEHOLDER}your-token", f"{PLACEHOLDER}model")
    ]


def test_the_folder_is_followed():
    script = read("cd sub/dir && run x", Path("/w"), {})
    assert script.commands[-1].folder == Path("/w/sub/dir")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("run $(ls)", "line 1: cannot read the output of a command, '$(ls)'"),
        ("run `ls`", "the output of a command, '`ls`'"),
        ("\nrun $((1 + 1))", "line 2: cannot read arithmetic"),
        ("run {1..3}", "a brace expansion"),
        ("run $1", "a parameter of the script, '$1'"),
        ('run "$@"', "a parameter of the script"),
        ("run ${X%.txt}", "an expansion"),
        ("for i in 1; do run $i; done", "a loop"),
        ("if true; then run; fi", "an if"),
        ("f() { run; }", "a function"),
    ],
)
def test_what_would_have_to_be_run_is_kept_aside_with_the_reason(text, part):
    script = read(text, Path("/w"), {})
    assert script.commands == ()
    ((_, why),) = script.unread
    assert part in why.message


def test_a_variable_that_depends_on_it_is_unknown_until_it_is_set_again():
    script = read("A=$(ls)\nrun $A\nA=1\nrun $A", Path("/w"), {})
    assert [command.words for command in script.commands] == [("run", "1")]
    assert len(script.unread) == 2


@pytest.mark.parametrize("text", ["A=($(ls))\nA+=(--x)\nsay ${A[@]}", "A=$(ls)\nA+=x\nsay $A"])
def test_what_is_appended_to_the_unknown_is_unknown_too(text):
    script = read(text, Path("/w"), HOME)
    assert script.commands == ()
    assert {str(why).partition("\n")[0] for _, why in script.unread} == {
        "line 1: cannot read the output of a command, '$(ls)', without running it"
    }


@pytest.mark.parametrize("text", ["run 'a", "run )", "run $(", "if x; then"])
def test_what_is_no_shell_is_said_with_its_line(text):
    with pytest.raises(Unreadable, match="cannot be read as shell"):
        read(f"ok\n{text}", Path("/w"), {})
