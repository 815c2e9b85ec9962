"""Servers of a test's own, all of them stopped and proven gone at its end."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.victims import alive_with, free_port
from tuner.engines.base import LaunchCommand
from tuner.hosts.server import Server


class Starter:
    """Starts servers in a folder of their own and stops them all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.started: list[Server] = []

    def __call__(
        self,
        command: LaunchCommand,
        *,
        port: int | None = None,
        grace_s: float = 5.0,
        lease_s: float = 30.0,
        cores: tuple[int, ...] = (),
    ) -> Server:
        server = Server.start(
            command,
            folder=self.folder / f"server-{len(self.started)}",
            port=port or free_port(),
            tag="test",
            grace_s=grace_s,
            lease_s=lease_s,
            cores=cores,
            run_root=self.root,
        )
        self.started.append(server)
        return server


@contextmanager
def starting(folder: Path) -> Iterator[Starter]:
    """Starts servers; they are gone afterwards, with all that they left."""
    starter = Starter(folder)
    yield starter
    for server in starter.started:
        assert server.stop().survivors == 0
        assert not alive_with(server.tag)
    assert not list((starter.root / "servers").glob("*"))
    assert not list((starter.root / "tmp").glob("*"))


@contextmanager
def named_segment() -> Iterator[str]:
    """A name in /dev/shm that nobody has, free again afterwards."""
    name = f"tuner-test-{os.getpid()}-{time.monotonic_ns()}"
    yield name
    for left in (name, f"sem.{name}"):
        (Path("/dev/shm") / left).unlink(missing_ok=True)
