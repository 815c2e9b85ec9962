"""What NVML says becomes a value; what it does not know is None, and a lost GPU hides no other."""

from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from tuner.hosts import gpu_health
from tuner.hosts.gpu_health import Gpus, gpus_now


def refused(*_: Any) -> Any:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def process(pid: int, memory: int | None) -> SimpleNamespace:
    return SimpleNamespace(pid=pid, usedGpuMemory=memory)


ANSWERS: dict[str, Any] = {
    "nvmlInit": lambda: None,
    "nvmlShutdown": lambda: None,
    "nvmlSystemGetDriverVersion": lambda: "570.86.15",
    "nvmlSystemGetCudaDriverVersion_v2": lambda: 12080,
    "nvmlDeviceGetCount": lambda: 1,
    "nvmlDeviceGetHandleByIndex": lambda index: index,
    "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(used=600_000_000, total=150_000_000_000),
    "nvmlDeviceGetUUID": lambda _: "GPU-a",
    "nvmlDeviceGetName": lambda _: b"NVIDIA H200",
    "nvmlDeviceGetRemappedRows": lambda _: (0, 0, 1, 0),
    "nvmlDeviceGetMigMode": lambda _: (0, 0),
    "nvmlDeviceGetEccMode": lambda _: (1, 1),
    "nvmlDeviceGetTemperature": lambda *_: 31,
    "nvmlDeviceGetTemperatureThreshold": lambda *_: 89,
    "nvmlDeviceGetPowerManagementLimit": lambda _: 500_000,
    "nvmlDeviceGetPowerManagementDefaultLimit": lambda _: 700_000,
    "nvmlDeviceGetApplicationsClock": refused,
    "nvmlDeviceGetDefaultApplicationsClock": refused,
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _: (
        pynvml.nvmlClocksThrottleReasonHwThermalSlowdown | pynvml.nvmlClocksThrottleReasonSwPowerCap
    ),
    "nvmlDeviceGetTotalEccErrors": lambda *_: 2,
    "nvmlDeviceGetComputeRunningProcesses": lambda _: [process(1, 2_000_000_000)],
    "nvmlDeviceGetGraphicsRunningProcesses": lambda _: [process(2, None)],
}


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name, answer in ANSWERS.items():
        monkeypatch.setattr(pynvml, name, answer)
    return monkeypatch


def test_what_the_driver_says_is_read(answers: pytest.MonkeyPatch) -> None:
    found = gpus_now()
    assert (found.driver, found.cuda, found.problem) == ("570.86.15", (12, 8), "")
    (gpu,) = found.found
    assert (gpu.index, gpu.uuid, gpu.model, gpu.problem) == (0, "GPU-a", "NVIDIA H200", "")
    assert (gpu.memory_gb, gpu.used_gb) == (150.0, 0.6)
    assert (gpu.temperature_c, gpu.slowdown_c) == (31, 89)
    assert (gpu.power_limit_w, gpu.power_default_w) == (500.0, 700.0)
    assert (gpu.clock_mhz, gpu.clock_default_mhz) == (None, None)
    assert gpu.throttled == ["it is too hot"]
    assert (gpu.ecc, gpu.ecc_errors, gpu.rows_to_remap, gpu.mig) == (True, 2, True, False)
    assert [(each.pid, each.memory_gb) for each in gpu.processes] == [(1, 2.0), (2, None)]


def test_a_gpu_that_fell_off_the_bus_does_not_hide_the_others(answers: pytest.MonkeyPatch) -> None:
    def handle(index: int) -> int:
        if index == 0:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return index

    answers.setattr(pynvml, "nvmlDeviceGetCount", lambda: 2)
    answers.setattr(pynvml, "nvmlDeviceGetHandleByIndex", handle)
    lost, well = gpus_now().found
    assert (lost.index, lost.problem) == (0, "NVML says: GPU is lost")
    assert (well.index, well.problem) == (1, "")


@pytest.mark.parametrize(
    ("devices", "error", "said"),
    [
        (False, pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, ""),
        (
            *(True, pynvml.NVML_ERROR_LIBRARY_NOT_FOUND),
            "the driver's library (libnvidia-ml.so) is not there",
        ),
        (
            *(True, pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH),
            "NVML says: RM has detected an NVML/RM version mismatch.",
        ),
    ],
)
def test_no_driver_is_a_fault_where_there_are_devices(
    monkeypatch: pytest.MonkeyPatch, devices: bool, error: int, said: str
) -> None:
    def no_driver() -> None:
        raise pynvml.NVMLError(error)

    monkeypatch.setattr(pynvml, "nvmlInit", no_driver)
    monkeypatch.setattr(gpu_health, "_DEVICES", "null" if devices else "no-such-device")
    assert gpus_now() == Gpus(problem=said)


@pytest.mark.gpu
def test_real_gpus_say_what_they_are() -> None:
    found = gpus_now()
    if not found.found:
        pytest.skip("no GPU here")
    assert all(gpu.memory_gb > 1 and gpu.uuid.startswith("GPU-") for gpu in found.found)
    assert found.driver
