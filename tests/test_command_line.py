"""Flags of a study against the command line of its engine: installed, recorded, or neither."""

import json
import sys
from pathlib import Path

import pytest

from tests.evening import edit, folder, launch
from tests.test_cli import typed
from tests.test_flags_probe import engine, fresh
from tuner import engines
from tuner.definitions.validation import LoadedStudy, load_study
from tuner.errors import DefinitionError, EngineError, RecordsError
from tuner.flags import probe
from tuner.flags.catalogue import Catalogue, Flag
from tuner.night.command_line import CommandLine, command_line, problems
from tuner.night.environment import DEAD, remember_or_refuse
from tuner.night.launches import launch_spec
from tuner.night.opening import open_for_launches, open_study
from tuner.verbs import inspect
from tuner.verbs.run import run

__all__ = ["engine", "fresh", "typed"]

OBJECTIVE = """
ladder: [{concurrency: 1}]
input_tokens: 8
output_tokens: 8
"""


@pytest.fixture
def study(tmp_path, monkeypatch):
    """Write a study of SGLang: its engine, what is fixed, its space."""
    monkeypatch.chdir(tmp_path)

    def write(engine: str, fixed: str, space: str) -> Path:
        made = tmp_path / "study"
        made.mkdir(exist_ok=True)
        (made / "study.yaml").write_text(
            f"engine: {{name: sglang, {engine}}}\nmodel: some-model\nfixed:\n  flags: {fixed}\n"
            "space: space.yaml\nobjective: objective.yaml\nbudget: {trials: 20}\n"
        )
        (made / "space.yaml").write_text(f"parameters:\n{space}")
        (made / "objective.yaml").write_text(OBJECTIVE)
        return Path("study")

    return write


RECORDED = "python: /no/such/python, version: 0.5.23"
SPACE = "  enable-mscclpp: {type: bool}\n"


def faults(path: Path) -> str:
    with pytest.raises(DefinitionError) as raised:
        inspect.check(path)
    return str(raised.value)


def test_every_flag_that_the_engine_would_refuse_is_said_at_once_with_its_place(study, typed):
    study(
        RECORDED,
        "{cuda-graph-max-bs: 64, --chunked-prefil-size: 8192, enable-metrics: 1}",
        "  moe-runner-backend:\n    type: choice\n    choices: [auto, tritn]\n"
        "  piecewise:\n    flag: enable-piecewise-cuda-graph\n    type: bool\n"
        "  page-size: {type: bool}\n"
        "  enable-mscclpp: {type: int, low: 1, high: 2}\n",
    )
    assert typed("check", "study") == (
        1,
        "",
        "tuner: study/study.yaml:4:11: fixed.flags.cuda-graph-max-bs: unknown flag"
        " 'cuda-graph-max-bs': sglang 0.5.23 has 'cuda-graph-max-bs-decode' for it\n"
        "  write --cuda-graph-max-bs-decode\n"
        "study/study.yaml:4:34: fixed.flags.--chunked-prefil-size: unknown flag"
        " 'chunked-prefil-size' (did you mean 'chunked-prefill-size'?), expected a flag of sglang"
        " 0.5.23\n"
        "study/study.yaml:4:79: fixed.flags.enable-metrics: 'enable-metrics' is given 1, but it"
        " stands alone\n"
        "study/space.yaml:4:21: parameters.moe-runner-backend.choices.1: 'moe-runner-backend'"
        " cannot be 'tritn' (did you mean 'triton'?)\n"
        "  it takes auto, deep_gemm, triton, triton_kernel, flashinfer_trtllm,"
        " experimental_sgl_trtllm, flashinfer_trtllm_routed, flashinfer_cutlass,"
        " flashinfer_mxfp4, flashinfer_cutedsl, flashinfer_megamoe, cutlass, aiter, marlin,"
        " humming, experimental_sgl_marlin, lora_cutedsl, lora_triton, lora_marlin, hpc_ops,"
        " megamoe, intel_xpu\n"
        "study/space.yaml:6:11: parameters.piecewise.flag: unknown flag"
        " 'enable-piecewise-cuda-graph': sglang 0.5.23 has"
        " 'cuda-graph-backend-prefill=tc_piecewise' for it\n"
        "  write --cuda-graph-backend-prefill=tc_piecewise\n"
        "study/space.yaml:8:3: parameters.page-size: 'page-size' stands alone here, but it"
        " takes a value\n"
        "study/space.yaml:9:36: parameters.enable-mscclpp.low: 'enable-mscclpp' is given 1, but it"
        " stands alone\n",
    )


