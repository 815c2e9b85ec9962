"""How a launch through an image is spelt: the words of docker's or podman's `run`. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple

from tuner.engines.spelling import references, resolve, shell_word, shown_argv

ANY_ADDRESS = "0.0.0.0"  # noqa: S104  (inside a container that publishes one port to 127.0.0.1)

# A client of the runtime reads these itself: given through its environment they would change it.
_CLIENTS_OWN = frozenset({"PATH", "HOME", "USER", "TMPDIR"})
_CLIENTS_PREFIXES = ("LD_", "XDG_", "DOCKER_", "CONTAINER_", "CONTAINERS_", "BUILDAH_", "GO")


class RunLine(NamedTuple):
    """A `run` of the runtime, and the variables that its client must have."""

    argv: tuple[str, ...]
    env: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image and how it is run; the words inside it stand elsewhere.

    `mounts` are paths of the host, read-only at the same place inside. `port` is published on the
    bridge network; where a person runs it what is to be `publish`ed, else the port that the command
    names, or `usual_port`, to 127.0.0.1. `gpus`
    are UUIDs, empty where none are handed out; `all_gpus` is what a person asks for.
    """

    runtime: str
    image: str
    network: Literal["host", "bridge"] = "host"
    options: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    all_gpus: bool = True
    port: int
    usual_port: int
    publish: tuple[str, ...] = ()

    def launched(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        name: str,
        cidfile: str,
        labels: Sequence[str],
        cores: Sequence[int],
    ) -> RunLine:
        """What the tuner executes: under a name of its own, never pulled, gone once it ends.

        Values of variables go through the client's environment: a command line can be read by all.
        Raises EngineError for a variable that is not set.
        """
        own = ["--name", name, "--cidfile", cidfile, "--init", "--rm", "--pull=never"]
        own += [f"--label={label}" for label in labels]
        if cores:
            own.append(f"--cpuset-cpus={','.join(map(str, cores))}")
        passed = for_client(env)
        variables = [key if key in passed else f"{key}={value}" for key, value in env.items()]
        words = self._run(own, self._gpu_words(self.gpus), [own_port(self.port)], variables)
        options = map(resolve, self.options)
        return RunLine((*words, *options, *_inside(self.image, argv)), passed)

    def asked(self, python: Sequence[str], env: Mapping[str, str]) -> tuple[str, ...]:
        """The first words of a command that runs a python inside, without GPUs or network, with
        these variables, which the client takes from its environment.

        Raises EngineError for a variable that is not set.
        """
        own = ("--rm", "--interactive", "--pull=never", "--network=none")
        words = [self.runtime, "run", *own, *self._mount_words(), *map(resolve, self.options)]
        words += [f"--env={key}" for key in for_client(env)]
        return (*words, *_inside(self.image, python))

    def line(self, env: Mapping[str, str], argv: Sequence[str], *, launched: bool) -> str:
        """What a person pastes, as one line of POSIX shell; variables and words may refer to
        others as `${NAME}`. With `launched` the GPUs and the port are those of this launch."""
        words, looked_up = self.pasted(env, argv, launched=launched)
        before = [f"{key}={shell_word(value)}" for key, value in sorted(looked_up.items())]
        return " ".join([*before, *map(shell_word, words)])

    def pasted(
        self, env: Mapping[str, str], argv: Sequence[str], *, launched: bool = False
    ) -> RunLine:
        """The words of such a line, and the variables that its client hands on by name alone."""
        looked_up = {key: value for key, value in env.items() if references(value)}
        variables = [key if key in looked_up else f"{key}={value}" for key, value in env.items()]
        gpus = self._gpu_words(self.gpus) if launched else self._usual_gpu_words()
        ports = [own_port(self.port)] if launched else self._published(argv)
        words = self._run(["--rm", "--init"], gpus, ports, sorted(variables))
        return RunLine((*words, *shown_argv(self.options), *_inside(self.image, argv)), looked_up)

    def _run(
        self,
        own: Sequence[str],
        gpus: Sequence[str],
        ports: Sequence[str],
        variables: Sequence[str],
    ) -> tuple[str, ...]:
        network = ["--network", "host"]
        if self.network == "bridge":
            network = [word for port in ports for word in ("-p", port)]
        words = [self.runtime, "run", *own, *gpus, *network, *self._mount_words()]
        for variable in variables:
            words += ["-e", variable]
        return tuple(words)

    def _published(self, argv: Sequence[str]) -> Sequence[str]:
        return self.publish or [own_port(_named_port(argv, self.usual_port))]

    def _mount_words(self) -> list[str]:
        return [word for path in self.mounts for word in ("-v", f"{path}:{path}:ro")]

    def _gpu_words(self, gpus: Sequence[str]) -> tuple[str, ...]:
        if not gpus:
            return ()
        if self.podman:
            return tuple(f"--device=nvidia.com/gpu={gpu}" for gpu in gpus)
        # The value is read as a line of CSV, in which a comma must be quoted.
        return ("--gpus", f'"device={",".join(gpus)}"')

    def _usual_gpu_words(self) -> tuple[str, ...]:
        given = any(option.startswith(("--gpus", "--device")) for option in self.options)
        if given or not self.all_gpus:
            return ()
        return ("--device=nvidia.com/gpu=all",) if self.podman else ("--gpus", "all")

    @property
    def podman(self) -> bool:
        """Whether the runtime takes podman's words, by the name of its program."""
        return "podman" in Path(self.runtime).name


def own_port(port: int) -> str:
    """That port of a container as the same port of this machine alone."""
    return f"127.0.0.1:{port}:{port}"


def for_client(env: Mapping[str, str]) -> dict[str, str]:
    """Those of the variables that a client may have in its own environment."""
    return {name: value for name, value in env.items() if not _clients_own(name)}


def _inside(image: str, argv: Sequence[str]) -> tuple[str, ...]:
    """The image may have a program of its own that it starts with: ours takes its place."""
    return ("--entrypoint", argv[0], image, *argv[1:])


def _named_port(argv: Sequence[str], usual: int) -> int:
    named = [after for word, after in pairwise(argv) if word == "--port" and after.isdecimal()]
    return int(named[-1]) if named else usual


def _clients_own(name: str) -> bool:
    return name in _CLIENTS_OWN or name.startswith(_CLIENTS_PREFIXES)


def option_mounts(options: Sequence[str]) -> tuple[str, ...]:
    """The places inside that the options themselves fill."""
    found = []
    for before, option in zip(("", *options), options, strict=False):
        name, equals, value = option.partition("=")
        if before in ("-v", "--volume"):
            name, equals, value = before, "=", option
        if equals and name in ("-v", "--volume"):
            found.append(value.split(":")[1] if ":" in value else value)
        if equals and (name == "--mount" or before == "--mount"):
            pairs = dict(part.partition("=")[::2] for part in option.split(","))
            targets = ("target", "destination", "dst")
            found += [pairs[target] for target in targets if target in pairs]
    return tuple(found)
