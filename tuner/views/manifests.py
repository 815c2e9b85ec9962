"""An export as YAML: a compose file, a Deployment with its Service, or a file of flags."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.definitions.yaml_writer import write
from tuner.engines.spelling import references, spelt
from tuner.views.docker import IMAGE, arguments, published
from tuner.views.export import Export, flags
from tuner.views.words import comment, host_label

READY_AFTER_S = 1800
"""Loading a large model takes its time; only after so long is a server held for stuck."""
PROBE_S = 10

_WHOLE = re.compile(r"-?(0|[1-9]\d{0,14})")
_DECIMAL = re.compile(r"-?(0|[1-9]\d{0,9})\.\d{1,9}")


def compose(chosen: Export) -> str:
    """A file for `docker compose up`; what is asked for by `${NAME:?set NAME}` stops it."""
    container = chosen.container
    alone = container.network == "bridge"
    said, left = _options(container.options)
    service: dict[str, Any] = {
        "image": _asked(container.image or IMAGE),
        "init": True,
        **_memory(said),
        "entrypoint": [_asked(word) for word in container.program],
        "command": [_asked(word) for word in arguments(chosen, alone=alone)],
        "restart": "unless-stopped",
        **({"ports": published(chosen)} if alone else {"network_mode": "host"}),
    }
    if chosen.env:
        service["environment"] = {name: _asked(value) for name, value in chosen.env.items()}
    volumes = [
        *map(_asked, said.get("volumes", [])),
        *(
            {"type": "bind", "source": _asked(path), "target": _asked(path), "read_only": True}
            for path in container.mounts
        ),
    ]
    if volumes:
        service["volumes"] = volumes
    if chosen.gpus:
        device = {"driver": "nvidia", "count": chosen.gpus, "capabilities": ["gpu"]}
        service["deploy"] = {"resources": {"reservations": {"devices": [device]}}}
    head = (
        comment(f"Options of the study that have no place here: {' '.join(left)}") if left else ""
    )
    return head + write({"services": {host_label(chosen.study): service}})


_KEYS = {"--volume": "volumes", "-v": "volumes", "--shm-size": "shm_size", "--ipc": "ipc"}


def _options(options: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """The values of `run`'s options by compose's key for them, and those that it has none for."""
    said: dict[str, list[str]] = {}
    left: list[str] = []
    words = iter(options)
    for word in words:
        name, equals, value = word.partition("=")
        if name in _KEYS:
            said.setdefault(_KEYS[name], []).append(value if equals else next(words, ""))
        else:
            left.append(word)
    return said, left


def _memory(said: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """How ranks share memory: as the options say, else as the host."""
    keys = {key: _asked(said[key][-1]) for key in ("ipc", "shm_size") if key in said}
    return keys or {"ipc": "host"}


def _asked(text: str) -> str:
    """As compose reads it: `$$` is a dollar, `${NAME:?...}` an error where NAME is not set."""
    return spelt(
        text, lambda part: part.replace("$", "$$"), lambda name: f"${{{name}:?set {name}}}"
    )


def deployment(chosen: Export) -> str:
    """A Deployment and its Service; secrets come from a Secret that is named in it."""
    name = host_label(chosen.study)
    secrets = sorted({*chosen.secret_env, *chosen.argument_secrets})
    head = "" if chosen.container.image else comment("Put an image in place of ${IMAGE}.")
    head += "".join(
        comment(f"Mount {path} yourself: a cluster looks up no variable there.")
        for path in chosen.container.mounts
        if references(path)
    )
    if secrets:
        head += comment(f"The Secret {name}-secrets must hold {', '.join(secrets)}.")
    labels = {"app": name}
    spec = {
        "replicas": max(1, len(chosen.replicas)),
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": _pod(chosen, name, secrets)},
    }
    service = {"selector": labels, "ports": [{"port": front(chosen), "targetPort": chosen.port}]}
    documents = [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": service},
    ]
    return head + "---\n".join(write(document) for document in documents)


def front(chosen: Export) -> int:
    """The port that others know the server by."""
    pairs = [port.rpartition(":")[::2] for port in chosen.container.publish]
    fronts = [int(at.rpartition(":")[2]) for at, inside in pairs if int(inside) == chosen.port]
    return fronts[0] if fronts else chosen.port


def _pod(chosen: Export, name: str, secrets: list[str]) -> dict[str, Any]:
    known = [path for path in chosen.container.mounts if not references(path)]
    paths = {f"path-{at}": path for at, path in enumerate(known)}
    health = {"httpGet": {"path": "/health", "port": chosen.port}, "periodSeconds": PROBE_S}
    server: dict[str, Any] = {
        "name": "server",
        "image": chosen.container.image or IMAGE,
        "command": [_expanded(word) for word in chosen.container.program],
        "args": [_expanded(word) for word in arguments(chosen, alone=True)],
        "env": [*(_secret(each, name) for each in secrets), *_plain(chosen)],
        "ports": [{"containerPort": chosen.port}],
        "startupProbe": {**health, "failureThreshold": READY_AFTER_S // PROBE_S},
        "readinessProbe": health,
        "volumeMounts": [
            {"name": "shared-memory", "mountPath": "/dev/shm"},  # noqa: S108 - of the container
            *({"name": n, "mountPath": path, "readOnly": True} for n, path in paths.items()),
        ],
    }
    if chosen.gpus:
        server["resources"] = {"limits": {"nvidia.com/gpu": chosen.gpus}}
    volumes = [
        {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
        *({"name": n, "hostPath": {"path": path}} for n, path in paths.items()),
    ]
    return {"containers": [server], "volumes": volumes}


def _secret(variable: str, name: str) -> dict[str, Any]:
    source = {"secretKeyRef": {"name": f"{name}-secrets", "key": variable}}
    return {"name": variable, "valueFrom": source}


def _plain(chosen: Export) -> list[dict[str, str]]:
    return [{"name": n, "value": _expanded(value)} for n, value in chosen.plain_env.items()]


def _expanded(text: str) -> str:
    """As a cluster reads it: `$$` is a dollar, `$(NAME)` the value of a variable before it."""
    return spelt(text, lambda part: part.replace("$", "$$"), lambda name: f"$({name})")


def flag_file(chosen: Export) -> str:
    """The engine's arguments as a file for its `--config`: flag and value, true for one alone.

    A secret has no place in it: which flags are missing, and the environment, is said above.
    """
    kept: dict[str, Any] = {}
    head = comment(f"Launch: {' '.join(chosen.argv[: chosen.program])} --config THIS_FILE")
    for name, value in chosen.env.items():
        head += comment(f"Environment: {name}={value}")
    for name, words in flags(chosen.arguments):
        asked = [variable for word in words for variable in references(word)]
        if asked:
            head += comment(f"Not in this file: --{name}, which needs {', '.join(asked)}")
        else:
            kept[name] = _values(words)
    return head + write(kept)


def _values(words: tuple[str, ...]) -> Any:
    if not words:
        return True
    return _value(words[0]) if len(words) == 1 else [_value(word) for word in words]


def _value(word: str) -> Any:
    """A number where that is written as it was, else the text."""
    if _WHOLE.fullmatch(word):
        return int(word)
    number = float(word) if _DECIMAL.fullmatch(word) else None
    return number if str(number) == word else word
