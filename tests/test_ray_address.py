"""What is no Ray cluster is told at once, and one that is there is let through."""

import socket
import threading

import pytest

from tuner.errors import HostError
from tuner.hosts import ray_session
from tuner.hosts.ray_address import refuse_dead

import ray  # isort: skip  (after ray_session, which sets what Ray reads when imported)


@pytest.mark.parametrize(
    "address", ["head", "head:", ":6379", "head:0", "head:99999", "local", "ray://head:10001"]
)
def test_what_is_no_address_is_a_host_error(address: str) -> None:
    with pytest.raises(HostError, match=f"{address} is not the address of a Ray cluster"):
        ray_session.start(address)


def test_an_address_where_nobody_answers_is_a_host_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(HostError, match=f"nothing answers at {address}: Connection refused"):
            ray_session.start(address)


def test_a_server_that_is_not_ray_is_told_from_ray() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            wire, _ = server.accept()
            with wire:
                wire.recv(64)
                wire.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(HostError, match=r"is not Ray: found b'HTTP/1\.1 ', expected gRPC"):
            ray_session.start(f"127.0.0.1:{server.getsockname()[1]}")
        thread.join()


def test_a_ray_that_is_there_is_known_by_its_first_words() -> None:
    session = ray_session.start(None)
    try:
        refuse_dead(ray.get_runtime_context().gcs_address)
    finally:
        session.stop()
