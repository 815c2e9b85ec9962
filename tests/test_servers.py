"""The servers of one launch: their commands, their script, where their logs lie."""

from pathlib import Path

from tuner import engines
from tuner.definitions.models import EngineDefinition
from tuner.engines.base import LaunchSpec
from tuner.hosts.executor import Slot
from tuner.night.servers import commands, log_folder, script

SLOT = Slot(
    host="here",
    gpus=("GPU-a", "GPU-b"),
    real_gpus=True,
    server_cores=(0,),
    client_cores=(1,),
    ports=(100, 101, 102, 103),
)


def engine(folder):
    definition = EngineDefinition(name="vllm", python="python3")
    return engines.create(LaunchSpec(engine=definition, model="org/m", folder=folder))


def test_each_server_of_a_set_has_its_own_gpus_and_ports(tmp_path):
    first, second = commands(engine(tmp_path), SLOT.split(2))
    assert first.injected_env["CUDA_VISIBLE_DEVICES"] == "GPU-a"
    assert second.injected_env["CUDA_VISIBLE_DEVICES"] == "GPU-b"
    assert (first.injected_env["VLLM_PORT"], second.injected_env["VLLM_PORT"]) == ("101", "103")
    assert [c.full_argv[c.full_argv.index("--port") + 1] for c in (first, second)] == ["100", "102"]
    assert first.shell() == second.shell()  # what was asked for is the same


def test_a_set_is_told_how_many_there_are_and_a_lone_server_is_not(tmp_path):
    pair = commands(engine(tmp_path), SLOT.split(2))
    assert [command.injected_env["TUNER_REPLICAS"] for command in pair] == ["2", "2"]
    (alone,) = commands(engine(tmp_path), SLOT.split(1))
    assert "TUNER_REPLICAS" not in alone.injected_env
    assert alone.injected_env["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"


def test_the_script_of_a_set_starts_its_servers_beside_each_other(tmp_path):
    (alone,) = commands(engine(tmp_path), SLOT.split(1))
    assert script([alone]) == f"#!/bin/sh\n{alone.launched_shell()}\n"
    pair = commands(engine(tmp_path), SLOT.split(2))
    assert script(pair).splitlines() == [
        "#!/bin/sh",
        *(f"{command.launched_shell()} &" for command in pair),
        "wait",
    ]


def test_the_first_log_lies_with_the_trial_and_the_others_in_folders():
    assert log_folder(Path("0003"), 0) == Path("0003")
    assert log_folder(Path("0003"), 1) == Path("0003/replica-2")
