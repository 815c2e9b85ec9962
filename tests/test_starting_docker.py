"""The options of `docker run`: what is kept, what the tuner does itself, what is refused."""

import shlex
from pathlib import Path

import pytest

from tuner.errors import TunerError
from tuner.starting.docker import gpu_count, run
from tuner.starting.pasted import Pasted


def ran(line: str, **env: str) -> Pasted:
    found = run(shlex.split(line), env, Path("/w"))
    assert found is not None
    return found


def test_image_words_and_options_are_told_apart():
    found = ran("docker run -it --rm -p8000:8000 --ipc host -v=./m:/m -u 0 img:1 vllm serve x -it")
    assert found.words == ("vllm", "serve", "x", "-it")
    assert found.container is not None
    assert found.container.image == "img:1"
    assert found.container.options == ("--ipc=host", "--volume=/w/m:/m", "--user=0")
    assert found.container.network == "bridge"


@pytest.mark.parametrize("option", ["--network=host", "--network host", "--net host"])
def test_the_network_of_the_host_is_kept(option):
    container = ran(f"docker run {option} img").container
    assert container is not None
    assert container.network == "host"
    assert container.options == ()


def test_a_network_of_a_name_is_left_out_and_said():
    found = ran("docker run --network=mynet img")
    assert found.left_out == ("--network=mynet: a launch has a network of its own",)


def test_variables_are_those_inside_and_one_without_a_value_is_the_shells():
    found = ran("docker run -e A=1 --env B -eC='x y' -e D img", B="2")
    assert found.env == {"A": "1", "B": "2", "C": "x y", "D": "${D}"}


@pytest.mark.parametrize(
    ("options", "gpus"),
    [
        ("--gpus all", None),
        ("--gpus 4", 4),
        ("--gpus '\"device=0,2\"'", 2),
        ("--gpus device=3", 1),
        ("--gpus count=2,capabilities=compute", 2),
        ("--runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=0,1,2", 3),
        ("-e NVIDIA_VISIBLE_DEVICES=all", None),
        ("--device nvidia.com/gpu=0 --device nvidia.com/gpu=1", 2),
        ("--device nvidia.com/gpu=all", None),
        ("", None),
    ],
)
def test_gpus_are_counted_and_no_option(options, gpus):
    found = ran(f"docker run {options} img")
    assert found.gpus == gpus
    assert found.container is not None
    assert found.container.options == ()
    assert found.env == {}


def test_other_devices_and_runtimes_stay():
    container = ran("docker run --device /dev/kfd --runtime runc img").container
    assert container is not None
    assert container.options == ("--device=/dev/kfd", "--runtime=runc")


def test_an_entry_point_comes_first():
    found = ran("podman run --entrypoint python3 img -m x")
    assert found.words == ("python3", "-m", "x")
    assert found.container is not None
    assert not found.container.own_entry
    assert found.container.runtime == "podman"


def test_what_the_tuner_does_itself_is_said_where_that_is_worth_a_word():
    found = ran("docker run -d --rm --name x -p 1:1 --restart always img")
    assert [text.split(" of ")[0] for text in found.left_out] == [
        "--name=x",
        "--restart=always",
    ]


def test_published_ports_are_kept_and_what_is_not_one_port_is_said():
    line = "docker run -p 1:2 -p 127.0.0.1:80:8000/tcp --publish=[::1]:3:4 -p 5 -p 6-7:6-7 img"
    found = ran(line)
    assert found.container is not None
    assert found.container.publish == ("1:2", "127.0.0.1:80:8000", "[::1]:3:4")
    assert found.left_out == tuple(
        f"--publish={port} of the container: expected ADDRESS:PORT:PORT; write it as serve.publish"
        for port in ("5", "6-7:6-7")
    )
    host = ran("docker run --network host -p 1:2 img").container
    assert host is not None
    assert host.publish == ()


@pytest.mark.parametrize("line", ["docker ps", "docker pull img", "docker"])
def test_other_commands_of_docker_start_nothing(line):
    assert run(line.split(), {}, Path("/w")) is None


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("docker run --rm", "names no image"),
        ("docker run -v", "--volume of the container has no value"),
        ("docker run -X img", "unknown option '-X'"),
        ("docker run -e 1A=x img", "'1A' of the container is not the name of a variable"),
        ("docker compose up -d", "'docker compose' reads the launch from a file"),
        ("docker exec c vllm serve m", "'docker exec' starts the server in a container"),
    ],
)
def test_what_cannot_be_read_is_said(line, sentence):
    with pytest.raises(TunerError, match=sentence):
        run(line.split(), {}, Path("/w"))


def test_a_count_of_gpus_in_all_its_spellings():
    assert gpu_count('"device=GPU-1,GPU-2"') == 2
    assert gpu_count("all") is None
