"""What may change between two runs of a study, and what may not."""

import dataclasses
import json
import re

import pytest

from tests.evening import edit, folder, keep, launch
from tests.nightly import HOST
from tuner import engines
from tuner.definitions.validation import load_study
from tuner.engines.base import EngineFacts
from tuner.errors import RecordsError, StudyChanged, StudyError
from tuner.night.environment import (
    changed_since,
    changed_version,
    identity,
    refuse_other_version,
    remember_or_refuse,
)

GPU = dataclasses.replace(HOST, gpu_model="A big one")


@pytest.fixture
def night(tmp_path):
    """A study whose identity has been written."""
    made = folder(tmp_path)
    again(made)
    return made


def again(night, host=GPU):
    """What a run does before it touches a host."""
    remember_or_refuse(night, identity(load_study(night), [host]))


def refusal(night, host=GPU) -> str:
    with pytest.raises(StudyChanged) as caught:
        again(night, host)
    assert "Put it back" in caught.value.hint
    return caught.value.message


def test_an_unchanged_study_continues_and_its_file_is_not_touched(night):
    before = (night / "environment.json").read_bytes()
    again(night)
    assert (night / "environment.json").read_bytes() == before
    assert list(night.glob("*.new")) == []


def test_the_file_says_what_was_measured_and_on_what(night):
    written = json.loads((night / "environment.json").read_text())
    assert written["identity"]["hardware"]["gpu model"] == ["A big one"]
    assert written["identity"]["model"] == "small"
    assert written["machine"].keys() == {"tuner", "python", "kernel", "machine"}


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("study", "model: small", "model: large", 'model was "small" .* is "large" now'),
        (
            "study",
            "model: small",
            "model: small\nfixed: {flags: {tp-size: 2}}",
            "fixed.flags.tp-size was absent .* is 2 now",
        ),
        (
            "study",
            "model: small",
            "model: small\nfixed: {env: {A: b}}",
            'fixed.env.A was absent .* is "b" now',
        ),
        (
            "study",
            "model: small",
            "model: small\nbaseline: {attention-backend: fa3}",
            'baseline.attention-backend was "triton" .* is "fa3" now',
        ),
        ("study", "gpus: 1", "gpus: 2", "hardware.gpus was 1 .* is 2 now"),
        (
            "space",
            "high: 8192",
            "high: 10240",
            "space.parameters.chunked-prefill-size.high was 8192 .* is 10240 now",
        ),
        (
            "space",
            "{attention-backend: fa3}",
            "{attention-backend: triton, chunked-prefill-size: 4096}",
            "space.hypotheses.fa3.change.attention-backend was \"fa3\" .* is \"triton\" now"
            " .and 1 more.",
        ),
        (
            "space",
            "  - {id: fa3, change: {attention-backend: fa3}, claim: fa3 is faster,"
            " gain_percent: [5, 10]}\n",
            "",
            "space.hypotheses.fa3 was .*fa3.* is absent now",
        ),
        ("objective", "window_s: 20", "window_s: 30", "objective.window_s was 20.0 .* is 30.0 now"),
        ("objective", "concurrency: 8", "concurrency: 16", "objective.ladder was .*8.* is .*16"),
        ("surface", "launch_sd: 0.008", "launch_sd: 0.009", "surface was .* now"),
    ],
)  # fmt: skip
def test_what_was_measured_may_not_change(night, file, old, new, said):
    edit(night, f"{file}.yaml", old, new)
    assert re.search(said, refusal(night)), refusal(night)


def test_a_study_from_before_a_key_was_known_continues(night):
    path = night / "environment.json"
    content = json.loads(path.read_text())
    objective = content["identity"]["objective"]
    del (
        objective["arrivals"],
        objective["seeds"]["arrivals"],
        objective["ladder"][0]["request_rate"],
    )
    path.write_text(json.dumps(content))
    again(night)
    edit(night, "objective.yaml", "window_s: 20", "window_s: 30")
    assert "objective.window_s was 20.0" in refusal(night)


def test_the_lengths_of_a_trace_may_not_change(tmp_path):
    traced = folder(tmp_path)
    edit(traced, "objective.yaml", "input_tokens: 32\noutput_tokens: 32\n", "trace: t.jsonl\n")
    (traced / "t.jsonl").write_text('{"input_length": 5, "output_length": 7}\n')
    remember_or_refuse(traced, identity(load_study(traced), [GPU]))
    again(traced)
    (traced / "t.jsonl").write_text('{"input_length": 5, "output_length": 8}\n')
    assert re.search(r"trace was .* and is .* now", refusal(traced))


def test_what_reads_records_is_told_how_the_files_changed(night):
    assert changed_since(load_study(night)) == ""
    edit(night, "objective.yaml", "window_s: 20", "window_s: 30")
    edit(night, "study.yaml", "model: small", "model: large")
    assert changed_since(load_study(night)) == (
        'model was "small" when the records were made and is "large" now (and 1 more)'
    )


