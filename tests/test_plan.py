"""The night on paper: arithmetic by hand, what is dropped, and that nothing is started."""

import subprocess
from datetime import datetime, timedelta

import pytest

from tests.evening import died, edit, folder, keep, launch, won
from tuner.definitions.validation import load_study
from tuner.records import Records
from tuner.views.plan import ASSUMED, ONE_HOST, Plan, plan

LAUNCH_S = 0.8 + 2 * (5 + 20) / 50 + 3.0
"""Typical start of a rehearsal, two rungs at fifty surface seconds a second, stopping."""


@pytest.fixture
def night(tmp_path):
    return folder(tmp_path)


def planned(night, budget: str | None = None) -> Plan:
    if budget:
        edit(night, "study.yaml", "budget: {trials: 26}", f"budget: {budget}")
    study = load_study(night)
    return plan(study, list(Records(study.folder)))


def parts(made: Plan) -> list[tuple[str, str, int, int]]:
    return [(p.phase, p.what.split(":")[0], p.launches, p.dropped) for p in made.parts]


def test_twenty_six_launches_by_hand(night):
    made = planned(night)
    assert parts(made) == [
        ("calibrate", "baseline", 3, 0),
        ("hypotheses", "fa3", 1, 0),
        ("hypotheses", "flashinfer", 1, 0),
        # 26 - 3 - 2 hypotheses - 2 to settle them - 2 finalists x 3 - 2 baselines between = 11, of
        # which one is the baseline again, after eight; the next falls between the fresh launches
        ("search", "proposals of the sampler", 10, 0),
        ("search", "baseline again", 2, 0),
        ("settle", "hypotheses that one launch leaves undecided, once more each", 2, 0),
        ("confirm", "best 2 launched afresh, 3 times each, the baseline between", 7, 0),
    ]
    assert sum(p.launches for p in made.parts) == 26
    assert made.launches_left == 26
    assert made.launches_made == 0
    assert made.launch_s == pytest.approx(LAUNCH_S)
    assert made.ladder_s == pytest.approx(1.0)
    assert made.minutes == pytest.approx(26 * LAUNCH_S / 60, abs=0.05)
    assert not made.launch_s_measured
    assert made.rehearsal


def test_one_search_launch_in_nine_is_the_baseline(night):
    search = {p.what: p.launches for p in planned(night, "{trials: 30}").parts}
    assert search["proposals of the sampler"] == 14  # of 30 - 3 - 2 - 2 - 6 - 2 = 15, less one
    assert search["baseline again: drift"] == 2


def test_a_tiny_budget_drops_what_comes_last(night):
    made = planned(night, "{trials: 4}")
    assert parts(made) == [
        ("calibrate", "baseline", 3, 0),
        ("hypotheses", "fa3", 1, 0),
        ("hypotheses", "flashinfer", 0, 1),
        ("settle", "hypotheses that one launch leaves undecided, once more each", 0, 2),
        ("confirm", "best 1 launched afresh, 2 times each, the baseline between", 0, 3),
    ]
    assert made.minutes == pytest.approx(4 * LAUNCH_S / 60, abs=0.05)
    assert made.dropped_hypotheses == ["flashinfer"]


def test_hours_are_as_many_launches_as_fit(night):
    made = planned(night, "{hours: 0.05}")
    assert made.launches_left == int(0.05 * 3600 / LAUNCH_S)
    assert sum(p.launches for p in made.parts) == made.launches_left


def test_a_study_may_say_how_long_a_start_takes_until_it_is_measured(night):
    edit(night, "study.yaml", "surface: surface.yaml", "surface: surface.yaml, start_s: 300")
    assert planned(night).launch_s == pytest.approx(LAUNCH_S - 0.8 + 300)
    keep(night, launch(load_study(night), 0, duration_s=20.0))
    assert planned(night).launch_s == pytest.approx(20.0)


def test_the_narrowest_limit_counts(night):
    assert planned(night, "{hours: 8, trials: 10}").launches_left == 10


def test_a_deadline_is_as_many_launches_as_fit_until_then(night):
    at = datetime.now() + timedelta(minutes=10)
    made = planned(night, f"{{deadline: '{at:%H:%M}'}}")
    assert made.launches_left is not None
    assert 9 * 60 / LAUNCH_S - 2 < made.launches_left <= 10 * 60 / LAUNCH_S


