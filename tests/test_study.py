"""The loop of a night over simulated launches: order, budget, resume, failures, interruption."""

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.nightly import Heard, SimulatedExecutor, completed, study
from tests.samples import OBJECTIVE, record
from tuner.definitions.models import SpaceDefinition
from tuner.definitions.space import Space
from tuner.engines.base import EngineFacts
from tuner.errors import HostError, StudyChanged
from tuner.failures.classifier import Failure
from tuner.hosts.executor import Event, JobLost
from tuner.night.course import TrialOrder
from tuner.night.study import StudyRun
from tuner.records import Records
from tuner.search.searcher import Searcher
from tuner.verdicts.decision import conclusion

FAULT = Failure(
    kind="compile_fail", cause="graph break", action="never", advice="Leave it off.",
    phase="loading",
)  # fmt: skip


def night(folder, outcome, budget, **changes):
    """Run a study to its end; (stop, what was heard, executor)."""
    loaded = study(folder, budget, **changes)
    executor, heard = SimulatedExecutor(outcome), Heard()
    searcher = Searcher(
        loaded.space, sampler="TPESampler", seed=1, journal=folder / "journal", name="night"
    )
    stop = StudyRun(loaded, Records(folder), executor, searcher, heard).run()
    return stop, heard, executor


class InterruptedExecutor(SimulatedExecutor):
    """Ctrl-C comes while the first launch is under way."""

    def poll(self, timeout_s: float) -> list[Event]:
        raise KeyboardInterrupt


class BusyExecutor(SimulatedExecutor):
    """Has no slot for two of three requests."""

    def __init__(self, outcome: Any) -> None:
        super().__init__(outcome)
        self.refused: list[TrialOrder] = []

    def submit(self, function: Any, payload: Any, *, gpus: int, folder: Path) -> int | None:
        self.refused.append(payload)
        if len(self.refused) % 3:
            return None
        return super().submit(function, payload, gpus=gpus, folder=folder)


def gain_of(order):
    return 1.3 if order.values["chunk"] == 2 and order.values["seats"] == 16 else 1.0


def noisy(seed=0):
    rng = random.Random(seed)
    return lambda order: completed(order, gain_of(order), rng.gauss(0, 0.01))


def test_a_night_calibrates_then_tests_hypotheses_then_searches_then_confirms(tmp_path):
    stop, heard, _ = night(tmp_path, noisy(), {"trials": 24})
    assert stop.reason == "the budget is used up: its 24 launches are made"
    phases = [phase for phase, *_ in heard.jobs]
    assert phases[:3] == ["calibrate"] * 3
    assert [h for _, _, h in heard.jobs[3:6]] == ["graphs", "more-graphs", "slow"]
    assert phases.index("search") == 6
    assert phases.index("confirm") > phases.index("search")
    assert len(heard.jobs) == 24


def test_no_configuration_is_launched_twice_by_hypotheses_and_search(tmp_path):
    _, heard, _ = night(tmp_path, noisy(), {"trials": 24})
    launched = zip(heard.jobs, heard.records, strict=True)
    keys = [r.key for (phase, *_), r in launched if phase in ("hypotheses", "search")]
    keys = [key for key in keys if key != heard.records[0].key]
    assert len(keys) == len(set(keys))


def test_finalists_are_launched_in_turn_with_the_baseline(tmp_path):
    _, heard, _ = night(tmp_path, noisy(), {"trials": 24})
    confirm = [kind for phase, kind, _ in heard.jobs if phase == "confirm"]
    assert confirm.count("confirm") >= 3
    assert "baseline" in confirm
    assert confirm[0] == "confirm"


def test_a_run_that_is_cut_at_any_launch_ends_as_one_that_is_not(tmp_path):
    whole = tmp_path / "whole"
    whole.mkdir()
    night(whole, noisy(), {"trials": 20})
    for cut in (1, 4, 9, 15):
        folder = tmp_path / f"cut{cut}"
        folder.mkdir()
        night(folder, noisy(), {"trials": cut})
        _, heard, _ = night(folder, noisy(cut), {"trials": 20})
        assert 0 < len(heard.jobs) <= 20 - cut
        kinds = sorted(r.kind for r in Records(folder))
        assert kinds.count("baseline") >= 3
        numbers = [r.number for r in Records(folder)]
        assert numbers == list(range(len(numbers)))


