"""Whom to observe beside a server that somebody else launched: what can be seen of it from here."""

import os
import socket
from contextlib import suppress
from urllib.parse import urlsplit

from tuner.hosts import processes
from tuner.observers.observer import Subject
from tuner.verbs.servers import Found

_USUAL_PORTS = {"http": 80, "https": 443}


def subject_of(server: Found) -> Subject:
    """The server's processes and GPUs where it listens on this machine, and its metrics anyway.

    Whose port is forwarded to another machine looks as if it listened here.
    """
    url = urlsplit(server.target.base_url)
    here = _is_here(url.hostname or "")
    port = url.port or _USUAL_PORTS.get(url.scheme, 0)
    return Subject(
        gpus=() if server.rehearsal else None,
        roots=_group(_listeners(port)) if here else (),
        here=here,
        urls=[server.target.base_url],
        names=None if server.asked is None else server.asked.metrics,
        key=server.target.key,
    )


def _is_here(host: str) -> bool:
    """Whether a host is this machine: only its own addresses can be bound."""
    with suppress(OSError):
        for family, _, _, _, address in socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM):
            with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.bind((address[0], 0))
                return True
    return False


def _listeners(port: int) -> set[int]:
    """Who listens on a port, as far as that may be seen."""
    found = processes.holders(processes.listening_sockets(port), processes.table())
    return set(found.values())


def _group(pids: set[int]) -> tuple[int, ...]:
    """With those that were started together with them: who listens may be a child of the server."""
    groups = {group for pid in pids if (group := _group_of(pid)) is not None}
    return tuple(pid for pid in processes.table() if _group_of(pid) in groups)


def _group_of(pid: int) -> int | None:
    with suppress(OSError):
        return os.getpgid(pid)
    return None
