"""A study as a person would write it: in order, with comments, in one file. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.definitions.models import EngineDefinition, Value
from tuner.definitions.yaml_writer import write
from tuner.starting.placing import Placed

HOURS = 8
"""The budget that a new study gets: a night."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """All that a study says; `origin` is what it was made from, `left_out` what has no place."""

    origin: str
    engine: Mapping[str, Any]
    model: str
    placed: Placed
    space: str
    objective: str
    gpus: int
    left_out: Sequence[str]


def study_text(draft: Draft) -> str:
    """The text of study.yaml."""
    return "\n".join(line.rstrip() for line in _lines(draft)) + "\n"


def _lines(draft: Draft) -> Iterator[str]:
    yield f"# Made from {draft.origin}. The baseline is that launch, unchanged."
    yield from _block({"engine": dict(draft.engine)})
    yield from _block({"model": draft.model})
    yield from _fixed(draft.placed)
    yield ""
    yield from _block({"space": draft.space, "objective": draft.objective})
    yield from _baseline(draft.placed)
    yield ""
    yield from _block({"hardware": {"gpus": draft.gpus}})
    yield ""
    yield from _block({"budget": {"hours": HOURS}})
    if draft.placed.secrets:
        yield ""
        yield f"# Set before a run: {', '.join(draft.placed.secrets)}"
    if draft.left_out:
        yield ""
        yield "# Not in this study:"
        yield from (f"# - {' '.join(text.split())}" for text in draft.left_out)


def _fixed(placed: Placed) -> Iterator[str]:
    if not placed.flags and not placed.env:
        return
    yield ""
    yield "# What every launch gets."
    yield "fixed:"
    for kind, values in (("flags", placed.flags), ("env", placed.env)):
        if values:
            yield f"  {kind}:"
            yield from _entries(values, placed.why)


def _baseline(placed: Placed) -> Iterator[str]:
    yield ""
    if not placed.baseline:
        yield "# The baseline sets nothing that the space searches."
        return
    yield "# What the search starts from."
    yield "baseline:"
    yield from _entries(placed.baseline, {}, indent=2)


def _entries(
    values: Mapping[str, Value], why: Mapping[str, str], indent: int = 4
) -> Iterator[str]:
    for name, value in values.items():
        line = " " * indent + write({name: value}).rstrip("\n")
        yield f"{line}   # {why[name]}" if name in why else line


def _block(value: Mapping[str, Any]) -> Iterator[str]:
    yield from write(value).rstrip("\n").split("\n")