def test_a_larger_budget_continues_where_the_smaller_ended(tmp_path):
    night(tmp_path, noisy(), {"trials": 10})
    before = list(Records(tmp_path))
    _, heard, _ = night(tmp_path, noisy(5), {"trials": 16})
    assert list(Records(tmp_path))[:10] == before
    assert len(heard.records) == 6


def test_hypotheses_on_a_blocked_parent_are_not_launched(tmp_path):
    def outcome(order):
        if order.values["graphs"]:
            return completed(order, 1.0, outcome="failed", failure=FAULT).model_copy(
                update={"rungs": []}
            )
        return completed(order, gain_of(order))

    _, heard, _ = night(tmp_path, outcome, {"trials": 14})
    launched = [h for _, _, h in heard.jobs if h]
    assert "graphs" in launched
    assert "more-graphs" not in launched


def test_a_failure_that_is_not_the_configurations_fault_is_repeated_once(tmp_path):
    port = FAULT.model_copy(update={"kind": "port_conflict", "action": "once"})
    failed: list[int] = []

    def outcome(order):
        if order.hypothesis == "slow" and not failed:
            failed.append(order.number)
            return completed(order, 1.0, outcome="failed", failure=port).model_copy(
                update={"rungs": []}
            )
        return completed(order, 1.0)

    _, heard, _ = night(tmp_path, outcome, {"trials": 12})
    assert [h for _, _, h in heard.jobs].count("slow") == 2


def test_a_baseline_that_cannot_serve_stops_the_study_and_a_new_run_tries_again(tmp_path):
    def broken(order):
        return completed(order, 1.0, outcome="failed", failure=FAULT).model_copy(
            update={"rungs": []}
        )

    stop, heard, _ = night(tmp_path, broken, {"trials": 12})
    assert stop.failed is not None
    assert len(heard.jobs) == 1
    stop, heard, _ = night(tmp_path, noisy(), {"trials": 12})
    assert stop.failed is None
    assert len(heard.jobs) == 11


def test_a_failure_that_blames_the_host_is_judged_by_a_launch_of_the_baseline(tmp_path):
    host = FAULT.model_copy(update={"kind": "jit_build", "action": "stop-study"})

    def outcome(order):
        if order.hypothesis == "graphs":
            return completed(order, 1.0, outcome="failed", failure=host).model_copy(
                update={"rungs": []}
            )
        return completed(order, 1.0)

    stop, heard, _ = night(tmp_path, outcome, {"trials": 12})
    assert stop.failed is None
    kinds = [kind for _, kind, _ in heard.jobs]
    assert kinds[3:5] == ["hypothesis", "baseline"]


def test_a_lost_trial_is_recorded_as_interrupted_and_launched_again(tmp_path):
    lost: list[int] = []

    def outcome(order):
        if order.hypothesis and not lost:
            lost.append(order.number)
            return "worker died"
        return completed(order, 1.0)

    _, heard, _ = night(tmp_path, outcome, {"trials": 12})
    assert [r.number for r in Records(tmp_path) if r.outcome == "interrupted"] == lost
    assert [h for _, _, h in heard.jobs].count("graphs") == 2
    assert sum(r.outcome != "interrupted" for r in Records(tmp_path)) == 12


def test_two_losses_in_a_row_stop_the_run_and_the_next_goes_on(tmp_path):
    with pytest.raises(HostError, match="was lost, as the one before: node died"):
        night(tmp_path, lambda order: "node died" if order.hypothesis else completed(order, 1.0),
              {"trials": 12})  # fmt: skip
    assert [r.outcome for r in Records(tmp_path)][3:] == ["interrupted", "interrupted"]
    _, heard, _ = night(tmp_path, noisy(), {"trials": 12})
    assert heard.jobs[0][2] == "graphs"


def test_a_loss_that_would_come_again_stops_the_run_at_once(tmp_path):
    class Full(SimulatedExecutor):
        def poll(self, timeout_s: float) -> list[Event]:
            return [
                dataclasses.replace(event, again=False) if isinstance(event, JobLost) else event
                for event in super().poll(timeout_s)
            ]

    loaded = study(tmp_path, {"trials": 12})
    searcher = Searcher(loaded.space, sampler="TPESampler", seed=1, journal=None, name="n")
    run = StudyRun(loaded, Records(tmp_path), Full(lambda order: "disk full"), searcher, Heard())
    with pytest.raises(HostError, match=r"was lost: disk full"):
        run.run()
    assert len(Records(tmp_path)) == 1


