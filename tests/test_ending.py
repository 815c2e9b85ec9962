"""A study that was stopped says so before its verdict; one that came to its end does not."""

import json
import sys
from datetime import datetime, timedelta
from unittest.mock import Mock

import pytest

from tests.evening import edit, end, folder, hosts, keep, launch, served, won
from tuner.console.progress import progress
from tuner.definitions.validation import load_study
from tuner.night.ending import FILE, unfinished
from tuner.records import Records
from tuner.verbs import inspect
from tuner.verbs.run import run


@pytest.fixture
def night(tmp_path):
    return folder(tmp_path)


def budget(night, text: str) -> None:
    edit(night, "study.yaml", "budget: {trials: 26}", f"budget: {text}")


def said(night) -> str:
    return unfinished(load_study(night), list(Records(night)))


def baselines(night, count: int, **changes) -> None:
    study = load_study(night)
    keep(night, *(launch(study, n, **changes) for n in range(count)))


def test_what_was_stopped_says_so_first_and_as_a_field(night):
    baselines(night, 4)
    view = inspect.show(night)
    assert view.unfinished == "Not finished: 4 of 26 launches."
    assert view.conclusion.sentence.startswith("Not finished: 4 of 26 launches. So far no")
    assert view.model_dump(mode="json")["unfinished"] == view.unfinished


def test_a_winner_before_the_end_is_one_so_far(night):
    won(night)
    (night / FILE).unlink()
    sentence = inspect.show(night).conclusion.sentence
    assert sentence.startswith("Not finished: 11 of 26 launches. So far +19.")


def test_before_any_launch_nothing_is_unfinished(night):
    assert said(night) == ""


def test_a_budget_that_is_used_up_is_an_end_without_a_note(night):
    budget(night, "{trials: 4}")
    baselines(night, 4)
    assert said(night) == ""
    edit(night, "study.yaml", "trials: 4", "trials: 5")
    assert said(night) == "Not finished: 4 of 5 launches."


def test_what_was_interrupted_is_no_launch_made(night):
    study = load_study(night)
    keep(night, launch(study, 0), launch(study, 1, outcome="interrupted", rungs=[]))
    assert said(night) == "Not finished: 1 of 26 launches."


def test_hours_that_are_left_over_are_about_so_many_launches(night):
    budget(night, "{hours: 1}")
    baselines(night, 2, duration_s=600.0, started_at="2026-01-01T00:00:00+00:00")
    assert said(night).startswith("Not finished: 2 of about ")


def test_an_end_that_a_run_noted_holds_until_another_launch_or_budget(night):
    budget(night, "{hours: 1}")
    baselines(night, 3)
    end(night)
    assert said(night) == ""
    edit(night, "study.yaml", "hours: 1", "hours: 2")
    assert said(night) != ""
    edit(night, "study.yaml", "hours: 2", "hours: 1")
    keep(night, launch(load_study(night), 3))
    assert said(night) != ""


@pytest.mark.parametrize("text", ["", "[]", "{}", "\xff"])
def test_a_note_that_cannot_be_read_is_none(night, text):
    baselines(night, 3)
    (night / FILE).write_text(text)
    assert said(night) == "Not finished: 3 of 26 launches."


@pytest.mark.parametrize("looked_after_s", [60, 4000 - 90, 30 * 86400])
@pytest.mark.parametrize(
    ("before_s", "sentence"),
    [(-60, ""), (120, ""), (4000, "Not finished: 3 of about 9 launches.")],
)
def test_a_deadline_ended_what_had_no_time_for_another_launch(
    night, monkeypatch, before_s, sentence, looked_after_s
):
    last_end = datetime(2026, 1, 1, 12, 0)
    deadline = last_end + timedelta(seconds=before_s)
    budget(night, f'{{deadline: "{deadline:%H:%M}"}}')
    start = (last_end - timedelta(seconds=600)).astimezone().isoformat()
    baselines(night, 3, duration_s=600.0, started_at=start)
    clock = Mock(wraps=datetime, now=lambda: last_end + timedelta(seconds=looked_after_s))
    monkeypatch.setattr("tuner.night.ending.datetime", clock)
    monkeypatch.setattr("tuner.night.budget.datetime", clock)
    assert said(night) == sentence


def test_a_space_that_has_other_values_by_now_is_no_fault_here(night):
    won(night)
    (night / FILE).unlink()
    edit(night, "space.yaml", "high: 8192", "high: 6144")
    assert said(night) == "Not finished: 11 of 26 launches."


def test_a_launch_that_was_cut_off_with_its_run_is_named_and_counts_nothing(
    night, monkeypatch, capsys
):
    baselines(night, 3)
    (night / "trials" / "0003").mkdir(parents=True)
    budget(night, "{trials: 3}")
    monkeypatch.setitem(sys.modules, "tuner.hosts.cluster", hosts(served))
    run(night, progress)
    said = "launch 3 was cut off with the last run and counts nothing"
    assert said in "".join(capsys.readouterr())


def test_a_run_that_ends_by_itself_notes_it(night, monkeypatch):
    budget(night, "{hours: 1, trials: 3}")
    monkeypatch.setitem(sys.modules, "tuner.hosts.cluster", hosts(served))
    assert run(night, progress).unfinished == ""
    assert json.loads((night / FILE).read_text())["reason"].startswith("the budget is used up")
    edit(night, "study.yaml", ", trials: 3", "")
    assert said(night) != ""
