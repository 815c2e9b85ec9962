"""What `--from` names: a command, a file, or standard input, as a shell text or as YAML."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from tuner.definitions.yaml_source import parse_foreign
from tuner.errors import DefinitionError, TunerError
from tuner.starting import commands, compose, kubernetes
from tuner.starting.commands import Context
from tuner.starting.pasted import Pasted

MAX_BYTES = 500_000

_YAML_NAMES = (".yaml", ".yml")
_MANIFEST = re.compile(r"^(apiVersion|kind|services):", re.MULTILINE)
_LIKE_A_PATH = re.compile(r"\S+\.(sh|bash|ya?ml|txt|cmd|service)|[./~]\S*|\S+/\S+")


def find(text: str, stdin: TextIO, variables: Mapping[str, str], service: str | None) -> Pasted:
    """The server that a command, a file of that name, or `-` for standard input starts.

    Raises TunerError where there is none that can be tuned.
    """
    kept, name = _taken(text, stdin)
    folder = Path.cwd() if name in {"", "-"} else Path(name).absolute().parent
    # Any other variable stays a reference: what it holds here may be a secret.
    known = {name: variables[name] for name in ("HOME",) if name in variables}
    known["PWD"] = str(folder)
    context = Context(folder=folder, variables=known)
    if name.endswith(_YAML_NAMES) or (name and _MANIFEST.search(kept)):
        return _manifest(kept, name, context, service)
    if service is not None:
        raise TunerError("--service names a part of a compose file or a manifest, found a command")
    try:
        return commands.find(kept, context)
    except TunerError as error:
        raise _placed(error, name) from None


def _taken(text: str, stdin: TextIO) -> tuple[str, str]:
    """The text itself, and the name of the file it stands in, empty for a command."""
    if text == "-":
        return _limited(stdin.read(MAX_BYTES + 1), "-"), "-"
    if "\n" in text or not text.strip() or not _is_path(text):
        return _limited(text, "the command"), ""
    try:
        with Path(text).open(encoding="utf-8") as file:
            return _limited(file.read(MAX_BYTES + 1), text), text
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise TunerError(
            f"{text}: {reason.lower()}", hint="--from takes a command, a file, or - for stdin."
        ) from None


def _is_path(text: str) -> bool:
    try:
        return Path(text).exists() or _LIKE_A_PATH.fullmatch(text) is not None
    except OSError:  # longer than any name of a file
        return False


def _limited(text: str, name: str) -> str:
    if len(text) > MAX_BYTES:
        raise TunerError(f"{name} is longer than {MAX_BYTES} characters, expected a launch")
    if not text.strip():
        raise TunerError(f"{name} is empty, expected a launch")
    return text


def _manifest(text: str, name: str, context: Context, service: str | None) -> Pasted:
    try:
        documents = parse_foreign(text, name=name)
    except DefinitionError:
        if "{{" not in text:
            raise
        raise TunerError(
            f"{name}: is a template, not YAML yet", hint="Render it first: helm template ..."
        ) from None
    try:
        if any(isinstance(each, dict) and "services" in each for each in documents):
            return compose.find(documents[0], context, service)
        if any(isinstance(each, dict) and "kind" in each for each in documents):
            return kubernetes.find(documents, context, service)
    except TunerError as error:
        raise _placed(error, name) from None
    raise TunerError(
        f"{name}: found neither services nor a kind, expected a compose file or a manifest"
    )


def _placed(error: TunerError, name: str) -> TunerError:
    return TunerError(f"{name}: {error.message}" if name else error.message, hint=error.hint)
