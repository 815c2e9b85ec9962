"""A service of a compose file → the server in its container."""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from tuner.errors import TunerError
from tuner.starting.commands import Context
from tuner.starting.docker import NOT_ONE_PORT, on_host, published
from tuner.starting.pasted import Container, Pasted, Words
from tuner.starting.services import chosen, mapping, sequence, text, unused

_REFERENCE = re.compile(
    r"\$(?:(?P<dollar>\$)|(?P<bare>[A-Za-z_]\w*)|\{(?P<name>[A-Za-z_]\w*)(?P<rest>[^}]*)\})"
)
_PLAIN_OPTIONS: Mapping[str, str] = {
    "ipc": "ipc",
    "shm_size": "shm-size",
    "user": "user",
    "working_dir": "workdir",
    "mem_limit": "memory",
    "cpuset": "cpuset-cpus",
    "pid": "pid",
    "platform": "platform",
}
_LIST_OPTIONS: Mapping[str, str] = {
    "cap_add": "cap-add",
    "security_opt": "security-opt",
    "group_add": "group-add",
    "devices": "device",
    "extra_hosts": "add-host",
    "tmpfs": "tmpfs",
}
_SILENT = frozenset({"container_name", "restart", "stdin_open", "tty", "init", "runtime"})
_READ = frozenset(
    [
        "image",
        "command",
        "entrypoint",
        "environment",
        "network_mode",
        "volumes",
        "ulimits",
        "privileged",
        "deploy",
        "gpus",
        "env_file",
        "ports",
        "expose",
    ]
)
_USED = _READ | _SILENT | _PLAIN_OPTIONS.keys() | _LIST_OPTIONS.keys()


def find(document: Any, context: Context, service: str | None) -> Pasted:
    """The server that a compose file starts, or its service of that name.

    Raises TunerError where there is none or more than one, and for what cannot be read.
    """
    services = mapping(mapping(document, "the file").get("services"), "services")
    found = {
        name: _Service(name, mapping(value, f"services.{name}"), context).pasted()
        for name, value in services.items()
        if service in {None, name} and _has_image(name, value, service)
    }
    return chosen(found, service, "service", context)


def _has_image(name: str, value: Any, asked: str | None) -> bool:
    source = mapping(value, f"services.{name}")
    if "extends" in source and "image" not in source:
        raise TunerError(
            f"services.{name}: cannot read 'extends'", hint="Write the service out in one file."
        )
    if "image" not in source and asked == name:
        raise TunerError(f"services.{name}: has no image", hint="Build it, and name its image.")
    return "image" in source


