"""Runs the load's event loop, and keeps the interpreter out of its way."""

import asyncio
import gc
import resource
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import uvloop

Result = TypeVar("Result")


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end on uvloop, with as many descriptors as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    results: list[Result] = []

    async def keep() -> None:
        # A result of the task itself would be written out as text when Runner restores SIGINT.
        results.append(await coroutine)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(keep())
    return results[0]


@contextmanager
def still_heap() -> Iterator[None]:
    """No garbage collection inside: it would stop the clock's reader for milliseconds."""
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # what is new would else be looked through at once, all of it
        gc.unfreeze()
        gc.enable()
