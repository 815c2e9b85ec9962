import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rehearsed import PATIENCE_S, ROOT, STARTUP, TABLE, free_port
from tuner import engines
from tuner.definitions.models import EngineDefinition
from tuner.engines.base import LaunchSpec
from tuner.errors import DefinitionError, EngineError
from tuner.http.client import Http


def spec(folder: Path, *, flags=None, surface="surface.yaml", **more):
    if not (folder / "surface.yaml").exists():
        document = {"time_scale": 40, "table": TABLE, "startup": STARTUP}
        (folder / "surface.yaml").write_text(json.dumps(document))
    engine = EngineDefinition(name="rehearsal", surface=surface, **more)
    return LaunchSpec(engine=engine, model="toy", folder=folder, flags=flags or {})


def command(made, port=18777):
    return made.command(host="127.0.0.1", port=port, extra_ports=(port + 1,))


def test_it_says_that_it_is_a_rehearsal_and_how_fast_its_time_runs(tmp_path):
    made = engines.create(spec(tmp_path))
    assert (made.name, made.rehearsal, made.time_scale, made.api) == (
        *("rehearsal", True, 40.0, "generate"),
    )
    assert "rehearsal" in str(made.version())


def test_its_command_is_the_tuners_own_interpreter_with_the_surface_and_the_flags(tmp_path):
    made = command(engines.create(spec(tmp_path, flags={"tp-size": 8, "enable-mscclpp": True})))
    assert made.argv == (
        *(sys.executable, "-m", "tuner.rehearsal", "--surface", str(tmp_path / "surface.yaml")),
        *("--model-path", "toy", "--tp-size", "8", "--enable-mscclpp"),
    )
    assert made.injected_argv[:4] == ("--host", "127.0.0.1", "--port", "18777")
    assert made.full_env["PYTHONPATH"].split(os.pathsep)[0] == str(ROOT)
    assert made.env == {}


def test_a_study_may_launch_it_in_its_own_way(tmp_path):
    made = engines.create(spec(tmp_path, command=["nice", "python3", "-m", "tuner.rehearsal"]))
    assert command(made).argv[:6] == (
        *("nice", "python3", "-m", "tuner.rehearsal"),
        *("--surface", str(tmp_path / "surface.yaml")),
    )


def test_it_takes_the_gpus_that_sglang_would(tmp_path):
    assert engines.create(spec(tmp_path, flags={"tp-size": 4, "dp-size": 2})).gpus_needed() == 8


def test_without_a_surface_there_is_no_rehearsal(tmp_path):
    with pytest.raises(EngineError, match="a rehearsal needs a surface"):
        engines.create(spec(tmp_path, surface=None))


def test_a_faulty_surface_is_told_with_its_place(tmp_path):
    (tmp_path / "surface.yaml").write_text("time_scale: 0\ntable: []\n")
    with pytest.raises(DefinitionError, match=r"surface\.yaml:1:13"):
        engines.create(spec(tmp_path))


def test_nothing_stands_in_the_way_of_a_rehearsal_on_any_machine(tmp_path):
    assert engines.preflight(spec(tmp_path)) == []


def test_its_command_line_is_sglangs_and_its_dead_flags_are_the_surfaces(tmp_path):
    made = spec(tmp_path)
    surface = tmp_path / "surface.yaml"
    content = json.loads(surface.read_text())
    surface.write_text(json.dumps({**content, "dead": ["num-continuous-decode-steps"]}))
    found = engines.catalogue(made)
    assert found is not None
    assert (found.title, found.how) == ("rehearsal of SGLang 0.5.9", "built in")
    assert found.dead == {"num-continuous-decode-steps": "surface.yaml"}
    kinds = {name: flag.kind for name, flag in found.by_name.items()}
    assert kinds["enable-mscclpp"] == "presence"
    assert kinds["tensor-parallel-size"] == kinds["tp-size"] == "value"
    assert kinds["cuda-graph-bs"] == "list"
    backend = found.find("moe-a2a-backend")
    assert backend is not None
    assert backend.choices is not None
    assert "deepep" in backend.choices
    assert found.find("chunked-prefil-size") is None


def test_a_surface_that_became_faulty_stands_in_the_way(tmp_path):
    made = engines.create(spec(tmp_path))
    (tmp_path / "surface.yaml").write_text("time_scale: 0\ntable: []\n")
    assert "surface.yaml:1:13" in made.preflight()[0]


def test_it_is_asked_as_every_engine_is(tmp_path):
    """Started from another folder, with the words of the command alone."""
    made = engines.create(spec(tmp_path, flags={"tp-size": 2, "chunked-prefill-size": 4096}))
    port = free_port()
    launch = command(made, port)
    log_path = tmp_path / "log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            list(launch.full_argv), env=dict(launch.full_env), cwd=tmp_path, stdout=log, stderr=log
        )
    try:
        ready, effective, facts, load = asyncio.run(_questions(made, port, log_path))
    finally:
        process.kill()
        process.wait()
    assert ready, log_path.read_text()
    assert effective["chunked-prefill-size"] == 4096
    assert effective["tp-size"] == 2
    assert effective.keys().isdisjoint({"port", "host", "random-seed", "nccl-port"})
    assert (facts.weight_gb_per_gpu, facts.kv_tokens) == (60.89, 250_000)
    assert facts.captured_sizes
    assert "rehearsal" in str(facts.version)
    assert load == (0.0, 0.0)


async def _questions(made, port, log_path):
    async with Http(f"http://127.0.0.1:{port}") as http:
        ready = False
        for _ in range(int(PATIENCE_S / 0.05)):
            ready = await made.ready(http)
            if ready:
                break
            await asyncio.sleep(0.05)
        log = log_path.read_text()
        effective = await made.effective(http, log)
        return ready, effective, await made.facts(http, log), await made.load_now(http)
