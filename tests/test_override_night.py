"""A night over six declared combinations of which the engine makes two: two loads, and who
overrode whom."""

import json
import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT, tuner
from tuner.records import Records, TrialRecord


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("override")
    shutil.copytree(ROOT / "tests" / "override_night", folder / "night")
    tuner(folder, "run", "night")
    return folder


@pytest.fixture(scope="module")
def records(night: Path) -> list[TrialRecord]:
    return list(Records(night / "night"))


def test_each_declared_combination_was_launched_once_but_for_the_baseline(records):
    keys = [record.key for record in records if record.kind in ("hypothesis", "search")]
    assert len({record.key for record in records}) == 6
    assert len(keys) == len(set(keys)) == 5


def test_two_combinations_are_effective_and_two_were_loaded(records):
    loaded = {record.key for record in records if record.rungs}
    assert len({record.effective_key for record in records}) == 2
    assert len(loaded) == 2
    assert [r.outcome for r in records].count("duplicate") == 4
    assert all(not record.rungs for record in records if record.outcome == "duplicate")


def test_a_combination_is_held_to_be_the_one_that_it_runs_as(records):
    by_number = {record.number: record for record in records}
    for record in records:
        if record.duplicate_of is not None:
            twin = by_number[record.duplicate_of]
            assert twin.rungs
            assert twin.effective == record.effective


def test_who_overrode_whom_stands_in_the_records(records):
    changed = {
        (each.asked, each.runs_with, *each.by) for record in records for each in record.overridden
    }
    assert changed == {
        (2, 1, "moe-a2a-backend"),
        (8, 1, "moe-a2a-backend"),
        (1, 8, "moe-a2a-backend"),
        (2, 8, "moe-a2a-backend"),
    }


def test_the_ledger_shows_it(night):
    view = json.loads(tuner(night, "show", "night", "--json").stdout)
    words = {row["id"]: row["words"] for row in view["hypotheses"]}
    said = "ep-size was set to 2 and runs with {}: overridden by moe-a2a-backend"
    assert words["experts-on-two"].startswith("no effect: the server runs with the baseline's own")
    assert said.format(1) in words["experts-on-two"]
    assert said.format(8) in words["all-to-all"]


def test_a_trial_shows_the_line_that_says_so(night, records):
    number = next(r.number for r in records if r.overridden and r.values["ep-size"] == 8)
    shown = " ".join(tuner(night, "show", "night", str(number)).stdout.split())
    assert "ep-size was set to 8 and runs with 1: overridden by moe-a2a-backend (" in shown
    assert "expert parallel size is reset to 1" in shown
