"""Servers that buy speed with answers: over real HTTP, none of them scores better than an honest
one that is half as fast."""

import os
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.rehearsed import free_port
from tuner.definitions.models import EngineDefinition, Objective
from tuner.engines.base import LaunchSpec
from tuner.hosts.executor import Slot
from tuner.measuring.quality import OutputQuality
from tuner.night.course import TrialOrder
from tuner.night.trial import run_trial
from tuner.records import TrialRecord
from tuner.verdicts.decision import finalists
from tuner.verdicts.score import reference, score, slo_breaches

SCRIPT = Path(__file__).with_name("dishonest_server.py")
OBJECTIVE = Objective.model_validate_json(
    '{"ladder": [{"concurrency": 8}], "input_tokens": 8, "output_tokens": 32, "warmup_s": 1,'
    ' "window_s": 3}'
)
LIES = [
    "refuses load",
    "errs inside streams",
    "cuts streams",
    "answers short",
    "answers !!!!",
    "answers nothing",
]


def launch(folder: Path, how: str, quality: OutputQuality | None = None) -> TrialRecord:
    engine = EngineDefinition(name="sglang", command=[sys.executable, str(SCRIPT)])
    env = {"DISHONEST": how, "PYTHONPATH": str(ROOT)}
    cores = tuple(os.sched_getaffinity(0))
    order = TrialOrder(
        number=1 if how else 0,
        kind="search" if how else "baseline",
        key=how or "base",
        values={},
        launch=LaunchSpec(engine=engine, model="m", folder=folder, env=env),
        gpus=1,
        objective=OBJECTIVE,
        lengths=((8, 32),),
        baseline_quality={8: quality or OutputQuality()},
    )
    slot = Slot(
        host="here",
        gpus=("0",),
        real_gpus=False,
        server_cores=cores,
        client_cores=cores,
        ports=tuple(free_port() for _ in range(3)),
    )
    return run_trial(order, slot, folder / f"trial {how}", lambda note: None)


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """The baseline, believed even where this machine is too busy to measure it well."""
    found = launch(tmp_path_factory.mktemp("honest"), "")
    rungs = found.rungs or [rung.model_copy(update={"doubts": []}) for rung in found.invalid[-1:]]
    assert found.failure is None, found.failure
    return found.model_copy(update={"outcome": "completed", "rungs": rungs})


def worth(record: TrialRecord, honest: TrialRecord) -> float | None:
    """Its score over the honest one, where anything may be made of it at all."""
    if record.outcome != "completed":
        return None
    if not finalists([honest, record], OBJECTIVE, "base"):
        return None
    return score(record.rungs, reference([honest.rungs], OBJECTIVE), OBJECTIVE)


@pytest.mark.parametrize("how", LIES)
def test_a_dishonest_server_is_never_better_than_an_honest_one(tmp_path, honest, how):
    found = launch(tmp_path, how, honest.quality_at[8])
    assert worth(found, honest) is None
    rungs = [*found.rungs, *found.invalid]
    said = {doubt.rule for rung in rungs for doubt in rung.doubts} & {"errors", "output"}
    assert found.failure or said or slo_breaches(rungs, OBJECTIVE), "nothing of it was noticed"


def test_a_fast_server_that_is_honest_is(tmp_path, honest):
    found = launch(tmp_path, "fast and honest", honest.quality_at[8])
    assert found.failure is None
    said = {d.rule for r in [*found.rungs, *found.invalid] for d in r.doubts if d.voids}
    assert not {"errors", "output"} & said
    if found.outcome == "completed":  # a busy machine may not be able to measure it
        assert (worth(found, honest) or 0) > 1.3