def test_a_flag_that_is_cut_short_is_to_be_written_in_full(study):
    path = study(
        RECORDED, "{--max-running: 512, cuda-graph-max: 8}", "  chunked-prefill: {type: bool}\n"
    )
    assert faults(path) == (
        "study/study.yaml:4:11: fixed.flags.--max-running: found an abbreviation of"
        " 'max-running-requests', write it in full\n"
        "study/study.yaml:4:31: fixed.flags.cuda-graph-max: unknown flag 'cuda-graph-max', which is"
        " short for cuda-graph-max-bs-decode and cuda-graph-max-bs-prefill and"
        " cuda-graph-max-seq-len-prefill\n"
        "  write the one that is meant\n"
        "study/space.yaml:2:3: parameters.chunked-prefill: found an abbreviation of"
        " 'chunked-prefill-size', write it in full\n"
        "study/space.yaml:2:3: parameters.chunked-prefill: 'chunked-prefill-size' stands alone"
        " here, but it takes a value"
    )


NEGATED = Catalogue(
    engine="sglang",
    version="1",
    how="recorded",
    flags=[Flag(name="caching", kind="negatable"), Flag(name="size", aliases=["long-size"])],
)


def test_one_flag_under_two_names_is_a_fault_also_where_only_the_parser_knows(study):
    fixed = "{no-caching: true, caching: true, long-size: 1}"
    path = study(RECORDED, fixed, "  size: {type: int, low: 1, high: 2}\n")
    line = CommandLine(catalogues=(NEGATED,), unasked=())
    assert [str(problem) for problem in problems(load_study(path), line)] == [
        "study/study.yaml:4:29: fixed.flags.caching: the same flag as 'no-caching' at"
        " study/study.yaml:4:11",
        "study/space.yaml:2:3: parameters.size: the same flag as 'long-size', which is fixed at"
        " study/study.yaml:4:44",
    ]


def test_a_choice_of_another_version_is_no_fault_of_this_one(study):
    runner = """  moe-runner-backend:
    type: choice
    choices: [auto, no_such]
    choice_versions: {no_such: SPECIFIER}
"""
    path = study(RECORDED, "{tp-size: 1}", SPACE + runner.replace("SPECIFIER", "'<0.5.12'"))
    inspect.check(path)
    path = study(RECORDED, "{tp-size: 1}", SPACE + runner.replace("SPECIFIER", "'>=0.5.12'"))
    assert "'moe-runner-backend' cannot be 'no_such'" in faults(path)


def test_a_run_refuses_what_check_refuses_before_anything_else(study):
    path = study(RECORDED, "{no-such-flag: 1}", SPACE)
    with pytest.raises(DefinitionError, match=r"study\.yaml:4:11: .* unknown flag 'no-such-flag'"):
        run(path, progress=lambda _: pytest.fail("a run began"))
    assert [entry.name for entry in path.iterdir() if entry.name.startswith(".lock")] == []


def test_a_plan_says_it_among_what_could_not_be_verified(study, typed):
    study(RECORDED, "{no-such-flag: 1}", SPACE)
    code, out, _ = typed("plan", "study", "--json")
    assert code == 0
    assert json.loads(out)["unverified"][0] == (
        "study/study.yaml:4:11: fixed.flags.no-such-flag: unknown flag 'no-such-flag', expected a"
        " flag of sglang 0.5.23"
    )


def test_notes_stop_nothing(study, typed):
    path = study(
        "python: /no/such/python, version: 0.5.17",
        "{cuda-graph-max-bs: 64}\n  env: {SGLANG_MSCCLPP_MAX_BYTES: '1'}",
        f"{SPACE}  num-continuous-decode-steps: {{type: choice, choices: [1, 4], default: 1}}\n",
    )
    code, out, _ = typed("check", "study")
    assert code == 0
    assert out.endswith(
        "not verified: flags: judged by the recorded parser of sglang 0.5.17, which is not asked"
        " here\n"
        "note: --cuda-graph-max-bs is deprecated in sglang 0.5.17: use"
        " --cuda-graph-max-bs-decode\n"
        "note: SGLANG_MSCCLPP_MAX_BYTES: read by nothing in sglang 0.5.17\n"
        "note: --num-continuous-decode-steps: declared, read by nothing in sglang 0.5.17"
        " (sglang/srt/server_args.py:957)\n"
    )
    assert inspect.plan(path).notes == inspect.check(path).notes


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("python: /no/such/python, version: 0.5.20", "sglang cannot be asked here, version 0.5.20"),
        ("python: /no/such/python", "sglang cannot be asked here"),
        ("command: [no-such-command]", "sglang cannot be asked here"),
    ],
)
def test_where_nothing_is_installed_or_recorded_nothing_is_judged(study, engine, said):
    path = study(engine, "{no-such-flag: 1}", SPACE)
    recorded = "; recorded are 0.5.17, 0.5.23, 0.5.9"
    assert inspect.check(path).unverified == [f"flags: {said}{recorded}"]
    assert command_line(load_study(path)).dead == {}


