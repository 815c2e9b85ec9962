"""From shell text to the one server that it starts."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from tuner.errors import TunerError
from tuner.flags.names import is_variable
from tuner.starting import docker, shell
from tuner.starting.entries import KNOWN, SHELLS, entry_of
from tuner.starting.pasted import Pasted

MAX_NESTED = 5

_DROPPED = frozenset({"nohup", "exec", "time", "command", "setsid", "sudo", "doas", "env"})
"""Programs in front of a server that are no part of how it is launched."""
_WITH_VALUE = frozenset({"-u", "-g", "-p", "-C", "-S", "--user", "--group", "--unset", "--chdir"})
_ELSEWHERE = frozenset(
    {"ssh", "srun", "sbatch", "mpirun", "mpiexec", "torchrun", "tmux", "screen", "kubectl", "helm"}
)
_SILENT = frozenset(
    {"set", "echo", "sleep", "cd", "tee", "mkdir", "wait", "trap", "printf", "true"}
)
"""Commands that have nothing to do with a server."""
_HINTS = re.compile(r"launch_server|vllm|sglang|api_server|\b(docker|podman|nerdctl)\b.*\brun\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Where a text is run, with which variables, and in how many other texts it stands."""

    folder: Path
    variables: Mapping[str, str]
    depth: int = 0


def find(text: str, context: Context) -> Pasted:
    """The one server that a shell text starts.

    Raises TunerError where it starts none or several, and where a part that matters cannot be
    read.
    """
    if context.depth > MAX_NESTED:
        raise TunerError(f"shells are started in shells more than {MAX_NESTED} deep")
    script = shell.read(text, context.folder, context.variables)
    servers = [(command, _server(command, context)) for command in script.commands]
    found = [replace(s, where=c.where) for c, s in servers if s is not None]
    if len(found) > 1:
        places = ", ".join(server.where for server in found)
        raise TunerError(
            f"the text starts {len(found)} servers ({places}), expected one",
            hint="Paste the one to be tuned.",
        )
    if not found:
        _refuse_none(script)
    _refuse_cut(script)
    aside = [_outside(command) for command, server in servers if server is None]
    aside += [f"not followed: {why.message}" for text, why in script.unread if _matters(text)]
    aside += _moved(servers)
    said = [text for text in (*aside, *script.defaults) if text]
    return replace(found[0], left_out=(*found[0].left_out, *said))


def server_of(words: Sequence[str], env: Mapping[str, str], context: Context) -> Pasted | None:
    """The server that one command starts, None where it starts none.

    Raises TunerError for a server that cannot be tuned and for a part that cannot be read.
    """
    words, env = _peeled(list(words), dict(env))
    if not words:
        return None
    program = PurePosixPath(words[0]).name
    if program in docker.RUNTIMES:
        container = docker.run(words, env, context.folder)
        return None if container is None else inside(container, context)
    if program in _ELSEWHERE and _HINTS.search(" ".join(words)):
        raise TunerError(
            f"cannot read what {program} starts elsewhere",
            hint="Paste the command that runs on the host itself.",
        )
    return inside(Pasted(words=tuple(words), env=env, folder=context.folder), context)


def inside(pasted: Pasted, context: Context) -> Pasted | None:
    """The same with the words of the server, where a shell is given them as one text; None where
    no server is started."""
    words = pasted.words
    if len(words) > 2 and _is_shell(words[0]) and words[1].strip("-").endswith("c"):
        inner = replace(
            context, variables={**context.variables, **pasted.env}, depth=context.depth + 1
        )
        server = find(words[2], inner)
        return replace(
            pasted,
            words=server.words,
            env={**pasted.env, **server.env},
            left_out=(*pasted.left_out, *server.left_out),
            container=pasted.container or server.container,
        )
    image = pasted.container.image if pasted.container and pasted.container.own_entry else ""
    return pasted if entry_of(words, image) is not None else None


def _is_shell(word: str) -> bool:
    return PurePosixPath(word).name in SHELLS


def _server(command: shell.Command, context: Context) -> Pasted | None:
    context = replace(context, folder=command.folder)
    try:
        return server_of(command.words, command.env, context)
    except shell.Unreadable:
        raise
    except TunerError as error:
        raise TunerError(f"{command.where}: {error.message}", hint=error.hint) from None


def _peeled(words: list[str], env: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """The command behind assignments and programs that only start another."""
    dropped = ""
    while words:
        name, equals, value = words[0].partition("=")
        program = PurePosixPath(words[0]).name
        if equals and is_variable(name):
            env[name] = value
        elif program in _DROPPED:
            dropped = program
        elif dropped and words[0].startswith("-"):
            if dropped == "env" and words[0] in {"-i", "-", "--ignore-environment"}:
                raise TunerError("cannot start a server without the environment (env -i)")
            if words[0] in _WITH_VALUE:
                words = words[1:]
        else:
            break
        words = words[1:]
    return words, env


def _moved(servers: Sequence[tuple[shell.Command, Pasted | None]]) -> list[str]:
    """The changes of folder before a server; a container has a folder of its own."""
    at, server = next((i, found) for i, (_, found) in enumerate(servers) if found is not None)
    return [
        f"{command.where}: '{' '.join(command.words)}': launches run in a folder of their own;"
        " what is still a relative path in the study was relative to that one"
        for command, _ in servers[:at]
        if command.words[:1] == ("cd",) and server.container is None
    ]


def _outside(command: shell.Command) -> str:
    if not command.words or command.words[0] in _SILENT:
        return ""
    shown = " ".join(command.words[:3])
    return f"{command.where}: '{shown}' is not part of the launch"


def _matters(source: str) -> bool:
    return source.split(maxsplit=1)[0] not in _SILENT


def _refuse_cut(script: shell.Script) -> None:
    """Raise TunerError where arguments stand alone: something ended the command before them."""
    for command in script.commands:
        if command.words and command.words[0].startswith("-"):
            raise TunerError(
                f"{command.where}: found '{command.words[0]}' where a command should begin",
                hint="A comment or an empty line ends the command before it: take it out.",
            )


def _refuse_none(script: shell.Script) -> None:
    for source, why in script.unread:
        if _HINTS.search(source):
            raise why
    first = next((c for c in script.commands if c.words), None)
    what = f"'{' '.join(first.words[:2])}' ({first.where}) starts" if first else "the text starts"
    raise TunerError(
        f"{what} no engine that is known", hint=f"Known are {KNOWN}; in containers too."
    )
