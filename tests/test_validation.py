import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.definitions.models import Objective, SpaceDefinition, StudyDefinition
from tuner.definitions.surface import Surface
from tuner.definitions.validation import load, load_objective, load_study
from tuner.errors import DefinitionError

GOOD = Path(__file__).parent / "bad_input" / "good"
SURFACE = "time_scale: 100\ntable:\n  - {concurrency: 1, output_tok_s: 9, ttft_ms: 100}\n"


@pytest.fixture
def study(tmp_path):
    """The folder of a copy of the good study, in a folder of studies."""
    folder = tmp_path / "studies" / "first"
    folder.mkdir(parents=True)
    for file in GOOD.iterdir():
        (folder / file.name).write_text(file.read_text())
    return folder


def refusal(path):
    with pytest.raises(DefinitionError) as error:
        load_study(path)
    return str(error.value)


def change(file, old, new):
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))


def test_a_study_is_loaded_by_its_folder_and_by_its_file(study):
    by_folder, by_file = load_study(study), load_study(study / "study.yaml")
    assert by_folder.folder == by_file.folder == study
    assert by_folder.definition == by_file.definition
    assert by_folder.digests == by_file.digests


def test_a_loaded_study_holds_all_that_it_refers_to(study):
    loaded = load_study(study)
    assert loaded.definition.model == "models/tiny"
    assert [rung.concurrency for rung in loaded.objective.ladder] == [1, 8]
    assert loaded.baseline == loaded.space.configuration({})
    assert loaded.baseline.as_dict()["max-num-seqs"] == 64
    assert loaded.surface is None


def test_the_baseline_is_the_studys(study):
    change(study / "study.yaml", "budget:", "baseline: {max-num-seqs: 48}\nbudget:")
    assert load_study(study).baseline.as_dict()["max-num-seqs"] == 48


def test_a_rehearsal_brings_its_surface(study):
    change(study / "study.yaml", "vllm, python: engine/bin/python", "rehearsal, surface: s.yaml")
    assert "s.yaml" in refusal(study)
    (study / "s.yaml").write_text(SURFACE)
    surface = load_study(study).surface
    assert surface is not None
    assert surface.time_scale == 100


def test_references_start_at_the_study_whatever_the_working_directory(study, monkeypatch):
    elsewhere = study.parent.parent
    (study / "space.yaml").rename(elsewhere / "other.yaml")
    change(study / "study.yaml", "space: space.yaml", "space: ../../other.yaml")
    monkeypatch.chdir(elsewhere)
    assert load_study(Path("studies/first")).space.size() is not None
    (elsewhere / "other.yaml").write_text("parameters: {}\n")
    assert refusal(Path("studies/first")).startswith("other.yaml:1:13: parameters: found")


def test_the_folder_is_absolute_and_faults_stand_where_the_user_typed_them(study, monkeypatch):
    monkeypatch.chdir(study.parent)
    assert load_study(Path("first")).folder == study
    (study / "space.yaml").write_text("parameters: {}\n")
    assert refusal(Path("first")).startswith("first/space.yaml:1:13: parameters: found")


def test_flags_lose_their_dashes(study):
    flags = "fixed:\n  flags: {--tp-size: 8, dtype: auto}\nbudget:"
    change(study / "study.yaml", "budget:", flags)
    assert load_study(study).definition.fixed.flags == {"tp-size": 8, "dtype": "auto"}
    eager = load_study(study).space.parameters["eager"]
    assert eager.flag == "enforce-eager"


def test_digests_follow_what_files_say_and_not_how(study):
    before = load_study(study).digests
    assert set(before) == {"study", "space", "objective"}
    change(study / "objective.yaml", "ladder:", "# a remark\nladder:")
    change(study / "objective.yaml", "{concurrency: 8}", '{"concurrency": 8, weight: 1}')
    assert load_study(study).digests == before
    change(study / "objective.yaml", "input_tokens: 64", "input_tokens: 65")
    after = load_study(study).digests
    assert {name for name in after if after[name] != before[name]} == {"objective"}


def test_studies_near_are_named_where_one_is_missing(study, monkeypatch):
    monkeypatch.chdir(study.parent.parent)
    (study.parent / "second").mkdir()
    near = "  studies near: studies/first"
    for name in ("studies/frist", "studies/second", "studies", "."):
        assert refusal(Path(name)).endswith(near)
    assert refusal(Path("studies/second")).startswith(
        "studies/second: no study.yaml in this folder"
    )
    assert refusal(Path("studies/frist")).startswith("studies/frist: no such study")
    assert refusal(Path("nowhere/at/all")).endswith("no studies near either")


def test_all_files_are_read_before_anything_is_said(study):
    for name in ("study", "space", "objective"):
        path = study / f"{name}.yaml"
        path.write_text(path.read_text() + "extra: 1\n")
    lines = [line for line in refusal(study).splitlines() if "unknown key" in line]
    assert [Path(line.split(":")[0]).stem for line in lines] == ["study", "space", "objective"]


