"""Whether something at an address can be a Ray cluster, asked before Ray: it takes minutes."""

import os
import socket

from tuner.definitions.addresses import cluster_address
from tuner.errors import HostError

ATTACH_HINT = (
    "does it run there? If it asks for a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN "
    "(or RAY_AUTH_TOKEN_PATH) as on its hosts"
)

_PROBE_S = 10.0
_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
"""What a gRPC client says first; a server answers with its settings before it asks for a token."""
_HTTP2_HEADER = 9
_HTTP2_SETTINGS = b"\4"


def refuse_dead(address: str) -> None:
    """Raises HostError where no gRPC server answers."""
    place = cluster_address(address)
    if place is None:
        raise HostError(
            f"{address} is not the address of a Ray cluster", hint="give it as HOST:PORT"
        )
    try:
        with socket.create_connection(place, _PROBE_S) as wire:
            wire.sendall(_HTTP2_PREFACE)
            answer = wire.recv(_HTTP2_HEADER)
    except TimeoutError:
        raise HostError(
            f"nothing answers at {address} within {_PROBE_S:.0f} s", hint=ATTACH_HINT
        ) from None
    except OSError as error:
        raise HostError(
            f"nothing answers at {address}: {error.strerror or error}", hint=ATTACH_HINT
        ) from error
    secured = os.environ.get("RAY_USE_TLS", "0") not in ("0", "false")
    if not secured and answer[3:4] != _HTTP2_SETTINGS:
        raise HostError(
            f"what answers at {address} is not Ray: found {answer!r}, expected gRPC",
            hint="give the port of Ray's head node, 6379 unless it was started with another",
        )
