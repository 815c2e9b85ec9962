"""SGLang's command line: what it knows, what it refuses, what it was told."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.flags.names import Value
from tuner.flags.sglang_table import CHOICES, TABLE

_TYPES: Mapping[str, type[int | float | str]] = {"str": str, "int": int, "float": float}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag of the table; `kind` is None for a flag that stands alone."""

    name: str
    aliases: tuple[str, ...]
    kind: type[int | float | str] | None
    several: bool
    default: Value
    choices: tuple[Value, ...]

    @property
    def dest(self) -> str:
        """The name in the engine's resolved arguments."""
        return self.name.replace("-", "_")


def _flag(line: str) -> Flag:
    names, kind, default, choices, *_ = [*(cell.strip() for cell in line.split("|")), "", "", ""]
    own, *aliases = names.split()
    convert = _TYPES.get(kind.rstrip("*"))
    words = CHOICES[choices[1:]] if choices.startswith("@") else choices
    return Flag(
        name=own,
        aliases=tuple(aliases),
        kind=convert,
        several=kind.endswith("*"),
        default=False if convert is None else convert(default) if default else None,
        choices=tuple((convert or str)(word) for word in words.split()),
    )


FLAGS: Mapping[str, Flag] = {
    flag.name: flag for flag in (_flag(line) for line in TABLE.strip().splitlines())
}


def parse(argv: Sequence[str]) -> dict[str, Value]:
    """Flag name without dashes → its value, defaults included; several values become one text.

    Leaves the process with 2 and a word on stderr, as the engine does, where it does not
    understand the command line.
    """
    parsed = vars(_parser().parse_args(argv))
    return {flag.name: _one(parsed[flag.dest]) for flag in FLAGS.values()}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="launch_server.py")
    for flag in FLAGS.values():
        names = [f"--{name}" for name in (flag.name, *flag.aliases)]
        if flag.kind is None:
            parser.add_argument(*names, dest=flag.dest, action="store_true")
        else:
            parser.add_argument(
                *names,
                dest=flag.dest,
                type=flag.kind,
                default=flag.default,
                choices=flag.choices or None,
                nargs="+" if flag.several else None,
                required=flag.name == "model-path",
            )
    return parser


def _one(value: Value | list[Value]) -> Value:
    return " ".join(str(each) for each in value) if isinstance(value, list) else value
