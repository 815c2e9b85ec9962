"""What people type: exit codes, messages, JSON that is JSON, and silence where it is due."""

import json
import os
import subprocess
import sys

import pytest

import tuner
from tests.evening import MARKUP, broken, died, edit, folder, hosts, keep, launch, served, won
from tests.nightly import SimulatedExecutor
from tuner import cli
from tuner.definitions.validation import load_study
from tuner.lock import locked
from tuner.records import Records

VERBS = (
    "check",
    "compare",
    "doctor",
    "explain",
    "export",
    "init",
    "measure",
    "pareto",
    "plan",
    "report",
    "run",
    "show",
)
OF_A_STUDY = tuple(
    verb for verb in VERBS if any(p.name == "study" for p in cli.cli.commands[verb].params)
)
MORE = {"compare": ("0", "1")}
"""What a verb needs beside its study."""


@pytest.fixture
def night(tmp_path, monkeypatch):
    made = folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    return made


@pytest.fixture
def typed(monkeypatch, capsys):
    """Type a command: (exit code, stdout, stderr)."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # main sets its own

    def run(*words: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["tuner", *words])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        captured = capsys.readouterr()
        return stopped.value.code, captured.out, captured.err

    return run


@pytest.fixture
def cluster(monkeypatch):
    """Put a host in place of Ray on which launches come out as `outcome(order)` says."""
    return lambda outcome: monkeypatch.setitem(sys.modules, "tuner.hosts.cluster", hosts(outcome))


def test_the_verbs_are_these():
    assert tuple(sorted(cli.cli.commands)) == VERBS
    assert all(command.help for command in cli.cli.commands.values())


def test_version_and_help(typed):
    assert typed("--version") == (0, f"tuner, version {tuner.__version__}\n", "")
    code, out, _ = typed("-h")
    assert code == 0
    assert all(f"\n  {verb} " in out for verb in VERBS)


@pytest.mark.parametrize(
    "words",
    [("check",), ("plan",), ("show",), ("show", "0"), ("show", "4"), ("pareto",),
     ("pareto", "--x", "ttft_ms.p99@8", "--y", "score"), ("compare", "0", "5"),
     ("compare", "baseline", "winner")],
)  # fmt: skip
def test_json_is_one_document_with_a_schema_and_nothing_else(night, typed, words):
    won(night)
    verb, *rest = words
    code, out, err = typed(verb, "night", *rest, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["schema_number"] == 1
    assert "NaN" not in out


@pytest.mark.parametrize("verb", ["check", "plan", "show", "pareto"])
def test_an_empty_study_is_json_too(night, typed, verb):
    code, out, _ = typed(verb, "night", "--json")
    assert code == 0
    assert json.loads(out)["schema_number"] == 1


def test_an_export_is_json_too(night, typed):
    won(night)
    code, out, err = typed("export", "night", "--format", "json")
    assert (code, err) == (0, "")
    assert json.loads(out)["schema_number"] == 1
    assert json.loads(out)["trial"] == 5


def test_an_export_and_a_report_are_written_where_one_says(night, typed, tmp_path):
    won(night)
    code, out, err = typed("export", "night", "--format", "k8s", "--output", "k8s.yaml")
    assert (code, out, err) == (0, "", "")
    assert (tmp_path / "k8s.yaml").read_text() == typed("export", "night", "--format", "k8s")[1]
    assert typed("report", "night") == (0, f"{night / 'report.html'}\n", "")
    assert typed("report", "night", "--output", "r.html") == (0, "r.html\n", "")
    code, out, err = typed("export", "night", "--output", "nowhere/x")
    assert (code, out) == (1, "")
    assert err.startswith("tuner: nowhere/x: cannot be written: No such file or directory\n")


def test_a_run_prints_progress_to_stderr_and_its_end_to_stdout(night, typed, cluster):
    cluster(served)
    code, out, err = typed("run", "night", "--json")
    assert code == 0
    assert json.loads(out)["ended"] == "the budget is used up: its 26 launches are made"
    assert "trial 25 completed" in err or "trial 25 " in err
    code, out, err = typed("run", "night")
    assert code == 0
    assert "ended: the budget is used up" in out
    assert "trial" not in err


def test_a_run_without_anything_feasible_exits_3(night, typed, cluster):
    edit(night, "study.yaml", "trials: 26", "trials: 4")
    edit(night, "objective.yaml", "window_s: 20", "window_s: 20\nslos: [output_tok_s >= 1000]")
    cluster(served)
    code, out, _ = typed("run", "night")
    assert code == 3
    assert "breaks output_tok_s" in out


@pytest.mark.parametrize("verb", OF_A_STUDY)
def test_a_study_that_is_not_there_is_one_message_and_exit_1(night, typed, verb):
    code, out, err = typed(verb, "nigth", *MORE.get(verb, ()))
    assert (code, out) == (1, "")
    assert err == "tuner: nigth: no such study\n  studies near: night\n"


@pytest.mark.parametrize("verb", OF_A_STUDY)
def test_all_faults_of_a_study_are_said_with_their_places(night, typed, verb):
    edit(night, "study.yaml", "gpus: 1", "gpsu: 1")
    edit(night, "space.yaml", "low: 2048, ", "")
    code, out, err = typed(verb, "night", *MORE.get(verb, ()))
    assert (code, out) == (1, "")
    assert "night/study.yaml:6:12: " in err
    assert "did you mean 'gpus'?" in err
    assert "night/space.yaml:2:" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("verb", ["compare", "export", "pareto", "plan", "report", "run", "show"])
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{}", "damaged record"),
        ("not json", "damaged record"),
        ('{"schema_number": 9}', "written by a newer version (schema 9, this one reads up to 1)"),
    ],
)
def test_damaged_and_newer_records_are_one_message_and_stay(night, typed, verb, line, said):
    keep(night, launch(load_study(night), 0))
    path = night / "trials.jsonl"
    with path.open("a") as file:
        file.write(f"{line}\n")
    before = path.read_bytes()
    code, out, err = typed(verb, "night", *MORE.get(verb, ()))
    assert (code, out) == (1, "")
    assert err.startswith("tuner: ")
    assert f"night/trials.jsonl:2: {said}" in err
    assert err.splitlines()[-1].startswith("  ")
    assert path.read_bytes() == before


def test_a_trial_that_is_not_there_is_refused_with_those_that_are(night, typed):
    won(night)
    for words in (("show", "night", "99"), ("export", "night", "--trial", "99")):
        code, out, err = typed(*words)
        assert (code, out) == (1, "")
        assert err == "tuner: there is no trial 99\n  Trials of this study: 0 to 10.\n"


def test_a_metric_that_does_not_exist_is_refused_with_one_that_does(night, typed):
    code, _, err = typed("pareto", "night", "--x", "tok_s_per_usr")
    assert code == 1
    assert "unknown metric 'tok_s_per_usr' (did you mean 'tok_s_per_user'?)" in err


@pytest.mark.parametrize(
    "words",
    [("shwo", "night"), ("show",), ("show", "night", "x"), ("run", "night", "--fast"),
     ("export", "night", "--format", "xml")],
)  # fmt: skip
def test_usage_exits_2(night, typed, words):
    code, out, err = typed(*words)
    assert (code, out) == (2, "")
    assert "Usage: tuner" in err


def test_a_baseline_that_does_not_serve_exits_1_and_names_its_log(night, typed, cluster):
    cluster(lambda order: broken(order, cause=MARKUP))
    code, out, err = typed("run", "night")
    assert (code, out) == (1, "")
    message = err[err.index("tuner: ") :]
    assert message.startswith("tuner: the baseline does not serve (trial 0): [/foo] [bold]x[/]")
    assert "Log: " in message
    assert "night/trials/0000/server.log" in message


def test_a_host_that_gives_up_exits_4(night, typed, cluster):
    cluster(lambda order: broken(order, cause="no driver", action="stop-study"))
    assert typed("run", "night")[0] == 4
    cluster(lambda order: "the host is gone")
    code, _, err = typed("run", "night")
    assert code == 4
    assert "the host is gone" in err
    assert "Run again: the study continues there." in err


def test_a_study_that_is_held_by_another_run_exits_1(night, typed, cluster):
    cluster(served)
    with locked(night):
        code, _, err = typed("run", "night")
    assert code == 1
    assert f"another run holds this study (process {os.getpid()})" in err


def test_a_study_that_changed_exits_1_with_both_sides(night, typed, cluster):
    cluster(served)
    edit(night, "study.yaml", "trials: 26", "trials: 4")
    typed("run", "night")
    edit(night, "study.yaml", "model: small", "model: large")
    code, out, err = typed("run", "night")
    assert (code, out) == (1, "")
    assert 'model was "small" when the records were made and is "large" now' in err


def test_ctrl_c_exits_130_and_says_that_nothing_is_lost(night, typed, cluster, monkeypatch):
    def interrupt(self, timeout_s):
        raise KeyboardInterrupt

    monkeypatch.setattr(SimulatedExecutor, "poll", interrupt)
    cluster(served)
    code, _, err = typed("run", "night")
    assert code == 130
    assert "interrupted; everything measured is recorded, run again to continue" in err
    assert "Traceback" not in err
    assert [r.outcome for r in Records(night)] == ["interrupted"]


def test_a_bug_exits_70_and_says_what_to_send(night):
    program = """
