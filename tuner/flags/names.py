"""What flags and variables are called, in one spelling. Pure."""

import re

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Value = bool | int | float | str | None
"""What a flag, variable or parameter can be set to; None leaves it out."""


def canonical(name: str) -> str:
    """One name for a flag however it is written: no dashes in front, `-` for `_`.

    What follows a dot names a key inside a JSON value and keeps its own spelling; a name in
    capitals is that of a variable and stays as it is.
    """
    head, dot, rest = name.lstrip("-").partition(".")
    return (head if head.isupper() else head.replace("_", "-")) + dot + rest


def is_variable(name: str) -> bool:
    """Whether a shell can assign a variable of this name."""
    return _VARIABLE.fullmatch(name) is not None
