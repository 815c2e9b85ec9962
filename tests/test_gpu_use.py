"""What NVML says of GPUs at work becomes a look; what it does not know is None."""

import os
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from tuner.hosts import gpu_use, processes
from tuner.hosts.gpu_use import GpuLook, GpuWatch, foreign, used_by


def refused(*_: Any) -> Any:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def on(gpu: str) -> list[SimpleNamespace]:
    return [SimpleNamespace(pid=os.getpid() if gpu == "GPU-b" else 1, usedGpuMemory=1)]


ANSWERS: dict[str, Any] = {
    "nvmlInit": lambda: None,
    "nvmlShutdown": lambda: None,
    "nvmlDeviceGetCount": lambda: 2,
    "nvmlDeviceGetHandleByIndex": lambda index: ["GPU-a", "GPU-b"][index],
    "nvmlDeviceGetHandleByUUID": lambda uuid: uuid,
    "nvmlDeviceGetUUID": lambda gpu: gpu.encode(),
    "nvmlDeviceGetPowerUsage": lambda _: 350_500,
    "nvmlDeviceGetTotalEnergyConsumption": lambda _: 12_000_500,
    "nvmlDeviceGetClockInfo": lambda _, kind: 1980 if kind == pynvml.NVML_CLOCK_SM else 0,
    "nvmlDeviceGetTemperature": lambda *_: 61,
    "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(used=70_000_000_000),
    "nvmlDeviceGetUtilizationRates": lambda _: SimpleNamespace(gpu=97),
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _: (
        pynvml.nvmlClocksThrottleReasonSwPowerCap
        | pynvml.nvmlClocksThrottleReasonHwThermalSlowdown
        | pynvml.nvmlClocksThrottleReasonGpuIdle
    ),
    "nvmlDeviceGetComputeRunningProcesses": on,
}


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name, answer in ANSWERS.items():
        monkeypatch.setattr(pynvml, name, answer)
    return monkeypatch


@pytest.mark.usefixtures("answers")
def test_a_gpu_at_work_is_read() -> None:
    watch = GpuWatch(["GPU-a", "GPU-b"])
    look = GpuLook(350.5, 12_000.5, 1980, ["power_cap", "hw_thermal"], 61, 70_000.0, 0.97)
    assert (watch.problem, watch.look()) == ("", [look, look])
    assert watch.computing() == {1, os.getpid()}
    watch.close()
    assert watch.look() == []


def test_what_a_gpu_does_not_know_is_none(answers: pytest.MonkeyPatch) -> None:
    for name in ANSWERS:
        if name not in ("nvmlInit", "nvmlShutdown", "nvmlDeviceGetHandleByUUID"):
            answers.setattr(pynvml, name, refused)
    assert GpuWatch(["GPU-a"]).look() == [GpuLook(None, None, None, [], None, None, None)]


@pytest.mark.usefixtures("answers")
def test_gpus_are_found_by_who_computes_on_them() -> None:
    assert used_by([os.getpid()]) == ("GPU-b",)
    assert used_by([os.getpid(), 1]) == ("GPU-a", "GPU-b")
    assert used_by([]) == ()


@pytest.mark.parametrize(
    ("devices", "amd", "said"),
    [
        (False, False, "no NVIDIA GPU: power not observed"),
        (False, True, "an AMD GPU: power not observed"),
        (True, False, "NVML says: Driver Not Loaded: GPUs not observed"),
    ],
)
def test_a_machine_without_a_driver_says_so_in_words(
    answers: pytest.MonkeyPatch, devices: bool, amd: bool, said: str
) -> None:
    def no_driver() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)

    answers.setattr(pynvml, "nvmlInit", no_driver)
    answers.setattr(gpu_use, "_DEVICES", "null" if devices else "no-such-device")
    answers.setattr(gpu_use, "_AMD_DEVICE", "null" if amd else "no-such-device")
    watch = GpuWatch(["GPU-a"])
    assert (watch.problem, watch.look(), watch.computing()) == (said, [], set())
    assert used_by([1]) == ()


def test_a_gpu_that_is_not_there_is_said(answers: pytest.MonkeyPatch) -> None:
    answers.setattr(pynvml, "nvmlDeviceGetHandleByUUID", refused)
    assert GpuWatch(["0"]).problem == "NVML says: Not Supported: GPUs not observed"


def test_only_what_is_seen_and_may_have_a_gpu_open_is_foreign(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    me, nobody = os.getpid(), 4_194_305  # above the highest number that Linux gives
    assert foreign({me, nobody}, ()) == set()
    monkeypatch.setattr(gpu_use, "_may_use_gpu", lambda pid: True)
    assert foreign({me, nobody}, ()) == {me}
    assert foreign({me, nobody}, {me}) == set()


def test_who_has_a_device_open_may_compute_on_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(processes, "PROC", tmp_path)
    for pid, target in ((1, "/dev/nvidia0"), (2, "/dev/null")):
        (tmp_path / str(pid) / "fd").mkdir(parents=True)
        (tmp_path / str(pid) / "fd" / "3").symlink_to(target)
    assert gpu_use._may_use_gpu(1)
    assert not gpu_use._may_use_gpu(2)
    assert gpu_use._may_use_gpu(3)  # nobody may look


@pytest.mark.gpu
def test_real_gpus_are_watched() -> None:
    from tuner.hosts.gpus import find_gpus

    uuids = [gpu.uuid for gpu in find_gpus()]
    if not uuids:
        pytest.skip("no GPU here")
    watch = GpuWatch(uuids)
    assert watch.problem == ""
    for look in watch.look():
        assert (look.power_w or 0) > 10
        assert (look.clock_mhz or 0) > 100
        assert look.memory_mb is not None
    watch.close()
