"""How each GPU of this machine is before a night: who is on it, its clocks, power, memory errors.

What a driver or a GPU does not say is None; nothing here changes anything.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml

from tuner.frozen import Frozen
from tuner.hosts import processes

_DEVICES = "nvidia[0-9]*"
_NO_LIBRARY = "the driver's library (libnvidia-ml.so) is not there"
_THROTTLES = {
    "it is too hot": "nvmlClocksThrottleReasonHwThermalSlowdown",
    "it is hot": "nvmlClocksThrottleReasonSwThermalSlowdown",
    "its power supply brakes it": "nvmlClocksThrottleReasonHwPowerBrakeSlowdown",
    "the hardware slows it down": "nvmlClocksThrottleReasonHwSlowdown",
}


class GpuProcess(Frozen):
    """A process that has memory or work on a GPU; the number is the host's own."""

    pid: int
    command: str
    memory_gb: float | None


class GpuState(Frozen):
    """One GPU at this moment; `problem` where it does not answer."""

    index: int
    uuid: str
    model: str
    problem: str = ""
    memory_gb: float = 0.0
    used_gb: float = 0.0
    temperature_c: int | None = None
    slowdown_c: int | None = None
    power_limit_w: float | None = None
    power_default_w: float | None = None
    clock_mhz: int | None = None
    clock_default_mhz: int | None = None
    throttled: list[str] = []
    ecc: bool | None = None
    ecc_errors: int | None = None
    rows_to_remap: bool | None = None
    mig: bool | None = None
    processes: list[GpuProcess] = []


class Gpus(Frozen):
    """All GPUs by number; `cuda` is the newest CUDA that the driver can run, as (major, minor).

    `problem` says why there are none although the machine has some.
    """

    driver: str | None = None
    cuda: tuple[int, int] | None = None
    found: list[GpuState] = []
    problem: str = ""


def gpus_now() -> Gpus:
    """Ask the driver for everything."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Gpus(problem=_why_none(error))
    try:
        cuda = _asked(pynvml.nvmlSystemGetCudaDriverVersion_v2)
        return Gpus(
            driver=_text(_asked(pynvml.nvmlSystemGetDriverVersion)),
            cuda=None if cuda is None else (cuda // 1000, cuda % 1000 // 10),
            found=[_state(index) for index in range(pynvml.nvmlDeviceGetCount())],
        )
    except pynvml.NVMLError as error:
        return Gpus(problem=f"NVML says: {error}")
    finally:
        _asked(pynvml.nvmlShutdown)


def _why_none(error: pynvml.NVMLError) -> str:
    """Empty where the machine has no GPU at all."""
    if not any(Path("/dev").glob(_DEVICES)):
        return ""
    missing = error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
    return _NO_LIBRARY if missing else f"NVML says: {error}"


def _state(index: int) -> GpuState:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        uuid, model = pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetName(handle)
    except pynvml.NVMLError as error:
        return GpuState(index=index, uuid="", model="", problem=f"NVML says: {error}")
    remapped = _asked(pynvml.nvmlDeviceGetRemappedRows, handle)
    mig = _asked(pynvml.nvmlDeviceGetMigMode, handle)
    ecc = _asked(pynvml.nvmlDeviceGetEccMode, handle)
    return GpuState(
        index=index,
        uuid=_text(uuid) or "",
        model=_text(model) or "",
        memory_gb=memory.total / 1e9,
        used_gb=memory.used / 1e9,
        temperature_c=_asked(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        slowdown_c=_asked(
            pynvml.nvmlDeviceGetTemperatureThreshold,
            handle,
            pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN,
        ),
        power_limit_w=_watts(pynvml.nvmlDeviceGetPowerManagementLimit, handle),
        power_default_w=_watts(pynvml.nvmlDeviceGetPowerManagementDefaultLimit, handle),
        clock_mhz=_asked(pynvml.nvmlDeviceGetApplicationsClock, handle, pynvml.NVML_CLOCK_SM),
        clock_default_mhz=_asked(
            pynvml.nvmlDeviceGetDefaultApplicationsClock, handle, pynvml.NVML_CLOCK_SM
        ),
        throttled=_throttled(handle),
        ecc=None if ecc is None else bool(ecc[0]),
        ecc_errors=_asked(
            pynvml.nvmlDeviceGetTotalEccErrors,
            handle,
            pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            pynvml.NVML_VOLATILE_ECC,
        ),
        rows_to_remap=None if remapped is None else bool(remapped[2] or remapped[3]),
        mig=None if mig is None else bool(mig[0]),
        processes=_processes(handle),
    )


def _throttled(handle: Any) -> list[str]:
    reasons = _asked(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle) or 0
    return [said for said, name in _THROTTLES.items() if reasons & getattr(pynvml, name)]


def _processes(handle: Any) -> list[GpuProcess]:
    found: dict[int, GpuProcess] = {}
    for kind in (
        pynvml.nvmlDeviceGetComputeRunningProcesses,
        pynvml.nvmlDeviceGetGraphicsRunningProcesses,
    ):
        for process in _asked(kind, handle) or ():
            memory = process.usedGpuMemory
            found[process.pid] = GpuProcess(
                pid=process.pid,
                command=processes.command_line(process.pid)[:120],
                memory_gb=None if memory is None else memory / 1e9,
            )
    return sorted(found.values(), key=lambda each: each.pid)


def _watts(function: Callable[..., Any], handle: Any) -> float | None:
    milliwatts = _asked(function, handle)
    return None if milliwatts is None else milliwatts / 1000


def _asked(function: Callable[..., Any], *words: Any) -> Any:
    """What the driver says, None where it or this GPU does not know."""
    try:
        return function(*words)
    except (pynvml.NVMLError, AttributeError):  # a driver older than the question lacks its name
        return None


def _text(value: str | bytes | None) -> str | None:
    return value.decode() if isinstance(value, bytes) else value
