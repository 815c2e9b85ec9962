"""What compose files and manifests have in common: which of their containers is the server."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tuner.definitions.nearest import did_you_mean
from tuner.errors import TunerError
from tuner.starting.commands import Context, inside
from tuner.starting.pasted import Pasted


def chosen(found: Mapping[str, Pasted], name: str | None, what: str, context: Context) -> Pasted:
    """The container that starts an engine, or the one of that name.

    Raises TunerError where none does, or several do and none was named.
    """
    if name is not None and name not in found:
        known = ", ".join(found) or "none"
        raise TunerError(
            f"there is no {what} named '{name}'{did_you_mean(name, found)}",
            hint=f"Found: {known}.",
        )
    servers = {
        each: server
        for each, pasted in found.items()
        if name in {None, each} and (server := inside(pasted, context)) is not None
    }
    if len(servers) > 1:
        raise TunerError(
            f"{len(servers)} of its {what}s start engines: {', '.join(servers)}",
            hint=f"Name one: --service {next(iter(servers))}",
        )
    if not servers:
        named = f"'{name}'" if name else f"none of its {what}s ({', '.join(found) or 'none'})"
        starts = "starts no engine" if name else "starts an engine"
        raise TunerError(f"{named} {starts} that is known", hint="Engines are SGLang and vLLM.")
    ((each, server),) = servers.items()
    others = [f"{what} '{other}' is not part of the launch" for other in found if other != each]
    return replace(server, where=f"{what} {each}", left_out=(*server.left_out, *others))


def mapping(value: Any, where: str) -> Mapping[str, Any]:
    """The value as a mapping, an empty one where nothing is there. Raises TunerError."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TunerError(f"{where}: found {_kind(value)}, expected a mapping")
    return value


def sequence(value: Any, where: str) -> Sequence[Any]:
    """The value as a list, an empty one where nothing is there. Raises TunerError."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise TunerError(f"{where}: found {_kind(value)}, expected a list")
    return value


def text(value: Any, where: str) -> str:
    """The value as a text. Raises TunerError."""
    if not isinstance(value, str):
        raise TunerError(f"{where}: found {_kind(value)}, expected a text")
    return value


def unused(source: Mapping[str, Any], used: frozenset[str], where: str) -> tuple[str, ...]:
    """A sentence with the keys that have no place in a launch."""
    keys = [key for key in source if key not in used]
    return (f"{where}: {', '.join(keys)} left out",) if keys else ()


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    return "a list" if isinstance(value, list) else f"'{value}'"
