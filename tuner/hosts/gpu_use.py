"""What GPUs do while somebody computes on them: one look after another, as NVML tells.

Nothing here changes anything, and what a driver or a GPU does not say is None. It imports little:
it is read beside a load.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pynvml

from tuner.hosts import processes

_REASONS = {
    "power_cap": "nvmlClocksThrottleReasonSwPowerCap",
    "sw_thermal": "nvmlClocksThrottleReasonSwThermalSlowdown",
    "hw_thermal": "nvmlClocksThrottleReasonHwThermalSlowdown",
    "power_brake": "nvmlClocksThrottleReasonHwPowerBrakeSlowdown",
    "hw_slowdown": "nvmlClocksThrottleReasonHwSlowdown",
}
_DEVICES, _AMD_DEVICE = "nvidia[0-9]*", "kfd"
_NO_GPU = "no NVIDIA GPU: power not observed"
_AMD = "an AMD GPU: power not observed"


class GpuLook(NamedTuple):
    """One GPU at one moment. `energy_j` counts since the driver was loaded."""

    power_w: float | None
    energy_j: float | None
    clock_mhz: float | None
    throttled: list[str]
    temperature_c: float | None
    memory_mb: float | None
    utilisation: float | None


class GpuWatch:
    """Looks at GPUs, by UUID, for as long as it is open; `problem` says why it sees none."""

    def __init__(self, uuids: Sequence[str]) -> None:
        self.problem = ""
        self._handles: list[Any] = []
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            self.problem = _why_none(error)
            return
        try:
            self._handles = [pynvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids]
        except pynvml.NVMLError as error:
            self.problem = f"NVML says: {error}: GPUs not observed"

    def look(self) -> list[GpuLook]:
        """Each GPU now."""
        return [_look(handle) for handle in self._handles]

    def computing(self) -> set[int]:
        """Processes that have a compute context on one of the GPUs, by the driver's numbers."""
        asked = pynvml.nvmlDeviceGetComputeRunningProcesses
        return {each.pid for handle in self._handles for each in _asked(asked, handle) or ()}

    def close(self) -> None:
        """Let go of the driver."""
        self._handles = []
        _asked(pynvml.nvmlShutdown)


def used_by(pids: Collection[int]) -> tuple[str, ...]:
    """The UUIDs of the GPUs on which one of these processes computes; none without a driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        handles = [
            pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())
        ]
        asked = pynvml.nvmlDeviceGetComputeRunningProcesses
        used = [h for h in handles if {each.pid for each in _asked(asked, h) or ()} & set(pids)]
        return tuple(_text(pynvml.nvmlDeviceGetUUID(handle)) for handle in used)
    except pynvml.NVMLError:
        return ()
    finally:
        _asked(pynvml.nvmlShutdown)


def foreign(computing: Collection[int], own: Collection[int]) -> set[int]:
    """Of the processes that compute on GPUs those that are not `own`.

    In a container a driver may tell the host's numbers, which mean nothing here or, worse, another
    process: only one that can be seen, and that may have a GPU open, is called foreign.
    """
    strangers = set(computing) - set(own)
    return {pid for pid in strangers if processes.read(pid) and _may_use_gpu(pid)}


def _may_use_gpu(pid: int) -> bool:
    try:
        files = list((processes.PROC / str(pid) / "fd").iterdir())
    except OSError:  # not ours to read
        return True
    return any("/dev/nvidia" in _target(file) for file in files)


def _target(file: Path) -> str:
    with suppress(OSError):  # closed meanwhile
        return str(file.readlink())
    return ""


def _look(handle: Any) -> GpuLook:
    memory = _asked(pynvml.nvmlDeviceGetMemoryInfo, handle)
    rates = _asked(pynvml.nvmlDeviceGetUtilizationRates, handle)
    reasons = _asked(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle) or 0
    return GpuLook(
        power_w=_thousandth(_asked(pynvml.nvmlDeviceGetPowerUsage, handle)),
        energy_j=_thousandth(_asked(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle)),
        clock_mhz=_asked(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
        throttled=[said for said, name in _REASONS.items() if reasons & getattr(pynvml, name)],
        temperature_c=_asked(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        memory_mb=None if memory is None else memory.used / 1e6,
        utilisation=None if rates is None else rates.gpu / 100,
    )


def _why_none(error: pynvml.NVMLError) -> str:
    if any(Path("/dev").glob(_DEVICES)):
        return f"NVML says: {error}: GPUs not observed"
    return _AMD if Path("/dev", _AMD_DEVICE).exists() else _NO_GPU


def _thousandth(value: float | None) -> float | None:
    return None if value is None else value / 1000


def _asked(function: Callable[..., Any], *words: Any) -> Any:
    """What the driver says, None where it or this GPU does not know."""
    with suppress(pynvml.NVMLError, AttributeError):  # an old driver's library lacks new names
        return function(*words)
    return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
