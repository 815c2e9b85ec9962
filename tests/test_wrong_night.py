"""A night with a backend that is a third faster and decodes another answer: it never wins."""

import json
import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT, tuner
from tuner.records import Records
from tuner.verbs.compare import _behind
from tuner.verdicts.outputs import Outputs


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wrong") / "night"
    shutil.copytree(ROOT / "tests" / "wrong_night", folder)
    tuner(folder.parent, "run", "night")
    return folder


@pytest.fixture(scope="module")
def shown(night):
    return json.loads(tuner(night, "show", ".", "--json").stdout)


def test_the_fast_backend_was_measured_faster_and_refused(night, shown):
    fast = [t for t in shown["trials"] if t["changes"].get("attention-backend") == "fa3"]
    assert fast
    assert all(t["score"] > 1.2 for t in fast if t["score"])
    assert all(t["outcome"] == "failed" for t in fast if t["score"])
    assert all(r.outcome == "completed" for r in Records(night) if r.rungs and not r.invalid)


def test_the_winner_is_the_honest_one(shown):
    assert shown["winner_changes"] == {"chunked-prefill-size": 8192}
    words = shown["conclusion"]["output"]
    assert "none differ" not in words
    assert "weak" not in words


def test_the_hypothesis_is_wrong_output_and_never_to_be_tried_again(shown):
    assert shown["hypotheses"][0]["verdict"] == "wrong output"
    assert {end["kind"] for end in shown["never_again"]} == {"wrong_output"}
    assert all(end["blame"] == ["attention-backend"] for end in shown["never_again"])


def test_it_is_on_no_front(night):
    front = json.loads(tuner(night, "pareto", ".", "--json").stdout)
    assert front["points"]
    changed = [front["changes"][point["key"]] for point in front["points"]]
    assert all("attention-backend" not in changes for changes in changed)


def test_how_far_it_is_stands_where_a_person_looks(night):
    text = tuner(night, "show", ".").stdout
    assert "nat per token from the baseline's" in text
    number = next(r.number for r in Records(night) if r.values["attention-backend"] == "fa3")
    assert "output: " in tuner(night, "show", ".", str(number)).stdout


def test_a_study_that_admits_it_crowns_it_from_the_same_records(night, tmp_path):
    folder = tmp_path / "night"
    shutil.copytree(night, folder)
    objective = folder / "objective.yaml"
    objective.write_text(objective.read_text() + "decision: {differing: admit}\n")
    shown = json.loads(tuner(folder, "show", ".", "--json").stdout)
    assert shown["changed"] == ""
    assert shown["hypotheses"][0]["verdict"] == "helps"
    assert "which the study admits" in shown["hypotheses"][0]["words"]


def test_whoever_asks_for_it_by_its_number_is_warned(night):
    number = next(r.number for r in Records(night) if r.values["attention-backend"] == "fa3")
    assert "WARNING: its output is" in tuner(night, "export", ".", "--trial", str(number)).stdout
    compared = json.loads(tuner(night, "compare", ".", "baseline", str(number), "--json").stdout)
    assert any("is no choice, however fast" in note for note in compared["notes"])


def test_distances_of_a_second_study_are_its_own(night):
    behind = _behind(Records(night), 100)
    assert {n for r in behind for n in r.rescored} <= {r.number for r in behind}
    assert {r.number for r in behind if Outputs(behind).differs(r.number)}
