"""Which flags a failure points at: those the message names, the usual ones, the new ones.

Variables of the environment count as flags: flags have no dashes in front, variables are upper
case.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from tuner.definitions.models import Value
from tuner.failures.rules.names import spellings
from tuner.flags.names import canonical

_FLAG = re.compile(r"(?<![\w/-])--([A-Za-z][\w-]+)")
_VARIABLE = re.compile(r"(?<![\w-])([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)(?![\w-])")
_STEM = re.compile(r"(?<![\w/-])--([a-z][\w-]*-)\*")
"""All flags that begin alike, as messages write them."""
_PARALLEL = {"tp": "tensor", "ep": "expert", "dp": "data", "pp": "pipeline"}
_KNOB = re.compile(r"^(?:enable|disable|use)-|-(?:backend|size|algorithm|algo|config|method)$")
_TELLING_LETTERS = 10
_SOURCE = re.compile(r" {4}\s*[A-Za-z_]")
_ATTRIBUTE = re.compile(r"\.([a-z]+_\w+)\b(?!\()")
_COMMON = {"enable", "disable", "max", "min", "num", "size", "path", "paths", "backend", "mode"}
_COMMON |= {"model", "file", "config"}
_UNTOLD = ("model", "model-path", "served-model-name", "host")
_MODELS = ("model", "model-path")
_READING: tuple[str, ...] = (
    "hf-overrides",
    "json-model-override-args",
    "load-format",
    "config-format",
    "hf-config-path",
    "model-impl",
    "model-loader-extra-config",
    "quantization",
    "revision",
    "tokenizer",
    "tokenizer-mode",
    "tokenizer-path",
    "tokenizer-revision",
    "speculative",
    "lora",
)
"""What has files read that were not read before, or read in another way."""
_PLAIN = ("auto", "none", "true", "false", "float16", "bfloat16")
_SAID = re.compile(r"(?:server_args=(?:ServerArgs\(|\{)|non-default args: \{)(.*)")
_ARGUMENT = re.compile(r"'?\b([a-z]\w+)'?(?:=|: )('[^']*'|-?\d+\.\d+|-?\d+|True|False|None)")
_JSON_TEXT = re.compile(r': ?"([^"]+)"')
_JSON_KEY = re.compile(r'"(\w+_\w+)" ?:')
"""A key of one word is a word like any other."""
_CLASS_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_WORDS: Mapping[str, Value] = {"True": True, "False": False, "None": None}


def _known(flags: Mapping[str, Value]) -> dict[str, str]:
    """Canonical name → name as given, of the flags that the launch had."""
    return {canonical(name): name for name, value in flags.items() if value is not None}


def _is_off(value: Value) -> bool:
    return value is False or value == "none"


def _is_switched_off(
    names: Iterable[str], known: Mapping[str, str], flags: Mapping[str, Value]
) -> bool:
    """Whether the launch says that what these flags tune is off, whatever their defaults are."""
    switches = [known[name] for name in names if name.startswith("enable-") and name in known]
    return any(flags[switch] is False for switch in switches)


def _is_named(name: str, text: str) -> bool:
    """Whether a text speaks of a flag: as a flag, as an attribute, in words, or as TP and the
    like."""
    plain = canonical(name)
    short = next((short for short in _PARALLEL if plain in spellings(short)), None)
    if short is not None and re.search(
        rf"(?<![\w-]){short.upper()}(?![\w-]| rank)|\b(?i:{_PARALLEL[short]}[ -]parallelism)\b",
        text,
    ):
        return True
    if any(plain.startswith(canonical(stem)) for stem in _STEM.findall(text)):
        return True
    if name.isupper():
        return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None
    attribute = plain.replace("-", "_")
    forms = [f"--{re.escape(plain)}", f"--{attribute}"]
    if "-" in plain:
        forms += [attribute, re.escape(plain)]
    else:
        forms += [f"{attribute}=", f"`{attribute}`", f"'{attribute}'"]
    if any(re.search(rf"(?<![\w-]){form}(?![\w-])", text) for form in forms):
        return True
    words = _KNOB.sub("", plain).replace("-", " ")
    telling = " " in words or len(words) >= _TELLING_LETTERS
    return telling and re.search(rf"(?<![\w-]){words}s?(?![\w-])", text, re.I) is not None


def said(text: str) -> dict[str, Value]:
    """The arguments that a log says its server was launched with, defaults included."""
    line = _SAID.search(text)
    return (
        {}
        if line is None
        else {canonical(name): _value(word) for name, word in _ARGUMENT.findall(line[1])}
    )


def _value(word: str) -> Value:
    if word in _WORDS:
        return _WORDS[word]
    if word.startswith("'"):
        return word[1:-1]
    return float(word) if "." in word else int(word)


def named_in(text: str, flags: Mapping[str, Value]) -> list[str]:
    """The launched flags that a message names, or else whose value it quotes."""
    known = _known(flags)
    return [name for name in known if _is_named(name, text)] or quoted_in(text, flags)


def quoted_in(text: str, flags: Mapping[str, Value]) -> list[str]:
    """The launched flags whose value, or a part of it, a message quotes."""
    known = _known(flags)
    models = {flags[known[name]] for name in _MODELS if name in known}
    return [
        name
        for name, given in known.items()
        if flags[given] not in models and _is_quoted(name, flags[given], text)
    ]


def variables_named_in(text: str, flags: Mapping[str, Value]) -> list[str]:
    """The launched variables that a message itself names, or whose value it quotes; a path to the
    model is not a quotation of the folder that it is in."""
    for model in (flags.get(name) for name in _MODELS):
        text = text.replace(str(model), "") if model else text
    return [
        name
        for name, value in flags.items()
        if name.isupper() and (_is_named(name, text) or _is_quoted(name, value, text))
    ]


def _is_quoted(name: str, value: Value, text: str) -> bool:
    """Whether a text quotes the value that a flag has, where the value is telling."""
    if not isinstance(value, str) or name in _UNTOLD:
        return False
    return any(
        re.search(rf"(?:(?<![\w/-])|(?<=://)){re.escape(part)}{_end(part)}", text, re.I)
        for part in _parts(value)
        if part.lower() not in _PLAIN and len(part) >= 3
    )


def _end(part: str) -> str:
    """What may not follow: a file in a folder that was given is still of that folder."""
    return r"(?![\w-]|\.\w)" if "/" in part else r"(?![\w/-]|\.\w)"


def _parts(value: str) -> list[str]:
    """A value, and what a reader takes out of it: `name=path`, the texts of JSON, the package of a
    class that is to be imported."""
    parts = [value]
    if value.startswith(("{", "[")):
        parts += _JSON_TEXT.findall(value) + _JSON_KEY.findall(value)
    elif _CLASS_NAME.fullmatch(value):
        parts.append(value.partition(".")[0])
    elif "=" in value:
        parts.append(value.partition("=")[2])
    return parts


def traced_in(block: str, flags: Mapping[str, Value]) -> list[str]:
    """The launched flags that the innermost telling source line of a traceback names."""
    known = _known(flags)
    sources = [line for line in block.splitlines() if _SOURCE.match(line)]
    for source in reversed(sources):
        names = [name for name in known if "-" in name and name.replace("-", "_") in source]
        if names:
            return names
    return []


def attributes_in(block: str) -> list[str]:
    """The attributes that the innermost source line of a traceback reads, as flags."""
    sources = [line for line in block.splitlines() if _SOURCE.match(line)]
    return [canonical(name) for name in _ATTRIBUTE.findall(sources[-1])] if sources else []


def kin_of(written: Sequence[str], flags: Mapping[str, Value]) -> list[str]:
    """The launched flags that share a telling word with flags that a message writes."""
    words = {word for name in written for word in name.split("-")} - _COMMON
    return [name for name in _known(flags) if words & set(name.split("-"))]


def written_in(text: str) -> list[str]:
    """The flags that a message writes with their dashes; of `--a/--b` the first."""
    return list(dict.fromkeys(canonical(name) for name in _FLAG.findall(text)))


def given_by_file(flags: Mapping[str, Value]) -> list[str]:
    """The flag that gives a file of further flags, which are at fault where none of the launch
    is."""
    return [name for name in flags if canonical(name) == "config" and flags[name]]


def variables_in(text: str, flags: Mapping[str, Value]) -> list[str]:
    """The environment variables that a message or its frames name, launched ones first."""
    found = list(dict.fromkeys(_VARIABLE.findall(text)))
    launched = [name for name in flags if name.isupper() and _is_named(name, text)]
    quoted = [name for name, value in flags.items() if _is_quoted(name, value, text)]
    return launched or quoted or found[:1]


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
            if not _is_switched_off(spellings(concept), known, flags)
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


def altering(new: Sequence[str]) -> list[str]:
    """Of the flags that are new those that have the model read otherwise than before."""
    names = {name for concept in _READING for name in spellings(concept)}
    return [name for name in new if canonical(name) in names]


def narrow(suspects: Iterable[str], new: Sequence[str]) -> list[str]:
    """Suspects that are new since the last working configuration; all of them if none is."""
    listed = list(suspects)
    return [name for name in listed if name in new] or listed
