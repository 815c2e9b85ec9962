"""How flags and variables are written: on a command line, and in a shell without secrets. Pure."""

import os
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from tuner.definitions.models import Value
from tuner.errors import EngineError
from tuner.flags.names import canonical, is_variable
from tuner.flags.secrets import is_secret_flag, is_secret_variable

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_NUMBER = re.compile(r"-\d+(\.\d+)?([eE][-+]?\d+)?")


def spell(
    flags: Mapping[str, Value],
    bool_styles: Mapping[str, str],
    *,
    list_flags: Collection[str] = (),
) -> tuple[str, ...]:
    """The arguments for these flags, in their order; None is left out, and the last of two
    spellings of one flag counts.

    A text under one of `list_flags` becomes as many arguments as it has words.
    Raises EngineError for a style of bool that does not exist.
    """
    styles = {canonical(name): style for name, style in bool_styles.items()}
    merged = {canonical(name): value for name, value in flags.items()}
    words: list[str] = []
    for name, value in merged.items():
        if isinstance(value, bool):
            words += _spell_bool(name, value, styles.get(name, "presence"))
        elif isinstance(value, str) and name in list_flags:
            words += [f"--{name}", *value.split()]
        elif value is not None:
            words += _spell_text(name, str(value))
    return tuple(words)


def _spell_bool(name: str, value: bool, style: str) -> list[str]:
    if style == "presence":
        return [f"--{name}"] if value else []
    if style == "value":
        return [f"--{name}", "true" if value else "false"]
    if style == "negation":
        return [f"--{name}" if value else f"--no-{name}"]
    raise EngineError(
        f"--{name}: there is no style of bool named {style!r}",
        hint="Styles are presence, value and negation.",
    )


def _spell_text(name: str, text: str) -> list[str]:
    """A value that begins with a dash would be taken for a flag, unless it is a number."""
    if text.startswith("-") and not _NUMBER.fullmatch(text):
        return [f"--{name}={text}"]
    return [f"--{name}", text]


def resolve(text: str) -> str:
    """The text with each `${NAME}` replaced by that variable of this process.

    Raises EngineError where such a variable is not set.
    """

    def value(match: re.Match[str]) -> str:
        found = os.environ.get(match[1])
        if found is None:
            raise EngineError(
                f"the launch needs the variable {match[1]}, which is not set",
                hint=f"Set it before the run: export {match[1]}=...",
            )
        return found

    return _REFERENCE.sub(value, text)


def unset_references(texts: Iterable[str]) -> list[str]:
    """The variables that these texts refer to and that this process does not have."""
    names = {name for text in texts for name in _REFERENCE.findall(text)}
    return sorted(name for name in names if name not in os.environ)


def shown_env(env: Mapping[str, str]) -> dict[str, str]:
    """The variables as they may be shown: secrets as references to the variable itself."""
    return {name: _shown_variable(name, value) for name, value in env.items()}


def shown_argv(argv: Iterable[str]) -> tuple[str, ...]:
    """The arguments as they may be shown: a secret as a reference named after its flag, or after
    the variable where a word assigns one (`NAME=value`)."""
    shown: list[str] = []
    flag = ""
    for word in argv:
        name, equals, value = word.partition("=")
        if word.startswith("-") and equals:
            shown.append(f"{name}={_shown(name, value)}")
        else:
            shown.append(_shown(flag, word))
        flag = word if word.startswith("--") and not equals else ""
    return tuple(shown)


def _shown(flag: str, value: str) -> str:
    """The value of a flag, or a word that is none."""
    if value.startswith("--") or _refers(value):
        return value
    if flag and is_secret_flag(flag, value):
        return f"${{{canonical(flag).replace('-', '_').replace('.', '_').upper()}}}"
    name, assigns, assigned = value.partition("=")
    return f"{name}={_shown_variable(name, assigned)}" if assigns and is_variable(name) else value


def _shown_variable(name: str, value: str) -> str:
    return f"${{{name}}}" if is_secret_variable(name, value) and not _refers(value) else value


def _refers(value: str) -> bool:
    return _REFERENCE.fullmatch(value) is not None


def spelt(text: str, literal: Callable[[str], str], reference: Callable[[str], str]) -> str:
    """The text with what it says itself written by one, the name of each `${NAME}` by the other."""
    parts: list[str] = []
    at = 0
    for match in _REFERENCE.finditer(text):
        parts += [literal(text[at : match.start()]), reference(match[1])]
        at = match.end()
    return "".join([*parts, literal(text[at:])])


def references(text: str) -> list[str]:
    """The variables that a text refers to as `${NAME}`."""
    return list(dict.fromkeys(_REFERENCE.findall(text)))


def shell_word(text: str) -> str:
    """The text as one word of POSIX shell; `${NAME}` stops the shell where NAME is not set."""
    return spelt(text, _quoted, lambda name: f'"${{{name}:?set {name}}}"') or "''"


def _quoted(text: str) -> str:
    return shlex.quote(text) if text else ""


def without(words: Sequence[str], flags: Sequence[str]) -> list[str]:
    """The words without these flags and what belongs to them."""
    kept, drop = [], False
    for word in words:
        if word.startswith("--"):
            drop = word in flags
        if not drop:
            kept.append(word)
    return kept
