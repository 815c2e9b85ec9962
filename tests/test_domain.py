import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.definitions.domain import (
    MAX_GRID,
    NotInDomain,
    adjacent,
    canonical,
    expected,
    grid,
    one_of,
    same,
    show,
)
from tuner.definitions.models import BoolParameter, ChoiceParameter, FloatParameter, IntParameter


def whole(low, high, **more):
    return IntParameter(type="int", low=low, high=high, **more)


def real(low, high, **more):
    return FloatParameter(type="float", low=low, high=high, **more)


def choice(*choices, default=None):
    return ChoiceParameter(type="choice", choices=list(choices), default=default)


BOOL = BoolParameter(type="bool")


@pytest.mark.parametrize(
    ("parameter", "values"),
    [
        (BOOL, [False, True]),
        (choice(2, 1, default=1), [2, 1]),
        (choice("fa3", "triton"), [None, "fa3", "triton"]),
        (choice("fa3", None), ["fa3", None]),
        (whole(1, 4, default=1), [1, 2, 3, 4]),
        (whole(1, 10, step=4, default=1), [1, 5, 9]),
        (whole(1, 3), [None, 1, 2, 3]),
        (whole(4, 256, log=True, default=4), [4, 8, 16, 32, 64, 128, 256]),
        (whole(3, 100, log=True, default=3), [3, 4, 8, 16, 32, 64, 100]),
        (whole(5, 7, log=True, default=5), [5, 7]),
        (real(0.7, 0.9, step=0.1, default=0.7), [0.7, 0.8, 0.9]),
        (real(0, 1, step=0.4, default=0), [0.0, 0.4, 0.8]),
        (real(0.5, 0.5, default=0.5), [0.5]),
        (real(0, 1), None),
        (whole(1, MAX_GRID + 1), None),
        (whole(1, 10**9, step=10**8, default=1), [1 + n * 10**8 for n in range(10)]),
        (real(0, 1, step=1e-9), None),
    ],
)
def test_the_grid_holds_what_is_worth_trying(parameter, values):
    assert grid(parameter) == values


@pytest.mark.parametrize(
    ("parameter", "value", "beside"),
    [
        (BOOL, True, [False]),
        (choice("a", "b", "c", default="a"), "b", ["a", "c"]),
        (whole(1, 10, default=1), 5, [4, 6]),
        (whole(1, 10, default=1), 1, [2]),
        (whole(1, 10), 10, [None, 9]),
        (whole(1, 10), None, [1, 10]),
        (whole(1, 64, log=True, default=1), 16, [8, 32]),
        (whole(1, 64, log=True, default=1), 17, [16, 32]),
        (real(0, 1, default=0), 0.5, [0.4, 0.6]),
        (real(0, 1, default=0), 1.0, [0.9]),
        (real(0, 1), None, [0.0, 1.0]),
        (real(1, 1024, log=True, default=1), 32.0, [16.0, 64.0]),
        (whole(0, 100_000, default=0), 50_000, [40_000, 60_000]),
        (real(0, 1, step=1e-5, default=0), 0.5, [0.4, 0.6]),
    ],
)
def test_adjacent_values_are_one_step_away(parameter, value, beside):
    assert adjacent(parameter, value) == pytest.approx(beside)


@pytest.mark.parametrize(
    ("parameter", "words"),
    [
        (BOOL, "true or false"),
        (choice("a", 1, True, default=1), "'a', 1 or true"),
        (choice("a"), "null or 'a'"),
        (choice("a", default="a"), "'a'"),
        (whole(1, 8, default=1), "a whole number from 1 to 8"),
        (whole(1, 9, step=2), "a whole number from 1 to 9 in steps of 2, or null"),
        (real(0.5, 0.9, step=0.05, default=0.5), "a number from 0.5 to 0.9 in steps of 0.05"),
    ],
)
def test_a_domain_is_told_in_words(parameter, words):
    assert expected(parameter) == words


def test_zero_has_no_sign():
    stepped = real(-0.2, 0.2, step=0.1, default=0)
    assert [str(value) for value in grid(stepped) or []] == ["-0.2", "-0.1", "0.0", "0.1", "0.2"]
    assert str(canonical(stepped, -0.0)) == "0.0"


def test_values_are_shown_as_they_are_written():
    assert one_of([None, False, "x", 1.5]) == "null, false, 'x' or 1.5"
    assert show(True) == "true"


def test_bools_are_no_numbers():
    assert same(1, 1.0)
    assert not same(True, 1)
    assert not same(0, False)
    assert not same("1", 1)
    assert same(None, None)


def test_a_whole_number_on_a_log_scale_may_stand_between_powers_of_two():
    assert canonical(whole(1, 64, log=True), 48) == 48
    with pytest.raises(NotInDomain):
        canonical(whole(1, 64, log=True), 65)


@settings(deadline=None)
@given(
    st.floats(-10, 10), st.floats(0.001, 1), st.integers(0, 50), st.integers(0, 50), st.booleans()
)
def test_a_stepped_float_reaches_every_step_however_it_was_added_up(low, step, steps, at, summed):
    parameter = real(low, low + step * steps, step=step, default=low)
    values = grid(parameter) or []
    assert len(values) == steps + 1 or step * steps < 1e-9
    index = min(at, steps)
    value = sum([step] * index, start=low) if summed else low + index * step
    if low <= value <= parameter.high:
        assert canonical(parameter, value) in values