def test_where_hosts_are_found_later_the_time_is_said_to_be_of_one(night):
    assert planned(night).assumed == ASSUMED
    edit(night, "study.yaml", "hardware: {gpus: 1}", "hardware: {gpus: 1, ray: 'head:6379'}")
    assert planned(night).assumed == f"{ASSUMED} {ONE_HOST}"


def test_a_small_space_is_searched_once_however_large_the_budget(night):
    edit(
        night,
        "space.yaml",
        "{type: float, low: 0.4, high: 1.3, step: 0.3, default: 1.0}",
        "{type: choice, choices: [1.0], default: 1.0}",
    )
    made = planned(night, "{trials: 500}")
    assert made.configurations == 4 * 3
    launches = {p.what: p.launches for p in made.parts}
    assert launches["proposals of the sampler"] == 12 - 3  # the baseline and two hypotheses
    assert launches["what is still undecided, again"] > 0
    assert sum(p.dropped for p in made.parts) == 0


def test_what_was_launched_is_not_planned_again(night):
    study = load_study(night)
    keep(
        night,
        launch(study, 0, duration_s=20.0),
        launch(study, 1, duration_s=40.0),
        launch(study, 2, "hypothesis", {"attention-backend": "fa3"}, hypothesis="fa3",
               duration_s=30.0),
        launch(study, 3, "hypothesis", {"attention-backend": "flashinfer"},
               hypothesis="flashinfer", outcome="interrupted", rungs=[]),
    )  # fmt: skip
    made = planned(night)
    assert parts(made)[:2] == [("calibrate", "baseline", 1, 0), ("hypotheses", "flashinfer", 1, 0)]
    assert made.launches_made == 3
    assert made.launches_left == 23
    assert made.launch_s_measured
    assert made.launch_s == pytest.approx(30.0)


def test_hours_that_were_run_are_gone(night):
    starts = [f"2026-01-01T0{n}:00:00+00:00" for n in range(3)]
    loaded = load_study(night)
    keep(
        night, *(launch(loaded, n, duration_s=600.0, started_at=at) for n, at in enumerate(starts))
    )
    made = planned(night, "{hours: 1}")
    assert made.launches_left in (2, 3)  # half an hour of ten minutes each, less a moment


def test_what_builds_on_a_dead_parent_is_not_planned(night):
    edit(night, "space.yaml", "claim: so is flashinfer,",
         "claim: so is flashinfer, depends_on: [fa3],")  # fmt: skip
    study = load_study(night)
    keep(
        night,
        died(study, 0, {"attention-backend": "fa3"}, kind="hypothesis", hypothesis="fa3"),
    )
    assert "hypotheses" not in {p.phase for p in planned(night).parts}


def test_a_budget_that_is_used_up_plans_nothing(night):
    won(night)
    made = planned(night, "{trials: 11}")
    assert made.launches_left == 0
    assert sum(p.launches for p in made.parts) == 0


def test_commands_are_those_of_the_launches_without_what_the_tuner_adds(night):
    commands = {p.what.split(":")[0]: p.command for p in planned(night).parts if p.command}
    assert commands.keys() == {"baseline", "fa3", "flashinfer"}
    assert "--attention-backend triton" in (commands["baseline"] or "")
    assert "--attention-backend fa3" in (commands["fa3"] or "")
    for command in commands.values():
        assert "--port" not in (command or "")
        assert subprocess.run(["sh", "-n", "-c", command or ""], check=False).returncode == 0


def test_what_is_not_searched_and_what_was_not_verified_stands_beside_the_night(night):
    edit(night, "space.yaml", "attention-backend: {type",
         "old: {type: bool, versions: '<0.5'}\n  attention-backend: {type")  # fmt: skip
    edit(night, "study.yaml", "model: small",
         "model: small\nfixed: {flags: {attention-backend: fa3}}")  # fmt: skip
    study = load_study(night)
    made = plan(study, [], ["no GPU is here"])
    assert made.scope.absent == {"old": "<0.5"}
    assert made.scope.pinned == {"attention-backend": "fa3"}
    assert made.scope.left_out == {
        "flashinfer": "changes attention-backend, which is fixed at 'fa3'"
    }
    assert made.unverified == ["no GPU is here"]
    assert [p.what.split(":")[0] for p in made.parts if p.phase == "hypotheses"] == ["fa3"]


def test_nothing_is_started_and_nothing_written(night):
    before = sorted(night.rglob("*"))
    planned(night)
    assert sorted(night.rglob("*")) == before
