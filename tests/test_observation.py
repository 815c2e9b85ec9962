from datetime import UTC, datetime

import pytest

from tests.samples import OBJECTIVE, record, rung
from tuner.definitions.models import SpaceDefinition
from tuner.definitions.space import Space
from tuner.errors import SpaceError
from tuner.failures.classifier import Action, Failure
from tuner.records import TrialRecord
from tuner.search.observation import (
    Completed,
    Crashed,
    Duplicate,
    Ours,
    Pruned,
    Result,
    observation,
)

SPACE = Space(SpaceDefinition.model_validate({"parameters": {"graph": {"type": "bool"}}}))
REFERENCE: dict[float, float] = {1: 100.0, 16: 1000.0}


def failure(action: Action) -> Failure:
    return Failure(
        kind="oom", cause="CUDA out of memory", action=action, advice="", phase="loading"
    )


def result(of: TrialRecord) -> Result | None:
    seen = observation(of, SPACE, REFERENCE, OBJECTIVE)
    return seen.result if seen else None


def test_a_completed_launch_has_a_score_and_ratios():
    seen = observation(
        record(7, "search", values={"graph": True}, rates={1: 200.0, 16: 2000.0}),
        SPACE,
        REFERENCE,
        OBJECTIVE,
    )

    assert seen is not None
    assert (seen.number, seen.label) == (7, "search")
    assert seen.configuration == SPACE.configuration({"graph": True})
    assert isinstance(seen.result, Completed)
    assert seen.result.score == pytest.approx(2.0)
    assert seen.result.rungs == pytest.approx({1: 2.0, 16: 2.0})
    assert seen.result.breaches == 0
    assert seen.started_at == datetime(2026, 1, 1, 0, 7, tzinfo=UTC)
    assert seen.duration_s == 10.0


def test_broken_limits_are_counted():
    failing = rung(16, 1000.0, requests_failed=5)

    told = result(record(1, rungs=[rung(1, 100.0), failing]))

    assert isinstance(told, Completed)
    assert told.breaches == 1


def test_a_pruned_launch_has_the_rungs_it_came_to():
    told = result(record(1, rates={1: 50.0}, outcome="pruned", pruned_because="too slow"))

    assert isinstance(told, Pruned)
    assert told.rungs == pytest.approx({1: 0.5})
    assert told.reason == "too slow"


@pytest.mark.parametrize(
    ("action", "expected"),
    [("never", Crashed("oom")), ("once", Ours("oom")), ("stop-study", Ours("oom"))],
)
def test_only_what_would_fail_again_is_the_configurations_fault(action, expected):
    assert result(record(1, outcome="failed", rates={}, failure=failure(action))) == expected


def test_a_crash_names_the_parameters_that_its_log_points_at():
    space = Space(
        SpaceDefinition.model_validate(
            {
                "parameters": {
                    "graph": {"type": "bool", "flag": "--enable-graph"},
                    "mscclpp": {"type": "bool", "env": "MSCCLPP"},
                    "mem": {"type": "bool"},
                    "max_num_seqs": {"type": "bool"},
                    "chunk": {"type": "bool", "flag": "--max_num_batched_tokens"},
                    "build": {"type": "bool", "build": True},
                }
            }
        )
    )
    blame = ["enable-graph", "MSCCLPP", "tp", "build", "max-num-seqs", "max-num-batched-tokens"]
    failed = failure("never").model_copy(update={"blame": blame})

    seen = observation(
        record(1, outcome="failed", rates={}, failure=failed), space, REFERENCE, OBJECTIVE
    )

    assert seen is not None
    assert seen.result == Crashed("oom", frozenset({"graph", "mscclpp", "max_num_seqs", "chunk"}))


def test_a_duplicate_names_what_it_duplicates():
    assert result(record(4, outcome="duplicate", rates={}, duplicate_of=2)) == Duplicate(2)


def test_an_interrupted_launch_says_nothing():
    assert result(record(1, outcome="interrupted", rates={})) is None


def test_a_ladder_without_a_score_is_nobodys_fault():
    assert isinstance(result(record(1, rates={1: 100.0})), Ours)


def test_values_of_another_space_are_refused():
    with pytest.raises(SpaceError, match="unknown parameter 'gone'"):
        result(record(1, values={"gone": 1}))
