"""What the records say, as values: rows, words, dead ends."""

import json

import pytest

from tests.evening import died, edit, folder, keep, launch, won
from tuner.definitions.validation import load_study
from tuner.errors import TunerError
from tuner.measuring.measurement import EngineLoad
from tuner.measuring.replicas import Replicas
from tuner.records import Records
from tuner.views.changed import changes
from tuner.views.results import (
    StudyView,
    front,
    name,
    outcome_words,
    study_view,
    trial_row,
    unlike_baseline,
)
from tuner.views.words import ran_words


@pytest.fixture
def night(tmp_path):
    return folder(tmp_path)


def seen(night, ended: str = "") -> StudyView:
    study = load_study(night)
    return study_view(study, Records(study.folder), ended)


def test_an_empty_study_has_a_view(night):
    view = seen(night)
    assert view.trials == []
    assert view.never_again == []
    assert view.winner_changes is None
    assert not view.feasible
    assert view.rehearsal
    assert view.time_scale == 50.0
    assert [row.verdict for row in view.hypotheses] == ["not run", "not run"]


def test_a_night_is_seen_whole(night):
    won(night)
    view = seen(night, "the budget is used up")
    assert view.winner_changes == {"chunked-prefill-size": 8192}
    assert [(row.id, row.verdict) for row in view.hypotheses] == [
        ("fa3", "no effect"),
        ("flashinfer", "blocked"),
    ]
    assert [t.number for t in view.trials] == list(range(11))
    assert view.trials[5].changes == {"chunked-prefill-size": 8192}
    assert view.trials[5].ratios[8] == pytest.approx(1.2, rel=0.01)
    assert view.trials[5].rates == {1: pytest.approx(24.0), 8: pytest.approx(96.0)}
    assert view.trials[4].score is None
    assert view.feasible
    assert view.ended == "the budget is used up"


def test_a_view_survives_json(night):
    won(night)
    view = seen(night)
    assert json.loads(view.model_dump_json(by_alias=True))["schema_number"] == 1


def test_a_row_alone_is_the_row_of_the_view(night):
    study = won(night)
    records = Records(night)
    assert [trial_row(study, record, records) for record in records] == seen(night).trials


def test_a_secret_that_is_searched_is_not_shown(night):
    token = "  t: {env: HF_TOKEN, type: choice, choices: [hf_1, hf_2], default: hf_1}\n"
    edit(night, "space.yaml", "parameters:\n", f"parameters:\n{token}")
    study = load_study(night)
    assert changes({**study.baseline.as_dict(), "t": "hf_2"}, study) == {"t": "(hidden)"}


def test_changes_name_what_differs_in_both_directions_and_tell_true_from_one(night):
    edit(night, "study.yaml", "model: small", "model: small\nbaseline: {attention-backend: fa3}")
    study = load_study(night)
    base = study.baseline.as_dict()
    assert changes(base, study) == {}
    assert changes({**base, "attention-backend": "triton"}, study) == {
        "attention-backend": "triton"
    }
    fewer = {n: v for n, v in base.items() if n != "chunked-prefill-size"}
    assert changes(fewer, study) == {"chunked-prefill-size": None}
    assert changes({**base, "more": True}, study) == {"more": True}
    assert changes({**base, "schedule-conservativeness": True}, study) == {
        "schedule-conservativeness": True
    }


def test_every_outcome_has_words(night):
    study = load_study(night)
    whole = launch(study, 0, "search")

    def words(**update):
        return outcome_words(study, whole.model_copy(update=update))

    dead = died(study, 0, {}, "no memory", phase="capturing")
    assert outcome_words(study, whole) == "completed"
    assert outcome_words(study, dead) == "died while capturing: no memory [oom]"
    assert words(outcome="pruned", pruned_because="too slow") == "stopped early: too slow"
    assert words(outcome="duplicate", duplicate_of=3) == "runs with the same arguments as trial 3"
    assert words(outcome="interrupted") == "interrupted"
    serving = {"outcome": "failed", "failure": dead.failure, "ready_s": 1.0}
    assert words(**serving, rungs=whole.rungs[:1]) == "died at 8: no memory [oom]"
    assert words(**serving, rungs=[]) == "died at 1: no memory [oom]"
    assert words(**serving) == "died after the ladder: no memory [oom]"


def test_launches_that_died_of_one_cause_are_one_dead_end_by_what_they_share(night):
    study = load_study(night)
    shared = {"attention-backend": "flashinfer"}
    blame = ["attention_backend"]
    keep(
        night,
        died(study, 0, {**shared, "chunked-prefill-size": 4096}, blame=blame),
        died(study, 1, {**shared, "chunked-prefill-size": 8192}, blame=blame),
        died(study, 2, {**shared, "schedule-conservativeness": 1.3,
                        "chunked-prefill-size": 8192}, blame=blame),
        died(study, 3, {"attention-backend": "fa3"}, "another cause"),
        died(study, 4, {"attention-backend": "fa3"}, "the port was taken", action="once"),
    )  # fmt: skip
    first, second = seen(night).never_again
    assert first.trials == [0, 1, 2]
    assert first.changes == first.suspects == shared
    assert second.trials == [3]
    assert second.suspects == {}
    assert second.changes == {"attention-backend": "fa3"}


