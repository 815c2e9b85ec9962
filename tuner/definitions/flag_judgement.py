"""What a version of an engine says to a flag, in words. Pure."""

from collections.abc import Mapping
from typing import Literal

from tuner.definitions.domain import show
from tuner.definitions.nearest import did_you_mean, nearest
from tuner.flags.aliases import one_name
from tuner.flags.catalogue import VARIABLES, Catalogue, Flag, Kind
from tuner.flags.names import Value, canonical
from tuner.flags.renamed import renamed
from tuner.frozen import Frozen

_SHOWN_CHOICES = 40
_TAKES: Mapping[Kind, str] = {
    "presence": "stands alone",
    "negatable": "stands alone, or as --no-...",
    "bool": "takes true or false",
    "value": "takes a value",
    "list": "takes values",
}
_BOOL_AS: Mapping[str, tuple[Kind, ...]] = {
    "presence": ("presence", "negatable", "optional"),
    "negation": ("negatable",),
    "value": ("bool", "value", "optional", "list"),
}
"""The kinds of flag that each style of bool suits."""
_BOOL_SAID: Mapping[str, str] = {
    "presence": "stands alone here",
    "negation": "is negated as --no-... here",
    "value": "is given true or false",
}


class Judgement(Frozen):
    """What a version says to a flag, in words; one that does not stop a launch is a note."""

    kind: Literal["unknown", "abbreviation", "renamed", "deprecated", "choice", "form"]
    message: str
    hint: str = ""

    @property
    def stops(self) -> bool:
        """Whether a launch with this flag would die of it."""
        return self.kind != "deprecated"


def judge_name(catalogue: Catalogue, name: str) -> Judgement | None:
    """What the version says to a flag of this name; None where it has it and means to keep it."""
    flag = catalogue.find(name)
    if flag is None or _is_cut_short(catalogue, flag, name):
        return _unknown(catalogue, canonical(name))
    return None if flag.deprecated is None else _deprecated(catalogue, flag)


def judge_value(
    catalogue: Catalogue, name: str, value: Value, style: str = "presence"
) -> Judgement | None:
    """What the version says to a value of a flag that it has, None where that is taken.

    `style` is how a bool is spelt; null leaves the flag out, and nothing is said of a key inside
    a flag's JSON.
    """
    flag = catalogue.find(name)
    if flag is None or value is None or "." in name:
        return None
    if isinstance(value, bool):
        if (style == "presence" and not value) or flag.kind in _BOOL_AS[style]:
            return None
        return _form(flag, _BOOL_SAID[style])
    if flag.kind in ("presence", "negatable"):
        return _form(flag, f"is given {show(value)}")
    return _choice(flag, value)


def judge_variable(catalogue: Catalogue, name: str) -> str | None:
    """A sentence where an engine's own variable is read by nothing in this version."""
    own = next((p for p in VARIABLES.get(catalogue.engine, ()) if name.startswith(p)), None)
    if catalogue.variables is None or own is None or name in catalogue.variables:
        return None
    ends = [known.removeprefix(own) for known in catalogue.variables]  # all are alike in the rest
    near = nearest(name.removeprefix(own), ends)
    meant = f" (did you mean '{own}{near}'?)" if near else ""
    return f"{name}: read by nothing in {catalogue.title}{meant}"


def _is_cut_short(catalogue: Catalogue, flag: Flag, name: str) -> bool:
    """Whether this is no name of the flag: a parser takes it, and nothing that pins, compares or
    reads back the flag by its name does."""
    head = canonical(name).partition(".")[0]
    engine = catalogue.engine
    return head not in catalogue.by_name and one_name(engine, head) != one_name(engine, flag.name)


def _unknown(catalogue: Catalogue, name: str) -> Judgement:
    known = catalogue.by_name
    new = renamed(catalogue.engine, name, known)
    if new is not None:
        message = f"unknown flag '{name}': {catalogue.title} has '{new}' for it"
        return Judgement(kind="renamed", message=message, hint=f"write --{new}")
    head, dot, rest = name.partition(".")
    longer = sorted({flag.name for n, flag in known.items() if head and n.startswith(head)})
    if len(longer) == 1:
        message = f"found an abbreviation of '{longer[0]}', write it in full"
        hint = f"write {longer[0]}{dot}{rest}"
        return Judgement(kind="abbreviation", message=message, hint=hint if dot else "")
    if longer:
        message = f"unknown flag '{name}', which is short for {' and '.join(longer)}"
        return Judgement(kind="unknown", message=message, hint="write the one that is meant")
    near = did_you_mean(name, [flag.name for flag in catalogue.flags])
    message = f"unknown flag '{name}'{near}, expected a flag of {catalogue.title}"
    return Judgement(kind="unknown", message=message)


def _form(flag: Flag, found: str) -> Judgement:
    message = f"'{flag.name}' {found}, but it {_TAKES.get(flag.kind, 'does not')}"
    return Judgement(kind="form", message=message)


def _choice(flag: Flag, value: Value) -> Judgement | None:
    choices = [str(choice) for choice in flag.choices or []]
    words = str(value).split() if flag.kind == "list" else [str(value)]
    wrong = next((word for word in words if word not in choices and "${" not in word), None)
    if flag.choices is None or wrong is None:
        return None
    near = nearest(wrong, choices)
    meant = f" (did you mean '{near}'?)" if near else ""
    shown = ", ".join(choices[:_SHOWN_CHOICES]) + (", ..." if len(choices) > _SHOWN_CHOICES else "")
    message = f"'{flag.name}' cannot be {show(value)}{meant}"
    return Judgement(kind="choice", message=message, hint=f"it takes {shown}")


def _deprecated(catalogue: Catalogue, flag: Flag) -> Judgement:
    use = f": use --{flag.deprecated}" if flag.deprecated else ""
    message = f"--{flag.name} is deprecated in {catalogue.title}{use}"
    return Judgement(kind="deprecated", message=message)
