"""What a run shows while it runs, on a terminal and where there is none."""

import io
import re
import sys
import time
from typing import Any

import pytest
from rich.console import Console

from tests.evening import (
    MARKUP,
    SHOWN_MARKUP,
    died,
    edit,
    folder,
    hosts,
    keep,
    launch,
    served,
    won,
)
from tests.nightly import study as unrehearsed
from tests.samples import rung
from tuner.console.progress import LiveProgress, PlainProgress, progress
from tuner.definitions.validation import load_study
from tuner.measuring.fidelity import Continuation, Distance
from tuner.night.budget import BudgetClock
from tuner.night.course import TrialNote, TrialOrder
from tuner.night.launches import launch_spec
from tuner.night.schedule import Job
from tuner.records import Records
from tuner.verbs import run
from tuner.verdicts.arms import Arms


@pytest.fixture
def night(tmp_path):
    return folder(tmp_path)


def plainly(study) -> tuple[PlainProgress, io.StringIO]:
    out = io.StringIO()
    return PlainProgress(study, Console(file=out, width=400, markup=False, emoji=False)), out


def on_a_terminal(study) -> tuple[LiveProgress, io.StringIO]:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, markup=False, emoji=False,
                      highlight=False, color_system=None)  # fmt: skip
    return LiveProgress(study, console), out


def order(study, number, kind="search", values=None, hypothesis=None):
    configuration = study.space.configuration({**study.baseline.as_dict(), **(values or {})})
    return TrialOrder(
        number=number,
        kind=kind,
        hypothesis=hypothesis,
        key=configuration.key,
        values=configuration.as_dict(),
        launch=launch_spec(study, configuration),
        gpus=1,
        objective=study.objective,
        lengths=study.lengths,
    )


def clock(*, trials=None, hours=None, launch_s=60.0):
    return BudgetClock(
        trials=trials,
        hours=hours,
        deadline=None,
        spent_before_s=0.0,
        begun=time.monotonic(),
        begun_since_boot_s=0.0,
        until_deadline_s=0.0,
        launch_s=launch_s,
    )


def a_launch(shown, study, made, records=()):
    """The events of one whole launch."""
    job = Job(phase="search", kind=made.kind)
    shown.started(job, order(study, made.number, made.kind, made.values, made.hypothesis))
    shown.note(TrialNote(number=made.number, phase="starting"))
    for measured in made.rungs:
        shown.note(TrialNote(number=made.number, phase="rung", at=measured.said))
        shown.note(TrialNote(number=made.number, phase="rung", at=measured.said,
                             rung=measured))  # fmt: skip
    shown.tick(clock(trials=10))
    shown.ended(made, [*records, made])


