"""Plain values → YAML that every reader, old or new, takes for the same values."""

import re
from typing import Any

import yaml

_PLAIN = re.compile(r"(--?)?[A-Za-z/][A-Za-z0-9_./+-]*")
_TAKEN_OTHERWISE = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "inf"})
"""Words that some reader does not take for a text."""


def write(value: Any) -> str:
    """The document of a mapping or a list of texts, numbers, bools, null and more such.

    Keys keep their order. A text is quoted wherever any reader might see a number, a bool, a time
    or syntax in it, so that YAML 1.1 and 1.2 agree on every value.
    """
    return yaml.dump(
        value,
        Dumper=_Dumper,
        sort_keys=False,
        default_flow_style=False,
        allow_unicode=True,
        width=float("inf"),
    )


class _Dumper(yaml.SafeDumper):
    """PyYAML's writer that quotes whatever could be read in two ways, and uses no alias."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Lists stand indented below their key."""
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = _PLAIN.fullmatch(text) and text.lower() not in _TAKEN_OTHERWISE
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


_Dumper.add_representer(str, _text)
