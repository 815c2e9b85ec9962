"""The spaces and objectives that come with the tuner, and those of the tree around a study."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tuner.starting.pasted import EngineName

SHIPPED = Path(__file__).parent / "shipped"

Kind = Literal["search_spaces", "objectives"]

_CPU = "vllm-cpu.yaml"
_SPACES: Mapping[EngineName, str] = {"sglang": "sglang-moe.yaml", "vllm": "vllm.yaml"}
_OBJECTIVE = "throughput-1-10-256-1024.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A file that a study refers to: where it is, and whether the study gets a copy of it."""

    path: Path
    copied: bool
    copy_name: str

    def reference(self, folder: Path) -> str:
        """What the study in that folder says."""
        return self.copy_name if self.copied else os.path.relpath(self.path, folder)


def space_for(engine: EngineName, folder: Path, *, cpu: bool) -> Definition:
    """The space that fits an engine, for a study in that folder."""
    name = _CPU if engine == "vllm" and cpu else _SPACES[engine]
    return _definition("search_spaces", name, folder, "space.yaml")


def objective_for(engine: EngineName, folder: Path, *, cpu: bool) -> Definition:
    """The objective to begin with, for a study in that folder."""
    name = _CPU if engine == "vllm" and cpu else _OBJECTIVE
    return _definition("objectives", name, folder, "objective.yaml")


def named(path: Path) -> Definition:
    """A file that a person named; the study refers to it where it is."""
    return Definition(path=path.absolute(), copied=False, copy_name="")


def _definition(kind: Kind, name: str, folder: Path, copy_name: str) -> Definition:
    """The file of a tree around the folder where there is one, else the shipped one, copied."""
    for parent in folder.absolute().parents:
        if (parent / kind / name).is_file():
            return Definition(path=parent / kind / name, copied=False, copy_name=copy_name)
    return Definition(path=SHIPPED / kind / name, copied=True, copy_name=copy_name)
