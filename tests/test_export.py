"""The command to paste: whose it is, what it never holds, and that a shell takes it."""

import json
import subprocess

import pytest

from tests.evening import died, edit, end, folder, keep, launch, remember, won
from tuner.definitions.validation import load_study
from tuner.errors import SpaceError, StudyChanged, TunerError
from tuner.records import Records
from tuner.views.export import Export, export, find
from tuner.views.forms import FORMATS, written


@pytest.fixture
def night(tmp_path):
    return folder(tmp_path)


def exported(night, trial: int | None = None) -> Export:
    study = load_study(night)
    return export(study, list(Records(study.folder)), trial)


def is_shell(text: str) -> bool:
    return subprocess.run(["sh", "-n"], input=text, text=True, check=False).returncode == 0


def test_the_winner_is_exported_with_why(night):
    won(night)
    made = exported(night)
    assert "--chunked-prefill-size 8192" in made.command
    assert made.trial == 5
    assert made.why.startswith("+19.")
    assert "over the baseline from 3 fresh launches" in made.why


def test_where_nothing_wins_the_baseline_is_exported_and_says_so(night):
    study = load_study(night)
    keep(night, *(launch(study, n, gain=1 + 0.001 * n) for n in range(3)))
    keep(night, launch(study, 3, "search", {"chunked-prefill-size": 4096}, gain=0.9))
    end(night)
    made = exported(night)
    assert "--chunked-prefill-size 2048" in made.command
    assert made.trial is None
    assert made.why.startswith("No configuration beats the baseline")
    assert made.why.endswith("This is the baseline.")


def test_of_a_study_that_was_stopped_the_first_comment_says_so_in_every_form(night):
    study = load_study(night)
    keep(night, *(launch(study, n) for n in range(3)))
    made = exported(night)
    assert made.unfinished == "Not finished: 3 of 26 launches."
    assert made.why.startswith(f"{made.unfinished} So far no")
    assert json.loads(written(made, "json"))["unfinished"] == made.unfinished
    for form in FORMATS:
        if form != "json":
            lines = [line for line in written(made, form).splitlines() if line != "#!/bin/sh"]
            assert lines[1].startswith("# Not finished: 3 of 26 launches. So far"), form
    assert exported(night, 0).unfinished == ""


def test_where_nothing_is_feasible_or_measured_the_first_lines_say_so(night):
    def first(form):
        lines = written(exported(night).model_copy(update={"rehearsal": False}), form).splitlines()
        return lines[lines[0] == "#!/bin/sh"]

    comments = [form for form in FORMATS if form != "json"]
    assert all(first(form).startswith("# Nothing can be concluded") for form in comments)
    edit(night, "objective.yaml", "window_s: 20", "window_s: 20\nslos: [ttft_ms p50 <= 0.001]")
    study = load_study(night)
    keep(night, *(launch(study, n) for n in range(3)))
    end(night)
    assert all("breaks" in first(form) for form in comments)
    assert all(first(form).startswith("# ") for form in comments)


def test_before_any_launch_it_is_the_baseline(night):
    made = exported(night)
    assert made.trial is None
    assert made.why.startswith("Nothing can be concluded")


def test_a_trial_that_was_asked_for_is_exported_whatever_came_of_it(night):
    won(night)
    served, dead = exported(night, 3), exported(night, 4)
    assert "--attention-backend fa3" in served.command
    assert served.why == "Trial 3, as asked for: completed."
    assert "--attention-backend flashinfer" in dead.command
    assert dead.why == "Trial 4, as asked for: died while loading: Not enough memory. [oom]."
    assert (served.trial, dead.trial) == (3, 4)


def test_a_trial_that_does_not_exist_is_refused_and_those_that_do_are_named(night):
    with pytest.raises(TunerError, match="there is no trial 99") as caught:
        exported(night, 99)
    assert "none yet" in caught.value.hint
    won(night)
    with pytest.raises(TunerError, match="there is no trial 11") as caught:
        find(list(Records(night)), 11)
    assert "0 to 10" in caught.value.hint


def test_a_trial_whose_values_left_the_space_is_refused(night):
    won(night)
    edit(night, "space.yaml", "high: 8192", "high: 6144")
    with pytest.raises(SpaceError):
        exported(night, 5)


def test_nothing_that_the_tuner_added_is_exported(night):
    made = exported(night)
    for added in ("--port", "--host", "--random-seed", "--enable-metrics"):
        assert added not in made.command
        assert added not in made.argv


def test_no_verdict_is_exported_from_records_of_other_files(night):
    won(night)
    remember(night)
    edit(night, "objective.yaml", "window_s: 20", "window_s: 30")
    with pytest.raises(StudyChanged, match=r"window_s was 20\.0 .* is 30\.0 now") as caught:
        exported(night)
    assert "--trial" in caught.value.hint
    assert "--chunked-prefill-size 8192" in exported(night, 5).command


SECRET = "hf_verysecret"


