"""From a study to the image that a launch goes through, and what is missing here."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.stand_in_runtime import StandIn
from tests.test_engines_interpreter import fake_site
from tuner import engines
from tuner.definitions.models import EngineDefinition, Value
from tuner.engines.base import LaunchCommand, LaunchSpec
from tuner.engines.image_launch import image_ids
from tuner.engines.vllm import VLLMEngine
from tuner.errors import HostError


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[StandIn]:
    stand_in = StandIn(tmp_path / "runtime")
    yield stand_in
    stand_in.close()


def spec(
    folder: Path,
    *,
    containers: Mapping[str, object] | None = None,
    model: str = "some/model",
    flags: dict[str, Value] | None = None,
    env: dict[str, str] | None = None,
    build: str | None = None,
    **launch: object,
) -> LaunchSpec:
    document = {"name": "vllm", "image": "engine:1", "containers": containers or {}, **launch}
    engine = EngineDefinition.model_validate_json(json.dumps(document))
    return LaunchSpec(
        engine=engine, model=model, folder=folder, flags=flags or {}, env=env or {}, build=build
    )


def command(launch: LaunchSpec, gpus: tuple[str, ...] = ()) -> LaunchCommand:
    return engines.create(launch).command(
        host="127.0.0.1", port=20001, extra_ports=(20002,), gpus=gpus
    )


def test_without_a_command_the_images_python_runs_the_engines_module(tmp_path: Path) -> None:
    launched = command(spec(tmp_path), gpus=("GPU-a",))
    assert launched.argv[:3] == ("python3", "-m", "vllm.entrypoints.openai.api_server")
    assert launched.image is not None
    assert (launched.image.image, launched.image.gpus) == ("engine:1", ("GPU-a",))
    assert launched.injected_argv[:2] == ("--host", "127.0.0.1")


def test_a_command_is_the_words_inside_also_where_a_file_here_is_called_so(tmp_path: Path) -> None:
    (tmp_path / "vllm").write_text("")
    assert command(spec(tmp_path, command=["vllm", "serve"])).argv[:3] == (
        *("vllm", "serve", "some/model"),
    )


def test_a_build_may_be_an_image_where_the_engine_is_none(tmp_path: Path) -> None:
    def launched(build: str | None) -> LaunchCommand:
        builds = {"next": {"image": "engine:2"}}
        return command(spec(tmp_path, image=None, python="python3", builds=builds, build=build))

    assert launched(None).image is None
    image = launched("next").image
    assert image is not None
    assert image.image == "engine:2"


def test_on_the_bridge_the_server_listens_on_all_addresses_of_its_container(
    tmp_path: Path,
) -> None:
    launched = command(spec(tmp_path, containers={"network": "bridge"}))
    assert launched.injected_argv[:2] == ("--host", "0.0.0.0")
    assert launched.withheld_argv == ("--host", "0.0.0.0")
    asked = command(spec(tmp_path, containers={"network": "bridge"}, flags={"host": "::"}))
    assert asked.withheld_argv == ("--host", "::")


def test_mounted_is_what_is_here_and_no_option_fills(tmp_path: Path) -> None:
    for name in ("model", "draft", "cache"):
        (tmp_path / "host" / name).mkdir(parents=True)
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "chat.jinja").write_text("")
    host = tmp_path / "host"
    launched = command(
        spec(
            tmp_path / "study",
            model=str(host / "model"),
            flags={
                "chat-template": "./chat.jinja",
                "speculative-model": str(host / "draft"),
                "download-dir": str(host / "cache"),
                "absent": "/no/such/place",
            },
            env={"LD_LIBRARY_PATH": "/usr/lib", "TEMPLATE": "./chat.jinja"},
            containers={"options": [f"-v={host / 'cache'}:{host / 'cache'}"]},
        )
    )
    assert launched.image is not None
    assert launched.image.mounts == tuple(
        map(str, (host / "model", tmp_path / "study" / "chat.jinja", host / "draft"))
    )


def test_the_blobs_of_a_model_cache_are_mounted_with_the_links_to_them(tmp_path: Path) -> None:
    snapshot, blobs = tmp_path / "hub" / "snapshots" / "abc", tmp_path / "hub" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    (blobs / "0a1b").write_text("{}")
    (snapshot / "config.json").symlink_to("../../blobs/0a1b")
    (snapshot / "itself").symlink_to("config.json")
    image = command(spec(tmp_path, model=str(snapshot))).image
    assert image is not None
    assert image.mounts == (str(snapshot), str(blobs))


def test_images_for_machines_without_gpus_ask_for_none(tmp_path: Path) -> None:
    image = command(spec(tmp_path, image="ghcr.io/vllm-cpu-env:1")).image
    assert image is not None
    assert not image.all_gpus


def faults(launch: LaunchSpec) -> list[str]:
    return engines.preflight(launch)


def test_an_image_that_is_not_here_is_told_with_the_words_that_get_it(
    runtime: StandIn, tmp_path: Path
) -> None:
    own = {"runtime": str(runtime.program)}
    assert faults(spec(tmp_path, image="engine:9", containers=own)) == [
        "the image engine:9 is not on this machine: get it with `docker pull engine:9`"
    ]


def test_a_daemon_that_is_gone_is_told(runtime: StandIn, tmp_path: Path) -> None:
    runtime.crash()
    (said,) = faults(spec(tmp_path, containers={"runtime": str(runtime.program)}))
    assert said.startswith("the container runtime does not work: docker ps: Cannot connect to")


def test_a_runtime_that_is_not_there_is_told(tmp_path: Path) -> None:
    assert faults(spec(tmp_path, containers={"runtime": "/no/docker"})) == [
        "the engine's container runtime /no/docker does not exist"
    ]


def test_a_path_that_no_option_can_spell_is_told(runtime: StandIn, tmp_path: Path) -> None:
    model = tmp_path / "a:b"
    model.mkdir()
    own = {"runtime": str(runtime.program)}
    assert (
        f"{model} cannot be mounted: a path with a colon in it"
        in faults(spec(tmp_path, model=str(model), containers=own))[0]
    )


def test_the_package_is_looked_for_inside_once_for_each_content(
    runtime: StandIn, tmp_path: Path
) -> None:
    own = {"runtime": str(runtime.program)}
    site = fake_site(tmp_path / "site", "vllm", "9.8.7")
    launch = spec(tmp_path, containers=own, env={"PYTHONPATH": site})
    assert engines.version(launch) == "9.8.7"
    assert faults(launch) == []
    assert faults(spec(tmp_path, containers=own)) == [
        "the image engine:1 has no package vllm installed"
    ]
    newer = tmp_path / "site" / "vllm-9.8.7.dist-info" / "METADATA"
    newer.write_text(newer.read_text().replace("9.8.7", "9.9.0"))
    assert engines.version(launch) == "9.8.7"
    runtime.image("engine:1", "sha256:" + "2" * 64)
    assert engines.version(launch) == "9.9.0"
    assert runtime.containers() == []


def test_without_a_runtime_no_version_is_known_and_nothing_is_raised(tmp_path: Path) -> None:
    assert engines.version(spec(tmp_path, containers={"runtime": "/no/docker"})) is None


def test_a_python_of_the_launch_is_called_through_the_runtime(tmp_path: Path) -> None:
    inner = ["/opt/venv/bin/python", "-m", "vllm.entrypoints.openai.api_server"]
    engine = VLLMEngine(spec(tmp_path, command=inner, env={"A": "1", "PATH": "/opt"}))
    words = engine.python_words()
    assert words is not None
    assert words[-3:] == ("--entrypoint", "/opt/venv/bin/python", "engine:1")
    assert engine.python_env() == {"A": "1"}


def test_the_contents_of_all_images_of_a_study_are_known(runtime: StandIn, tmp_path: Path) -> None:
    builds = {"next": {"image": "engine:2"}, "gone": {"image": "engine:3"}}
    engine = spec(tmp_path, containers={"runtime": str(runtime.program)}, builds=builds).engine
    runtime.image("engine:2", "sha256:2")
    assert image_ids(engine, tmp_path) == {"engine:1": "sha256:" + "1" * 64, "engine:2": "sha256:2"}
    runtime.crash()
    with pytest.raises(HostError, match="Cannot connect"):
        image_ids(engine, tmp_path)


def test_an_export_keeps_what_was_asked_apart(tmp_path: Path) -> None:
    launched = command(spec(tmp_path, flags={"max-model-len": 64, "port": 9000}))
    assert launched.shell() == (
        "docker run --rm --init --gpus all --network host --entrypoint python3 engine:1 "
        "-m vllm.entrypoints.openai.api_server --model some/model --max-model-len 64 --port 9000"
    )
    assert replace(launched, image=None).shell().startswith("python3 -m vllm")
