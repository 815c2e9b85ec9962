"""A void rung is measured once more, visibly, and never scored."""

import gzip
import json

import pytest

from tests.test_trial import OBJECTIVE, Trial
from tuner.measuring.observed import Doubt
from tuner.measuring.quality import OutputQuality

LATE = Doubt.of("lateness", "8", 0.2, 0.01, "streams asked again late", "Give it a core.")


@pytest.fixture
def trial(tmp_path):
    return Trial(tmp_path)


@pytest.fixture
def doubted(monkeypatch):
    """Rungs that are void, by how often they are looked at; the numbers stay what they are."""
    looks: dict[str, int] = {}

    def set_void(said: str, times: int) -> None:
        def judge(rung, seen, slos):
            if rung.said != said:
                return []
            looks[said] = looks.get(said, 0) + 1
            return [LATE] if looks[said] <= times else []

        monkeypatch.setattr("tuner.night.playing.trial_doubts", judge)

    return set_void


def test_a_void_rung_is_measured_again(trial, doubted):
    doubted("8", times=1)
    record = trial.run()
    assert record.outcome == "completed"
    assert [rung.concurrency for rung in record.rungs] == [1, 8]
    assert not any(rung.void for rung in record.rungs)
    (attempt,) = record.invalid
    assert (attempt.concurrency, attempt.doubts) == (8, [LATE])
    assert attempt.observed is not None
    assert record.rungs[1].observed is not None
    assert record.rungs[1].observed.in_flight == pytest.approx(8, rel=0.1)
    rungs = [(n.at, n.again, n.rung is not None) for n in trial.notes if n.phase == "rung"]
    assert rungs == [
        ("1", False, False),
        ("1", False, True),
        ("8", False, False),
        ("8", False, True),
        ("8", True, False),
        ("8", False, True),
    ]
    with gzip.open(trial.folder / "trial" / "requests.jsonl.gz", "rt") as lines:
        kept = [json.loads(line) for line in lines]
    assert {(r["concurrency"], r["attempt"]) for r in kept} == {(1, 0), (8, 0), (8, 1)}


def test_a_rung_that_is_void_twice_ends_the_ladder(trial, doubted):
    doubted("1", times=2)
    record = trial.run()
    assert record.outcome == "invalid"
    assert record.failure is None
    assert record.rungs == []
    assert [attempt.concurrency for attempt in record.invalid] == [1, 1]
    assert record.void_because == "at 8: streams asked again late"


def test_wrong_output_is_wrong_though_the_measurement_is_void(trial, doubted):
    doubted("1", times=2)
    record = trial.run(
        {"wrong_output": [{"when": {}, "kind": "repeated"}]},
        baseline_quality={1: OutputQuality(requests=100)},
    )
    assert record.outcome == "failed"
    assert record.failure is not None
    assert record.failure.kind == "wrong_output"


def test_a_percentile_of_too_few_requests_neither_passes_nor_fails(trial):
    """One stream has an answer every 0.8 s: 100 take longer than any window of these may last."""
    objective = OBJECTIVE.model_copy(
        update={"ladder": OBJECTIVE.ladder[:1], "window_s": 4.0, "slos": ["ttft_ms p99 <= 1e9"]}
    )
    record = trial.run(objective=objective)
    assert record.outcome == "invalid"
    assert [d.rule for attempt in record.invalid for d in attempt.doubts if d.voids] == [
        "percentiles",
        "percentiles",
    ]


def test_a_server_that_is_slower_than_the_window_is_not_taken_for_a_dead_one(trial, monkeypatch):
    """Its first token comes after a minute, in the longer window of the second attempt."""
    objective = OBJECTIVE.model_copy(
        update={"ladder": OBJECTIVE.ladder[:1], "window_s": 30.0, "output_tokens": 4}
    )
    monkeypatch.setattr("tuner.night.playing.continuing", lambda *_: None)  # it takes minutes
    table = [{"concurrency": 1, "output_tok_s": 4 / 106, "ttft_ms": 105_000.0}]
    record = trial.run({"table": table, "time_scale": 100}, objective=objective, lengths=((16, 4),))
    assert record.failure is None
    assert record.outcome == "invalid"
    first, second = record.invalid
    assert "no token in a window of 30 s" in [doubt.said for doubt in first.doubts if doubt.voids]
    assert first.output_tok_s == 0
    assert second.output_tok_s > 0
    assert second.window_s == pytest.approx(60, rel=0.1)
    assert "silence" not in {doubt.rule for doubt in second.doubts}
