"""Which hosts count, and what becomes of a fault of a GPU; NVML's part is played."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.victims import ROOT
from tuner.errors import HostError
from tuner.hosts.executor import HostInfo
from tuner.hosts.roster import Host, fitting

REAL = HostInfo(
    name="node",
    gpus=("GPU-a", "GPU-b"),
    gpu_model="NVIDIA H200",
    real_gpus=True,
    cpu_model="a cpu",
    cores=8,
    memory_gb=64.0,
)
HEAD = replace(REAL, name="head", gpus=("0", "1"), gpu_model=None, real_gpus=False)

NVML = """
import os
from pathlib import Path
from types import SimpleNamespace

class NVMLError(Exception):
    pass

def _answer(uuid):
    if uuid == "GPU-b" and Path(os.environ["FALLEN"]).exists():
        raise NVMLError("GPU is lost")
    return uuid

nvmlInit = nvmlShutdown = lambda: None
nvmlDeviceGetCount = lambda: 2
nvmlDeviceGetHandleByIndex = lambda index: _answer(("GPU-a", "GPU-b")[index])
nvmlDeviceGetHandleByUUID = nvmlDeviceGetUUID = _answer
nvmlDeviceGetName = lambda handle: "NVIDIA H200"
nvmlDeviceGetPciInfo = lambda handle: SimpleNamespace(busId="00000000:01:00.0")
nvmlDeviceGetMemoryInfo = lambda handle: SimpleNamespace(used=0)
"""

NIGHT = """
import os
from pathlib import Path
from tuner.errors import HostError
from tuner.hosts.cluster import Cluster

def falls(payload, slot, folder, note):
    Path(os.environ["FALLEN"]).touch()
    return "the record"

def refusal(ask):
    try:
        ask()
    except HostError as error:
        print(error)

refusal(lambda: Cluster(8))
with Cluster(2) as cluster:
    cluster.submit(falls, None, gpus=2, folder=Path.cwd() / "files")
    while not (events := cluster.poll(1.0)):
        pass
    print(events[0].result)
    refusal(lambda: cluster.submit(falls, None, gpus=2, folder=Path.cwd()))
"""


def host(info: HostInfo, **changes: Any) -> Host:
    return Host(node=info.name, agent=None, info=info, local=True, **changes)


def test_a_head_node_without_gpus_is_no_host_where_another_has_some() -> None:
    head, node = host(HEAD), host(REAL)
    assert fitting([], [head, node]) == [node]


def test_without_any_gpu_the_declared_ones_count() -> None:
    head = host(HEAD)
    assert fitting([], [head]) == [head]


def test_declared_gpus_never_take_the_place_of_real_ones() -> None:
    with pytest.raises(HostError, match="the GPUs are gone"):
        fitting([REAL], [host(HEAD)])


def test_a_host_says_why_it_has_fewer_gpus() -> None:
    assert host(REAL).words() == "2"
    assert host(REAL, quarantined={"GPU-c": "of another host"}).words() == "2"
    lost = host(REAL, quarantined={"GPU-b": "GPU is lost"})
    assert lost.words() == "1 (GPU-b is in quarantine: GPU is lost)"


def test_a_gpu_that_falls_off_the_bus_takes_no_result_with_it(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text(NVML)
    (tmp_path / "night.py").write_text(NIGHT)
    paths = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "FALLEN": str(tmp_path / "fallen")}
    night = subprocess.run(
        [sys.executable, "night.py"],
        cwd=tmp_path,
        env={**os.environ, **paths},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert night.returncode == 0, night.stderr
    few, correct, record, *refused = night.stdout.splitlines()
    assert few.endswith(" has 2 GPUs, the study says 8")
    assert correct == "  correct hardware.gpus in the study"
    assert record == "the record"
    assert refused[0] == (
        "2 GPUs are asked for, the largest host has 1 "
        "(GPU-b is in quarantine: NVML says: GPU is lost)"
    )
