"""What a host is, in few words: the models of its GPUs, or of its CPU where it has none."""

from collections.abc import Iterable
from pathlib import Path

from tuner.hosts.gpus import find_gpus

NONE = "none"
"""What a host without GPUs says of their model."""


def hardware_here() -> str:
    """This machine's. Raises HostError where a GPU does not answer its driver."""
    return hardware_words((gpu.model for gpu in find_gpus()), [cpu_model()])


def hardware_words(gpu_models: Iterable[str], cpu_models: Iterable[str]) -> str:
    """That of some hosts together."""
    models = {model for model in gpu_models if model != NONE} or set(cpu_models)
    return " + ".join(sorted(models))


def cpu_model() -> str:
    """The CPU's name as the kernel has it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return "unknown"