@pytest.mark.parametrize("value", ['"${HF_TOKEN}"', SECRET])
def test_a_secret_is_asked_for_and_never_written(night, value, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", SECRET)
    edit(night, "study.yaml", "model: small",
         f"model: small\nfixed: {{env: {{HF_TOKEN: {value}}}}}")  # fmt: skip
    made = exported(night)
    shell, document = written(made, "shell"), written(made, "json")
    assert 'HF_TOKEN="${HF_TOKEN:?set HF_TOKEN}"' in shell
    assert json.loads(document)["env"]["HF_TOKEN"] == "${HF_TOKEN}"
    assert SECRET not in shell + document
    assert is_shell(shell)


def test_without_the_secret_the_pasted_command_stops_and_names_it(night):
    edit(night, "study.yaml", "model: small",
         'model: small\nfixed: {env: {HF_TOKEN: "${HF_TOKEN}"}}')  # fmt: skip
    done = subprocess.run(
        ["sh"], input=written(exported(night), "shell"), text=True, capture_output=True, env={},
        check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert "set HF_TOKEN" in done.stderr


@pytest.mark.parametrize("value", ["two words", "it's", "a;b", "$(id)", "`id`", "a&b", "*", "-x"])
def test_what_a_shell_would_read_arrives_as_it_is(night, value):
    text = json.dumps(value)
    edit(night, "study.yaml", "model: small", f"model: small\nfixed: {{env: {{A_VALUE: {text}}}}}")
    shell = written(exported(night), "shell")
    assert is_shell(shell)
    assignment = next(line for line in shell.splitlines() if "A_VALUE=" in line).split(" /")[0]
    done = subprocess.run(
        ["sh", "-c", f"{assignment} sh -c 'printf %s \"$A_VALUE\"'"],
        capture_output=True, text=True, check=True, cwd=night,
    )  # fmt: skip
    assert done.stdout == value


def test_a_rehearsal_is_labelled_in_both_forms(night):
    made = exported(night)
    assert written(made, "shell").splitlines()[:2] == [
        "#!/bin/sh",
        "# REHEARSAL: nothing behind this was measured on hardware.",
    ]
    assert json.loads(written(made, "json"))["rehearsal"] is True


def test_a_real_engine_carries_no_label(night):
    won(night)
    made = exported(night).model_copy(update={"rehearsal": False})
    assert "REHEARSAL" not in written(made, "shell")


def test_no_line_of_a_log_becomes_a_command(night):
    study = load_study(night)
    keep(night, died(study, 0, {"attention-backend": "fa3"}, "first\nrm -rf /tmp/x\nlast\x1b[2J"))
    shell = written(exported(night, 0), "shell")
    assert "first rm -rf /tmp/x last" in shell
    assert "\x1b" not in shell
    assert [line for line in shell.splitlines() if line.startswith("rm")] == []


def test_both_forms_end_their_last_line_and_json_has_a_schema(night):
    made = exported(night)
    assert written(made, "shell").endswith(f"{made.command}\n")
    document = written(made, "json")
    assert document.endswith("}\n")
    assert json.loads(document)["schema_number"] == 1
    assert json.loads(document)["command"] == made.command


def engine(night, text: str) -> None:
    """Another engine in place of the rehearsal, with a space that it takes."""
    edit(night, "study.yaml", "engine: {name: rehearsal, surface: surface.yaml}", f"engine: {text}")


def test_in_a_container_the_program_goes_by_its_own_name_and_the_host_s_paths_are_mounted(night):
    (night / "models").mkdir()
    engine(night, "{name: vllm, command: [numactl, --membind=0, /opt/e/bin/python3.11, -m, v]}")
    edit(night, "study.yaml", "model: small",
         "model: models\nfixed: {flags: {a: space.yaml, b: /no/where}}")  # fmt: skip
    made = exported(night)
    assert made.container.program == ["numactl", "--membind=0", "python3", "-m", "v"]
    assert made.container.mounts == [str(night / "models")]
    assert made.argv[: made.program] == [
        *("numactl", "--membind=0", "/opt/e/bin/python3.11", "-m", "v")
    ]
    assert made.arguments[:2] == ["--model", str(night / "models")]
    assert made.port == 8000


def test_paths_inside_values_are_mounted_too(night):
    engine(night, "{name: vllm, command: [/opt/e/bin/vllm, serve]}")
    adapter = night / "adapter"
    adapter.mkdir()
    value = json.dumps({"name": "a", "path": str(adapter)})
    edit(night, "study.yaml", "model: small",
         f"model: /models/elsewhere\nfixed: {{flags: {{lora: {json.dumps(value)}}}}}")  # fmt: skip
    made = exported(night)
    assert made.container.program == ["vllm", "serve"]
    assert made.container.mounts == sorted(["/models/elsewhere", str(adapter)])
    assert made.arguments[0] == "/models/elsewhere"
    assert made.port == 8000


def test_gpus_are_those_of_the_configuration_unless_the_host_had_none(night):
    engine(night, "{name: vllm, command: [vllm, serve]}")
    edit(night, "study.yaml", "model: small",
         "model: small\nfixed: {flags: {tensor-parallel-size: 2}}")  # fmt: skip
    edit(night, "study.yaml", "gpus: 1", "gpus: 2")
    assert exported(night).gpus == 2
    assert exported(night).container.options == ["--ipc=host"]
    remember(night)  # a host without a GPU
    assert exported(night).gpus == 0
    assert exported(night).container.options == []


def test_an_image_of_the_study_is_run_alike_in_both_forms(night):
    engine(night, "{name: sglang, image: 'lmsysorg/sglang:v0.5.9', containers:"
                  " {options: [--shm-size=32g, '-e=HF_TOKEN=hf_verysecret']}}")  # fmt: skip
    made = exported(night)
    assert written(made, "docker").splitlines()[-1] == made.command
    assert "--entrypoint python3 lmsysorg/sglang:v0.5.9 -m sglang.launch_server" in made.command
    for form in FORMATS:
        assert "hf_verysecret" not in written(made, form)
    for form in ("compose", "k8s", "systemd"):
        assert "lmsysorg/sglang:v0.5.9" in written(made, form)
        assert "IMAGE" not in written(made, form)
