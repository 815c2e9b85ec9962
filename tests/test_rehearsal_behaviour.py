import json
import math
import statistics

import pytest

from tests.test_surface import QUICKSTART
from tuner.definitions.surface import Surface
from tuner.definitions.validation import load
from tuner.flags.sglang import parse
from tuner.rehearsal.behaviour import Behaviour, factor, resolve

TABLE = [
    {"concurrency": 1, "output_tok_s": 10.0, "ttft_ms": 100.0},
    {"concurrency": 100, "output_tok_s": 1000.0, "ttft_ms": 400.0},
]


def surface(**changes):
    return Surface.model_validate_json(json.dumps({"time_scale": 10, "table": TABLE, **changes}))


def behave(made, *argv, nonce="n", **env):
    arguments = resolve(made, parse(["--model-path", "m", *argv]), env).arguments
    return Behaviour(made, {**env, **arguments}, nonce)


# --- speed


def test_the_table_holds_at_its_points_and_between_them_on_log_log_axes():
    behaviour = behave(surface())
    assert behaviour.output_tok_s(1) == pytest.approx(10)
    assert behaviour.output_tok_s(100) == pytest.approx(1000)
    assert behaviour.output_tok_s(10) == pytest.approx(100)
    assert behaviour.ttft_s(10) == pytest.approx(0.2)


def test_beyond_the_table_its_last_point_holds():
    assert behave(surface()).output_tok_s(4000) == pytest.approx(1000)


def test_effects_multiply_and_an_interaction_comes_on_top():
    made = surface(
        effects=[
            {"when": {"enable-mscclpp": True}, "throughput": 1.02},
            {"when": {"enable-mixed-chunk": True}, "throughput": 1.05},
            {"when": {"enable-mscclpp": True, "enable-mixed-chunk": True}, "throughput": 2.0},
        ]
    )
    assert behave(made, "--enable-mscclpp").output_tok_s(1) == pytest.approx(10.2)
    both = behave(made, "--enable-mscclpp", "--enable-mixed-chunk")
    assert both.output_tok_s(1) == pytest.approx(10 * 1.02 * 1.05 * 2)


def test_an_effect_on_first_token_time_leaves_throughput_alone():
    made = surface(effects=[{"when": {}, "ttft": 3.0}])
    assert behave(made).ttft_s(1) == pytest.approx(0.3)
    assert behave(made).output_tok_s(1) == pytest.approx(10)


def test_a_factor_per_concurrency_is_log_linear_between_and_flat_outside():
    factors = {10: 0.9, 1000: 0.7}
    assert factor(factors, 1) == 0.9
    assert factor(factors, 100) == pytest.approx(0.8)
    assert factor(factors, 5000) == 0.7


def test_a_dead_flag_changes_nothing():
    made = load(QUICKSTART, Surface)
    steps = [behave(made, "--num-continuous-decode-steps", str(n)) for n in (1, 16)]
    assert steps[0].output_tok_s(256) == steps[1].output_tok_s(256)


def test_the_quickstarts_pair_is_worth_eight_percent_and_each_alone_little():
    made = load(QUICKSTART, Surface)
    chunks = ("--chunked-prefill-size", "16384")
    eager = ("--schedule-conservativeness", "0.4")
    plain = behave(made)
    for concurrency in (1, 10, 256, 1024):
        gains = [
            behave(made, *flags).output_tok_s(concurrency) / plain.output_tok_s(concurrency)
            for flags in (chunks, eager, (*chunks, *eager))
        ]
        assert gains == pytest.approx([1.02, 1.015, 1.08], abs=0.001)


# --- arguments


def test_a_null_is_decided_and_a_value_is_left_alone():
    made = surface(resolved={"chunked-prefill-size": 8192})
    assert behave(made).settings["chunked-prefill-size"] == 8192
    given = behave(made, "--chunked-prefill-size", "-1")
    assert given.settings["chunked-prefill-size"] == -1


