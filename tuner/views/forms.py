"""An export as one text: a script, a unit, a manifest, a file of flags, a document."""

import json
from collections.abc import Callable, Mapping
from typing import Literal, get_args

from tuner.engines.images import ANY_ADDRESS
from tuner.views.docker import address, docker_script, published
from tuner.views.export import Export, flags
from tuner.views.manifests import compose, deployment, flag_file, front
from tuner.views.replica_set import BALANCER
from tuner.views.systemd import unit
from tuner.views.words import REHEARSED, comment

Format = Literal["shell", "docker", "compose", "systemd", "k8s", "yaml", "json"]
FORMATS: tuple[Format, ...] = get_args(Format)


def written(chosen: Export, form: Format) -> str:
    """The export in the form that was asked for; no secret in any of them."""
    if form == "json":
        return json.dumps(chosen.model_dump(), indent=1) + "\n"
    start = "#!/bin/sh\n" if form in ("shell", "docker") else ""
    label = comment(REHEARSED) if chosen.rehearsal else ""
    said = "".join(comment(text) for text in (chosen.why, *chosen.cautions, listens(chosen, form)))
    return f"{start}{label}{said}{_several(chosen, form)}{_BODIES[form](chosen)}"


def listens(chosen: Export, form: Format) -> str:
    """Where the server of this form answers, and whether the study says so."""
    named = [name for name, _ in flags(chosen.arguments)]
    by_itself = [name for name in ("host", "port") if name not in named]
    if form == "k8s":
        return f"Its Service answers on port {front(chosen)}."
    if chosen.container.network == "bridge" and form != "yaml":
        return f"Published (HOST:CONTAINER): {', '.join(published(chosen))}."
    host = address(chosen)
    whole = f"[{host}]:{chosen.port}" if ":" in host else f"{host}:{chosen.port}"
    if "host" in by_itself and host == ANY_ADDRESS:
        whole = f"every address, port {chosen.port}"
    them = "them" if len(by_itself) > 1 else "it"
    names = " and ".join(by_itself)
    why = f"; {names} by the engine's default, 'serve' in the study changes {them}"
    return f"Listens on {whole}{why if by_itself else ''}."


def _several(chosen: Export, form: Format) -> str:
    """What is missing where a host holds several such servers."""
    if not chosen.replicas or form == "k8s":
        return ""  # a cluster starts all of them, and its Service deals requests out
    if form == "shell":
        return comment(BALANCER)
    count = len(chosen.replicas)
    return comment(f"One of {count} servers on the host; the shell form has the whole set.")


def _shell(chosen: Export) -> str:
    if not chosen.replicas:
        return f"{chosen.command}\n"
    return "".join([*(f"{command} &\n" for command in chosen.replicas), "wait\n"])


_BODIES: Mapping[Format, Callable[[Export], str]] = {
    "shell": _shell,
    "docker": docker_script,
    "compose": compose,
    "systemd": unit,
    "k8s": deployment,
    "yaml": flag_file,
}
