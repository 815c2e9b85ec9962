"""The deaths of the campaign, rehearsed and then explained as they were by hand."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.rehearsed import launched, serving
from tuner.definitions.models import Value
from tuner.failures.classifier import Failure, classify

SURFACE: dict[str, Any] = yaml.safe_load(
    Path(__file__).parent.parent.joinpath("studies/quickstart/surface.yaml").read_text()
)
BASE: dict[str, Value] = {"tp-size": 8, "moe-runner-backend": "flashinfer_cutlass"}
EP8: dict[str, Value] = {**BASE, "ep-size": 8, "moe-a2a-backend": "flashinfer"}
AUTOTUNER = "[Autotuner]: Skipping tactic"


def words(flags: dict[str, Value]) -> list[str]:
    return [w for name, value in flags.items() for w in (f"--{name}", str(value))]


def surface() -> dict[str, Any]:
    return {**SURFACE, "time_scale": 100}


def explained(log: str, exit_code: int | None, flags: dict[str, Value]) -> Failure | None:
    return classify(log, engine="rehearsal", exit_code=exit_code, flags=flags, nearest=BASE)


def test_ep8_dies_under_256_and_is_explained_as_it_was_by_hand(tmp_path):
    with serving(tmp_path, *words(EP8), **surface()) as engine, ExitStack() as streams:
        for _ in range(256):
            streams.enter_context(engine.hold())
        engine.wait_for("Scheduler hit an exception")
        code = engine.exit_code()
        log = engine.log
    failure = explained(log, code, EP8)
    assert failure is not None
    assert (failure.kind, failure.action) == ("arch_unsupported", "never")
    assert "Failed to initialize cutlass TMA WS grouped gemm. Error: Error Internal" in (
        failure.cause
    )
    assert failure.blame == ["ep-size", "moe-a2a-backend"]
    assert failure.phase == "serving"
    assert "Take back expert parallelism" in failure.advice


def test_the_same_line_of_the_autotuner_on_a_healthy_server_is_no_failure(tmp_path):
    with serving(tmp_path, *words(BASE), **surface()) as engine:
        status, _ = engine.ask("/generate", {"text": "a", "sampling_params": {"max_new_tokens": 4}})
        log = engine.log
    assert status == 200
    assert AUTOTUNER in log
    assert "Failed to initialize cutlass TMA WS grouped gemm" in log
    assert explained(log, None, BASE) is None
    killed = explained(log, -9, BASE)
    assert killed is not None
    assert (killed.action, killed.blame, killed.phase) == ("once", [], "serving")
    assert "dmesg" in killed.advice


@pytest.mark.parametrize(
    ("flags", "env", "kind", "cause", "blame"),
    [
        (
            {"tp-size": 8, "enable-piecewise-cuda-graph": True},
            {},
            "compile_fail",
            "Dynamo does not know how to trace the builtin `_posixsubprocess.fork_exec.`",
            ["enable-piecewise-cuda-graph"],
        ),
        (
            {"tp-size": 8, "enable-mscclpp": True},
            {"SGLANG_MSCCLPP_MAX_BYTES": "4MB"},
            "env_format",
            "invalid literal for int() with base 10: '4MB'",
            ["SGLANG_MSCCLPP_MAX_BYTES"],
        ),
    ],
    ids=["piecewise", "mscclpp"],
)
def test_what_dies_at_the_launch(tmp_path, flags, env, kind, cause, blame):
    argv = [f"--{name}" if value is True else f"--{name}={value}" for name, value in flags.items()]
    with launched(tmp_path, *argv, env=env, **surface()) as engine:
        code = engine.exit_code()
        log = engine.log
    failure = explained(log, code, {**flags, **env})
    assert failure is not None
    assert (failure.kind, failure.action) == (kind, "never")
    assert cause in failure.cause
    assert failure.blame == blame