def test_problems_come_in_the_order_of_the_file(study):
    change(study / "objective.yaml", "input_tokens: 64", "input_tokens: 0")
    change(study / "objective.yaml", "{concurrency: 8}", "{concurrency: -1}")
    with pytest.raises(DefinitionError) as error:
        load_study(study)
    assert [problem.path for problem in error.value.problems] == [
        "ladder.1.concurrency",
        "input_tokens",
    ]


def test_a_secret_is_in_no_message(study):
    env = "fixed:\n  env: {HF_TOKEN: [hf_1], API_KEY: 123, MY_PASSWORD: true, hf_secret: 7e3}\n"
    change(study / "study.yaml", "budget:", env + "budget:")
    message = refusal(study)
    assert message.count("fixed.env.") == 4
    assert not any(secret in message for secret in ("hf_1", "123", "true", "7000"))


def test_an_env_value_that_looks_like_a_secret_is_fine(study):
    change(study / "study.yaml", "budget:", 'fixed: {env: {HF_TOKEN: "hf_1"}}\nbudget:')
    assert load_study(study).definition.fixed.env == {"HF_TOKEN": "hf_1"}


def test_one_file_is_loaded_by_itself(study):
    assert load(study / "objective.yaml", Objective).output_tokens == 32
    with pytest.raises(DefinitionError, match="missing key 'parameters'"):
        load(study / "objective.yaml", SpaceDefinition)


TRACED = "ladder: [{concurrency: 1}]\ntrace: t.jsonl\n"
TWO = '{"input_length": 5, "output_length": 7}\n{"input_length": 9, "output_length": 2}\n'


def test_a_study_has_the_lengths_of_its_objective(study):
    assert load_study(study).lengths == ((64, 32),)
    assert load_objective(study / "objective.yaml")[1] == ((64, 32),)
    assert "trace" not in load_study(study).digests


def test_or_those_of_its_trace_and_its_digest_changes_with_what_the_trace_says(study):
    (study / "objective.yaml").write_text(TRACED)
    (study / "t.jsonl").write_text(TWO)
    loaded = load_study(study)
    assert loaded.lengths == load_objective(study / "objective.yaml")[1] == ((5, 7), (9, 2))
    (study / "t.jsonl").write_text(TWO.replace("5,", "5 ,"))
    assert load_study(study).digests == loaded.digests
    (study / "t.jsonl").write_text(TWO.replace("5,", "6,"))
    assert load_study(study).digests["trace"] != loaded.digests["trace"]


def test_a_trace_that_is_not_there_is_told_with_what_was_meant(study):
    (study / "objective.yaml").write_text(TRACED.replace("t.jsonl", "trac.jsonl"))
    (study / "trace.jsonl").write_text(TWO)
    with pytest.raises(
        DefinitionError, match=r"trace: no such file: .*\(did you mean 'trace\.jsonl'"
    ):
        load_study(study)
    (study / "trac.jsonl").mkdir()
    with pytest.raises(DefinitionError, match="found a folder, expected JSON lines"):
        load_study(study)


@pytest.mark.parametrize("path", sorted(Path(__file__).parent.parent.glob("objectives/*.yaml")))
def test_our_objectives_load(path):
    assert load(path, Objective).ladder


@pytest.mark.parametrize("path", sorted(Path(__file__).parent.parent.glob("search_spaces/*.yaml")))
def test_our_search_spaces_load(path):
    assert load(path, SpaceDefinition).parameters


@pytest.mark.parametrize("path", sorted(Path(__file__).parent.parent.glob("studies/*/study.yaml")))
def test_our_studies_load(path):
    assert load_study(path.parent).baseline.key


VALUES = st.recursive(
    st.sampled_from([None, True, 0, 1, -1.5, "", "int", "a", "ttft_ms p99 <= 5"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "low", "high", "a", "if", "then", "when", "gt", "int"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=6,
)


def _mutated(draw, value):
    """The value with something else in one place."""
    if isinstance(value, dict | list) and value and draw(st.integers(0, 3)):
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = draw(st.sampled_from(keys))
        changed = dict(value) if isinstance(value, dict) else list(value)
        changed[key] = _mutated(draw, value[key])
        return changed
    return draw(VALUES)


@settings(deadline=None, max_examples=150)
@given(st.data(), st.sampled_from([SpaceDefinition, Objective, StudyDefinition, Surface]))
def test_any_document_loads_or_is_refused_in_words_of_ours(tmp_path_factory, data, model):
    names = {SpaceDefinition: "space", Objective: "objective", StudyDefinition: "study"}
    text = (GOOD / f"{names[model]}.yaml").read_text() if model in names else SURFACE
    document = _mutated(data.draw, yaml.safe_load(text))
    path = tmp_path_factory.mktemp("any") / "x.yaml"
    path.write_text(json.dumps(document))
    message = ""
    try:
        load(path, model)
    except DefinitionError as error:
        message = str(error)
    assert "Input should" not in message
    assert "Value error" not in message
