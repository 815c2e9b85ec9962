import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from tuner.definitions.surface import Surface
from tuner.definitions.validation import load
from tuner.errors import DefinitionError

QUICKSTART = Path(__file__).parent.parent / "studies/quickstart/surface.yaml"
POINT = {"concurrency": 1, "output_tok_s": 10.0, "ttft_ms": 100.0}


def surface(**changes):
    return Surface.model_validate_json(json.dumps({"time_scale": 10, "table": [POINT], **changes}))


def refusal(**changes) -> str:
    with pytest.raises(ValidationError) as caught:
        surface(**changes)
    return str(caught.value)


def test_time_scale_and_table_are_enough():
    assert surface().effects == []


def test_a_flag_that_the_engine_does_not_know_is_refused_with_the_nearest_one():
    text = refusal(effects=[{"when": {"ep-sise": 8}, "throughput": 0.9}])
    assert "unknown flag 'ep-sise' (did you mean 'ep-size'?)" in text


@pytest.mark.parametrize(
    "entry",
    [
        {"resolved": {"enable-mscclp": True}},
        {"overrides": [{"when": {}, "set": {"enable-mscclp": True}}]},
        {"dead": ["enable-mscclp"]},
        {"memory": {"weights": [{"when": {"enable-mscclp": True}, "gb": 1.0}]}},
    ],
)
def test_flag_names_are_checked_everywhere(entry):
    assert "did you mean 'enable-mscclpp'?" in refusal(**entry)


def test_conditions_may_name_environment_variables():
    made = surface(crashes=[{"when": {"SGLANG_MSCCLPP_MAX_BYTES": "4MB"}, "at": "distributed"}])
    assert made.crashes[0].when == {"SGLANG_MSCCLPP_MAX_BYTES": "4MB"}


@pytest.mark.parametrize(
    "triggers", [{}, {"at": "weights", "running": 4}, {"running": 4, "requests": 9}]
)
def test_a_crash_has_exactly_one_trigger(triggers):
    assert "exactly one of at, running, requests" in refusal(crashes=[{"when": {}, **triggers}])


@pytest.mark.parametrize("triggers", [{}, {"at": "weights", "requests": 4}])
def test_a_hang_has_exactly_one_trigger(triggers):
    assert "exactly one of at, requests" in refusal(hangs=[{"when": {}, **triggers}])


@pytest.mark.parametrize("levels", [[10, 1], [1, 1]])
def test_the_table_must_rise(levels):
    table = [{**POINT, "concurrency": level} for level in levels]
    assert f"expected rising concurrencies, found {levels}" in refusal(table=table)


@pytest.mark.parametrize(
    "entry",
    [
        {"effects": [{"when": {"num-continuous-decode-steps": 8}, "throughput": 1.1}]},
        {"overrides": [{"when": {}, "set": {"num-continuous-decode-steps": 1}}]},
        {"hangs": [{"when": {"num-continuous-decode-steps": 8}, "requests": 0}]},
    ],
)
def test_a_dead_flag_cannot_have_an_effect(entry):
    text = refusal(dead=["num-continuous-decode-steps"], **entry)
    assert "'num-continuous-decode-steps' has an effect elsewhere" in text


def test_factors_are_one_number_or_one_for_each_concurrency():
    made = surface(effects=[{"when": {}, "throughput": {"1": 0.9, "10": 0.8}, "ttft": 1.5}])
    assert made.effects[0].throughput == {1: 0.9, 10: 0.8}
    assert made.effects[0].ttft == 1.5


@pytest.mark.parametrize("throughput", [0, -1, {}, {"0": 0.5}])
def test_a_factor_is_above_zero_and_for_a_concurrency(throughput):
    assert "effects.0.throughput" in refusal(effects=[{"when": {}, "throughput": throughput}])


def test_the_quickstart_holds_the_campaigns_baseline():
    table = load(QUICKSTART, Surface).table
    found = {point.concurrency: point.output_tok_s for point in table}
    assert found == {1: 9.17, 10: 38.03, 256: 352.79, 1024: 1520.55}


def test_a_fault_in_the_file_is_told_with_its_place(tmp_path):
    path = tmp_path / "surface.yaml"
    path.write_text(
        "time_scale: 10\n"
        "table:\n"
        "  - {concurrency: 1, output_tok_s: 9.0, ttft_ms: 100}\n"
        "effects:\n"
        "  - {when: {}, troughput: 1.1}\n"
    )
    with pytest.raises(DefinitionError) as caught:
        load(path, Surface)
    assert "surface.yaml:5:16" in str(caught.value)
    assert "did you mean 'throughput'?" in str(caught.value)
