import random
from typing import Any

import pytest

from tests.spaces import space_of
from tuner.definitions.models import SpaceDefinition, Value
from tuner.definitions.space import Space
from tuner.search.encoding import Encoding, Labels, Numbers


def encoding(**parameters: dict[str, Any]) -> tuple[Space, Encoding]:
    space = Space(SpaceDefinition.model_validate({"parameters": parameters}))
    return space, Encoding(space)


def numbers(encoded: Encoding, name: str) -> Numbers:
    axis = encoded.axes[name]
    assert isinstance(axis, Numbers)
    return axis


EVERY_KIND: dict[str, dict[str, Any]] = {
    "flag": {"type": "bool"},
    "odd": {"type": "choice", "choices": ["x", True, 1, "1"]},
    "streams": {"type": "int", "low": 8, "high": 100, "log": True},
    "steps": {"type": "int", "low": 1, "high": 9, "step": 3, "default": 4, "when": {"flag": True}},
    "mem": {"type": "float", "low": 0.7, "high": 0.95, "default": 0.9},
    "share": {"type": "float", "low": 0.1, "high": 0.35, "step": 0.1},
    "rate": {"type": "float", "low": 0.001, "high": 1.0, "log": True, "default": 0.1},
}


def test_a_configuration_comes_back_as_it_was():
    space, encoded = encoding(**EVERY_KIND)
    rng = random.Random(1)

    for _ in range(200):
        configuration = space.configuration(encoded.values(encoded.random_point(rng)))
        again = space.configuration(encoded.values(encoded.point(configuration)))
        assert again == configuration


def test_every_point_has_a_coordinate_on_every_axis():
    space, encoded = encoding(**EVERY_KIND)

    point = encoded.point(space.configuration({}))

    assert point.keys() == encoded.axes.keys()
    assert point["steps"] == 4
    assert point["streams is set"] == "no"


def test_people_are_shown_what_is_active_and_set():
    space, encoded = encoding(**EVERY_KIND)

    bare = encoded.shown(space.configuration({}))
    full = encoded.shown(space.configuration({"flag": True, "streams": 16}))

    assert bare.keys() == {"flag", "odd", "mem", "rate"}
    assert bare["odd"] == "null"
    assert full.keys() == {"flag", "odd", "streams", "steps", "mem", "rate"}


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        (("fa3", "triton"), ("fa3", "triton")),
        ((False, True), ("false", "true")),
        ((None, "x", 8), ("null", "x", "8")),
        ((1, "1"), ("1", '"1"')),
        ((True, 1), ("true", "1")),
    ],
)
def test_labels_are_plain_where_that_is_unambiguous(values: tuple[Value, ...], labels):
    axis = Labels.of(values)

    assert axis.labels == labels
    assert [repr(axis.decode(axis.encode(value))) for value in values] == [*map(repr, values)]


def test_a_drawn_number_goes_to_the_nearest_of_its_grid():
    _, encoded = encoding(**EVERY_KIND)

    assert [numbers(encoded, "streams").decode(n) for n in (8, 11, 12, 90, 100)] == [
        8,
        8,
        16,
        100,
        100,
    ]
    assert numbers(encoded, "steps").decode(6) == 7
    assert numbers(encoded, "share").decode(0.29999) == pytest.approx(0.3)


def test_a_continuous_number_is_short_and_inside():
    _, encoded = encoding(**EVERY_KIND)

    assert numbers(encoded, "mem").decode(0.8123456) == 0.8123
    assert numbers(encoded, "mem").decode(0.94999999) == 0.95
    assert numbers(encoded, "rate").decode(0.00123456) == 0.001235


def test_the_top_of_an_axis_is_a_whole_number_of_steps_away():
    _, encoded = encoding(
        fine={"type": "int", "low": 0, "high": 100_000, "step": 3},
        tiny={"type": "float", "low": 0.0, "high": 1.0, "step": 0.00003},
        **EVERY_KIND,
    )

    assert numbers(encoded, "steps").high == 7
    assert numbers(encoded, "share").high == pytest.approx(0.3)
    assert numbers(encoded, "fine").high == 99_999
    assert numbers(encoded, "tiny").high == pytest.approx(0.99999)


def test_random_points_reach_all_of_a_grid():
    _, encoded = encoding(**EVERY_KIND)
    rng = random.Random(1)

    points = [encoded.random_point(rng) for _ in range(200)]

    assert {point["streams"] for point in points} == {8, 16, 32, 64, 100}
    assert {point["odd"] for point in points} == {"null", '"x"', "true", "1", '"1"'}
    assert sum(float(point["rate"]) < 0.03 for point in points) > 60


def test_a_sampler_sees_nothing_of_a_dead_flag():
    space = space_of(
        parameters={
            "steps": {"type": "choice", "choices": [None, 4, 8]},
            "chunk": {"type": "choice", "choices": [1, 2], "default": 1},
        }
    )
    space = space.ignoring({"steps"}, space.configuration({"steps": 4}))
    encoded = Encoding(space)
    assert set(encoded.axes) == {"chunk"}
    for steps in (8, None):
        launched = space.configuration({"steps": steps, "chunk": 2})
        assert encoded.point(launched) == encoded.shown(launched) == {"chunk": "2"}
    assert space.configuration(encoded.values({"chunk": "2"})).as_dict() == {
        "steps": 4,
        "chunk": 2,
    }
