"""What a supervisor executes for a command: the server itself, or the client of its container."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tuner.hosts import containers
from tuner.hosts.belongings import environment
from tuner.hosts.containers import Container, Runtime
from tuner.hosts.job import JOB_VARIABLE
from tuner.hosts.supervisor import TAG_VARIABLE

if TYPE_CHECKING:
    from tuner.engines.base import LaunchCommand

# setproctitle writes its title over the environment unless it is told not to, and the mark by
# which a server's processes are found would be gone.
_KEEP_ENVIRONMENT = {"SPT_NOENV": "1"}


class Launched(NamedTuple):
    """A command line, its whole environment, and the container that it starts, if it does."""

    argv: tuple[str, ...]
    env: dict[str, str]
    container: Container | None


def launched(
    command: "LaunchCommand",
    tag: str,
    cores: Sequence[int],
    owner: tuple[int, int],
    cidfile: Path,
    scratch: Path,
) -> Launched:
    """What the supervisor executes: the server itself, or the client of its container."""
    own = {**command.full_env, TAG_VARIABLE: tag, **_KEEP_ENVIRONMENT}
    if command.image is None:
        env = environment(_inherited(), scratch)
        return Launched(command.full_argv, {**env, **own}, None)
    runtime = Runtime.here(command.image.runtime)
    containers.remove_abandoned(runtime)
    container = Container(runtime=runtime, name=f"tuner-{tag}", cidfile=str(cidfile), tag=tag)
    if JOB_VARIABLE in os.environ:
        own[JOB_VARIABLE] = os.environ[JOB_VARIABLE]
    launch = command.image.launched(
        command.full_argv,
        own,
        name=container.name,
        cidfile=container.cidfile,
        labels=containers.labels(tag, owner),
        cores=cores,
    )
    return Launched(launch.argv, {**_inherited(), **launch.env}, container)


def _inherited() -> dict[str, str]:
    # An engine that uses Ray itself must not join the tuner's cluster.
    return {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
