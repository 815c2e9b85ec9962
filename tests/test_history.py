from tuner.definitions.models import SpaceDefinition
from tuner.definitions.space import Configuration, Space
from tuner.search.history import History
from tuner.search.observation import (
    Completed,
    Crashed,
    Duplicate,
    Observation,
    Ours,
    Pruned,
    Result,
)

SPACE = Space(
    SpaceDefinition.model_validate(
        {
            "parameters": {
                "graph": {"type": "bool"},
                "streams": {"type": "int", "low": 1, "high": 4, "default": 1},
            }
        }
    )
)
BASE = SPACE.configuration({})
GRAPH = SPACE.configuration({"graph": True})
TWO = SPACE.configuration({"streams": 2})


def history(*launches: tuple[Configuration, Result]) -> History:
    told = History()
    for number, (configuration, result) in enumerate(launches):
        told.tell(
            Observation(number=number, configuration=configuration, label="search", result=result)
        )
    return told


def test_without_a_launch_there_is_no_best():
    assert history().best() is None
    assert BASE not in history()


def test_the_best_is_by_the_mean_of_a_configuration():
    told = history((BASE, Completed(1.0)), (GRAPH, Completed(1.5)), (GRAPH, Completed(1.25)))

    assert told.best() == GRAPH
    assert dict(told.standings())[GRAPH] == Completed(1.375)

    told = history((BASE, Completed(1.0)), (GRAPH, Completed(1.3)), (GRAPH, Completed(0.6)))
    assert told.best() == BASE


def test_the_first_of_equals_is_the_best():
    assert history((BASE, Completed(1.0)), (GRAPH, Completed(1.0))).best() == BASE


def test_neither_broken_limits_nor_pruned_nor_crashed_is_the_best():
    told = history(
        (BASE, Completed(1.0)),
        (GRAPH, Completed(9.0, breaches=1)),
        (TWO, Completed(8.0)),
        (TWO, Crashed("oom")),
    )

    assert told.best() == BASE
    assert history((TWO, Pruned({1: 2.0}, "slow"))).best() is None


def test_a_fault_of_ours_does_not_take_back_what_was_measured():
    told = history((GRAPH, Ours("port")), (GRAPH, Completed(1.2)), (GRAPH, Ours("node lost")))

    assert told.standing(GRAPH.key) == Completed(1.2)
    assert told.best() == GRAPH


def test_a_duplicate_stands_as_what_it_duplicates_but_is_never_the_best():
    told = history((GRAPH, Completed(1.2)), (TWO, Duplicate(0)), (GRAPH, Completed(1.0)))

    assert told.standing(TWO.key) == Completed(1.1)
    assert told.best() == GRAPH


def test_a_duplicate_of_a_duplicate_stands_as_the_first():
    told = history((GRAPH, Pruned({1: 0.5}, "slow")), (TWO, Duplicate(0)), (BASE, Duplicate(1)))

    assert told.standing(BASE.key) == Pruned({1: 0.5}, "slow")


def test_a_repeat_that_duplicates_its_own_configuration_changes_nothing():
    told = history((BASE, Completed(1.0)), (BASE, Duplicate(0)))

    assert told.best() == BASE
    assert told.standing(BASE.key) == Completed(1.0)


def test_duplicates_in_a_ring_end():
    told = history((GRAPH, Duplicate(1)), (TWO, Duplicate(0)))

    assert isinstance(told.standing(GRAPH.key), Ours)
    assert isinstance(history((GRAPH, Duplicate(7))).standing(GRAPH.key), Ours)


def test_one_configuration_that_crashes_twice_is_one_piece_of_evidence():
    told = history((BASE, Completed(1.0)), (GRAPH, Crashed("oom")), (GRAPH, Crashed("oom")))

    assert str(told.feasibility.suspects()[0]) == "graph=true in 1 of 1 crashes, never survived"


def test_what_a_crash_names_is_suspected_first():
    crash = SPACE.configuration({"graph": True, "streams": 2})
    told = history((BASE, Completed(1.0)), (crash, Crashed("oom", frozenset({"graph"}))))

    assert str(told.feasibility.suspects()[0]) == "graph=true in 1 of 1 crashes, never survived"
    assert told.feasibility.p_crash(GRAPH.as_dict()) > 0.5 > told.feasibility.p_crash(TWO.as_dict())


def test_what_was_pruned_or_duplicates_a_survivor_has_served():
    crash = (SPACE.configuration({"graph": True, "streams": 2}), Crashed("oom"))
    told = history(crash, (GRAPH, Pruned({1: 0.9}, "slow")), (TWO, Duplicate(1)))

    assert told.feasibility.p_crash(GRAPH.as_dict()) == 0.0
    assert told.feasibility.p_crash(TWO.as_dict()) == 0.0


def test_a_duplicate_of_a_crash_is_no_further_crash():
    told = history((BASE, Completed(1.0)), (GRAPH, Crashed("oom")), (TWO, Duplicate(1)))

    assert told.feasibility.p_crash(TWO.as_dict()) == 0.0
    assert told.feasibility.suspects()[0].crashes_total == 1


def test_a_wrong_output_that_comes_to_light_later_makes_suspects_of_what_had_served():
    crashed = Crashed("wrong_output", frozenset({"graph"}))
    told = history((BASE, Completed(1.0)), (GRAPH, Completed(1.4)), (GRAPH, crashed))
    assert told.feasibility.p_crash(GRAPH.as_dict()) > 0.9
    assert told.feasibility.p_crash(BASE.as_dict()) == 0.0
    assert told.best() == BASE


def test_a_crash_of_what_served_before_leaves_it_served():
    told = history((GRAPH, Completed(1.4)), (GRAPH, Crashed("oom")))
    assert told.feasibility.p_crash(GRAPH.as_dict()) == 0.0
