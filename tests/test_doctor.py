"""A host and a study before a night: what fails first, what mends it, and the exit code."""

import json
import os
import sys
import tempfile
from datetime import UTC, datetime, timedelta

import pytest

from tests.evening import edit, folder, keep, launch, remember
from tests.test_checks import gpu, gpus, host
from tests.test_flags_declared import OLD
from tuner import cli
from tuner.definitions.validation import load_study
from tuner.hosts.gpu_health import Gpus
from tuner.lock import locked
from tuner.verbs import doctor

REAL = "engine: {name: vllm, python: PYTHON}\n"


@pytest.fixture
def night(tmp_path, monkeypatch):
    made = folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    return made


@pytest.fixture
def typed(monkeypatch, capsys):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)

    def run(*words: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["tuner", "doctor", *words])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        captured = capsys.readouterr()
        return stopped.value.code, captured.out, captured.err

    return run


@pytest.fixture
def healthy(monkeypatch):
    """A host without faults, or with those given, in place of this one."""

    def put(**other):
        monkeypatch.setattr(doctor, "inspect_host", lambda study: host(**other))
        monkeypatch.setattr("socket.gethostname", lambda: "box")

    put()
    return put


def test_a_study_that_needs_more_gpus_than_it_has_fails(night, healthy, typed):
    sizes = "  tp-size: {type: choice, choices: [1, 4], default: 4}\nhypotheses:\n"
    edit(night, "space.yaml", "hypotheses:\n", sizes)
    assert found(typed, str(night))["study"] == (
        *("fail", "found 1, and the baseline needs 4 GPUs"),
        f"correct hardware.gpus at {night}/study.yaml:6:18",
    )


def test_a_variable_that_is_not_set_is_to_be_exported(night, healthy, typed, monkeypatch):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with (night / "study.yaml").open("a") as file:
        file.write("fixed: {env: {HF_TOKEN: '${HF_TOKEN}'}}\n")
    assert found(typed, str(night))["engine"] == (
        *("fail", "the launch needs the variable HF_TOKEN, which is not set"),
        "export HF_TOKEN=...",
    )


def found(typed, *words: str) -> dict[str, tuple[str, str, str]]:
    checks = json.loads(typed(*words, "--json")[1])["checks"]
    return {check["name"]: (check["state"], check["found"], check["mend"]) for check in checks}


def test_a_fit_host_is_told_in_a_table_and_a_line(typed, healthy):
    code, out, err = typed()
    assert (code, err) == (0, "")
    lines = [line.split(maxsplit=1) for line in out.splitlines()]
    assert [state for state, _ in lines[:-1]] == ["ok"] * (len(lines) - 1)
    assert out.splitlines()[-1] == "box: 18 checks, nothing fails."


def test_faults_come_first_each_with_what_mends_it(typed, healthy):
    healthy(open_files_soft=64, open_files_hard=64, swap_used_gb=3.0, synchronised=None)
    code, out, _ = typed()
    assert code == 1
    lines = [line.rstrip() for line in out.splitlines()]
    assert lines[0] == (
        " fail     open files         at most 64 may be open, 1024 streams need 1280"
    )
    assert lines[1].strip() == (
        "-> raise the hard limit: nofile in /etc/security/limits.conf, or docker run --ulimit "
        "nofile=65536"
    )
    assert [line.split()[0] for line in lines if not line.strip().startswith("->")] == [
        *("fail", "warn", "unknown"),
        *["ok"] * 15,
        "box:",
    ]
    assert lines[-1] == "box: 1 check fails, mend it before the night."


def test_warnings_alone_keep_nobody_from_a_night(typed, healthy):
    healthy(swap_used_gb=3.0, quota_cores=4.0)
    code, out, _ = typed()
    assert code == 0
    assert out.splitlines()[-1] == "box: nothing fails; 2 checks warn."


def test_json_is_one_document_with_a_schema(typed, healthy, night):
    code, out, err = typed("night", "--json")
    assert (code, err) == (0, "")
    answer = json.loads(out)
    assert (answer["schema_number"], answer["host"], answer["ready"]) == (1, "box", True)
    assert answer["study"] == "night"
    assert set(answer["checks"][0]) == {"name", "state", "found", "mend"}
    healthy(unswept=["Ray: 1 process lives on"])
    code, out, _ = typed("--json")
    assert (code, json.loads(out)["ready"], json.loads(out)["study"]) == (1, False, None)


