import random

from hypothesis import given
from hypothesis import strategies as st

from tuner.definitions.models import Value
from tuner.search.feasibility import Feasibility, Setting

BASE: dict[str, Value] = {"graph": False, "backend": "fa3", "mem": 0.85, "streams": 64}


def learned(*launches: tuple[dict[str, Value], bool]) -> Feasibility:
    """From (changes to the base, served) in that order."""
    feasibility = Feasibility()
    for changes, served in launches:
        (feasibility.survived if served else feasibility.crashed)({**BASE, **changes})
    return feasibility


def test_nothing_is_suspected_before_a_crash():
    feasibility = learned(({}, True))

    assert feasibility.p_crash({**BASE, "graph": True}) == 0.0
    assert feasibility.suspects() == []


def test_what_crashed_is_likely_to_crash_again_and_what_served_is_not():
    feasibility = learned(({}, True), ({"graph": True}, False))

    assert feasibility.p_crash({**BASE, "graph": True}) == 1.0
    assert feasibility.p_crash(BASE) == 0.0


def test_the_changed_setting_is_blamed_before_its_pairs():
    feasibility = learned(({}, True), ({"graph": True}, False))

    assert feasibility.p_crash({**BASE, "graph": True, "backend": "triton"}) > 0.5
    assert str(feasibility.suspects()[0]) == "graph=true in 1 of 1 crashes, never survived"


def test_a_setting_that_serves_elsewhere_leaves_the_pair_to_blame():
    crash: dict[str, Value] = {"graph": True, "backend": "triton"}
    feasibility = learned(
        ({}, True), (crash, False), ({"graph": True}, True), ({"backend": "triton"}, True)
    )

    assert feasibility.p_crash({**BASE, **crash, "mem": 0.8}) > 0.5
    assert feasibility.p_crash({**BASE, "graph": True, "mem": 0.8}) == 0.0
    named = {str(setting) for setting in feasibility.suspects()[0].settings}
    assert named == {"graph=true", "backend=triton"}


def test_the_suspect_that_explains_more_crashes_is_likelier():
    feasibility = learned(
        ({}, True),
        ({"graph": True, "backend": "triton"}, False),
        ({"graph": True, "backend": "flashinfer"}, False),
    )

    assert feasibility.p_crash({**BASE, "graph": True}) > 0.5
    assert feasibility.p_crash({**BASE, "backend": "triton"}) < 0.3
    assert str(feasibility.suspects()[0]) == "graph=true in 2 of 2 crashes, never survived"


def test_what_the_log_names_is_likelier():
    feasibility = learned(({}, True))
    crash = {**BASE, "graph": True, "backend": "triton", "streams": 256}
    feasibility.crashed(crash, named=["backend"])

    assert feasibility.p_crash({**BASE, "backend": "triton"}) > 0.5
    assert feasibility.p_crash({**BASE, "graph": True, "streams": 256}) < 0.5
    assert str(feasibility.suspects()[0]).startswith("backend=triton ")


def test_two_that_the_log_names_together_are_suspected_as_a_pair():
    feasibility = learned(({}, True), ({"graph": True}, True), ({"backend": "triton"}, True))
    crash = {**BASE, "graph": True, "backend": "triton", "mem": 0.8, "streams": 32}
    feasibility.crashed(crash, named=["backend", "graph"])
    feasibility.survived({**BASE, "mem": 0.8, "streams": 32})

    assert {str(s) for s in feasibility.suspects()[0].settings} == {"graph=true", "backend=triton"}


def test_a_number_is_suspected_from_where_it_crashed_onwards():
    feasibility = learned(({}, True), ({"mem": 0.93}, False))

    assert feasibility.p_crash({**BASE, "mem": 0.97}) > 0.25
    assert feasibility.p_crash({**BASE, "mem": 0.9}) == 0.0

    feasibility.crashed({**BASE, "mem": 0.95})
    assert feasibility.p_crash({**BASE, "mem": 0.97}) > 0.5
    assert str(feasibility.suspects()[0]) == "mem>=0.93 in 2 of 2 crashes, never survived"


def test_a_number_is_suspected_from_where_it_crashed_downwards():
    feasibility = learned(({}, True), ({"streams": 16}, False), ({"streams": 8}, False))

    assert feasibility.p_crash({**BASE, "streams": 4}) > 0.5
    assert str(feasibility.suspects()[0]) == "streams<=16 in 2 of 2 crashes, never survived"


def test_a_number_between_two_that_serve_is_suspected_alone():
    feasibility = learned(
        ({"streams": 32}, True), ({"streams": 64}, True), ({"streams": 48}, False)
    )

    assert feasibility.p_crash({**BASE, "streams": 48, "mem": 0.8}) > 0.5
    assert feasibility.p_crash({**BASE, "streams": 49}) == 0.0
    assert str(feasibility.suspects()[0]).startswith("streams=48 ")


def test_true_is_not_one_and_null_is_a_value():
    feasibility = learned(({"odd": 1}, True), ({"odd": None}, True), ({"odd": True}, False))

    assert feasibility.p_crash({**BASE, "odd": 1}) == 0.0
    assert feasibility.p_crash({**BASE, "odd": None}) == 0.0
    assert feasibility.p_crash({**BASE, "odd": True}) == 1.0
    assert str(Setting("odd", "=", "null")) == "odd=null"


def test_a_parameter_that_was_inactive_is_not_suspected():
    feasibility = learned(({}, True), ({"spec": True, "steps": 4}, False))

    assert feasibility.p_crash(BASE) == 0.0


def test_a_crash_of_what_has_served_is_suspected_of_nothing():
    feasibility = learned(({}, True), ({}, False))

    assert feasibility.p_crash(BASE) == 0.0
    assert feasibility.suspects() == []


def test_each_suspect_is_said_once():
    feasibility = learned(({}, True), ({"graph": True, "streams": 256}, False))

    named = [{setting.name for setting in suspect.settings} for suspect in feasibility.suspects()]

    assert {"graph"} in named
    assert len(named) == len({frozenset(names) for names in named})


VALUES = st.fixed_dictionaries(
    {
        "a": st.booleans(),
        "b": st.sampled_from(["x", "y", None]),
        "n": st.sampled_from([1, 2, 4, 8]),
    }
)


@given(st.lists(st.tuples(VALUES, st.booleans()), max_size=12), VALUES, st.randoms())
def test_the_order_of_the_news_does_not_matter(launches, candidate, rng: random.Random):
    shuffled = list(launches)
    rng.shuffle(shuffled)

    assert abs(learned(*launches).p_crash(candidate) - learned(*shuffled).p_crash(candidate)) < 1e-9


@given(st.lists(st.tuples(VALUES, st.booleans()), max_size=12), VALUES)
def test_a_probability_is_one_and_what_served_has_none(launches, candidate):
    feasibility = learned(*launches)

    assert 0.0 <= feasibility.p_crash(candidate) <= 1.0 + 1e-9
    for values, served in launches:
        if served:
            assert feasibility.p_crash({**BASE, **values}) == 0.0
