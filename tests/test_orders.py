"""What a trial is told of what is known by now."""

from typing import Any

import pytest

from tests.nightly import study
from tests.samples import record
from tuner.failures.classifier import Failure
from tuner.measuring.quality import OutputQuality
from tuner.measuring.replicas import Replicas
from tuner.night.orders import order
from tuner.night.schedule import Job

FAULT = Failure(kind="oom_kv", cause="c", action="never", advice="a", phase="loading")


@pytest.fixture
def loaded(tmp_path):
    return study(tmp_path, {"trials": 9})


def made(loaded, records=(), values=None, kind="search", phase=None):
    configuration = loaded.space.configuration(values or {"chunk": 2})
    phases: dict[str, Any] = {"search": "search", "hypothesis": "hypotheses", "confirm": "confirm"}
    job = Job(phase=phase or phases[kind], kind=kind, configuration=configuration)
    return order(loaded, list(records), 7, job, configuration)


def launch(loaded, number, values=None, kind="search", **changes):
    configuration = loaded.space.configuration(values or {})
    return record(number, kind, key=configuration.key, values=configuration.as_dict(), **changes)


def test_it_names_the_launch_and_may_prune_search_trials_alone(loaded):
    built = made(loaded)
    assert (built.number, built.kind, built.values["chunk"]) == (7, "search", 2)
    assert built.launch.flags["chunk"] == 2
    assert built.prune
    assert not made(loaded, kind="hypothesis").prune


def test_the_reference_is_the_baselines_mean_and_the_best_is_at_least_one(loaded):
    records = [launch(loaded, n, kind="baseline") for n in range(2)]
    built = made(loaded, records)
    assert built.reference == pytest.approx({1: 100.0, 16: 1000.0})
    assert built.best == 1.0
    slow = launch(loaded, 2, {"chunk": 4}, rates={1: 120.0, 16: 1200.0})
    built = made(loaded, [*records, slow])
    assert built.best == pytest.approx(1.2)
    assert built.ceilings == pytest.approx({1: 1.2, 16: 1.2})


@pytest.mark.parametrize(
    ("changes", "search", "hypothesis"),
    [
        ({}, True, True),
        ({"outcome": "pruned"}, True, False),
        ({"replicas": Replicas(launched=1, of=2)}, True, False),
        (
            {"replicas": Replicas(launched=1, of=2), "outcome": "failed", "failure": FAULT},
            True,
            False,
        ),
        ({"replicas": Replicas(launched=2, of=2)}, True, True),
        ({"outcome": "failed", "failure": FAULT}, True, True),
        (
            {"outcome": "failed", "failure": FAULT.model_copy(update={"action": "once"})},
            False,
            False,
        ),
        ({"rungs": [], "outcome": "failed", "failure": FAULT}, False, False),
    ],
)
def test_a_twin_is_known_by_what_it_measured(loaded, changes, search, hypothesis):
    earlier = launch(loaded, 3, {"chunk": 4}, effective_key="e", **changes)
    assert ("e" in made(loaded, [earlier]).known) is search
    assert ("e" in made(loaded, [earlier], kind="hypothesis").known) is hypothesis


def test_repetitions_know_no_twins(loaded):
    earlier = launch(loaded, 3, {"chunk": 4}, effective_key="e")
    assert made(loaded, [earlier], kind="confirm").known == {}
    assert made(loaded, [earlier], kind="hypothesis", phase="settle").known == {}
    own = launch(loaded, 3, {"chunk": 2}, effective_key="e")
    assert made(loaded, [own], kind="hypothesis").known == {}


def test_the_nearest_is_the_most_alike_that_served(loaded):
    near = launch(loaded, 1, {"chunk": 2, "seats": 16})
    far = launch(loaded, 2, {"chunk": 4, "graphs": True})
    dead = launch(loaded, 3, {"chunk": 2, "graphs": True}, outcome="failed", failure=FAULT)
    built = made(loaded, [far, near, dead])
    assert built.nearest["seats"] == 16
    assert made(loaded).nearest["chunk"] == 1


def test_the_baselines_output_is_added_up_by_level(loaded):
    one, other = OutputQuality(requests=5, repeated=1), OutputQuality(requests=7)
    records = [launch(loaded, n, kind="baseline", quality_at={1: one, 16: other}) for n in (0, 1)]
    assert made(loaded, records).baseline_quality == {1: one + one, 16: other + other}
    old = launch(loaded, 2, kind="baseline", quality=other)
    assert made(loaded, [old]).baseline_quality == {1: other, 16: other}


def test_dead_flags_go_with_the_order_and_are_never_to_blame(loaded):
    known = loaded.knowing({"chunk": "read by nothing"})
    built = made(known, [launch(known, 3, {"chunk": 1})], {"chunk": 2})
    assert built.dead == ["chunk"]
    assert built.launch.flags["chunk"] == built.nearest["chunk"] == 2
    assert made(loaded, [launch(loaded, 3, {"chunk": 1})], {"chunk": 2}).nearest["chunk"] == 1
    assert made(loaded).dead == []
