"""`tuner init` as it is typed: where it writes, what it says, how it fails; completion."""

import io
import json
import os
import subprocess
import sys

import pytest

from tests.test_starting_corpus import CORPUS
from tuner import cli
from tuner.night.opening import open_study
from tuner.verbs import inspect


@pytest.fixture
def tree(tmp_path, monkeypatch):
    for kind in ("search_spaces", "objectives"):
        (tmp_path / kind).symlink_to(CORPUS / kind)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    return tmp_path


@pytest.fixture
def typed(monkeypatch, capsys):
    """Type `tuner init ...`: (exit code, stdout, stderr)."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)

    def run(*words: str, stdin: str = "") -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["tuner", "init", *words])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        captured = capsys.readouterr()
        return stopped.value.code, captured.out, captured.err

    return run


def test_a_command_becomes_a_study_that_check_accepts(tree, typed):
    launch = "HF_TOKEN=hf_x vllm serve m -tp 2 --max-num-seqs 64 --port 1"
    code, out, err = typed("a", "--from", launch)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "studies/a/study.yaml: vllm, m, 2 GPUs",
        "  baseline: max-num-seqs",
        "  fixed:    tensor-parallel-size, HF_TOKEN",
        "  serve:    port 1",
        "  space:    ../../search_spaces/vllm.yaml,"
        " objective ../../objectives/throughput-1-10-256-1024.yaml",
        "  set before a run: HF_TOKEN",
        "next: tuner check studies/a, then tuner plan studies/a",
    ]
    assert inspect.check(tree / "studies" / "a").engine == "vllm"


def test_a_file_and_standard_input_are_read_alike(tree, typed):
    (tree / "serve.sh").write_text("vllm serve m\n")
    assert typed("a", "--from", "serve.sh")[0] == 0
    assert typed("b", "--from", "-", stdin="vllm serve m\n")[0] == 0
    a, b = ((tree / "studies" / name / "study.yaml").read_text() for name in "ab")
    assert a.replace("serve.sh, line 1", "standard input") == b


def test_standard_input_may_be_a_manifest_of_which_one_service_is_named(tree, typed):
    text = (CORPUS / "bad_two_services.yaml").read_text()
    assert typed("a", "--from", "-", stdin=text)[0] == 1
    assert typed("a", "--from", "-", "--service", "embed", stdin=text)[0] == 0
    assert "Qwen3-Embedding" in (tree / "studies" / "a" / "study.yaml").read_text()


def test_an_engine_and_a_model_are_enough(tree, typed):
    assert typed("a", "--engine", "sglang", "--model", "my org/m")[0] == 0
    text = (tree / "studies" / "a" / "study.yaml").read_text()
    assert "command: [sglang, serve]" in text
    assert 'model: "my org/m"' in text


def test_a_name_may_be_a_path(tree, typed):
    assert typed("sub/a", "--from", "vllm serve m")[0] == 0
    assert (tree / "sub" / "a" / "study.yaml").exists()


def test_where_no_tree_has_them_definitions_are_copied_and_it_is_said(tree, typed):
    (tree / "search_spaces").unlink()
    code, out, _ = typed("a", "--from", "VLLM_CPU_KVCACHE_SPACE=1 vllm serve m", "--json")
    assert code == 0
    assert json.loads(out)["copied"] == ["space.yaml"]
    (tree / "objectives").unlink()
    out = typed("b", "--from", "VLLM_CPU_KVCACHE_SPACE=1 vllm serve m")[1]
    assert "(copies of the shipped ones: the folder stands alone)" in out
    inspect.check(tree / "studies" / "b")


def test_a_space_and_an_objective_of_ones_own(tree, typed):
    space, objective = CORPUS / "search_spaces/vllm-cpu.yaml", CORPUS / "objectives/vllm-cpu.yaml"
    options = ("--space", str(space), "--objective", str(objective))
    assert typed("a", "--from", "vllm serve m", *options)[0] == 0
    assert open_study(tree / "studies" / "a").space.parameters.keys() >= {"threads"}


def test_a_version_that_a_space_needs_is_asked_for(tree, typed):
    (tree / "search_spaces").unlink()
    (tree / "search_spaces").mkdir()
    text = (CORPUS / "search_spaces" / "vllm.yaml").read_text()
    text = text.replace("block-size: {", "block-size: {versions: '>=0.10', ")
    (tree / "search_spaces" / "vllm.yaml").write_text(text)
    launch = "/no/such/python -m vllm.entrypoints.openai.api_server --model m --block-size 16"
    code, _, err = typed("a", "--from", launch)
    assert code == 1
    assert "does not say which version it has, and vllm.yaml differs by version" in err
    assert "--engine-version" in err
    assert typed("a", "--from", launch, "--engine-version", "0.9.0")[0] == 0
    study = open_study(tree / "studies" / "a")
    assert study.definition.fixed.flags == {"block-size": 16}
    image = "docker run --gpus 1 vllm/vllm-openai:v0.11.0 --model m --block-size 16"
    assert typed("b", "--from", image)[0] == 0
    study = open_study(tree / "studies" / "b")
    assert study.definition.baseline["block-size"] == 16


def test_what_a_variable_holds_here_is_never_written(tree, typed, monkeypatch):
    monkeypatch.setenv("SOME_SETTING", "a-secret")
    monkeypatch.setenv("HOME", "/home/me")
    (tree / "compose.yaml").write_text(
        "services: {a: {image: 'vllm/vllm-openai:v0.11.0',"
        " command: '--model m -q ${SOME_SETTING}'}}"
    )
    assert typed("a", "--from", "vllm serve ~/m --note $SOME_SETTING --dir $HOME/x")[0] == 0
    assert typed("b", "--from", "compose.yaml")[0] == 0
    a, b = ((tree / "studies" / name / "study.yaml").read_text() for name in "ab")
    assert "a-secret" not in a + b
    assert 'note: "${SOME_SETTING}"' in a
    assert 'quantization: "${SOME_SETTING}"' in b
    assert "model: /home/me/m" in a
    assert "dir: /home/me/x" in a


def test_paths_are_those_of_the_folder_where_the_command_runs(tree, typed):
    (tree / "models" / "m").mkdir(parents=True)
    (tree / "templates").mkdir()
    (tree / "templates" / "t.jinja").write_text("")
    assert typed("a", "--from", "vllm serve models/m --chat-template templates/t.jinja")[0] == 0
    study = open_study(tree / "studies" / "a").definition
    assert study.model == str(tree / "models" / "m")
    assert study.fixed.flags["chat-template"] == str(tree / "templates" / "t.jinja")


@pytest.mark.parametrize(
    ("launch", "gpus", "said"),
    [
        ("docker run --gpus 4 vllm/vllm-openai:v0.11.0 --model m -tp 2", 4, False),
        ("CUDA_VISIBLE_DEVICES=0,1 vllm serve m", 2, False),
        ("CUDA_VISIBLE_DEVICES=0 vllm serve m -tp 2 -pp 2", 4, True),
        ("sglang serve --model-path m --tp 2 --dp 4", 8, False),
        ("sglang serve --model-path m --tp 8 --dp 4 --enable-dp-attention", 8, False),
    ],
)
def test_gpus_are_those_that_were_given_or_else_are_needed(tree, typed, launch, gpus, said):
    code, out, _ = typed("a", "--from", launch, "--json")
    assert code == 0
    answer = json.loads(out)
    assert answer["gpus"] == gpus
    assert ("1 GPUs were given, and the command needs 4" in answer["left_out"]) is said


def test_an_existing_study_is_never_touched(tree, typed):
    typed("a", "--from", "vllm serve m")
    code, _, err = typed("a", "--from", "vllm serve other")
    assert code == 1
    assert err.splitlines()[0] == "tuner: studies/a: there is a study already"
    assert "model: m" in (tree / "studies" / "a" / "study.yaml").read_text()


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("a",), 2, "give --from LAUNCH, or --engine and --model"),
        (("a", "--engine", "vllm"), 2, "give --from LAUNCH"),
        (("a", "--from", "x", "--engine", "vllm", "--model", "m"), 2, "give --from LAUNCH"),
        (("a", "--from", "no-such.sh"), 1, "no-such.sh: no such file or directory"),
        (("a", "--from", "."), 1, ".: is a directory"),
        (("a", "--from", "-"), 1, "- is empty, expected a launch"),
        (("a", "--from", " "), 1, "the command is empty, expected a launch"),
        (("a", "--from", "vllm serve m", "--service", "x"), 1, "found a command"),
        (("..", "--from", "vllm serve m"), 1, "'..' is no name for a study"),
        (("a", "--from", "vllm serve m", "--space", "none.yaml"), 1, "none.yaml: no such file"),
        (("a", "--from", "vllm serve m", "--engine-version", "new"), 1, "expected a version"),
    ],
)
def test_what_cannot_be_done_is_one_message_and_nothing_is_written(
    tree, typed, words, code, sentence
):
    found, out, err = typed(*words)
    assert (found, out) == (code, "")
    assert sentence in err
    assert "Traceback" not in err
    assert not (tree / "studies").exists()


def test_a_shell_completes_verbs_and_options():
    words = {"COMP_WORDS": "tuner ini", "COMP_CWORD": "1", "_TUNER_COMPLETE": "bash_complete"}
    done = subprocess.run(
        [sys.executable, "-m", "tuner"],
        env={**os.environ, **words},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "plain,init\n"
    source = {**os.environ, "_TUNER_COMPLETE": "bash_source"}
    script = subprocess.run(
        [sys.executable, "-m", "tuner"], env=source, capture_output=True, text=True, check=True
    ).stdout
    assert "complete -o nosort -F _tuner_completion tuner" in script
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("name", ["n" * 300, "n/" * 3000 + "n"])
def test_a_name_that_is_too_long_is_said_to_be(tree, typed, name, before):
    if before:
        (tree / "studies").mkdir()
    code, out, err = typed(name, "--engine", "vllm", "--model", "m")
    folder = f"studies/{name}" if "/" not in name else name
    assert (code, out) == (1, "")
    assert err.replace("\n", "") == f"tuner: {folder}: cannot be written: File name too long"
    assert (tree / "studies").exists() is before


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[2J", "sub\t/a"])
def test_a_name_that_cannot_be_printed_is_none(tree, typed, name):
    code, out, err = typed(name, "--from", "vllm serve m")
    assert (code, out) == (1, "")
    assert err == (
        f"tuner: {name!r} is no name for a study: it has a character that cannot be printed\n"
        "  A word, such as glm5-8gpu.\n"
    )
    assert not (tree / "studies").exists()


def test_what_to_do_next_can_be_pasted(tree, typed):
    assert typed("a b", "--from", "vllm serve m")[1].splitlines()[-1] == (
        "next: tuner check 'studies/a b', then tuner plan 'studies/a b'"
    )


def test_another_version_than_the_tag_or_the_interpreter_tells_is_said(tree, typed):
    image = "docker run vllm/vllm-openai:v0.11.0 --model m"
    python = tree / "bin" / "python"
    python.parent.mkdir()
    site = tree / "site" / "vllm-0.10.1.dist-info"
    site.mkdir(parents=True)
    (site / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.10.1\n")
    (tree / "site" / "vllm").mkdir()
    (tree / "site" / "vllm" / "__init__.py").write_text("")
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tree}/site exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    here = f"{python} -m vllm.entrypoints.openai.api_server --model m"
    for name, launch, told, who in (
        ("a", image, "0.11.0", "the tag of vllm/vllm-openai:v0.11.0"),
        ("b", here, "0.10.1", "what is installed"),
    ):
        said = f"version {told}, which {who} says: --engine-version 0.5.9 was taken instead"
        code, out, err = typed(name, "--from", launch, "--engine-version", "0.5.9")
        assert (code, err) == (0, "")
        assert f"  - {said}" in out.splitlines()
        assert f"# - {said}\n" in (tree / "studies" / name / "study.yaml").read_text()
        out = typed(f"{name}2", "--from", launch, "--engine-version", told)[1]
        assert "--engine-version" not in out


def test_a_change_of_folder_is_said_and_paths_there_are_made_whole(tree, typed):
    (tree / "x").mkdir()
    (tree / "x" / "t.jinja").write_text("")
    launch = f"cd {tree}/x && exec vllm serve m --chat-template ./t.jinja && cd later"
    out = typed("a", "--from", launch)[1]
    assert [line for line in out.splitlines() if "cd" in line] == [
        f"  - line 1: 'cd {tree}/x': launches run in a folder of their own; what is still"
        " a relative path in the study was relative to that one"
    ]
    assert f"chat-template: {tree}/x/t.jinja" in (tree / "studies/a/study.yaml").read_text()
