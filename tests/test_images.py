"""How a launch through an image is spelt, for the tuner and for a person."""

import shlex
from dataclasses import replace
from typing import Any

import pytest

from tuner.engines.base import LaunchCommand
from tuner.engines.images import Image, for_client, option_mounts

IMAGE = Image(runtime="docker", image="vllm/vllm-openai:v1", port=20001, usual_port=8000)
OURS: dict[str, Any] = {
    "name": "tuner-a",
    "cidfile": "/run/a.cid",
    "labels": ("l=1",),
    "cores": (2, 3),
}


def launched(image: Image = IMAGE, env: dict[str, str] | None = None) -> list[str]:
    return list(image.launched(("python3", "-m", "x"), env or {}, **OURS).argv)


def test_the_tuner_runs_it_under_a_name_of_its_own_and_never_pulls_it() -> None:
    assert launched() == shlex.split(
        "docker run --name tuner-a --cidfile /run/a.cid --init --rm --pull=never --label=l=1 "
        "--cpuset-cpus=2,3 --network host --entrypoint python3 vllm/vllm-openai:v1 -m x"
    )


def test_variables_go_through_the_clients_environment_unless_they_would_change_it() -> None:
    line = IMAGE.launched(("x",), {"HF_TOKEN": "s", "PATH": "/opt", "LD_PRELOAD": "a.so"}, **OURS)
    assert line.env == {"HF_TOKEN": "s"}
    assert [line.argv[at + 1] for at, word in enumerate(line.argv) if word == "-e"] == [
        *("HF_TOKEN", "PATH=/opt", "LD_PRELOAD=a.so")
    ]
    assert for_client({"DOCKER_HOST": "x", "GOMAXPROCS": "1", "VLLM_PORT": "2"}) == {
        "VLLM_PORT": "2"
    }


def test_gpus_are_named_as_each_runtime_wants_them() -> None:
    two = replace(IMAGE, gpus=("GPU-a", "GPU-b"))
    words = launched(two)
    assert words[words.index("--gpus") + 1] == '"device=GPU-a,GPU-b"'
    podman = launched(replace(two, runtime="/usr/bin/podman"))
    assert [word for word in podman if "nvidia" in word] == [
        *("--device=nvidia.com/gpu=GPU-a", "--device=nvidia.com/gpu=GPU-b")
    ]
    assert "--gpus" not in launched()


def test_on_the_bridge_one_port_is_published_to_this_machine_alone() -> None:
    words = launched(replace(IMAGE, network="bridge"))
    assert words[words.index("-p") + 1] == "127.0.0.1:20001:20001"
    assert "--network" not in words


def test_mounts_are_read_only_at_the_same_place_and_options_are_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CACHE", "/data/hf")
    words = launched(replace(IMAGE, mounts=("/m",), options=("-v=${CACHE}:/root/.cache",)))
    assert "/m:/m:ro" in words
    assert words[words.index("--entrypoint") - 1] == "-v=/data/hf:/root/.cache"


def asked(image: Image = IMAGE, **changes: object) -> LaunchCommand:
    command = LaunchCommand(
        argv=("python3", "-m", "x", "--model", "/m"),
        env={"A": "1", "HF_TOKEN": "hf_abcdefghijklmnopqrstuvwxyz012345"},
        injected_argv=("--port", "20001"),
        injected_env={"B": "2"},
        image=image,
    )
    return replace(command, **changes)  # type: ignore[arg-type]


def test_a_person_pastes_what_was_asked_for_and_no_secret() -> None:
    assert asked(replace(IMAGE, mounts=("/m",), options=("--ipc=host",))).shell() == (
        'HF_TOKEN="${HF_TOKEN:?set HF_TOKEN}" docker run --rm --init --gpus all --network host '
        "-v /m:/m:ro -e A=1 -e HF_TOKEN --ipc=host --entrypoint python3 vllm/vllm-openai:v1 "
        "-m x --model /m"
    )


def test_a_person_gets_the_port_that_the_command_names_or_the_usual_one() -> None:
    bridge = replace(IMAGE, network="bridge")
    assert "-p 127.0.0.1:8000:8000 " in asked(bridge).shell()
    named = asked(bridge, withheld_argv=("--port", "9000"))
    assert "-p 127.0.0.1:9000:9000 " in named.shell()


def test_a_person_gets_all_gpus_unless_there_are_none_or_the_options_say() -> None:
    assert "--gpus" not in asked(replace(IMAGE, all_gpus=False)).shell()
    assert asked(replace(IMAGE, options=("--gpus=2",))).shell().count("--gpus") == 1
    podman = asked(replace(IMAGE, runtime="podman")).shell()
    assert "--device=nvidia.com/gpu=all" in podman


def test_what_was_launched_is_shown_with_what_was_added_and_not_with_our_own_names() -> None:
    shown = asked(replace(IMAGE, gpus=("GPU-a",))).launched_shell()
    assert "-e B=2" in shown
    assert "--port 20001" in shown
    assert "device=GPU-a" in shown
    assert "cidfile" not in shown


def test_secrets_in_options_are_launched_and_never_shown() -> None:
    image = replace(IMAGE, options=("-e", "HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz012345"))
    assert "HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz012345" in launched(image)
    assert "hf_abc" not in asked(image).shell()


def test_a_python_is_asked_inside_without_gpus_or_network() -> None:
    assert IMAGE.asked(("python3",), {"A": "1", "PATH": "x"}) == tuple(
        shlex.split(
            "docker run --rm --interactive --pull=never --network=none --env=A "
            "--entrypoint python3 vllm/vllm-openai:v1"
        )
    )


def test_places_that_options_fill_are_known_in_every_spelling() -> None:
    assert option_mounts(
        [
            *("-v", "/a:/one:rw", "--volume=/b:/two", "-v=/three"),
            *("--mount", "type=bind,source=/d,target=/four", "--mount=type=bind,dst=/five"),
            "--ipc=host",
        ]
    ) == ("/one", "/two", "/three", "/four", "/five")
