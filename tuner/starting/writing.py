"""A study as a person would write it: in order, with comments, in one file. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.definitions.models import Value
from tuner.definitions.yaml_writer import write
from tuner.starting.placing import Placed

_LINE = 88
HOURS = 8
"""The budget that a new study gets: a night."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """All that a study says; `origin` is what it was made from, `left_out` what of it has no
    place, `added` what the baseline's launch says beyond it."""

    origin: str
    engine: Mapping[str, Any]
    model: str
    placed: Placed
    serve: Mapping[str, Any]
    space: str
    objective: str
    gpus: int
    left_out: Sequence[str]
    added: Sequence[str]


def study_text(draft: Draft) -> str:
    """The text of study.yaml."""
    return "\n".join(line.rstrip() for line in _lines(draft)) + "\n"


def _lines(draft: Draft) -> Iterator[str]:
    yield f"# Made from {draft.origin}: the baseline is that launch{_but(draft.added)}."
    yield "engine:"
    for key, value in draft.engine.items():
        flow = _flow(value) if key == "command" else None
        if flow is not None:
            yield f"  command: {flow}"
        else:
            yield from (f"  {line}" for line in _block({key: value}))
    yield from _block({"model": draft.model})
    yield from _fixed(draft.placed)
    if draft.serve:
        yield ""
        yield "# Where an exported command listens; the tuner's launches do not."
        yield from _block({"serve": draft.serve})
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


def _but(added: Sequence[str]) -> str:
    return f" with the space's {', '.join(added)}" if added else ""


def _flow(words: Sequence[str]) -> str | None:
    """A short list on one line."""
    line = f"[{', '.join(write([word]).strip().removeprefix('- ') for word in words)}]"
    return line if len(line) <= _LINE else None


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
    left = " (null: left to the engine)" if None in placed.baseline.values() else ""
    yield f"# What the search starts from{left}."
    yield "baseline:"
    yield from _entries(placed.baseline, {}, indent=2)


def _entries(values: Mapping[str, Value], why: Mapping[str, str], indent: int = 4) -> Iterator[str]:
    for name, value in values.items():
        line = " " * indent + write({name: value}).rstrip("\n")
        yield f"{line}   # {why[name]}" if name in why else line


def _block(value: Mapping[str, Any]) -> Iterator[str]:
    yield from write(value).rstrip("\n").split("\n")
