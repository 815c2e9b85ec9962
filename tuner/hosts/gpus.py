"""The GPUs of this machine as NVML shows them; only user of NVML for finding and draining."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pynvml

from tuner.errors import HostError


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundGpu:
    """One GPU in PCI order; `numa` is None where the kernel does not say."""

    uuid: str
    model: str
    numa: int | None


def find_gpus() -> tuple[FoundGpu, ...]:
    """All GPUs in PCI order; none where there is no driver.

    Raises HostError where there is a driver and a GPU does not answer it.
    """
    with _nvml() as available, _translated():
        if not available:
            return ()
        handles = [
            pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())
        ]
        found = [(_bus(handle), handle) for handle in handles]
        return tuple(
            FoundGpu(
                uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
                model=_text(pynvml.nvmlDeviceGetName(handle)),
                numa=_numa(bus),
            )
            for bus, handle in sorted(found, key=lambda pair: pair[0])
        )


def used_memory_gb(uuids: tuple[str, ...]) -> tuple[dict[str, float], dict[str, str]]:
    """Memory in use on each GPU, by whomever, and why the others cannot be read."""
    used: dict[str, float] = {}
    unreadable: dict[str, str] = {}
    with _nvml() as available:
        if not available:
            return {}, dict.fromkeys(uuids, "the driver is gone")
        for uuid in uuids:
            try:
                used[uuid] = _used_gb(uuid)
            except HostError as error:
                unreadable[uuid] = error.message
    return used, unreadable


def _used_gb(uuid: str) -> float:
    with _translated():
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        return float(pynvml.nvmlDeviceGetMemoryInfo(handle).used / 1e9)


@contextmanager
def _nvml() -> Iterator[bool]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield False
        return
    try:
        yield True
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


@contextmanager
def _translated() -> Iterator[None]:
    """The one place where NVML's errors become the tuner's."""
    try:
        yield
    except pynvml.NVMLError as error:
        raise HostError(
            f"NVML says: {error}", hint="nvidia-smi and the kernel's log on that host say more"
        ) from error


def _bus(handle: object) -> str:
    # NVML writes the PCI domain with eight digits, the kernel with four.
    return _text(pynvml.nvmlDeviceGetPciInfo(handle).busId).lower()[-12:]


def _numa(bus: str) -> int | None:
    with suppress(OSError, ValueError):
        node = int(Path(f"/sys/bus/pci/devices/{bus}/numa_node").read_text())
        return node if node >= 0 else None
    return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
