import os

import pytest

from tuner.errors import HostError
from tuner.hosts import ray_session


def test_an_address_where_nobody_answers_is_a_host_error() -> None:
    with pytest.raises(HostError, match=r"Ray does not start at not-an-address: "):
        ray_session.start("not-an-address")


def test_the_address_of_a_ray_client_is_refused() -> None:
    with pytest.raises(HostError, match="asks for a Ray client"):
        ray_session.start("ray://head:10001")


def test_rays_settings_are_not_left_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    before = dict(os.environ)
    with ray_session._environment():
        assert "RAY_AUTH_MODE" not in os.environ
        assert len(os.environ["RAY_AUTH_TOKEN"]) == 64
    assert dict(os.environ) == before


def test_what_ray_says_comes_in_one_line_without_colours() -> None:
    error = RuntimeError("\x1b[36mThe actor died\x1b[39m because\nof an error")
    assert ray_session._first_line(error) == "The actor died because"


def test_a_bug_says_in_its_last_line_what_was_raised() -> None:
    assert ray_session.JobBug("Traceback\n  File\nValueError: no\n").last_line == "ValueError: no"