def test_an_override_may_take_another_arguments_value_and_is_logged():
    made = load(QUICKSTART, Surface)
    argv = ["--model-path", "m", "--tp-size", "8", "--moe-a2a-backend", "flashinfer"]
    resolved = resolve(made, parse(argv), {})
    assert resolved.arguments["ep-size"] == 8
    assert "expert parallel size is adjusted" in resolved.warnings[0]


def test_an_override_sees_what_was_decided_where_nothing_was_asked():
    made = surface(
        resolved={"chunked-prefill-size": 8192},
        overrides=[{"when": {"chunked-prefill-size": 8192}, "set": {"page-size": 64}}],
    )
    assert behave(made).settings["page-size"] == 64


def test_effects_see_what_was_overridden_not_what_was_asked():
    made = load(QUICKSTART, Surface)
    asked = behave(made, "--tp-size", "8", "--moe-a2a-backend", "flashinfer", "--ep-size", "1")
    assert asked.output_tok_s(1) / behave(made).output_tok_s(1) == pytest.approx(107 / 118, 1e-3)
    assert asked.weight_gb() == 59.50
    assert behave(made).weight_gb() == 60.89


def test_conditions_see_the_environment():
    made = surface(effects=[{"when": {"SGLANG_X": "1"}, "throughput": 2.0}])
    assert behave(made, SGLANG_X="1").output_tok_s(1) == pytest.approx(20)
    assert behave(made).output_tok_s(1) == pytest.approx(10)


def test_the_pool_is_the_surfaces_unless_the_flag_says_otherwise():
    made = surface(max_running_requests=237)
    assert behave(made).pool == 237
    assert behave(made, "--max-running-requests", "64").pool == 64


# --- noise


def test_one_nonce_gives_one_launch_and_another_nonce_another():
    made = surface(noise={"launch_sd": 0.01})
    assert behave(made, nonce="a").output_tok_s(1) == behave(made, nonce="a").output_tok_s(1)
    assert behave(made, nonce="a").output_tok_s(1) != behave(made, nonce="b").output_tok_s(1)


def test_another_seed_gives_another_launch():
    made, other = (surface(noise={"launch_sd": 0.01}, seed=seed) for seed in (1, 2))
    assert behave(made).output_tok_s(1) != behave(other).output_tok_s(1)


def test_noise_has_the_declared_spread_and_mean_one():
    made = surface(noise={"launch_sd": 0.03, "point_sd": 0.04})
    settings = behave(made).settings
    launches = [Behaviour(made, settings, str(number)) for number in range(2000)]
    speeds = [launch.output_tok_s(1) / 10 for launch in launches]
    assert statistics.mean(speeds) == pytest.approx(1, abs=0.004)
    assert statistics.stdev(speeds) == pytest.approx(0.05, rel=0.08)
    ratios = [
        launch.output_tok_s(100) / 1000 / speed
        for launch, speed in zip(launches, speeds, strict=True)
    ]
    assert statistics.stdev(ratios) == pytest.approx(0.04 * math.sqrt(2), rel=0.08)


def test_noise_within_a_run_and_of_first_tokens_has_the_declared_spread():
    behaviour = behave(surface(noise={"run_sd": 0.02, "ttft_sd": 0.4}))
    runs = [behaviour.run_factor() for _ in range(4000)]
    firsts = [behaviour.ttft_factor() for _ in range(4000)]
    assert statistics.stdev(runs) == pytest.approx(0.02, rel=0.08)
    assert statistics.stdev(firsts) == pytest.approx(0.4, rel=0.08)
    assert statistics.mean(firsts) == pytest.approx(1, abs=0.03)


def test_drift_is_a_wave_by_the_wall_clock_in_surface_time():
    behaviour = behave(surface(drift={"percent": 4, "period_s": 400}))
    at_quarters = [behaviour.drift_factor(wall_s) for wall_s in (0, 10, 20, 30, 40)]
    assert at_quarters == pytest.approx([1, 1.04, 1, 0.96, 1])
    assert behave(surface()).drift_factor(10) == 1


def test_a_share_befalls_that_share_of_the_requests():
    behaviour = behave(surface())
    assert 0.2 < sum(behaviour.hit(0.25) for _ in range(2000)) / 2000 < 0.3
    assert all(behaviour.hit(1.0) for _ in range(100))
