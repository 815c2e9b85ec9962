"""What engines say of themselves, read: metrics text, arguments printed in a log. Pure."""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tuner.definitions.models import Value
from tuner.flags.names import canonical
from tuner.flags.secrets import HIDDEN, is_secret_flag
from tuner.http.exposition import number

_OPEN, _CLOSE, _QUOTES = "([{<", ")]}>", "'\""
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def whole(value: Any) -> int | None:
    """A whole number that a server said, commas between thousands or not; None for all else."""
    found = number(value.replace(",", "") if isinstance(value, str) else value)
    return None if found is None else int(found)


def labels(metrics: str, name: str) -> dict[str, str]:
    """The labels of the first sample of a metric; empty where there is none."""
    lines = (line for line in metrics.splitlines() if line.startswith(f"{name}{{"))
    return dict(_LABEL.findall(next(lines, "")))


def printed_pairs(text: str, *, between: str) -> dict[str, Any]:
    """The values of `name=value, ...` or `'name': value, ...` as Python printed them.

    What is no literal, such as an enum, stays the text it was, also inside a printed dict.
    """
    pairs: dict[str, Any] = {}
    for part in _top_level(text):
        name, found, value = part.partition(between)
        if found:
            pairs[name.strip().strip(_QUOTES)] = _literal(value.strip())
    return pairs


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        is_dict = text.startswith("{") and text.endswith("}")
        return printed_pairs(text[1:-1], between=":") if is_dict else text


def _top_level(text: str) -> Iterator[str]:
    """The parts between commas that stand in no bracket and no quotes."""
    depth, quote, start, at = 0, "", 0, 0
    while at < len(text):
        character = text[at]
        if quote:
            if character == "\\":
                at += 1
            elif character == quote:
                quote = ""
        elif character in _QUOTES:
            quote = character
        elif character in _OPEN:
            depth += 1
        elif character in _CLOSE:
            depth -= 1
        elif character == "," and depth == 0:
            yield text[start:at]
            start = at + 1
        at += 1
    yield text[start:]


def as_flags(arguments: Mapping[str, Any]) -> dict[str, Value]:
    """Arguments by flag name: nested ones joined by a dot, a list as its words, secrets hidden."""
    flags: dict[str, Value] = {}
    for name, value in sorted(arguments.items()):
        if isinstance(value, Mapping):
            inner = {f"{name}.{key}": below for key, below in value.items()}
            flags.update(as_flags(inner))
        else:
            flags[canonical(name)] = _hidden(name, _value(value))
    return flags


def _value(value: Any) -> Value:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple) and all(isinstance(v, int | float | str) for v in value):
        return " ".join(str(item) for item in value)
    return json.dumps(value, sort_keys=True, default=str)


def _hidden(name: str, value: Value) -> Value:
    return HIDDEN if isinstance(value, str) and is_secret_flag(name, value) else value


def last_match(pattern: re.Pattern[str], log: str) -> re.Match[str] | None:
    """The last place in a log where a pattern stands, or None."""
    match = None
    for found in pattern.finditer(log):
        match = found
    return match
