"""What engines say of themselves, read: metrics text, arguments printed in a log. Pure."""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tuner.definitions import Value
from tuner.engines.spelling import canonical, is_secret

_OPEN, _CLOSE, _QUOTES = "([{<", ")]}>", "'\""
_SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?P<labels>\{.*\})?\s+(?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

HIDDEN = "(hidden)"


def gauge(metrics: str, name: str) -> float | None:
    """The sum of all samples of a metric in Prometheus' text, over ranks and replicas; None where
    there is none."""
    values = [float(value) for found, _, value in _samples(metrics) if found == name]
    return sum(values) if values else None


def labels(metrics: str, name: str) -> dict[str, str]:
    """The labels of the first sample of a metric; empty where there is none."""
    for found, text, _ in _samples(metrics):
        if found == name:
            return dict(_LABEL.findall(text))
    return {}


def _samples(metrics: str) -> Iterator[tuple[str, str, str]]:
    for line in metrics.splitlines():
        match = _SAMPLE.match(line)
        if match:
            yield match["name"], match["labels"] or "", match["value"]


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
    except (ValueError, SyntaxError):
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
    return HIDDEN if isinstance(value, str) and is_secret(canonical(name), value) else value


def last_match(pattern: re.Pattern[str], log: str) -> re.Match[str] | None:
    """The last place in a log where a pattern stands, or None."""
    match = None
    for found in pattern.finditer(log):
        match = found
    return match
