"""How engines are found and launched from, and what is told before a launch: for every engine."""

import os
import sys
from typing import Any

import pytest

from tests.engine_cases import REHEARSAL, SGLANG, VLLM
from tuner import engines
from tuner.definitions.models import Launch
from tuner.errors import EngineError

ADDRESS: dict[str, Any] = {"host": "127.0.0.1", "port": 18777, "extra_ports": (18778, 18779)}


@pytest.fixture(params=[VLLM, SGLANG, REHEARSAL], ids=lambda case: case.name)
def case(request):
    """Every engine."""
    return request.param


@pytest.fixture(params=[VLLM, SGLANG], ids=lambda case: case.name)
def real(request):
    """Every engine that is installed apart from the tuner and needs a model."""
    return request.param


def launch(case, folder, **changes):
    return engines.create(case.spec(folder, **changes)).command(**ADDRESS)


# --- what is installed


def fake_site(folder, name, version):
    """A folder of packages with one that does nothing but be there."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    package = folder / package_of(name)
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('an engine is never imported')\n")
    return str(folder)


def package_of(distribution):
    return distribution.partition("-")[0]


def test_the_version_is_asked_of_the_engines_own_interpreter(real, tmp_path):
    site = fake_site(tmp_path / "site", real.name, "9.8.7")
    own = real.launched_by(python=sys.executable)
    spec = real.spec(tmp_path, engine=own, env={"PYTHONPATH": site})
    assert engines.version(spec) == "9.8.7"
    assert engines.preflight(spec) == []
    prefix = ["env", "SOME=1", sys.executable, "-m", "wrapper"]
    wrapped = real.launched_by(command=prefix)
    assert engines.version(real.spec(tmp_path, engine=wrapped, env={"PYTHONPATH": site})) == "9.8.7"


def test_a_prefix_is_asked_through_all_that_it_sets_up(real, tmp_path):
    site = fake_site(tmp_path / "site", real.name, "9.8.7")
    (tmp_path / "enter.py").write_text(
        f"import os, sys\nos.environ['PYTHONPATH'] = {site!r}\nos.execv(sys.argv[1], sys.argv[1:])"
    )
    own = real.launched_by(command=[sys.executable, "enter.py", sys.executable, "-m", "x"])
    assert engines.version(real.spec(tmp_path, engine=own)) == "9.8.7"


def test_an_interpreter_without_the_engine_is_told_before_a_launch(real, tmp_path):
    own = real.launched_by(python=sys.executable)
    spec = real.spec(tmp_path, engine=own)
    assert engines.version(spec) is None
    assert engines.preflight(spec) == [f"{sys.executable} has no package {real.name} installed"]


def test_a_program_that_is_not_there_is_told_before_a_launch(case, tmp_path):
    def told(python):
        own = case.launched_by(python=python)
        return engines.preflight(case.spec(tmp_path, engine=own))

    assert told("nowhere/bin/python") == [
        "the engine's interpreter or command nowhere/bin/python does not exist"
    ]
    (tmp_path / "text").write_text("")
    assert told("text") == [
        f"the engine's interpreter or command {tmp_path / 'text'} is not an executable file"
    ]


def test_a_model_that_is_not_there_is_told_before_a_launch(real, tmp_path):
    (tmp_path / "models").mkdir()
    for model in ("./nothing", "/no/such/model", "models/missing"):
        faults = engines.preflight(real.spec(tmp_path, model=model))
        assert any(f"the model {model} does not exist" in fault for fault in faults)
    assert not any("model" in f for f in engines.preflight(real.spec(tmp_path, model="org/name")))


# --- ways to launch


def test_paths_of_the_study_are_made_absolute_and_links_are_kept(case, tmp_path):
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "python").symlink_to(sys.executable)
    (tmp_path / "models").mkdir()
    (tmp_path / "lib.so").write_text("")
    own = case.launched_by(python="env/python")
    spec = case.spec(
        tmp_path,
        engine=own,
        model="./models",
        flags={"tokenizer": "env/../models"},
        env={"PRELOAD": "./lib.so:/lib/other.so"},
    )
    command = engines.create(spec).command(**ADDRESS)
    assert command.argv[0] == str(tmp_path / "env" / "python")
    named = command.argv.index(f"--{case.model_flag}") + 1
    assert command.argv[named] == str(tmp_path / "models")
    assert command.argv[-1] == str(tmp_path / "models")
    assert command.env["PRELOAD"] == f"{tmp_path / 'lib.so'}:/lib/other.so"


def test_a_prefix_stands_before_the_engines_own_arguments(case, tmp_path):
    (tmp_path / "launch.sh").write_text("")
    (tmp_path / "-v").mkdir()
    own = case.launched_by(command=["bash", "launch.sh", "-v"])
    argv = launch(case, tmp_path, engine=own).argv
    assert argv[:3] == ("bash", str(tmp_path / "launch.sh"), "-v")
    assert argv[3:] == launch(case, tmp_path).argv[3:]


def test_a_build_is_another_launch_of_the_same_engine(case, tmp_path):
    own = case.launched_by(python="python3", builds={"patched": Launch(python="python4")})
    assert launch(case, tmp_path, engine=own).argv[0] == "python3"
    assert launch(case, tmp_path, engine=own, build="patched").argv[0] == "python4"
    with pytest.raises(EngineError, match="no build named 'other'") as caught:
        launch(case, tmp_path, engine=own, build="other")
    assert caught.value.hint == "Builds are: patched."


def test_exactly_one_way_to_launch_is_needed(real, tmp_path):
    several: list[dict[str, Any]] = [{}, {"python": "p", "command": ["c"]}]
    for ways in several:
        with pytest.raises(EngineError, match=f"{len(ways)} ways to launch the engine were given"):
            launch(real, tmp_path, engine=real.launched_by(**ways))


@pytest.mark.parametrize(
    "begins",
    [
        "#!{python}\n",
        "#! {python}\n",
        "#!/bin/sh\n'''exec' {python} \"$0\" \"$@\"\n' '''\n",
        "#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n",
    ],
    ids=["as it is", "with a space", "through a shell", "through a shell, quoted"],
)
def test_a_script_is_asked_by_the_interpreter_that_it_names(real, tmp_path, begins):
    script = tmp_path / "serve-it"
    script.write_text(begins.format(python=sys.executable) + "import no_such_module\n")
    script.chmod(0o755)
    site = fake_site(tmp_path / "site", real.name, "9.8.7")
    own = real.launched_by(command=["env", "SOME=1", str(script), "serve"])
    assert engines.version(real.spec(tmp_path, engine=own, env={"PYTHONPATH": site})) == "9.8.7"


def test_a_script_by_env_is_asked_by_the_python_of_the_path(real, tmp_path, monkeypatch):
    script = tmp_path / "serve-it"
    script.write_text("#!/usr/bin/env python3\n")
    script.chmod(0o755)
    site = fake_site(tmp_path / "site", real.name, "9.8.7")
    own = real.launched_by(command=["serve-it", "serve"])
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert engines.version(real.spec(tmp_path, engine=own, env={"PYTHONPATH": site})) == "9.8.7"


def test_a_program_that_is_no_script_of_python_cannot_be_asked(real, tmp_path):
    for begins in (b"", b"\x7fELF", b"#!/bin/sh\nexec python3\n"):
        program = tmp_path / "program"
        program.write_bytes(begins)
        program.chmod(0o755)
        own = real.launched_by(command=[str(program)])
        assert engines.version(real.spec(tmp_path, engine=own)) is None
