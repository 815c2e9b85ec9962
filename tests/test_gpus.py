from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from tuner.errors import HostError
from tuner.hosts import gpus


@pytest.fixture
def fallen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver with two GPUs, the second of which has fallen off the bus."""

    def handle(uuid: Any) -> Any:
        if uuid in (1, "GPU-b"):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return uuid

    answers = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": handle,
        "nvmlDeviceGetHandleByUUID": handle,
        "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(used=2_000_000_000),
    }
    for name, answer in answers.items():
        monkeypatch.setattr(pynvml, name, answer)


def test_a_machine_without_a_driver_has_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", no_driver)
    assert gpus.find_gpus() == ()
    assert gpus.used_memory_gb(("GPU-a",)) == ({}, {"GPU-a": "the driver is gone"})


def test_a_gpu_that_fell_off_the_bus_does_not_hide_the_others(fallen: None) -> None:
    used, unreadable = gpus.used_memory_gb(("GPU-a", "GPU-b"))
    assert used == {"GPU-a": 2.0}
    assert unreadable == {"GPU-b": "NVML says: GPU is lost"}


def test_finding_a_gpu_that_does_not_answer_is_a_host_error(fallen: None) -> None:
    with pytest.raises(HostError, match="NVML says: GPU is lost"):
        gpus.find_gpus()


@pytest.mark.gpu
def test_gpus_are_found_by_uuid_with_their_memory() -> None:
    found = gpus.find_gpus()
    if not found:
        pytest.skip("no GPU here")
    assert all(gpu.uuid.startswith("GPU-") for gpu in found)
    used, unreadable = gpus.used_memory_gb(tuple(gpu.uuid for gpu in found))
    assert all(gb > 0 for gb in used.values())
    assert not unreadable
