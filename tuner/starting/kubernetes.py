"""A container of a Kubernetes manifest → the server in it, to be run by docker."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tuner.errors import TunerError
from tuner.starting.commands import Context
from tuner.starting.pasted import Container, Pasted
from tuner.starting.services import chosen, mapping, sequence, text, unused

_TEMPLATES: Mapping[str, tuple[str, ...]] = {
    "Pod": ("spec",),
    **dict.fromkeys(
        ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job"),
        ("spec", "template", "spec"),
    ),
    "CronJob": ("spec", "jobTemplate", "spec", "template", "spec"),
    "InferenceService": ("spec", "predictor"),
    "ServingRuntime": ("spec",),
    "ClusterServingRuntime": ("spec",),
}
_OVER_HOSTS = frozenset({"LeaderWorkerSet", "RayCluster", "RayService", "RayJob", "MPIJob"})
_GPUS = ("nvidia.com/gpu", "amd.com/gpu")
_REFERENCE = re.compile(r"\$(?:(\$)|\(([A-Za-z_]\w*)\))")
_SIZE = re.compile(r"(\d+)([KMGT]?)i?")
_USED = frozenset(
    [
        "name",
        "image",
        "imagePullPolicy",
        "command",
        "args",
        "env",
        "resources",
        "volumeMounts",
        "ports",
        "securityContext",
        "workingDir",
    ]
)


def find(documents: Sequence[Any], context: Context, name: str | None) -> Pasted:
    """The server that a manifest starts, or its container of that name.

    Raises TunerError where there is none or more than one, and for what cannot be read.
    """
    found: dict[str, Pasted] = {}
    others = []
    for document in _flat(documents):
        kind = text(document.get("kind"), "kind")
        if kind in _OVER_HOSTS:
            raise TunerError(
                f"a {kind} spreads one server over several hosts, which cannot be tuned yet",
                hint="Start from a server that fits one host.",
            )
        if kind not in _TEMPLATES:
            others.append(f"{kind} left out")
            continue
        pod: Any = document
        for key in _TEMPLATES[kind]:
            pod = mapping(pod, kind).get(key)
        for server in sequence(mapping(pod, kind).get("containers"), f"{kind}.containers"):
            container = _Container(mapping(server, f"{kind}.containers"), mapping(pod, kind))
            found[container.name] = container.pasted(tuple(_replicas(document)))
    server = chosen(found, name, "container", context)
    return replace(server, left_out=(*server.left_out, *dict.fromkeys(others)))


def _flat(documents: Sequence[Any]) -> Iterator[Mapping[str, Any]]:
    for document in documents:
        if document is None:
            continue
        source = mapping(document, "the manifest")
        if source.get("kind") == "List":
            yield from _flat(sequence(source.get("items"), "items"))
        else:
            yield source


def _replicas(document: Mapping[str, Any]) -> Iterator[str]:
    spec = document.get("spec")
    replicas = spec.get("replicas") if isinstance(spec, dict) else None
    if replicas not in {None, "1"}:
        yield f"replicas: {replicas}: one of them is tuned"


class _Container:
    """One container of a pod; `$(NAME)` stands for a variable of its environment."""

    def __init__(self, source: Mapping[str, Any], pod: Mapping[str, Any]) -> None:
        self.name = text(source.get("name", "server"), "containers.name")
        self.where = f"container {self.name}"
        self.source = source
        self.pod = pod
        self.notes: list[str] = []
        self.env: dict[str, str] = {}

    def pasted(self, notes: tuple[str, ...]) -> Pasted:
        """The container as it is described, whatever it starts."""
        for entry in sequence(self.source.get("env"), f"{self.where}: env"):
            self._variable(mapping(entry, f"{self.where}: env"))
        command, args = self._words("command"), self._words("args")
        options = tuple(self._options())
        return Pasted(
            words=(*command, *args),
            env=self.env,
            container=Container(
                image=text(self.source.get("image"), f"{self.where}: image"),
                network="host" if self.pod.get("hostNetwork") == "true" else "bridge",
                options=options,
                own_entry=not command,
            ),
            gpus=self._gpus(),
            left_out=(*notes, *self.notes, *unused(self.source, _USED, self.where)),
        )

    def _variable(self, entry: Mapping[str, Any]) -> None:
        name = text(entry.get("name"), f"{self.where}: env.name")
        source = mapping(entry.get("valueFrom"), f"{self.where}: env.{name}")
        if "secretKeyRef" in source or "configMapKeyRef" in source:
            self.env[name] = f"${{{name}}}"
        elif source:
            self.notes.append(f"{self.where}: {name} comes from the cluster, left out")
        else:
            value = entry.get("value")
            self.env[name] = "" if value is None else self._text(value, f"env.{name}")

    def _text(self, value: Any, key: str) -> str:
        return _REFERENCE.sub(self._reference, text(value, f"{self.where}: {key}"))

    def _reference(self, match: re.Match[str]) -> str:
        if match[1]:
            return "$"
        if match[2] in self.env:
            return self.env[match[2]]
        raise TunerError(
            f"{self.where}: cannot read '{match[0]}', which only the cluster knows",
            hint="Write out what it stands for.",
        )

    def _words(self, key: str) -> tuple[str, ...]:
        words = sequence(self.source.get(key), f"{self.where}: {key}")
        return tuple(self._text(word, key) for word in words)

    def _options(self) -> Iterator[str]:
        if self.pod.get("hostIPC") == "true":
            yield "--ipc=host"
        security = mapping(self.source.get("securityContext"), f"{self.where}: securityContext")
        if security.get("privileged") == "true":
            yield "--privileged"
        capabilities = mapping(security.get("capabilities"), f"{self.where}: capabilities")
        for name in sequence(capabilities.get("add"), f"{self.where}: capabilities"):
            yield f"--cap-add={name}"
        if "workingDir" in self.source:
            yield f"--workdir={self._text(self.source['workingDir'], 'workingDir')}"
        yield from self._volumes()

    def _volumes(self) -> Iterator[str]:
        volumes = {
            each.get("name"): each
            for each in sequence(self.pod.get("volumes"), "volumes")
            if isinstance(each, dict)
        }
        for mount in sequence(self.source.get("volumeMounts"), f"{self.where}: volumeMounts"):
            source = mapping(mount, f"{self.where}: volumeMounts")
            path = text(source.get("mountPath"), f"{self.where}: mountPath")
            yield from self._mount(
                path, source, mapping(volumes.get(source.get("name")), "volumes")
            )

    def _mount(
        self, path: str, mount: Mapping[str, Any], volume: Mapping[str, Any]
    ) -> Iterator[str]:
        host = mapping(volume.get("hostPath"), "hostPath").get("path")
        memory = mapping(volume.get("emptyDir"), "emptyDir")
        if host:
            yield f"--volume={host}:{path}" + (":ro" if mount.get("readOnly") == "true" else "")
        elif path == "/dev/shm" and memory.get("medium") == "Memory":  # noqa: S108 - its name
            yield _shared_memory(memory.get("sizeLimit"))
        else:
            self.notes.append(
                f"{self.where}: what is mounted at {path} comes from the cluster; add a folder of"
                f" the host: engine.containers.options: [--volume=/FOLDER:{path}]"
            )

    def _gpus(self) -> int | None:
        resources = mapping(self.source.get("resources"), f"{self.where}: resources")
        for kind in ("limits", "requests"):
            amounts = mapping(resources.get(kind), f"{self.where}: {kind}")
            for name in _GPUS:
                count = str(amounts.get(name, ""))
                if count.isdecimal():
                    return int(count)
        return None


def _shared_memory(limit: Any) -> str:
    """As large as the limit says, else as large as the host's."""
    size = _SIZE.fullmatch(str(limit)) if limit else None
    return f"--shm-size={size[1]}{size[2].lower()}" if size else "--ipc=host"
