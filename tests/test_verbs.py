"""What each verb does, without a host: a run stands on a cluster that answers at once."""

import os
import signal
import sys

import pytest

from tests.evening import broken, edit, folder, hosts, keep, launch, served, won
from tests.nightly import Heard
from tuner import engines
from tuner.definitions.validation import load_study
from tuner.errors import (
    DefinitionError,
    EngineError,
    HostError,
    RecordsError,
    StudyBusy,
    StudyChanged,
    TunerError,
)
from tuner.lock import locked
from tuner.night.known import Known, KnownFailure
from tuner.records import Records
from tuner.verbs import inspect
from tuner.verbs import run as run_verb


class Listening(Heard):
    """A listener that can be entered, as progress is."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


@pytest.fixture
def night(tmp_path):
    return folder(tmp_path)


@pytest.fixture
def run(night, monkeypatch):
    """Run the study on a host where every launch comes out as `outcome(order)` says."""

    def start(outcome=served):
        heard = Listening()
        monkeypatch.setitem(sys.modules, "tuner.hosts.cluster", hosts(outcome))
        return run_verb.run(night, lambda study: heard), heard

    return start


def test_check_says_what_a_study_holds(night):
    found = inspect.check(night)
    assert found.engine == "rehearsal"
    assert (found.parameters, found.hypotheses, found.ladder) == (3, 2, ["1", "8"])
    assert found.not_ready == []
    assert not (night / "optuna.journal").exists()


def test_check_names_a_sampler_that_does_not_exist(night):
    edit(night, "study.yaml", "model: small", "model: small\nsearch: {sampler: TPESamplr}")
    with pytest.raises(TunerError, match="TPESamplr"):
        inspect.check(night)


SIZES = "  tp-size: {type: choice, choices: [1, 2, 4], default: DEFAULT}\nhypotheses:\n"
WIDE = "  - {id: tp2, change: {tp-size: 2}, claim: c, gain_percent: [0, 9]}\n"


def test_what_needs_more_gpus_than_the_study_has_is_a_fault_of_the_study(night):
    edit(night, "space.yaml", "hypotheses:\n", SIZES.replace("DEFAULT", "1"))
    assert inspect.check(night).not_ready == []  # what is searched may need more
    edit(night, "space.yaml", "hypotheses:\n", f"hypotheses:\n{WIDE}")
    where = f"{night}/study.yaml:6:18: hardware.gpus: found 1, and "
    for verb in (inspect.check, lambda path: run_verb.run(path, lambda study: Listening())):
        with pytest.raises(DefinitionError) as raised:
            verb(night)
        assert str(raised.value) == f"{where}tp-size=2 needs 2 GPUs"
    assert inspect.plan(night).unverified == [f"{where}tp-size=2 needs 2 GPUs"]
    edit(night, "space.yaml", "default: 1}", "default: 4}")
    with pytest.raises(DefinitionError) as raised:
        inspect.check(night)
    assert str(raised.value) == f"{where}the baseline needs 4 GPUs"


def test_check_says_what_this_machine_lacks(night, monkeypatch):
    monkeypatch.setattr(engines, "preflight", lambda spec: ["there is no engine here"])
    assert inspect.check(night).not_ready == ["there is no engine here"]


@pytest.mark.parametrize("verb", [inspect.check, inspect.plan, inspect.show])
def test_a_folder_that_is_no_study_is_refused(tmp_path, verb):
    with pytest.raises(DefinitionError, match=r"no study\.yaml in this folder"):
        verb(tmp_path)
    with pytest.raises(DefinitionError, match="no such study"):
        verb(tmp_path / "nowhere")


def test_reading_verbs_write_nothing(night):
    won(night)
    before = {path: path.read_bytes() for path in night.rglob("*") if path.is_file()}
    inspect.check(night)
    inspect.plan(night)
    inspect.show(night)
    inspect.show_trial(night, 0)
    inspect.pareto(night, "tok_s_per_user", "tok_s_per_gpu")
    inspect.export(night, None, "shell")
    assert {path: path.read_bytes() for path in night.rglob("*") if path.is_file()} == before


def test_one_launch_is_shown_with_its_log_and_what_it_runs_with(night, monkeypatch):
    study = load_study(night)
    keep(night, launch(study, 0, effective={"a": 1}),
         launch(study, 1, "search", {"attention-backend": "fa3"}, effective={"a": 2}))  # fmt: skip
    monkeypatch.chdir(night.parent)
    view = inspect.show_trial(night, 1)
    assert view.log == "night/trials/0001/server.log"
    assert view.unlike_baseline == {"a": 2}
    assert view.record.number == view.row.number == 1
    assert view.rehearsal
    with pytest.raises(TunerError, match="no trial 2"):
        inspect.show_trial(night, 2)


def test_a_run_goes_on_until_the_budget_is_used_up(night, run):
    view, heard = run()
    assert view.ended == "the budget is used up: its 26 launches are made"
    assert len(view.trials) == len(heard.records) == 26
    assert view.feasible
    assert (night / "environment.json").exists()
    assert (night / "optuna.journal").exists()


def test_a_run_that_is_continued_launches_only_what_is_left(night, run):
    edit(night, "study.yaml", "trials: 26", "trials: 10")
    run()
    edit(night, "study.yaml", "trials: 10", "trials: 14")
    view, heard = run()
    assert len(heard.records) == 4
    assert len(view.trials) == 14


def test_a_changed_study_is_refused_before_anything_is_launched(night, run):
    edit(night, "study.yaml", "trials: 26", "trials: 5")
    run()
    edit(night, "objective.yaml", "window_s: 20", "window_s: 21")
    launched: list[int] = []
    with pytest.raises(StudyChanged, match=r"objective\.window_s was 20\.0 .* is 21\.0 now"):
        run(lambda order: launched.append(order.number))
    assert launched == []


def test_a_study_that_another_run_holds_is_refused(night, run):
    with locked(night), pytest.raises(StudyBusy, match=f"process {os.getpid()}"):
        run()


def test_damaged_records_are_refused_and_left(night, run):
    (night / "trials.jsonl").write_text("{}\n")
    with pytest.raises(RecordsError, match=r"trials\.jsonl:1: damaged record"):
        run()
    assert (night / "trials.jsonl").read_text() == "{}\n"


def test_an_engine_that_is_not_there_is_said_before_a_host_is_touched(night, run, monkeypatch):
    monkeypatch.setattr(engines, "preflight", lambda spec: ["no engine", "no GPU"])
    with pytest.raises(EngineError, match="no engine\nno GPU") as caught:
        run()
    assert caught.value.hint == "Nothing was started."
    assert not (night / "environment.json").exists()


def test_a_baseline_that_does_not_serve_ends_the_run_with_its_cause_and_its_log(night, run):
    with pytest.raises(EngineError, match=r"does not serve \(trial 0\): it broke") as caught:
        run(broken)
    assert caught.value.hint.startswith("Take less. Log: ")
    assert caught.value.hint.endswith("trials/0000/server.log")


def test_a_baseline_that_fails_by_the_host_s_fault_is_an_error_of_the_host(night, run):
    with pytest.raises(HostError, match="no driver"):
        run(lambda order: broken(order, cause="no driver", action="stop-study"))


def test_a_lost_launch_ends_the_run_and_is_recorded(night, run):
    with pytest.raises(HostError, match="was lost, as the one before: the host is gone"):
        run(lambda order: "the host is gone")
    assert [r.outcome for r in Records(night)] == ["interrupted", "interrupted"]


def test_nothing_feasible_is_said(night, run):
    edit(night, "study.yaml", "trials: 26", "trials: 5")
    edit(night, "objective.yaml", "window_s: 20", "window_s: 20\nslos: [output_tok_s >= 1000]")
    assert not run()[0].feasible


def test_sigterm_ends_a_run_as_ctrl_c_does_and_then_means_again_what_it_meant(night, run):
    before = signal.getsignal(signal.SIGTERM)

    def terminated(order):
        os.kill(os.getpid(), signal.SIGTERM)
        return served(order)

    with pytest.raises(KeyboardInterrupt):
        run(terminated)
    assert signal.getsignal(signal.SIGTERM) == before
    with locked(night):  # the lock is free again
        pass


def test_a_baseline_that_serves_no_more_is_the_hosts_error_and_blames_no_configuration(night, run):
    def outcome(order):
        return broken(order) if order.number >= 4 else served(order)

    with pytest.raises(HostError, match=r"not serve any more \(trial \d+; it did in") as caught:
        run(outcome)
    assert caught.value.exit_code == 4
    assert "\nNot held against their configurations: trial 4, 5" in caught.value.message
    assert f"tuner doctor {night} looks at it" in caught.value.hint
    assert {row.verdict for row in inspect.show(night).hypotheses} <= {
        "not run",
        "no effect",
        "inconclusive",
    }


def test_what_crashed_in_another_study_is_said_and_the_search_keeps_away(night, run, monkeypatch):
    crash = KnownFailure(
        engine="sglang", version="1", model="m", hardware="h", study="x", trial=7,
        started_at="2026-01-01T00:00:00Z", kind="oom_graph", cause="no memory", phase="capturing",
        blame=["attention-backend"], flags={"attention-backend": "flashinfer"},
    )  # fmt: skip
    monkeypatch.setattr(
        run_verb, "known_failures", lambda study, hardware: Known(failures=(crash,))
    )
    view, heard = run()
    assert any(
        said.startswith("known: attention-backend=flashinfer died on this engine, model and")
        and "in study x, trial 7, while capturing: no memory; " in said
        for said in heard.prepared
    )
    assert view.feasible