def test_a_launch_larger_than_the_host_is_a_failure_that_is_not_launched(tmp_path):
    loaded = study(tmp_path, {"trials": 12}, hardware={"gpus": 4})
    space = Space(
        SpaceDefinition.model_validate_json(
            json.dumps(
                {
                    "parameters": {
                        "tensor-parallel-size": {
                            "type": "choice",
                            "choices": [1, 2, 4, 8],
                            "default": 1,
                        }
                    }
                }
            )
        )
    )
    wide = dataclasses.replace(loaded, space=space, baseline=space.configuration({}))
    executor = SimulatedExecutor(lambda order: completed_plain(order))
    searcher = Searcher(space, sampler="RandomSampler", seed=1, journal=None, name="n")
    StudyRun(wide, Records(tmp_path), executor, searcher, Heard()).run()
    assert max(order.gpus for order in executor.orders) <= 4
    refused = [r for r in Records(tmp_path) if r.outcome == "failed"]
    assert [r.values["tensor-parallel-size"] for r in refused] == [8]
    assert refused[0].failure is not None
    assert refused[0].failure.cause == "needs 8 GPUs, and hardware.gpus says 4"


def completed_plain(order):
    return record(order.number, order.kind, key=order.key, values=order.values)


def test_a_repetition_is_not_taken_for_a_twin_of_itself(tmp_path):
    fault = FAULT.model_copy(update={"kind": "kernel_fault", "action": "once"})
    seen: list[int] = []

    def outcome(order):
        if order.hypothesis == "slow" and not seen:
            seen.append(order.number)
            return completed(order, 1.0, outcome="failed", failure=fault, effective_key="slow")
        if order.hypothesis == "slow":
            assert "slow" not in order.known
        return completed(order, 1.0)

    _, heard, _ = night(tmp_path, outcome, {"trials": 12})
    assert [h for _, _, h in heard.jobs].count("slow") == 2


def test_a_failed_confirmation_by_the_hosts_fault_is_repeated_as_a_confirmation(tmp_path):
    port = FAULT.model_copy(update={"kind": "port_conflict", "action": "once"})
    failed: list[int] = []

    def outcome(order):
        if order.kind == "confirm" and not failed:
            failed.append(order.number)
            return completed(order, 1.0, outcome="failed", failure=port)
        if order.kind == "confirm":
            assert order.known == {}
        return completed(order, gain_of(order), effective_key=order.key)

    _, heard, _ = night(tmp_path, outcome, {"trials": 24})
    assert failed
    confirmed = [r for r in heard.records if r.kind == "confirm"]
    assert all(r.outcome == "completed" for r in confirmed[1:])


def test_what_the_host_broke_is_tried_again_once_the_baseline_serves(tmp_path):
    disk = FAULT.model_copy(update={"kind": "disk_full", "action": "stop-study"})
    full = [True]

    def outcome(order):
        if full[0] and (order.hypothesis or order.number > 2):
            return completed(order, 1.0, outcome="failed", failure=disk).model_copy(
                update={"rungs": []}
            )
        return completed(order, 1.0)

    stop, _, _ = night(tmp_path, outcome, {"trials": 14})
    assert stop.failed is not None
    full[0] = False
    _, heard, _ = night(tmp_path, outcome, {"trials": 14})
    launched = [h for _, _, h in heard.jobs]
    assert "graphs" in launched
    assert "more-graphs" in launched


def test_a_proposal_that_finds_no_slot_waits_for_one(tmp_path):
    loaded = study(tmp_path, {"trials": 10})
    executor = BusyExecutor(lambda order: completed(order, 1.0))
    searcher = Searcher(loaded.space, sampler="TPESampler", seed=1, journal=None, name="n")
    stop = StudyRun(loaded, Records(tmp_path), executor, searcher, Heard()).run()
    assert stop.reason == "the budget is used up: its 10 launches are made"
    assert len({order.key for order in executor.refused}) <= len(executor.refused) / 2


def test_another_version_of_the_engine_ends_the_run_and_is_not_recorded(tmp_path):
    def outcome(order):
        version = "1.0" if order.number < 4 else "2.0"
        return completed(order, 1.0, facts=EngineFacts(version=version))

    with pytest.raises(StudyChanged, match=r"1\.0.*2\.0"):
        night(tmp_path, outcome, {"trials": 12})
    assert {r.facts.version for r in Records(tmp_path)} == {"1.0"}


