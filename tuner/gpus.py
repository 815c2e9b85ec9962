"""The GPUs of this machine as NVML shows them; only user of NVML for finding and draining."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pynvml


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundGpu:
    """One GPU in PCI order; `numa` is None where the kernel does not say."""

    uuid: str
    model: str
    numa: int | None


def find_gpus() -> tuple[FoundGpu, ...]:
    """All GPUs in PCI order; none where there is no driver."""
    with _nvml() as available:
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


def used_memory_gb(uuids: tuple[str, ...]) -> tuple[float, ...]:
    """Memory in use on each GPU, by whomever."""
    with _nvml() as available:
        if not available:
            return ()
        return tuple(
            pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByUUID(uuid)).used / 1e9
            for uuid in uuids
        )


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
        pynvml.nvmlShutdown()


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
