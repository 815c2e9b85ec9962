"""A page for a process that imports little: what it says, that it is not there, or nothing."""

import socket
import threading
from contextlib import suppress
from time import perf_counter, sleep

import pytest

from tests.test_observer import pages
from tuner.http.plain import NotThere, get_text


def test_a_page_is_read_and_a_key_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # never used to reach this machine
    with pages() as (url, keys):
        assert "num_requests_running" in (get_text(f"{url}/metrics", "sk-1", 10.0) or "")
        assert get_text(f"{url}/metrics", None, 10.0) is not None
    assert keys == ["Bearer sk-1", ""]


@pytest.mark.parametrize("status", [401, 404])
def test_a_page_that_is_not_for_us_is_not_there(status: int) -> None:
    with pages(status=status) as (url, _), pytest.raises(NotThere, match=f"status {status}"):
        get_text(f"{url}/metrics", None, 10.0)


def test_a_server_in_trouble_says_nothing() -> None:
    with pages(status=503) as (url, _):
        assert get_text(url, None, 10.0) is None
    assert get_text("http://127.0.0.1:1/metrics", None, 10.0) is None


@pytest.mark.parametrize(
    "said", [b"", b"SSH-2.0\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx"]
)
def test_what_is_no_whole_answer_in_time_is_nothing(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with listener.accept()[0] as theirs:
                theirs.recv(1000)
                theirs.sendall(said)
                theirs.recv(1000)

        thread = threading.Thread(target=answer)
        thread.start()
        assert get_text(f"http://127.0.0.1:{listener.getsockname()[1]}", None, 0.2) is None
        thread.join()


@pytest.mark.parametrize("said", [b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n", b""])
def test_an_answer_that_drips_is_not_waited_for(said: bytes) -> None:
    """Each byte of a body, or of a header, comes long before a read alone would be given up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            with listener.accept()[0] as theirs, suppress(OSError):
                theirs.recv(1000)
                theirs.sendall(said or b"HTTP/1.1 200 OK\r\nx: ")
                for _ in range(400):
                    theirs.sendall(b"x")
                    sleep(0.05)

        thread = threading.Thread(target=drip)
        thread.start()
        began_s = perf_counter()
        assert get_text(f"http://127.0.0.1:{listener.getsockname()[1]}", None, 0.5) is None
        assert perf_counter() - began_s < 15  # twenty seconds are what it would take
        thread.join()
