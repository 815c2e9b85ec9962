import pytest

from tuner.search.observation import Completed, Crashed, Duplicate, Ours, Pruned, Result
from tuner.search.telling import IN_FLIGHT, Told, remarks, tell_as

RESULTS: list[Result] = [
    Completed(1.2, {1: 1.2}),
    Completed(1.2, {1: 1.2}, breaches=2),
    Pruned({1: 0.8}, "too slow"),
    Crashed("oom"),
    Ours("port"),
    Duplicate(1),
]


def test_the_table_for_samplers_that_read_pruned():
    assert [tell_as(result) for result in RESULTS] == [
        Told(state="COMPLETE", value=1.2, rungs={1: 1.2}),
        Told(state="COMPLETE", value=1.2, rungs={1: 1.2}, slo=2.0),
        Told(state="PRUNED", rungs={1: 0.8}),
        Told(state="PRUNED", crash=1.0),
        Told(state="FAIL"),
        Told(state="FAIL"),
    ]


def test_the_table_for_samplers_that_read_complete_alone():
    assert [tell_as(result, 0.7) for result in RESULTS] == [
        Told(state="COMPLETE", value=1.2, rungs={1: 1.2}),
        Told(state="COMPLETE", value=1.2, rungs={1: 1.2}, slo=2.0),
        Told(state="COMPLETE", value=0.7, rungs={1: 0.8}, imputed=True),
        Told(state="COMPLETE", value=0.7, crash=1.0, imputed=True),
        Told(state="FAIL"),
        Told(state="FAIL"),
    ]


@pytest.mark.parametrize("result", RESULTS)
def test_every_trial_has_the_same_constraints(result):
    assert tell_as(result).constraints.keys() == IN_FLIGHT.constraints.keys() == {"crash", "slo"}


def test_remarks_say_what_the_numbers_do_not():
    assert [remarks(result) for result in RESULTS] == [
        {},
        {"broken limits": 2},
        {"pruned": "too slow"},
        {"crash": "oom"},
        {"not its fault": "port"},
        {"duplicate of record": 1},
    ]
