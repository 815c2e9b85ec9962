"""A host in few words."""

from pathlib import Path

import pytest

from tuner.hosts import hardware
from tuner.hosts.gpus import FoundGpu


def test_gpus_name_a_host_and_without_them_its_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert hardware.hardware_words(["H200", "H200", "none"], ["x"]) == "H200"
    assert hardware.hardware_words(["none"], ["y", "x"]) == "x + y"
    monkeypatch.setattr(hardware, "find_gpus", lambda: (FoundGpu(uuid="u", model="B", numa=None),))
    assert hardware.hardware_here() == "B"
    monkeypatch.setattr(hardware, "find_gpus", lambda: ())
    assert hardware.hardware_here() == hardware.cpu_model()


def test_the_cpu_is_the_kernels_word() -> None:
    said = hardware.cpu_model()
    assert said == "unknown" or said in Path("/proc/cpuinfo").read_text()
