"""One process of several that play a rung together: does as its `Crew` says, and dies with it."""

import asyncio
import logging
import os
import sys
from multiprocessing.connection import Connection
from threading import Thread

from tuner.errors import TunerError
from tuner.load.crew import COUNTS_EVERY_S, Broken, Order
from tuner.load.runner import run, still_heap
from tuner.load.solo import Solo, Span


def main() -> None:
    """Play what is ordered through the pipe whose descriptor is the first argument."""
    # How a server is reached is said once, by who gives the orders.
    logging.getLogger("tuner.load.channels").setLevel(logging.ERROR)
    with Connection(int(sys.argv[1])) as pipe:
        try:
            run(_serve(pipe, pipe.recv()))
        except TunerError as exc:
            pipe.send(Broken(exc))
        except (EOFError, BrokenPipeError):
            return  # who gave the order is gone


async def _serve(pipe: Connection, order: Order) -> None:
    words: asyncio.Queue[str | Span] = asyncio.Queue()
    listener = Thread(target=_listen, args=(pipe, asyncio.get_running_loop(), words), daemon=True)
    listener.start()
    solo = Solo(order.target, order.plan, order.share)
    with still_heap():
        await _obey(pipe, solo, words)


async def _obey(pipe: Connection, solo: Solo, words: asyncio.Queue[str | Span]) -> None:
    telling: asyncio.Task[None] | None = None
    while True:
        word = await words.get()
        if isinstance(word, Span):
            pipe.send(await solo.brought(word))
        elif word == "connect":
            await solo.connect()
            pipe.send(word)
        elif word == "start":
            solo.start()
            telling = asyncio.create_task(_tell(pipe, solo))
        elif word == "mark":
            solo.mark()
        elif word == "ease":
            solo.ease()
        elif word == "stop":
            if telling is not None:
                telling.cancel()
            await solo.stop()
            pipe.send(word)


async def _tell(pipe: Connection, solo: Solo) -> None:
    while True:
        pipe.send(solo.counts())
        await asyncio.sleep(COUNTS_EVERY_S)


def _listen(
    pipe: Connection, loop: asyncio.AbstractEventLoop, words: asyncio.Queue[str | Span]
) -> None:
    """Hear words until the other side closes or dies: then nothing is left to do here."""
    try:
        while True:
            loop.call_soon_threadsafe(words.put_nowait, pipe.recv())
    except (EOFError, OSError):
        os._exit(0)
