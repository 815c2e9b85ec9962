"""What a log may be quoted with: servers print their arguments, secrets among them."""

import re

from tuner.flags.secrets import HIDDEN, is_secret_flag, is_secret_variable

_ASSIGNED = re.compile(
    r"(?P<before>(?<![\w-])(?P<dashes>--)?(?P<name>[A-Za-z][\w-]*)['\"]?"
    r"(?:=|: ?|(?(dashes)(?: +|, ?(?=['\"]))|(?!))))"
    r"(?P<value>\[[^\]\n]*\]|'[^']*'|\"[^\"]*\"|(?!--)[^\s,)}]+)"
)
"""`api_key='x'`, `'api_key': ['x']`, `--api-key x`, `['--api-key', 'x']`, `HF_TOKEN=x`."""
_COUNT = re.compile(r"-?\d{1,9}(?:\.\d+)?(?:/\d{1,9}|%|[mun]?s)?[.;\]]*")
"""How many tokens, or how long each took: `#new-token: 4`."""
_BY_ITSELF = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{20,}|sk-[\w-]{20,})"
    r"|(?<=[Bb]earer )[^\s'\"]+|(?<=://)[^/\s:@]*:[^/\s@]+(?=@)"
)
"""A secret that shows what it is: a token, what follows `Bearer`, a password in a URL."""


def masked(text: str) -> str:
    """The text without the secrets that a server prints among its arguments."""

    def mask(match: re.Match[str]) -> str:
        if match["name"].lower().endswith("token") and _COUNT.fullmatch(match["value"]):
            return match[0]
        name, value = match["name"], match["value"].strip("'\"")
        secret = is_secret_variable if name.isupper() else is_secret_flag
        return f"{match['before']}{HIDDEN}" if value and secret(name, value) else match[0]

    return _BY_ITSELF.sub(HIDDEN, _ASSIGNED.sub(mask, text))
