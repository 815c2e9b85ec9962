"""Whose a port is: a server's own, or a stranger's that only happens to listen there."""

from typing import Protocol

from tuner.errors import PortTaken
from tuner.hosts import processes
from tuner.hosts.containers import Container
from tuner.hosts.supervisor import TAG_VARIABLE


class Port(Protocol):
    """A port that one server was told to listen on."""

    def listening(self) -> bool:
        """True once it is listened on, by processes of this server alone.

        Raises HostError where a stranger listens there.
        """
        ...


class OwnPort:
    """The port of a server whose processes carry its mark."""

    def __init__(self, port: int, tag: str) -> None:
        self._port = port
        self._tag = tag

    def listening(self) -> bool:
        """Whether the server listens. Raises HostError where a stranger does."""
        sockets = processes.listening_sockets(self._port)
        if not sockets:
            return False
        foreign = self._foreign(sockets)
        stranger = _holder(foreign)
        if stranger:
            raise _taken(self._port, stranger)
        return not foreign

    def _foreign(self, sockets: set[str]) -> set[str]:
        own = [process.pid for process in processes.tree(TAG_VARIABLE, self._tag)]
        return sockets - set(processes.holders(sockets, own))


class ContainerPort(OwnPort):
    """The port of a container in the host's network.

    Another user's processes hide what they hold: then the container is asked what it sees itself.
    """

    def __init__(self, port: int, container: Container) -> None:
        super().__init__(port, container.tag)
        self._container = container
        self._proven: set[str] = set()

    def _foreign(self, sockets: set[str]) -> set[str]:
        foreign = sockets - self._proven
        if foreign:
            foreign = super()._foreign(foreign)
        if foreign:
            inside = [process.pid for process in self._container.processes()]
            foreign -= set(processes.holders(foreign, inside))
        if foreign and not _holder(foreign):
            foreign -= self._container.sockets()
        self._proven = sockets - foreign
        return foreign


class PublishedPort:
    """The port of a container that the runtime forwards to it, through a process of its own."""

    def __init__(self, port: int, container: Container) -> None:
        self._port = port
        self._container = container
        self._published = False

    def listening(self) -> bool:
        """Whether the runtime says that it forwards the port to this container, which runs: then
        nobody else can have it. Raises HostError where the runtime does not answer."""
        if not self._published and self._container.created():
            state = self._container.state()
            self._published = state is not None and state.running and self._port in state.published
        return self._published


def refuse_taken(port: int) -> None:
    """Raises HostError where somebody listens on this port, and says who."""
    sockets = processes.listening_sockets(port)
    if sockets:
        raise _taken(port, _holder(sockets) or "a process of another user")


def _holder(sockets: set[str]) -> str:
    """Who holds the sockets, in words; empty where nobody can be seen to."""
    found = processes.holders(sockets, processes.table()) if sockets else {}
    return ", ".join(
        f"process {pid} ({processes.command_line(pid)[:120]})"
        for pid in sorted(set(found.values()))
    )


def _taken(port: int, who: str) -> PortTaken:
    return PortTaken(f"port {port} is taken by {who}", hint="stop it, or free the port")
