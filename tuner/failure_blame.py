"""Which flags a failure points at: those the message names, the usual ones, the new ones.

Variables of the environment count as flags: flags have no dashes in front, variables are upper
case.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from tuner.definitions import Value
from tuner.failure_rules.names import canonical, spellings

_FLAG = re.compile(r"(?<![\w-])--([A-Za-z][\w-]+)")
_VARIABLE = re.compile(r"(?<![\w-])([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)(?![\w-])")
_PARALLEL = ("tp", "ep", "dp", "pp")


def _known(flags: Mapping[str, Value]) -> dict[str, str]:
    """Canonical name → name as given, of the flags that the launch had."""
    return {canonical(name): name for name, value in flags.items() if value is not None}


def _is_off(value: Value) -> bool:
    return value is False or value == "none"


def _is_named(name: str, text: str) -> bool:
    """Whether a text speaks of a flag: as a flag, as an attribute, or in words."""
    plain = canonical(name)
    if name.isupper():
        return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None
    attribute = plain.replace("-", "_")
    forms = [f"--{re.escape(plain)}", f"--{attribute}"]
    if "-" in plain:
        forms += [attribute, re.escape(plain)]
        words = re.sub(r"^(?:enable|disable|use)-", "", plain)
        if "-" in words:
            forms.append(words.replace("-", " "))
    else:
        forms += [f"{attribute}=", f"`{attribute}`", f"'{attribute}'"]
    return any(re.search(rf"(?<![\w-]){form}(?![\w-])", text) for form in forms)


def named_in(text: str, flags: Mapping[str, Value]) -> list[str]:
    """The flags that a message names; of those it names, the launched ones if there are any."""
    launched = [name for name in _known(flags) if _is_named(name, text)]
    if launched:
        return launched
    return list(dict.fromkeys(canonical(name) for name in _FLAG.findall(text)))


def variables_in(text: str, flags: Mapping[str, Value]) -> list[str]:
    """The environment variables that a message or its frames name, launched ones first."""
    found = list(dict.fromkeys(_VARIABLE.findall(text)))
    launched = [name for name in found if name in flags]
    return launched or found[:1]


def changed(flags: Mapping[str, Value], nearest: Mapping[str, Value]) -> list[str]:
    """What differs from the nearest configuration that worked."""
    here, there = _known(flags), _known(nearest)
    return [
        name
        for name in dict.fromkeys([*here, *there])
        if flags.get(here.get(name, name)) != nearest.get(there.get(name, name))
    ]


def sized(number: int | None, flags: Mapping[str, Value]) -> list[str]:
    """The parallel sizes that have this value."""
    known = _known(flags)
    sizes = [name for concept in _PARALLEL for name in spellings(concept) if name in known]
    return [
        name for name in sizes if number is not None and number > 1 and flags[known[name]] == number
    ]


def usual(groups: Sequence[tuple[str, ...]], flags: Mapping[str, Value], engine: str) -> list[str]:
    """The class's usual suspects: of the first group that has any in the launch, those."""
    known = _known(flags)
    for group in groups:
        names = [
            name
            for concept in group
            for name in spellings(concept)
            if name in known and not _is_off(flags[known[name]])
        ]
        if names:
            return names
    if flags or not groups:
        return []
    at = 1 if engine == "vllm" else 0
    choices = (spellings(concept) for concept in groups[0])
    return [names[min(at, len(names) - 1)] for names in choices]


def narrow(suspects: Iterable[str], new: Sequence[str]) -> list[str]:
    """Suspects that are new since the last working configuration; all of them if none is."""
    listed = list(suspects)
    return [name for name in listed if name in new] or listed