def test_where_there_is_no_terminal_lines_are_plain_and_go_to_stderr(night, capsys, monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    study = load_study(night)
    shown = progress(study)
    assert type(shown) is PlainProgress
    with shown:
        a_launch(shown, study, launch(study, 0))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "\x1b" not in captured.err
    assert len(captured.err.splitlines()) == 5


def test_a_terminal_gets_the_panel(night, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert type(progress(load_study(night))) is LiveProgress


def test_each_event_is_a_line_with_its_time(night):
    study = won(night)
    shown, out = plainly(study)
    records = list(Records(night))
    with shown:
        a_launch(shown, study, launch(study, 11, "search", {"attention-backend": "fa3"}, gain=1.1,
                                      duration_s=12.34), records)  # fmt: skip
    label, *lines = out.getvalue().splitlines()
    assert label.startswith("REHEARSAL, 50 surface seconds in one real second")
    assert all(re.match(r"\d\d:\d\d:\d\d trial 11 ", line) for line in lines)
    assert [line[9:] for line in lines] == [
        "trial 11 search: attention-backend=fa3",
        "trial 11 at 1: 22 tok/s",
        "trial 11 at 8: 88 tok/s",
        "trial 11 completed, score 1.0991 (12.3 s)",
    ]


def test_a_launch_says_how_many_are_left_after_it(night):
    study = won(night)
    shown, out = plainly(study)
    job = Job(phase="search", kind="search")

    def begun(number: int, now: BudgetClock | None) -> str:
        if now is not None:
            shown.tick(now)
        out.truncate(0)
        shown.started(job, order(study, number, values={"attention-backend": "fa3"}))
        return out.getvalue().rpartition("attention-backend=fa3")[2].strip()

    assert begun(11, None) == ""
    assert begun(12, clock(trials=30)) == "(17 left)"  # 11 are recorded, two are in flight
    shown.ended(launch(study, 11), [*Records(night), launch(study, 11)])
    assert begun(13, clock(trials=30)) == "(16 left)"
    assert begun(14, clock(trials=15)) == "(the last)"
    assert begun(15, clock(hours=1.0, launch_s=100.0)).startswith("(about 3")
    assert begun(16, clock()) == ""


def test_a_hypothesis_goes_by_its_name(night):
    study = load_study(night)
    shown, out = plainly(study)
    shown.started(
        Job(phase="hypotheses", kind="hypothesis", hypothesis="fa3"),
        order(study, 3, "hypothesis", {"attention-backend": "fa3"}, "fa3"),
    )
    assert "trial 3 fa3: attention-backend=fa3" in out.getvalue()


@pytest.mark.parametrize("kind", [plainly, on_a_terminal])
def test_what_a_log_says_is_shown_as_it_is(night, kind):
    study = load_study(night)
    shown, out = kind(study)
    with shown:
        a_launch(shown, study, died(study, 0, {"attention-backend": "fa3"}, MARKUP))
    assert SHOWN_MARKUP in " ".join(out.getvalue().split())
    assert "red\x1b" not in out.getvalue()


def test_what_progress_makes_by_itself_takes_no_text_for_markup(night, capsys):
    study = load_study(night)
    with progress(study) as shown:
        a_launch(shown, study, died(study, 0, {"attention-backend": "fa3"}, MARKUP))
    assert SHOWN_MARKUP in capsys.readouterr().err


def test_a_hypothesis_that_looks_like_markup_is_shown_as_it_is_on_the_panel(night):
    edit(night, "space.yaml", "id: fa3", "id: '[/fa3]'")
    study = load_study(night)
    shown, out = on_a_terminal(study)
    with shown:
        shown.started(Job(phase="hypotheses", kind="hypothesis"),
                      order(study, 0, "hypothesis", hypothesis="[/fa3]"))  # fmt: skip
        shown.tick(clock(trials=3))
    assert "[/fa3]" in out.getvalue()


def test_a_very_long_cause_is_one_line(night):
    study = load_study(night)
    shown, out = plainly(study)
    shown.ended(died(study, 0, {}, "word " * 79), [])
    assert len(out.getvalue().splitlines()) == 1


def test_the_panel_shows_the_launch_its_rungs_the_best_and_what_is_left(night):
    study = won(night)
    shown, out = on_a_terminal(study)
    with shown:
        shown.started(Job(phase="search", kind="search"),
                      order(study, 11, values={"attention-backend": "fa3"}))  # fmt: skip
        shown.tick(clock(trials=20))
        shown._live.refresh()
        assert "starting" in out.getvalue()
        shown.note(TrialNote(number=11, phase="rung", at="8", rung=rung(1, 21.0)))
        shown.tick(clock(trials=20))
    text = out.getvalue()
    assert "trial 11  rung 8" in text
    assert "search · search · attention-backend=fa3" in text
    assert "1: 21" in text
    assert "best single launch so far: +20.0% in trial 6 (chunked-prefill-size=8192)" in text
    assert "8 launches left, about 0:08:00 · REHEARSAL at 50x" in text


def test_a_run_that_continues_counts_what_was_launched_before(night):
    study = load_study(night)
    keep(night, *(launch(study, n) for n in range(5)))
    shown, out = on_a_terminal(study)
    with shown:
        shown.tick(clock(trials=20))
    assert "15 launches left" in out.getvalue()


def test_hours_bound_the_time_that_is_said_to_be_left(night):
    study = load_study(night)
    shown, out = on_a_terminal(study)
    with shown:
        shown.tick(clock(trials=1000, hours=1.0, launch_s=100.0))
    assert re.search(r"3[56] launches left, about 0:5[89]:", out.getvalue())


def test_what_breaks_a_limit_or_says_something_else_is_not_the_best(night):
    edit(night, "objective.yaml", "window_s: 20", "window_s: 20\nslos: [output_tok_s <= 100]")
    study = load_study(night)
    said = [Continuation(level=8, prompt=(1,), output=(2,))]
    right, wrong = (
        [Distance(level=8, tokens=9, gap_nat=nat, lead_nat=2.0, flips=0, sure=9)]
        for nat in (0.001, 0.9)
    )
    records = [
        launch(study, 0, continuations=said),
        launch(study, 1, rescored={0: right}, continuations=said),
        launch(study, 2, "search", {"attention-backend": "fa3"}, gain=1.2, continuations=said),
        launch(study, 3, rescored={1: right, 2: wrong}, continuations=said),
        launch(study, 4, "search", {"chunked-prefill-size": 8192}, gain=1.1),
    ]
    keep(night, *records)
    fast = launch(study, 5, "search", {"chunked-prefill-size": 4096}, gain=1.3)
    shown, out = on_a_terminal(study)
    with shown:
        a_launch(shown, study, fast, records)
        shown.tick(clock(trials=20))
    text = " ".join(out.getvalue().split())
    assert "trial 5 completed, score 1.3000, breaks output_tok_s <= 100 at 8: found 104 (" in text
    assert "best single launch so far: +10.0% in trial 4 (chunked-prefill-size=8192)" in text
    assert "trial 5 (chunk" not in text
    assert "trial 2 (atten" not in text


def test_the_panel_reads_the_records_when_a_launch_ends_and_not_at_each_tick(night, monkeypatch):
    study, read = won(night), []

    class Counted(Arms):
        def __init__(self, *args: Any) -> None:
            read.append(1)
            super().__init__(*args)

    monkeypatch.setattr("tuner.console.progress.Arms", Counted)
    shown, _ = on_a_terminal(study)
    with shown:
        before = len(read)
        for _ in range(5):
            shown.tick(clock(trials=20))
        assert len(read) == before
        a_launch(shown, study, launch(study, 11), list(Records(night)))
        assert before < len(read) <= before + 2


def test_time_that_is_left_is_that_of_all_hosts(night):
    shown, out = on_a_terminal(load_study(night))
    now = clock(trials=20)
    now.hosts = 4
    with shown:
        shown.tick(now)
    assert "20 launches left, about 0:05:00" in out.getvalue()


def test_before_anything_was_better_the_baseline_is_the_best(night):
    study = load_study(night)
    shown, out = on_a_terminal(study)
    with shown:
        shown.tick(clock(trials=3))
        a_launch(shown, study, launch(study, 0))
    assert "best so far: the baseline" in out.getvalue()


def test_a_launch_that_ended_leaves_the_panel_and_a_line(night):
    study = load_study(night)
    shown, out = on_a_terminal(study)
    with shown:
        a_launch(shown, study, launch(study, 0))
        out.truncate(0)
        shown.tick(clock(trials=3))
        shown._live.refresh()
    assert "trial 0 " not in out.getvalue()
    assert "2 launches left" in out.getvalue()


def test_a_real_engine_is_not_labelled(tmp_path):
    study = unrehearsed(tmp_path, {"trials": 3})
    for kind in (plainly, on_a_terminal):
        shown, out = kind(study)
        with shown:
            shown.tick(clock(trials=3))
        assert "REHEARSAL" not in out.getvalue()


@pytest.mark.parametrize("force", ["", "1"])
def test_a_whole_run_is_told(night, monkeypatch, capsys, force):
    edit(night, "study.yaml", "trials: 26", "trials: 7")
    monkeypatch.setitem(sys.modules, "tuner.hosts.cluster", hosts(served))
    monkeypatch.setenv("FORCE_COLOR", force)
    run.run(night, progress)
    text = capsys.readouterr().err
    for number in range(7):
        assert f"trial {number} " in text
    assert text.count("completed") == 7