def test_this_machine_is_looked_at_whatever_it_is(typed, night, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code, out, err = typed("night", "--json")
    answer = json.loads(out)
    assert err == ""
    assert code == (0 if answer["ready"] else 1)
    names = {check["name"] for check in answer["checks"]}
    assert {"GPUs", "open files", "disk of the study", "engine", "records", "budget"} <= names


def test_a_study_that_is_ready_says_what_it_is(typed, healthy, night):
    checks = found(typed, "night")
    assert checks["engine"] == ("ok", "rehearsal 0.5.9 (rehearsal)", "")
    assert checks["GPUs"] == ("ok", "none needed: a rehearsal only declares them", "")
    assert checks["records"] == ("ok", "none yet", "")
    state, said, _ = checks["budget"]
    assert (state, said.split(" launches")[1][:8]) == ("ok", ", about ")
    assert "model" not in checks


def real(night, python: str, model: str) -> None:
    """Make it a study of a real engine."""
    text = (night / "study.yaml").read_text()
    lines = [line for line in text.splitlines() if not line.startswith(("engine:", "model:", "  "))]
    head = f"engine: {{name: sglang, python: {python}}}\nmodel: {model}\n"
    rest = text[text.index("\nspace:") :]
    (night / "study.yaml").write_text(head + rest)
    assert lines


def test_an_engine_and_a_model_that_are_not_there(typed, healthy, night):
    real(night, "/opt/none/bin/python", "/models/none")
    checks = found(typed, "night")
    assert checks["engine"] == (
        "fail",
        "the engine's interpreter or command /opt/none/bin/python does not exist",
        f"correct it in {night}/study.yaml, or install what is missing",
    )
    assert checks["model"] == (
        *("fail", "/models/none does not exist", f"correct model in {night}/study.yaml"),
    )


def test_an_interpreter_without_the_engine(typed, healthy, night, tmp_path):
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "config.json").write_text("{}")
    real(night, sys.executable, str(tmp_path / "weights"))
    checks = found(typed, "night")
    assert checks["engine"][:2] == ("fail", f"{sys.executable} has no package sglang installed")
    assert checks["model"] == ("ok", f"{tmp_path}/weights: 1 files, 2e-09 GB", "")


def test_a_model_that_cannot_be_read_or_is_empty(typed, healthy, night, tmp_path, monkeypatch):
    weights = tmp_path / "weights"
    weights.mkdir()
    real(night, sys.executable, str(weights))
    assert found(typed, "night")["model"] == ("fail", f"{weights} is empty", "fetch it again")
    (weights / "model.safetensors").write_bytes(b"x")
    access = os.access
    monkeypatch.setattr(
        os, "access", lambda path, how: "safe" not in str(path) and access(path, how)
    )
    assert found(typed, "night")["model"] == (
        *("fail", f"{weights}/model.safetensors cannot be read", f"chmod -R a+rX {weights}"),
    )


def test_a_model_of_a_hub_is_there_or_would_be_fetched(
    typed, healthy, night, tmp_path, monkeypatch
):
    real(night, sys.executable, "zai-org/GLM-5")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    assert found(typed, "night")["model"] == (
        "warn",
        "zai-org/GLM-5 is not on this machine: the first launch would fetch it",
        "hf download zai-org/GLM-5",
    )
    cached = tmp_path / "hub" / "models--zai-org--GLM-5" / "snapshots"
    cached.mkdir(parents=True)
    assert found(typed, "night")["model"] == ("ok", f"zai-org/GLM-5, in {tmp_path}/hub", "")


def test_gpus_are_held_against_what_the_study_says(typed, healthy, night):
    real(night, sys.executable, "m")
    edit(night, "study.yaml", "gpus: 1", "gpus: 4")
    healthy(gpus=gpus(gpu(0), gpu(1)))
    assert found(typed, "night")["GPUs"][:2] == (
        *("fail", "2 x NVIDIA H200, and hardware.gpus says 4"),
    )
    healthy(gpus=Gpus())
    assert found(typed, "night")["GPUs"][0] == "warn"


