"""A ladder of rates from its objective to what is shown, and closed ladders beside it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests import nights, test_measure
from tests.nights import BASELINE, Night, failure
from tests.rehearsed import free_port
from tests.test_measure import objective, patient, truth, typed
from tuner.definitions.models import EngineDefinition, Hypothesis, Objective, Rung
from tuner.engines.base import LaunchSpec
from tuner.hosts.executor import Slot
from tuner.load import RungPlan
from tuner.measuring import open_rules, window_rules
from tuner.measuring.replicas import Replicas
from tuner.night import playing
from tuner.night.course import TrialOrder
from tuner.night.trial import run_trial
from tuner.records import TrialRecord
from tuner.verdicts.analysis import Metric, pareto_front, trials_frame
from tuner.verdicts.decision import conclusion
from tuner.verdicts.ledger import ledger
from tuner.verdicts.score import hopeless, slo_breaches

__all__ = ["objective", "patient", "truth", "typed"]

HALF = Replicas(launched=1, of=2)
SURFACE = {
    "time_scale": 50,
    "turnaround_s": 0,
    "table": [
        {"concurrency": 1, "output_tok_s": 40.0, "ttft_ms": 100.0},
        {"concurrency": 8, "output_tok_s": 160.0, "ttft_ms": 200.0},
    ],
    "startup": {"distributed_s": 1, "weights_s": 1, "kv_cache_s": 1, "graphs_s": 1, "warmup_s": 1},
}


def by_rate(*rates: float, **changes: Any) -> Objective:
    return nights.objective([Rung(request_rate=rate) for rate in rates], **changes)


# --- from an objective to a launch


def test_the_plan_of_a_rung_has_its_rate_and_how_requests_come():
    made = RungPlan.of(
        by_rate(2.5, arrivals="constant"), 0, lengths=((16, 16),), prompt_seed=1, offsets_s=(0.0,)
    )
    assert (made.concurrency, made.request_rate, made.arrivals) == (None, 2.5, "constant")
    assert (made.arrivals_seed, made.offsets_s) == (3, (0.0,))


def test_one_server_of_several_gets_its_share_of_the_rate():
    made = RungPlan.of(by_rate(2.5), 0, lengths=((16, 16),), prompt_seed=1, replicas=HALF)
    assert made.request_rate == 1.25
    assert HALF.factor(None) == 2.0
    assert Replicas(launched=2, of=2).rate(2.5) == 2.5


@pytest.fixture
def forgiving(monkeypatch):
    """Rules that a machine with other work keeps: what is tested is not the machine."""
    monkeypatch.setattr(open_rules, "LATE_SHARE", 9)
    monkeypatch.setattr(open_rules, "AT_THE_EDGE", 99)
    monkeypatch.setattr(window_rules, "DRIFT_SHARE", 9)


def launched(folder: Path, asked: Objective, **changes: Any) -> TrialRecord:
    (folder / "surface.yaml").write_text(json.dumps(SURFACE))
    engine = EngineDefinition(name="rehearsal", surface="surface.yaml", ready_timeout_s=60)
    order = TrialOrder(
        number=0,
        kind="search",
        key="k",
        values={},
        launch=LaunchSpec(engine=engine, model="m", folder=folder, flags={}),
        gpus=1,
        objective=asked,
        lengths=((16, 64),),
        **changes,
    )
    cores = tuple(os.sched_getaffinity(0))
    slot = Slot(
        host="here", gpus=("0",), real_gpus=False, server_cores=cores, client_cores=cores,
        ports=tuple(free_port() for _ in range(6)),
    )  # fmt: skip
    return run_trial(order, slot, folder / "trial", lambda note: None)


def test_a_launch_is_measured_at_its_rates_and_one_server_stands_for_two(tmp_path, monkeypatch):
    """16 and 32 tokens a second are asked of a server that can do 40 for one alone. What speaks
    against a busy machine is left aside."""
    monkeypatch.setattr(playing, "trial_doubts", lambda *_: [])
    asked = by_rate(
        0.5, 1.0, arrivals="constant", score="goodput", slos=["e2e_ms p99 <= 60000"],
        warmup_s=10.0, window_s=60.0,
    )  # fmt: skip
    record = launched(tmp_path, asked, replicas=HALF, host_gpus=2)
    assert record.outcome == "completed", record
    assert [(rung.level, rung.said, rung.played) for rung in record.rungs] == [
        (0.5, "0.5 req/s", 0.25),
        (1.0, "1 req/s", 0.5),
    ]
    for rung in record.rungs:
        load = rung.open_load
        assert load is not None
        assert load.due_rps == pytest.approx(rung.level / 2, abs=0.05)
        assert rung.goodput_rps == pytest.approx(2 * load.answered_rps)
        assert rung.output_tok_s == pytest.approx(rung.level * 64, rel=0.25)
    line = record.model_dump_json()
    assert TrialRecord.model_validate_json(line) == record


# --- what is said of it


def night(rates=(0.5, 2.5), gain=0.2, **failing) -> tuple[Night, Objective]:
    """A night of concurrencies, told again as one of rates."""
    made = Night(3, base={1: 10.0, 2: 40.0}, sd=0.004)
    made.baseline(4)
    made.launch("hypothesis", "k1", {1: gain, 2: -gain}, hypothesis="h", **failing)
    names = {1: rates[0], 2: rates[1]}
    made.records[:] = [
        record.model_copy(
            update={
                "rungs": [
                    rung.model_copy(
                        update={"concurrency": None, "request_rate": names[rung.concurrency or 0]}
                    )
                    for rung in record.rungs
                ]
            }
        )
        for record in made.records
    ]
    return made, by_rate(*rates)


HYPOTHESIS = Hypothesis(id="h", change={"x": 1}, claim="", gain_percent=(1.0, 2.0))


def test_effects_and_noise_are_told_at_their_rates():
    made, asked = night()
    (row,) = ledger(made.records, [HYPOTHESIS], asked, BASELINE)
    assert "helps at 0.5 req/s (+" in row.words
    assert "regresses at 2.5 req/s (-" in row.words
    noise = str(conclusion(made.records, asked, BASELINE).noise)
    assert "% at 0.5 req/s, " in noise
    assert "% at 2.5 req/s;" in noise


def test_a_crash_is_told_at_the_rate_that_was_not_reached():
    died = failure(phase="serving")
    made, asked = night(reaches=[1], failure=died)
    (row,) = ledger(made.records, [HYPOTHESIS], asked, BASELINE)
    assert row.dies_at == 2.5
    assert "dies at 2.5 req/s" in row.words


def test_limits_and_lost_hope_are_told_at_their_rates():
    made, asked = night()
    slow = asked.model_copy(update={"slos": ["output_tok_s >= 1000"]})
    assert str(slo_breaches(made.records[0].rungs, slow)[0]).startswith(
        "output_tok_s >= 1000 at 0.5 req/s: found"
    )
    why = hopeless(made.records[4].rungs[1:], {0.5: 10.0, 2.5: 100.0}, {}, asked, None)
    assert "x at 2.5 req/s of the baseline" in str(why)


def test_metrics_are_named_by_the_rate():
    made, asked = night()
    assert Metric.parse("tok_s_per_user@2.5", asked).level == 2.5
    assert "output_tok_s@0.5" in trials_frame(made.records, asked, BASELINE).columns
    found = pareto_front(made.records, "output_tok_s", "tok_s_per_gpu", asked, BASELINE)
    assert {point.level for point in found} <= {0.5, 2.5}


# --- the instrument alone


def test_measuring_at_a_rate_says_what_was_offered_and_answered(
    truth, objective, typed, patient, forgiving
):
    objective.write_text(
        test_measure.OBJECTIVE.replace(
            "[{concurrency: 1}, {concurrency: 4}]", "[{request_rate: 20}, {request_rate: 40.5}]"
        )
        + "arrivals: constant\nslos: [ttft_ms p50 <= 5000]\n"
    )
    code, out, err = typed(f"{truth}/ttft_ms=5", "--objective", objective)
    assert code == 0, out
    rows = {line[:30].strip(): line[30:].split() for line in out.splitlines()}
    assert rows["rate"] == ["20", "req/s", "40.5", "req/s"]
    assert [float(rate) for rate in rows["goodput req/s"]] == pytest.approx([20, 40.5], rel=0.1)
    assert "offered / answered req/s" in out
    assert "rates 20 req/s, 40.5 req/s" in err
    assert "at 40.5 req/s: " in err
