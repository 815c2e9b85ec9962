"""Which names hold secrets, so that no message, record or export shows their values. Pure.

Variables are suspected by any telling part of their name, flags by whole words only: flags that
count tokens must stay visible, and so must their number in a variable.
"""

import re
from collections.abc import Sequence

HIDDEN = "(hidden)"
"""What is stored and shown in place of a secret."""

_IN_A_VARIABLE = re.compile(
    r"TOKEN(?!I[SZ])|SECRET|PASSW|PASSPHRASE|CREDENTIAL"
    r"|(?:^|[^A-Z]|API|ACCESS|PRIVATE)KEYS?(?![A-Z])"
)
_IN_A_FLAG = re.compile(
    r"(?:^|[^A-Z0-9])(?:KEYS?|SECRETS?|PASSWORDS?|PASSWD|CREDENTIALS?)(?:$|[^A-Z0-9])"
    r"|(?:TOKEN|APIKEY|SECRET|PASSWORD)$"
)
_PLAIN = re.compile(r"-?\d{1,9}(?:\.\d+)?|true|false", re.IGNORECASE)
_PASSWORD_IN_URL = re.compile(r"://[^/\s:@]*:[^/\s@]+@")


def is_secret_variable(name: str, value: str | None = None) -> bool:
    """Whether an environment variable of this name holds something that nobody else may see.

    Without a value the name alone decides; with one, a number of tokens is no secret.
    """
    said = _IN_A_VARIABLE.search(name.upper())
    if said is None:
        return _holds_password(value)
    return said[0] != "TOKEN" or value is None or _PLAIN.fullmatch(value) is None


def is_secret_flag(name: str, value: str | None = None) -> bool:
    """Whether a flag of this name, with dashes or without, holds something of that kind."""
    return _IN_A_FLAG.search(name.upper()) is not None or _holds_password(value)


def _holds_password(value: str | None) -> bool:
    return value is not None and _PASSWORD_IN_URL.search(value) is not None


def hides(path: Sequence[str | int], value: str | None = None) -> bool:
    """Whether the value at this place of a definition file must not be shown: any name on the way
    may say so, under `env` as a variable, elsewhere as a flag."""
    names = [part for part in path if isinstance(part, str)]
    return any(
        is_secret_variable(name, value) if before == "env" else is_secret_flag(name, value)
        for before, name in zip(["", *names], names, strict=False)
    )