def test_a_study_that_was_never_run_has_not_changed(tmp_path):
    assert changed_since(load_study(folder(tmp_path))) == ""


def test_reading_records_asks_neither_host_nor_engine(night, monkeypatch):
    monkeypatch.setattr(engines, "version", None)
    assert changed_since(load_study(night)) == ""
    edit(night, "study.yaml", "gpus: 1", "gpus: 2")
    assert "hardware.gpus was 1" in changed_since(load_study(night))


def test_records_without_what_they_are_of_are_changed_as_far_as_anyone_knows(night):
    keep(night, launch(load_study(night), 0))
    assert changed_since(load_study(night)) == ""
    (night / "environment.json").unlink()
    assert "environment.json is missing" in changed_since(load_study(night))


def test_another_engine_version_is_refused_with_both_versions(night, monkeypatch):
    version = engines.version
    monkeypatch.setattr(engines, "version", lambda spec: f"{version(spec)}.1")
    message = refusal(night)
    assert "engine version was" in message
    assert '.1" now' in message


@pytest.mark.parametrize(
    ("host", "said"),
    [
        (
            dataclasses.replace(GPU, gpu_model="A small one"),
            'gpu model was ["A big one"] when the records were made and is ["A small one"] now',
        ),
        (dataclasses.replace(GPU, gpu_model=None), 'is ["none"] now'),
        (dataclasses.replace(GPU, cpu_model="another"), 'cpu model was ["a cpu"]'),
    ],
)
def test_other_hardware_is_refused_with_both_names(night, host, said):
    assert said in refusal(night, host)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("study", "trials: 26", "trials: 260"),
        ("study", "surface: surface.yaml", "surface: surface.yaml, start_s: 5"),
        ("study", "budget: {trials: 26}", "budget: {hours: 8, deadline: '07:30'}"),
        (
            "study",
            "model: small",
            "model: small\nsearch: {sampler: RandomSampler, seed: 9}",
        ),
        ("space", "claim: fa3 is faster", "claim: fa3 is twice as fast, why: a hunch, tier: 2"),
        (
            "space",
            "hypotheses:",
            "hypotheses:\n"
            "  - {id: new, change: {chunked-prefill-size: 4096}, claim: c, gain_percent: [1, 2]}",
        ),
        ("surface", "time_scale: 50", "time_scale: 50 # the same, in other words"),
    ],
)
def test_budget_sampler_and_words_may_change_and_a_hypothesis_be_added(night, file, old, new):
    edit(night, f"{file}.yaml", old, new)
    again(night)


SECRET_STUDY = """model: small
baseline: {access: hf_1}
fixed: {env: {HF_TOKEN_READ: hf_1, A: b}, flags: {api-key: hf_1}}"""
SECRET_PARAMETERS = """parameters:
  access: {env: HF_TOKEN, type: choice, choices: [hf_1, other], default: other, note: read}
  mode: {type: choice, choices: [a, b], default: a, when: {access: hf_1}}
"""
FORBID = "forbid: [{if: {access: hf_1, attention-backend: fa3, mode: b}, reason: why}]\nhypotheses:"


@pytest.fixture
def secretive(tmp_path):
    """A study that has secrets wherever it can."""
    made = folder(tmp_path)
    edit(made, "study.yaml", "model: small", SECRET_STUDY)
    edit(made, "study.yaml", "surface.yaml}", "surface.yaml, command: [env, HF_TOKEN=hf_1, x]}")
    edit(made, "space.yaml", "parameters:\n", SECRET_PARAMETERS)
    edit(made, "space.yaml", "hypotheses:", FORBID)
    return made


def test_no_secret_is_written_down_and_a_new_one_is_no_change(secretive):
    again(secretive)
    written = (secretive / "environment.json").read_text()
    assert "hf_1" not in written
    assert json.loads(written)["identity"]["fixed"]["env"] == {
        "HF_TOKEN_READ": "(hidden)",
        "A": "b",
    }
    for name in ("study.yaml", "space.yaml"):
        file = secretive / name
        file.write_text(file.read_text().replace("hf_1", "hf_2"))
    again(secretive)


def test_how_containers_run_counts_where_there_are_any_and_its_secrets_are_hidden(tmp_path):
    made = folder(tmp_path)
    again(made)
    path = made / "environment.json"
    assert "containers" not in json.loads(path.read_text())["identity"]["engine"]
    options = "containers: {runtime: /bin/true, options: [--ipc=host, -e, HF_TOKEN=hf_1]}"
    edit(made, "study.yaml", "surface.yaml}", f"surface.yaml, image: i, {options}}}")
    path.unlink()
    again(made)
    written = json.loads(path.read_text())["identity"]["engine"]["containers"]
    assert written["options"] == ["--ipc=host", "-e", "HF_TOKEN=${HF_TOKEN}"]
    edit(made, "study.yaml", "--ipc=host", "--ipc=private")
    assert "engine.containers.options was" in refusal(made)


