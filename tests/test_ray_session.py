import os
import subprocess
import sys

import pytest

from tests.victims import ROOT
from tuner.errors import HostError
from tuner.hosts import ray_session


@pytest.mark.parametrize("kind", [Exception, RuntimeError, ConnectionError, ValueError])
def test_whatever_ray_says_when_it_does_not_start_is_a_host_error(
    monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    def fail(**_: object) -> None:
        raise kind("The current node timed out during startup.\nMore")

    monkeypatch.setattr("ray.init", fail)
    with pytest.raises(HostError, match=r"^Ray does not start on this machine: The current .*p\."):
        ray_session.start(None)


def test_an_error_that_is_not_rays_is_not_taken_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise KeyError("bug")

    monkeypatch.setattr("ray.init", fail)
    with pytest.raises(KeyError):
        ray_session.start(None)


def test_rays_settings_are_not_left_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    before = dict(os.environ)
    with ray_session._environment():
        assert "RAY_AUTH_MODE" not in os.environ
        assert len(os.environ["RAY_AUTH_TOKEN"]) == 64
    assert dict(os.environ) == before


HEARS_SIGTERM = """
import os, signal
from tuner.hosts import ray_session
heard = []
signal.signal(signal.SIGTERM, lambda *_: heard.append(1))
for _ in range(2):  # Ray that died is started again
    session = ray_session.start(None)
    os.kill(os.getpid(), signal.SIGTERM)
    session.stop()
print(heard)
"""


def test_a_signal_is_this_process_own_however_often_ray_was_started() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HEARS_SIGTERM], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "[1, 1]\n"), done.stderr


def test_what_ray_says_comes_in_one_line_without_colours() -> None:
    error = RuntimeError("\x1b[36mThe actor died\x1b[39m because\nof an error")
    assert ray_session._first_line(error) == "The actor died because"


def test_a_bug_says_in_its_last_line_what_was_raised() -> None:
    assert ray_session.JobBug("Traceback\n  File\nValueError: no\n").last_line == "ValueError: no"
