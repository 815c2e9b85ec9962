"""The load's event loop."""

import asyncio
import resource

import pytest
import uvloop

from tuner.load import run


def test_it_runs_on_uvloop_and_returns_the_result():
    async def loop():
        return type(asyncio.get_running_loop())

    assert run(loop()) is uvloop.Loop


def test_what_is_raised_inside_comes_out():
    async def fails():
        raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        run(fails())


def test_descriptors_are_raised_to_what_the_system_allows():
    async def limits():
        return resource.getrlimit(resource.RLIMIT_NOFILE)

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    try:
        assert run(limits()) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
