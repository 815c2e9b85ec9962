"""How an engine dies: with the exit of the real one, and what it leaves behind."""

import os
import signal
import time
from typing import NoReturn

from tuner.definitions.surface import Crash
from tuner.rehearsal import journal

_SIGQUIT_AT_LAUNCH = "Received sigquit from a child process. It usually means the child failed."
_SIGQUIT_SERVING = "SIGQUIT received. signum=3, frame=None. It usually means one child failed."
_LONG_S = 3600.0


def die_launching(crash: Crash, time_scale: float) -> NoReturn:
    """Print and die as the crash says, before anything was served."""
    if crash.log:
        journal.raw(crash.log)
    if crash.exit == "sigquit":
        journal.say(_SIGQUIT_AT_LAUNCH)
        time.sleep(crash.linger_s / time_scale)
    elif crash.exit == "zombie":
        stand_still()
    end(crash)


def last_words(crash: Crash) -> None:
    """Print what a serving engine prints as it begins to die."""
    if crash.log:
        journal.raw(crash.log)
    if crash.exit == "sigquit":
        journal.say(_SIGQUIT_SERVING)


def end(crash: Crash) -> NoReturn:
    """Leave: a scheduler's death ends in SIGKILL by the engine's own hand."""
    if crash.exit != "traceback":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(1)


def stand_still() -> NoReturn:
    """Never go on."""
    while True:
        time.sleep(_LONG_S)


def leave_orphan() -> int:
    """Start a process of a session of its own whose parent is gone; its pid."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(write_end, str(os.getpid()).encode())
            os.execvp("sleep", ["sglang::scheduler", str(int(_LONG_S * 24))])  # noqa: S606
        os._exit(0)
    os.close(write_end)
    os.waitpid(child, 0)
    pid = int(os.read(read_end, 32))
    os.close(read_end)
    return pid