class _Service:
    """One service; texts are read as compose does, `$$` for a dollar and `${NAME:-default}`."""

    def __init__(self, name: str, source: Mapping[str, Any], context: Context) -> None:
        self.where = f"services.{name}"
        self.source = source
        self.context = context
        self.notes: list[str] = []

    def pasted(self) -> Pasted:
        """The container as it is described, whatever it starts."""
        entry = self._words("entrypoint")
        network = "host" if self.source.get("network_mode") == "host" else "bridge"
        image = self._text(self.source["image"], "image")
        env, gpus = self._env(), self._gpus()
        if "NVIDIA_VISIBLE_DEVICES" in env:
            devices = env.pop("NVIDIA_VISIBLE_DEVICES")
            gpus = gpus or (len(devices.split(",")) if devices[:1].isdigit() else None)
        env.pop("NVIDIA_DRIVER_CAPABILITIES", None)
        options = tuple(self._options())
        publish = tuple(self._ports()) if network == "bridge" else ()
        return Pasted(
            words=(*entry, *self._words("command")),
            env=env,
            container=Container(
                image=image,
                network="host" if network == "host" else "bridge",
                options=options,
                own_entry=not entry,
                publish=publish,
            ),
            gpus=gpus,
            left_out=(
                *self.notes,
                *unused(self.source, _USED, self.where),
            ),
        )

    def _text(self, value: Any, key: str) -> str:
        return _REFERENCE.sub(self._reference, text(value, f"{self.where}.{key}"))

    def _reference(self, match: re.Match[str]) -> str:
        if match["dollar"]:
            return "$"
        name, rest = match["bare"] or match["name"], match["rest"] or ""
        known = self.context.variables.get(name)
        default = re.fullmatch(r":?-(.*)", rest)
        if known is None and default:
            self.notes.append(f"{name} was taken as its default, '{default[1]}'")
            return default[1]
        if rest and not default and not re.match(r":?\?", rest):
            raise TunerError(f"{self.where}: cannot read '{match[0]}'")
        return known if known is not None else f"${{{name}}}"

    def _words(self, key: str) -> Words:
        value = self.source.get(key)
        if isinstance(value, str):
            try:
                return tuple(shlex.split(self._text(value, key)))
            except ValueError:
                raise TunerError(f"{self.where}.{key}: a quote is not closed") from None
        return tuple(self._text(word, key) for word in sequence(value, f"{self.where}.{key}"))

    def _env(self) -> dict[str, str]:
        value = self.source.get("environment")
        if isinstance(value, dict):
            return {
                name: f"${{{name}}}" if each is None else self._text(each, f"environment.{name}")
                for name, each in value.items()
            }
        pairs = (
            self._text(each, "environment").partition("=")
            for each in sequence(value, f"{self.where}.environment")
        )
        return {name: each if equals else f"${{{name}}}" for name, equals, each in pairs}

    def _options(self) -> Iterator[str]:
        for key, name in _PLAIN_OPTIONS.items():
            if key in self.source:
                yield f"--{name}={self._text(self.source[key], key)}"
        for key, name in _LIST_OPTIONS.items():
            for value in sequence(self.source.get(key), f"{self.where}.{key}"):
                yield f"--{name}={self._text(value, key)}"
        if self.source.get("privileged") == "true":
            yield "--privileged"
        yield from self._ulimits()
        for value in sequence(self.source.get("volumes"), f"{self.where}.volumes"):
            yield f"--volume={self._volume(value)}"
        files = self.source.get("env_file")
        for value in [files] if isinstance(files, str) else sequence(files, "env_file"):
            path = value.get("path") if isinstance(value, dict) else value
            yield f"--env-file={self.context.folder / self._text(path, 'env_file')}"

    def _ulimits(self) -> Iterator[str]:
        for name, value in mapping(self.source.get("ulimits"), f"{self.where}.ulimits").items():
            if isinstance(value, dict):
                yield f"--ulimit={name}={value.get('soft')}:{value.get('hard')}"
            else:
                yield f"--ulimit={name}={self._text(value, 'ulimits')}"

    def _volume(self, value: Any) -> str:
        if isinstance(value, dict):
            source = self._text(value.get("source"), "volumes.source")
            target = self._text(value.get("target"), "volumes.target")
            volume = f"{source}:{target}" + (":ro" if value.get("read_only") == "true" else "")
        else:
            volume = self._text(value, "volumes")
        home = self.context.variables.get("HOME")
        if home and volume.startswith("~/"):
            volume = home + volume[1:]
        return on_host(volume, self.context.folder)

    def _ports(self) -> Iterator[str]:
        for value in sequence(self.source.get("ports"), f"{self.where}.ports"):
            said = self._long_port(value) if isinstance(value, dict) else self._text(value, "ports")
            port = published(said)
            if port is None:
                self.notes.append(f"{self.where}: port {said}: {NOT_ONE_PORT}")
            else:
                yield port

    def _long_port(self, port: Mapping[str, Any]) -> str:
        keys = [key for key in ("host_ip", "published", "target") if key in port]
        protocol = port.get("protocol", "tcp")
        return ":".join(self._text(port[key], f"ports.{key}") for key in keys) + f"/{protocol}"

    def _gpus(self) -> int | None:
        devices: list[Any] = []
        gpus = self.source.get("gpus")
        if gpus is not None and gpus != "all":
            devices += sequence(gpus, f"{self.where}.gpus")
        at: Any = self.source.get("deploy")
        for key in ("resources", "reservations"):
            at = mapping(at, f"{self.where}.deploy").get(key)
        devices += sequence(mapping(at, "deploy").get("devices"), f"{self.where}.deploy")
        return next((n for n in map(self._device, devices) if n is not None), None)

    def _device(self, value: Any) -> int | None:
        device = mapping(value, f"{self.where}.devices")
        ids = sequence(device.get("device_ids"), f"{self.where}.device_ids")
        if ids:
            return len(ids)
        count = self._text(device.get("count", "all"), "count")
        return int(count) if count.isdecimal() else None
