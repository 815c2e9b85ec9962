"""Which names hold secrets, so that no message or export shows their values. Pure."""

import re
from collections.abc import Sequence

_WORDS = ("TOKEN", "KEY", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL")


def is_secret(variable: str) -> bool:
    """Whether an environment variable of this name may hold a secret."""
    return any(word in variable.upper() for word in _WORDS)


def hides(path: Sequence[str | int]) -> bool:
    """Whether the value at this place of a definition file must not be shown.

    Everywhere but under `env` a whole word has to match, or flags that count tokens would hide.
    """
    names = [part for part in path if isinstance(part, str)]
    return any(
        is_secret(name) if before == "env" else _has_secret_word(name)
        for before, name in zip(["", *names], names, strict=False)
    )


def _has_secret_word(name: str) -> bool:
    return any(word.upper() in _WORDS for word in re.split(r"[^A-Za-z0-9]+", name))