def test_what_stands_beside_a_secret_may_not_change(secretive):
    again(secretive)
    edit(secretive, "space.yaml", "env: HF_TOKEN", "env: HF_TOKENS")
    edit(secretive, "study.yaml", "A: b", "A: c")
    message = refusal(secretive)
    assert 'fixed.env.A was "b"' in message
    assert "(and 1 more)" in message


def versions(night, *told):
    study = load_study(night)
    return [launch(study, n, facts=EngineFacts(version=version)) for n, version in enumerate(told)]


def test_versions_that_servers_told_are_compared_where_none_can_be_asked(night):
    space = load_study(night).space
    assert changed_version([], space) is None
    assert changed_version(versions(night, "1.0", None, "1.0"), space) is None
    told = versions(night, None, "1.0", "1.1", "1.2")
    assert changed_version(told, space) == ("1.0", "1.1")
    refuse_other_version(night, told[:2], space)
    with pytest.raises(StudyChanged) as caught:
        refuse_other_version(night, told, space)
    assert caught.value.message.endswith(
        'engine version was "1.0" when the records were made and is "1.1" now'
    )


def test_each_build_has_its_version(night):
    edit(night, "study.yaml", "surface.yaml}", "surface.yaml, builds: {patched: {python: p}}}")
    kernels = "parameters:\n  kernels: {build: true, type: choice, choices: [null, patched]}\n"
    edit(night, "space.yaml", "parameters:\n", kernels)
    study = load_study(night)
    stock, patched, later = (
        launch(study, number, values={"kernels": build}, facts=EngineFacts(version=version))
        for number, (build, version) in enumerate([(None, "1"), ("patched", "2"), (None, "2")])
    )
    assert changed_version([stock, patched], study.space) is None
    assert changed_version([stock, patched, later], study.space) == ("1", "2")


def test_another_engine_is_refused_with_both_names(night, monkeypatch):
    monkeypatch.setattr(engines, "version", lambda spec: "1.0")
    edit(night, "study.yaml", "{name: rehearsal, surface: surface.yaml}",
         "{name: sglang, python: python3}")  # fmt: skip
    assert 'engine.name was "rehearsal" when the records were made and is "sglang" now' in refusal(
        night
    )


def test_models_are_written_in_an_order_that_does_not_depend_on_the_process(night):
    hosts = [dataclasses.replace(GPU, gpu_model=name, cpu_model=name) for name in "hgfedcba"]
    found = identity(load_study(night), hosts)["hardware"]
    assert found["gpu model"] == found["cpu model"] == list("abcdefgh")


def test_the_order_in_which_hosts_are_found_does_not_matter(tmp_path):
    night = folder(tmp_path)
    other = dataclasses.replace(GPU, name="there", gpu_model="Another")
    remember_or_refuse(night, identity(load_study(night), [GPU, other]))
    remember_or_refuse(night, identity(load_study(night), [other, GPU]))


def test_a_long_difference_is_cut(night):
    edit(night, "study.yaml", "model: small", f"model: {'m' * 300}")
    assert len(refusal(night)) < 400


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"identity": {}}', '{"schema_number": "x", "identity": {}}',
     '{"schema_number": 1, "identity": 3}', "\x00\xff"],
)  # fmt: skip
def test_a_damaged_file_is_named_and_left_as_it_is(night, text):
    (night / "environment.json").write_text(text, encoding="latin-1")
    with pytest.raises(RecordsError, match=r"environment\.json: damaged") as caught:
        again(night)
    assert "Restore it from a copy" in caught.value.hint
    assert (night / "environment.json").read_text(encoding="latin-1") == text


def test_a_newer_file_is_refused_with_both_numbers(night):
    path = night / "environment.json"
    path.write_text(path.read_text().replace('"schema_number": 1', '"schema_number": 7'))
    with pytest.raises(RecordsError, match=r"newer version \(schema 7, this one reads up to 1\)"):
        again(night)


def test_records_without_the_file_are_not_continued(night):
    keep(night, launch(load_study(night), 0))
    (night / "environment.json").unlink()
    with pytest.raises(RecordsError, match="missing, though there are records"):
        again(night)
    assert not (night / "environment.json").exists()


def test_a_folder_that_cannot_be_written_to_is_an_error_of_the_study(night):
    (night / "environment.json").unlink()
    (night / "environment.new").mkdir()
    with pytest.raises(StudyError, match="cannot be written: Is a directory"):
        again(night)
