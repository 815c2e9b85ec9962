"""`docker run ... IMAGE COMMAND`, of docker, podman or nerdctl → the server in it. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal

from pydantic import ValidationError

from tuner.definitions.models import Serve
from tuner.errors import TunerError
from tuner.flags.names import is_variable
from tuner.starting.entries import entry_of
from tuner.starting.pasted import Container, Pasted

RUNTIMES = frozenset({"docker", "podman", "nerdctl"})

_ALONE = frozenset(
    [
        "detach",
        "interactive",
        "tty",
        "rm",
        "privileged",
        "init",
        "read-only",
        "no-healthcheck",
        "oom-kill-disable",
        "publish-all",
        "sig-proxy",
        "quiet",
        "replace",
        "rmi",
        "disable-content-trust",
    ]
)
_SHORT: Mapping[str, str] = {
    "d": "detach",
    "i": "interactive",
    "t": "tty",
    "P": "publish-all",
    "q": "quiet",
    "e": "env",
    "v": "volume",
    "p": "publish",
    "u": "user",
    "w": "workdir",
    "h": "hostname",
    "m": "memory",
    "c": "cpu-shares",
    "l": "label",
    "a": "attach",
}
_OURS: Mapping[str, str] = {
    **dict.fromkeys(("detach", "interactive", "tty", "rm", "init", "cidfile"), ""),
    **dict.fromkeys(("quiet", "replace", "rmi", "pull", "sig-proxy", "attach", "pidfile"), ""),
    **dict.fromkeys(("publish-all", "expose"), "the tuner chooses ports"),
    **dict.fromkeys(("name", "hostname", "label"), "the tuner names containers"),
    "restart": "the tuner restarts nothing",
    **dict.fromkeys(("health-cmd", "health-interval", "health-retries"), "the tuner asks itself"),
    **dict.fromkeys(("health-timeout", "health-start-period"), "the tuner asks itself"),
    **dict.fromkeys(("log-driver", "log-opt"), "the tuner keeps the log"),
}
"""Options that are not carried over, and why where that is worth a word."""
_GPU_DEVICE = re.compile(r"nvidia\.com/gpu=(.*)")


def run(words: Sequence[str], env: Mapping[str, str], folder: Path) -> Pasted | None:
    """The container that `docker run` starts, None for any other command of docker.

    `env` is what the shell has, for `-e NAME`. Raises TunerError for what cannot be read.
    """
    runtime = PurePosixPath(words[0]).name
    at = next((i for i, word in enumerate(words) if i and not word.startswith("-")), len(words))
    rest = list(words[at:])
    if rest[:1] == ["container"]:
        rest = rest[1:]
    if rest[:1] != ["run"]:
        _refuse_running(runtime, rest)
        return None
    options = _Options(env=env, folder=folder)
    inside = options.read(rest[1:])
    if not inside:
        raise TunerError(f"'{runtime} run' names no image")
    image = inside[0]
    return Pasted(
        words=(*options.entrypoint, *inside[1:]),
        env=options.inner,
        container=Container(
            image=image,
            runtime=runtime,
            network=options.network,
            options=tuple(options.kept),
            own_entry=not options.entrypoint,
            publish=tuple(options.publish) if options.network == "bridge" else (),
        ),
        gpus=options.gpus,
        left_out=tuple(dict.fromkeys(options.left_out)),
    )


def _refuse_running(runtime: str, rest: list[str]) -> None:
    if rest[:1] == ["exec"] and entry_of(rest[2:]) is not None:
        raise TunerError(
            f"'{runtime} exec' starts the server in a container that already runs",
            hint=f"Paste the '{runtime} run' with the server as its command.",
        )
    if rest[:1] == ["compose"] or rest[:2] == ["stack", "deploy"]:
        raise TunerError(
            f"'{runtime} {rest[0]}' reads the launch from a file",
            hint="Give that file: --from compose.yaml",
        )


@dataclass(slots=True, kw_only=True)
class _Options:
    """The options of one `run`."""

    env: Mapping[str, str]
    folder: Path
    inner: dict[str, str] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    entrypoint: list[str] = field(default_factory=list)
    publish: list[str] = field(default_factory=list)
    network: Literal["host", "bridge"] = "bridge"
    gpus: int | None = None

    def read(self, words: list[str]) -> list[str]:
        """Read all options; what follows them is the image and its command."""
        while words and words[0].startswith("-") and len(words[0]) > 1:
            word, words = words[0], words[1:]
            if word == "--":
                break
            for name, value in _divided(word):
                if name in _ALONE:
                    self.take(name, value or "true")
                elif value is not None:
                    self.take(name, value)
                elif words:
                    self.take(name, words[0])
                    words = words[1:]
                else:
                    raise TunerError(f"--{name} of the container has no value")
        return words

    def take(self, name: str, value: str) -> None:
        """Note one option."""
        if name in _TAKEN:
            _TAKEN[name](self, value)
        elif name in _OURS:
            if _OURS[name]:
                self.left_out.append(f"--{name}={value} of the container: {_OURS[name]}")
        elif name in _ALONE:
            self.kept.append(f"--{name}" if value == "true" else f"--{name}={value}")
        else:
            self.kept.append(f"--{name}={value}")

    def _env(self, value: str) -> None:
        name, equals, text = value.partition("=")
        if not is_variable(name):
            raise TunerError(f"'{name}' of the container is not the name of a variable")
        text = text if equals else self.env.get(name, f"${{{name}}}")
        if name == "NVIDIA_VISIBLE_DEVICES":
            self._count(None if text in {"all", "void", "none"} else len(text.split(",")))
            self.left_out.append(f"{name}={text}: the tuner chooses GPUs")
        elif name != "NVIDIA_DRIVER_CAPABILITIES":
            self.inner[name] = text

    def _gpus(self, value: str) -> None:
        self._count(gpu_count(value))

    def _device(self, value: str) -> None:
        gpu = _GPU_DEVICE.fullmatch(value)
        if gpu is None:
            self.kept.append(f"--device={value}")
        elif gpu[1] != "all":
            self._count((self.gpus or 0) + 1)

    def _count(self, count: int | None) -> None:
        if count is not None:
            self.gpus = count

    def _runtime(self, value: str) -> None:
        if value != "nvidia":
            self.kept.append(f"--runtime={value}")

    def _network(self, value: str) -> None:
        if value == "host":
            self.network = "host"
        elif value not in {"bridge", "default"}:
            self.left_out.append(f"--network={value}: a launch has a network of its own")

    def _publish(self, value: str) -> None:
        port = published(value)
        if port is None:
            self.left_out.append(f"--publish={value} of the container: {NOT_ONE_PORT}")
        else:
            self.publish.append(port)

    def _volume(self, value: str) -> None:
        self.kept.append(f"--volume={on_host(value, self.folder)}")

    def _file(self, value: str) -> None:
        self.kept.append(f"--env-file={self.folder / value}")

    def _entrypoint(self, value: str) -> None:
        self.entrypoint = value.split()


_TAKEN = {
    "env": _Options._env,
    "gpus": _Options._gpus,
    "device": _Options._device,
    "runtime": _Options._runtime,
    "network": _Options._network,
    "net": _Options._network,
    "publish": _Options._publish,
    "volume": _Options._volume,
    "env-file": _Options._file,
    "entrypoint": _Options._entrypoint,
}


def _divided(word: str) -> Iterator[tuple[str, str | None]]:
    """The options of one word: one long one, or a row of short ones of which the last may have a
    value."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        yield name, value if equals else None
        return
    letters = word[1:]
    for at, letter in enumerate(letters, start=1):
        if letter not in _SHORT:
            raise TunerError(f"unknown option '-{letter}' of the container")
        name = _SHORT[letter]
        if name not in _ALONE:
            yield name, letters[at:].removeprefix("=") or None
            return
        yield name, None


def gpu_count(text: str) -> int | None:
    """How many GPUs `--gpus` asks for; None for all."""
    text = text.strip("'\" ")
    if text.isdecimal():
        return int(text)
    fields = dict(part.split("=", 1) for part in re.split(r",(?=[a-z]+=)", text) if "=" in part)
    if "device" in fields:
        return len(fields["device"].strip("'\"").split(","))
    count = fields.get("count", "")
    return int(count) if count.isdecimal() else None


NOT_ONE_PORT = "expected ADDRESS:PORT:PORT; write it as serve.publish"
"""Why a port is not carried over."""


def published(text: str) -> str | None:
    """What a study says of a published port; None for a range, a port by chance, or no TCP."""
    port = text.removesuffix("/tcp")
    try:
        return Serve(publish=[port]).publish[0]
    except ValidationError:
        return None


def on_host(volume: str, folder: Path) -> str:
    """A volume whose path on the host, where it is relative, is that of the folder."""
    source, colon, rest = volume.partition(":")
    if (colon and source.startswith(("./", "../"))) or source in {".", ".."}:
        return f"{(folder / source).resolve()}:{rest}"
    return volume