def installed(site: Path) -> tuple[str, str]:
    return f"python: {sys.executable}", f"  env: {{PYTHONPATH: {site}}}\n"


def test_an_installed_engine_is_asked_itself(study, engine):
    python, env = installed(engine)
    path = study(python, f"{{fast: true}}\n{env}", "  steps: {type: int, low: 1, high: 8}\n")
    checked = inspect.check(path)
    assert checked.unverified == []
    assert checked.notes[0].startswith("--steps: declared, read by nothing in sglang 9.9 (sglang/")
    edit(path, "study.yaml", "fast: true", "fsat: true")
    assert "unknown flag 'fsat' (did you mean 'fast'?), expected a flag of sglang 9.9" in faults(
        path
    )


def test_a_source_that_cannot_be_imported_says_what_it_cannot_tell(study, engine):
    args = engine / "sglang" / "srt" / "server_args.py"
    args.write_text(f"import no_such_module\n{args.read_text()}")
    python, env = installed(engine)
    path = study(python, f"{{fast: true, computed: x}}\n{env}", "  sizes: {type: int, low: 1, "
                 "high: 8}\n")  # fmt: skip
    assert inspect.check(path).unverified == [
        "flags: judged by the source of sglang 9.9, which could not be imported: choices that it"
        " computes were not judged"
    ]


def test_another_version_than_the_study_states_is_an_error(study, engine):
    python, env = installed(engine)
    toggle = "  toggle: {type: bool}\n"
    path = study(f"{python}, version: '9.8'", f"{{fast: true}}\n{env}", toggle)
    at = len(f"engine: {{name: sglang, {python}, version: ") + 1
    assert faults(path) == (
        f"study/study.yaml:1:{at}: engine.version: found 9.8, and the sglang here is 9.9"
    )
    study(f"{python}, version: '9.9'", f"{{fast: true}}\n{env}", toggle)
    assert inspect.check(path).engine == "sglang"


def patched(folder: Path, site: Path, text: str) -> Path:
    """An interpreter that has the engine with a further file."""
    made = folder / "patched"
    (made / "sglang").mkdir(parents=True)
    import shutil

    shutil.copytree(site, made, dirs_exist_ok=True)
    (made / "sglang" / "srt" / "patch.py").write_text(text)
    script = folder / "bin" / "python"
    script.parent.mkdir(exist_ok=True)
    script.write_text(f'#!/bin/sh\nPYTHONPATH={made} exec {sys.executable} "$@"\n')
    script.chmod(0o755)
    return script


def test_what_one_build_reads_is_dead_in_none(study, engine, tmp_path):
    _, env = installed(engine)
    python = f"python: {sys.executable}"
    other = patched(tmp_path, engine, "def run(args):\n    return args.steps\n")
    space = "  steps: {type: int, low: 1, high: 8}\n"
    path = study(f"{python}, builds: {{same: {{{python}}}}}", f"{{fast: true}}\n{env}", space)
    assert "steps" in command_line(load_study(path)).dead
    builds = f"{python}, builds: {{patched: {{python: {other}}}}}"
    study(builds, f"{{fast: true}}\n{env}", space)
    assert "steps" not in command_line(load_study(path)).dead
    assert "toggle" in command_line(load_study(path)).dead
    builds = f"{python}, builds: {{absent: {{python: /no/such/python}}}}"
    study(builds, f"{{fast: true}}\n{env}", space)
    line = command_line(load_study(path))
    assert line.catalogues[0].is_dead("steps")
    as_recorded = line.catalogues[0].model_copy(update={"how": "recorded"})
    assert CommandLine(catalogues=(line.catalogues[0], as_recorded), unasked=()).dead == {}
    assert "steps" in CommandLine(catalogues=(as_recorded, as_recorded), unasked=()).dead
    assert line.dead == {}
    assert line.unasked[0].startswith("flags: the build 'absent' of sglang cannot be asked here")