def test_ctrl_c_cancels_what_is_in_flight_and_records_it(tmp_path):
    loaded = study(tmp_path, {"trials": 12})
    executor = InterruptedExecutor(lambda order: completed(order, 1.0))
    searcher = Searcher(loaded.space, sampler="TPESampler", seed=1, journal=None, name="n")
    run = StudyRun(loaded, Records(tmp_path), executor, searcher, Heard())
    with pytest.raises(KeyboardInterrupt):
        run.run()
    assert executor.cancelled == [0]
    assert [r.outcome for r in Records(tmp_path)] == ["interrupted"]


def test_only_search_trials_may_be_pruned_and_know_the_noise(tmp_path):
    _, _, executor = night(tmp_path, noisy(), {"trials": 16})
    assert {order.prune for order in executor.orders if order.kind == "search"} == {True}
    assert {order.prune for order in executor.orders if order.kind != "search"} == {False}
    search = next(order for order in executor.orders if order.kind == "search")
    assert search.reference.keys() == search.noise.keys() == {1, 16}


def test_a_small_space_ends_before_its_budget_and_says_so(tmp_path):
    stop, heard, _ = night(tmp_path, noisy(), {"trials": 500})
    assert stop.reason == "nothing is left to try or to settle"
    assert len(heard.jobs) < 80


def test_more_hours_continue_the_study_and_tighten_its_verdict(tmp_path):
    night(tmp_path, noisy(), {"trials": 12})
    before = list(Records(tmp_path))
    first = conclusion(before, OBJECTIVE, study(tmp_path, {"trials": 1}).baseline.key)
    _, heard, _ = night(tmp_path, noisy(3), {"hours": 3.0})
    after = list(Records(tmp_path))
    last = conclusion(after, OBJECTIVE, study(tmp_path, {"trials": 1}).baseline.key)
    assert heard.records
    assert after[: len(before)] == before
    assert first.detectable_percent is not None
    assert last.detectable_percent is not None
    assert last.detectable_percent < first.detectable_percent


def test_hours_are_counted_over_all_runs(tmp_path):
    records = Records(tmp_path)
    for number in range(3):
        records.append(
            record(
                number,
                key=study(tmp_path, {"trials": 1}).baseline.key,
                started_at=f"2026-01-01T0{number}:00:00+00:00",
                duration_s=1199.0,
            )
        )
    stop, heard, _ = night(tmp_path, noisy(), {"hours": 1.0})
    assert stop.reason == "the budget is used up: no launch would end within its 1 h"
    assert heard.jobs == []


def test_configurations_that_die_alike_are_judged_by_a_launch_of_the_baseline(tmp_path):
    """From trial 5 on the host is bad: whatever is launched dies, the baseline as well."""

    def outcome(order):
        if order.number < 5:
            return completed(order, 1.0)
        fault = FAULT.model_copy(
            update={"kind": "kernel_fault", "cause": f"died at {order.number}"}
        )
        return completed(order, 1.0, outcome="failed", failure=fault).model_copy(
            update={"rungs": []}
        )

    stop, heard, _ = night(tmp_path, outcome, {"trials": 20})
    assert stop.failed is not None
    assert [kind for _, kind, _ in heard.jobs[5:]] == ["hypothesis", "search", "search", "baseline"]
    assert heard.reasons[-1] == "3 configurations in a row died alike: does the host serve?"

    stop, again, _ = night(tmp_path, lambda order: completed(order, gain_of(order)), {"trials": 20})
    assert stop.failed is None
    lost = heard.jobs[5][2]
    assert lost in [hypothesis for _, _, hypothesis in again.jobs]


def test_what_the_host_was_blamed_for_is_the_configurations_once_the_baseline_serves(tmp_path):
    host = FAULT.model_copy(update={"kind": "jit_build", "action": "stop-study"})

    def outcome(order):
        if order.values["graphs"]:
            return completed(order, 1.0, outcome="failed", failure=host).model_copy(
                update={"rungs": []}
            )
        return completed(order, 1.0)

    def likely_crashes():
        loaded = study(tmp_path, {"trials": 16})
        searcher = Searcher(loaded.space, sampler="TPESampler", seed=1, journal=None, name="n")
        StudyRun(loaded, Records(tmp_path), SimulatedExecutor(outcome), searcher, Heard())
        return [str(suspect) for suspect in searcher.suspects()]

    _, heard, _ = night(tmp_path, outcome, {"trials": 16})
    kinds = [kind for _, kind, _ in heard.jobs]
    assert kinds[3:5] == ["hypothesis", "baseline"]
    assert likely_crashes() == ["graphs=true in 1 of 1 crashes, never survived"]