def test_a_budget_that_is_used_up_and_one_that_is_short(typed, healthy, night):
    edit(night, "study.yaml", "trials: 26", "trials: 7")
    state, said, mend = found(typed, "night")["budget"]
    assert state == "warn"
    assert said.startswith("7 of ")
    assert " planned launches fit (" in said
    assert mend == f"raise budget in {night}/study.yaml; see tuner plan"
    study = load_study(night)
    edit(night, "study.yaml", "trials: 7", "trials: 1")
    remember(night)
    keep(night, launch(study, 0))
    keep(night, launch(study, 1))  # the budget was larger once
    state, said, _ = found(typed, "night")["budget"]
    assert (state, said) == (*("ok", "its launch is made; a larger budget in study.yaml goes on"),)


def test_a_deadline_that_is_now_leaves_no_time(typed, healthy, night):
    """A minute from now, for launches of ten minutes."""
    at = datetime.now() + timedelta(minutes=1)
    edit(night, "study.yaml", "trials: 26", f'trials: 26, deadline: "{at:%H:%M}"')
    remember(night)
    keep(night, launch(load_study(night), 0, duration_s=600.0))
    state, said, _ = found(typed, "night")["budget"]
    assert (state, said) == (*("fail", f"no launch fits any more (600 s each, until {at:%H:%M})"),)


def test_records_from_the_future_mean_a_wrong_clock(typed, healthy, night):
    remember(night)
    later = datetime.now(UTC) + timedelta(days=3)
    keep(night, launch(load_study(night), 0, started_at=later.isoformat(timespec="seconds")))
    assert found(typed, "night")["records"] == (
        "fail",
        f"a launch began at {later:%Y-%m-%d %H:%M} UTC, which is yet to come",
        "set the clock: sudo timedatectl set-ntp true",
    )


def test_records_that_no_run_would_continue(typed, healthy, night):
    remember(night)
    keep(night, launch(load_study(night), 0))
    edit(night, "study.yaml", "model: small", "model: large")
    state, said, mend = found(typed, "night")["records"]
    assert state == "fail"
    assert said == 'model was "small" when the records were made and is "large" now'
    assert mend == "put it back, or copy the study file to a new folder"
    with (night / "trials.jsonl").open("a") as file:
        file.write("not json\n{}\n")
    state, said, mend = found(typed, "night")["records"]
    assert state == "fail"
    assert "trials.jsonl:2: damaged record" in said
    assert mend


def test_a_study_that_another_run_holds(typed, healthy, night):
    with locked(night):
        checks = found(typed, "night")
    assert checks["lock"][0] == "fail"
    assert f"another run holds this study (process {os.getpid()})" in checks["lock"][1]
    assert "lock" not in found(typed, "night")


def test_hosts_that_are_elsewhere_are_not_claimed(typed, healthy, night):
    edit(night, "study.yaml", "gpus: 1", "gpus: 1, ray: 'head:6379'")
    assert found(typed, "night")["cluster"] == (
        "unknown",
        "the hosts of head:6379 are not looked at from here",
        "run tuner doctor on each of them",
    )


def test_usage_exits_2(typed):
    code, out, err = typed("a", "b")
    assert (code, out) == (2, "")
    assert "Usage: tuner doctor" in err


def installed(folder, engine: str, module: str, text: str) -> str:
    """An interpreter that has an engine of one module."""
    site = folder / "site"
    (site / engine / "srt").mkdir(parents=True)
    for package in (site / engine, site / engine / "srt"):
        (package / "__init__.py").write_text("")
    (site / engine / module).write_text(text)
    metadata = site / f"{engine}-9.9.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {engine}\nVersion: 9.9\n")
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return str(python)


def test_an_engine_that_is_installed_and_cannot_be_imported(
    typed, healthy, night, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "config.json").write_text("{}")
    broken = "import no_such_module\n" + OLD
    python = installed(tmp_path, "sglang", "srt/server_args.py", broken)
    real(night, python, str(tmp_path / "weights"))
    checks = found(typed, "night")
    assert checks["engine"] == ("ok", "sglang 9.9", "")
    assert checks["engine import"][0] == "fail"
    assert "could not be imported" in checks["engine import"][1]
    says = f"{python} -c 'import sglang' says why it cannot be imported"
    assert checks["engine import"][2] == says


def test_a_flag_that_the_installed_engine_does_not_know(
    typed, healthy, night, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    python = installed(tmp_path, "sglang", "srt/server_args.py", OLD)
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "config.json").write_text("{}")
    real(night, python, str(tmp_path / "weights"))
    state, said, mend = found(typed, "night")["flags"]
    assert state == "fail"
    assert "sglang 9.9" in said
    assert mend.startswith("correct ")