import sys
from tuner import cli
from tuner.verbs import inspect, run
inspect.show = lambda study: 1 / 0
sys.argv = ["tuner", "show", "night"]
cli.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, check=False, cwd=night.parent,
    )  # fmt: skip
    assert done.returncode == 70
    assert "ZeroDivisionError: division by zero" in done.stderr
    assert "tuner: this is a bug. Please report it with the lines above" in done.stderr
    assert f"({tuner.__version__})" in done.stderr


@pytest.mark.parametrize("words", [("show", "night"), ("show", "night", "--json"), ("--help",)])
def test_a_reader_that_went_away_is_no_reason_for_words(night, words):
    won(night)
    reader, writer = os.pipe()
    os.close(reader)
    code = "from tuner.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        stdout=writer, stderr=subprocess.PIPE, text=True, check=False, cwd=night.parent,
    )  # fmt: skip
    os.close(writer)
    assert done.stderr == ""
    assert done.returncode == 1


def test_what_a_log_says_is_shown_as_it_is_by_the_command_too(night, typed):
    study = load_study(night)
    keep(night, died(study, 0, {"attention-backend": "fa3"}, MARKUP))
    for words in (("show", "night"), ("show", "night", "0"), ("export", "night", "--trial", "0")):
        code, out, _ = typed(*words)
        assert code == 0
        assert "[/foo] [bold]x[/] :warning:" in out


def test_an_export_is_what_a_shell_takes(night, typed):
    won(night)
    _, out, _ = typed("export", "night")
    assert subprocess.run(["sh", "-n"], input=out, text=True, check=False).returncode == 0
    assert out.startswith("#!/bin/sh\n# REHEARSAL")