def test_a_flag_that_only_a_build_has_may_be_searched_but_not_fixed(study, engine, tmp_path):
    _, env = installed(engine)
    other = patched(tmp_path, engine, "")
    args = tmp_path / "patched" / "sglang" / "srt" / "server_args.py"
    args.write_text(args.read_text().replace('"--fast"', '"--faster"'))
    builds = f"python: {sys.executable}, builds: {{patched: {{python: {other}}}}}"
    path = study(builds, f"{{toggle: true}}\n{env}", "  faster: {type: bool}\n")
    assert "fast" not in "".join(inspect.check(path).notes)
    study(builds, f"{{faster: true}}\n{env}", "  toggle: {type: bool}\n")
    assert "study.yaml:4:11: fixed.flags.faster: unknown flag 'faster'" in faults(path)


# --- dead flags are remembered with the records


@pytest.fixture
def rehearsed(tmp_path):
    """A rehearsal whose surface says that a flag of its space is dead."""
    return folder(tmp_path, surface="dead: [schedule-conservativeness]")


def opened(path: Path) -> LoadedStudy:
    return open_for_launches(path)[0]


def test_before_the_first_launch_the_engines_word_counts(rehearsed):
    study = opened(rehearsed)
    assert study.dead["schedule-conservativeness"] == (
        "--schedule-conservativeness: declared, read by nothing in rehearsal of SGLang 0.5.9"
        " (surface.yaml)"
    )
    assert open_study(rehearsed).dead == {}


BEGUN = {"hardware": {"gpus": 1}}


def test_afterwards_what_the_records_were_begun_with_counts_on_every_machine(rehearsed):
    dead = {"attention-backend": "nothing reads it"}
    (rehearsed / "environment.json").write_text(
        json.dumps({"schema_number": 1, "identity": {**BEGUN, DEAD: dead}})
    )
    for study in (opened(rehearsed), open_study(rehearsed)):
        assert study.dead == dead
        one, other = launch(study, 0), launch(study, 1, values={"attention-backend": "fa3"})
        assert one.key == other.key == study.baseline.key
        assert other.values["attention-backend"] == "fa3"


def test_records_from_before_dead_flags_were_known_keep_their_keys(rehearsed):
    plain = load_study(rehearsed)
    (rehearsed / "environment.json").write_text(json.dumps({"schema_number": 1, "identity": BEGUN}))
    assert opened(rehearsed).dead == {}
    assert opened(rehearsed).baseline.key == plain.baseline.key


@pytest.mark.parametrize("dead", [["attention-backend"], {"attention-backend": 1}, "x"])
def test_what_is_no_word_on_dead_flags_is_damage(rehearsed, dead):
    (rehearsed / "environment.json").write_text(
        json.dumps({"schema_number": 1, "identity": {**BEGUN, DEAD: dead}})
    )
    with pytest.raises(RecordsError, match=r"damaged: expected a sentence for each of 'dead"):
        open_study(rehearsed)


def test_a_run_remembers_them_and_may_go_on_with_them(rehearsed):
    from tests.nightly import HOST
    from tuner.night.environment import identity, remembered_dead

    study = opened(rehearsed)
    remember_or_refuse(rehearsed, identity(study, [HOST]))
    assert remembered_dead(rehearsed) == study.dead
    remember_or_refuse(rehearsed, identity(opened(rehearsed), [HOST]))


def test_show_says_what_is_dead_and_answers_its_hypotheses(rehearsed, typed, monkeypatch):
    from tests.nightly import HOST
    from tuner.night.environment import identity

    monkeypatch.chdir(rehearsed.parent)
    edit(
        rehearsed,
        "space.yaml",
        "hypotheses:\n",
        "hypotheses:\n  - {id: calm, change: {schedule-conservativeness: 0.4}, claim: calmer,"
        " gain_percent: [1, 2]}\n",
    )
    remember_or_refuse(rehearsed, identity(opened(rehearsed), [HOST]))
    dead = (
        "--schedule-conservativeness: declared, read by nothing in rehearsal of SGLang 0.5.9"
        " (surface.yaml)"
    )
    view = json.loads(typed("show", "night", "--json")[1])
    assert view["dead"] == [dead]
    assert view["hypotheses"][0]["verdict"] == "no effect"
    assert view["hypotheses"][0]["words"] == f"no effect: {dead}"
    assert f"note: {dead}" in typed("show", "night")[1]


def test_an_engine_that_cannot_be_launched_has_no_catalogue(study, engine):
    made = load_study(study("python: /no/such/python", "{fast: true}", SPACE))
    spec = launch_spec(made, made.baseline)
    assert engines.catalogue(spec) is None
    with pytest.raises(EngineError):
        engines.create(spec.model_copy(update={"build": "none"})).command(
            host="h", port=1, extra_ports=()
        )
    assert engines.catalogue(spec.model_copy(update={"build": "none"})) is None
    assert probe.SOURCE_TIMEOUT_S > probe.STAMP_TIMEOUT_S
