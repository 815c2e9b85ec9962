"""From a configuration to a launch, and how long one takes."""

from dataclasses import replace

import pytest

from tests.evening import edit, folder, launch
from tests.nightly import study
from tests.samples import record
from tuner.definitions.validation import load_study
from tuner.night.launches import (
    TYPICAL_START_S,
    expected_launch_s,
    ladder_s,
    launch_command,
    launch_spec,
    longest_ladder_s,
    time_scale,
)


def test_the_configuration_wins_over_what_is_fixed(tmp_path):
    loaded = study(
        tmp_path, {"trials": 1}, fixed={"flags": {"chunk": 9, "tp-size": 8}, "env": {"A": "b"}}
    )
    spec = launch_spec(loaded, loaded.space.configuration({"chunk": 4}))
    assert spec.flags["chunk"] == 4
    assert spec.flags["tp-size"] == 8
    assert spec.env == {"A": "b"}
    assert spec.model == "m"
    assert spec.folder == tmp_path
    assert spec.build is None


def test_a_model_named_longer_than_any_file_is_no_path(tmp_path):
    night = folder(tmp_path)
    edit(night, "study.yaml", "model: small", f"model: {'m' * 300}")
    loaded = load_study(night)
    assert "m" * 300 in launch_command(loaded, loaded.baseline).shell()


def test_a_rung_takes_its_warm_up_and_its_window(tmp_path):
    assert ladder_s(study(tmp_path, {"trials": 1})) == pytest.approx(2 * (0.2 + 1.0))


def test_the_longest_ladder_settles_late_and_is_measured_twice(tmp_path):
    """4 times the warm-up and, the second time, 4 times twice that; both windows whole."""
    quick = study(tmp_path, {"trials": 1})
    assert longest_ladder_s(quick) == pytest.approx(2 * (12 * 0.2 + 2 * 1.0))
    limited = quick.objective.model_copy(update={"slos": ["ttft_ms p99 <= 500"]})
    waiting = replace(quick, objective=limited)
    assert longest_ladder_s(waiting) == pytest.approx(2 * (12 * 0.2 + 12 * 1.0))


def test_a_rehearsal_takes_surface_seconds_over_its_scale(tmp_path):
    loaded = load_study(folder(tmp_path))
    assert time_scale(loaded) == 50.0
    assert ladder_s(loaded) == pytest.approx(2 * (5 + 20) / 50)


def test_a_real_engine_has_no_scale(tmp_path):
    assert time_scale(study(tmp_path, {"trials": 1})) == 1.0


def test_before_the_first_launch_the_engine_s_typical_start_is_assumed(tmp_path):
    loaded = study(tmp_path, {"trials": 1})
    assert expected_launch_s(loaded, []) == pytest.approx(60.0 + 2.4 + 3.0)
    assert TYPICAL_START_S["vllm"] == 60.0


def test_afterwards_it_is_the_mean_of_the_last_ten_that_ran_the_whole_ladder(tmp_path):
    loaded = study(tmp_path, {"trials": 1})
    records = [record(n, duration_s=1000.0) for n in range(5)]
    records += [record(n, duration_s=float(n)) for n in range(10, 20)]
    records.append(record(20, duration_s=1.0, outcome="pruned"))
    assert expected_launch_s(loaded, records) == pytest.approx(14.5)


def test_launches_that_failed_say_nothing_of_how_long_one_takes(tmp_path):
    loaded = load_study(folder(tmp_path))
    failed = launch(loaded, 0).model_copy(update={"outcome": "failed", "rungs": []})
    assert expected_launch_s(loaded, [failed]) == expected_launch_s(loaded, [])