def test_what_is_blamed_by_its_flag_or_variable_is_found_by_its_parameter(night):
    edit(night, "space.yaml", "  attention-backend: {", "  backend: {flag: --attention-backend, ")
    path = night / "space.yaml"
    path.write_text(path.read_text().split("hypotheses:")[0])
    study = load_study(night)
    values = {"backend": "fa3", "chunked-prefill-size": 8192}
    keep(night, died(study, 0, values, blame=["attention-backend"]))
    assert seen(night).never_again[0].suspects == {"backend": "fa3"}


def test_records_of_a_space_that_changed_are_still_shown(night):
    study = load_study(night)
    keep(night, died(study, 0, {"attention-backend": "fa3"}, blame=["attention-backend"]))
    path = night / "space.yaml"
    lines = [ln for ln in path.read_text().splitlines() if "attention-backend" not in ln]
    path.write_text("\n".join(lines).replace("hypotheses:", ""))
    assert seen(night).never_again[0].suspects == {"attention-backend": "fa3"}


def test_a_broken_limit_makes_a_trial_infeasible(night):
    edit(night, "objective.yaml", "window_s: 20", "window_s: 20\nslos: [output_tok_s >= 1000]")
    study = load_study(night)
    keep(night, launch(study, 0))
    view = seen(night)
    assert view.trials[0].breaches
    assert "output_tok_s" in view.trials[0].breaches[0]
    assert not view.feasible


def test_one_server_that_stood_for_several_makes_nothing_feasible(night):
    """Though it keeps the limits that the baseline breaks."""
    edit(night, "objective.yaml", "window_s: 20", "window_s: 20\nslos: [output_tok_s >= 30]")
    study = load_study(night)
    fast = {"chunked-prefill-size": 8192}
    lone = launch(study, 1, "search", fast, gain=2.0, replicas=Replicas(launched=1, of=2))
    keep(night, launch(study, 0), lone)
    assert not seen(night).feasible
    keep(night, launch(study, 2, "search", fast, gain=2.0))
    assert seen(night).feasible


def test_a_rung_that_the_engine_did_not_run_in_full_is_said_to_run_at_what_it_did(night):
    study = load_study(night)
    made = launch(study, 0)
    load = EngineLoad(running_mean=2.0, running_max=2, queued_mean=6.0, queued_max=6, samples=9)
    full = EngineLoad(running_mean=0.73, running_max=1, queued_mean=0, queued_max=0, samples=9)
    one, eight = made.rungs
    rungs = [
        one.model_copy(update={"engine_load": full}),
        eight.model_copy(update={"engine_load": load}),
    ]
    nearly = load.model_copy(update={"running_mean": 7.4})
    most = [one, eight.model_copy(update={"engine_load": nearly})]
    keep(night, made.model_copy(update={"rungs": rungs}))
    keep(night, launch(study, 1).model_copy(update={"rungs": most}))
    assert [row.ran_at for row in seen(night).trials] == [{8: 2.0}, {}]
    assert ran_words({8: 2.0}) == "of 8 streams the engine ran 2 at a time"
    assert ran_words({1: 0.25, 8: 3.84}) == (
        "of 1 stream the engine ran 0.25 at a time, of 8 streams the engine ran 3.84 at a time"
    )


def test_arguments_unlike_the_baseline_s_are_named_in_both_directions(night):
    study = load_study(night)
    base = launch(study, 0, effective={"a": 1, "b": 2, "c": True})
    quiet = launch(study, 1)
    other = launch(study, 2, "search", {"attention-backend": "fa3"},
                   effective={"a": 1, "b": 3, "d": "x"})  # fmt: skip
    assert unlike_baseline(study, other, [quiet, base, other]) == {"b": 3, "d": "x", "c": None}
    assert unlike_baseline(study, base, [quiet, base]) == {}
    assert unlike_baseline(study, other, [other]) == {"a": 1, "b": 3, "d": "x"}


def test_the_front_names_changes_for_each_of_its_points(night):
    study = won(night)
    found = front(study, Records(night), "tok_s_per_user", "tok_s_per_gpu")
    assert [p.level for p in found.points] == [1, 8]
    assert {json.dumps(found.changes[p.key]) for p in found.points} == {
        '{"chunked-prefill-size": 8192}'
    }
    with pytest.raises(TunerError, match="unknown metric 'tok_s'"):
        front(study, Records(night), "tok_s", "score")


def test_a_study_is_named_as_one_would_type_it(night, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert name(load_study(tmp_path / "night")) == "night"
    monkeypatch.chdir("/")
    assert name(load_study(night)) == str(night).lstrip("/")
    monkeypatch.chdir(night)
    assert name(load_study(night)) == "."
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert name(load_study(night)) == str(night)
