"""Servers that behave badly, and what it takes to watch them die."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tuner.engines.base import LaunchCommand
from tuner.hosts import processes
from tuner.hosts.server import Server
from tuner.hosts.supervisor import TAG_VARIABLE

ROOT = Path(__file__).resolve().parent.parent
DEADLINE_S = 60.0

LISTENS = """
import socket, sys, time
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
time.sleep(600)
"""

LISTENS_IN_CHILD = """
import os, socket, time
if os.fork() == 0:
    os.setsid()
    listener = socket.create_server(("127.0.0.1", {port}))
time.sleep(600)
"""

SLEEPS = "import time; print('up', flush=True); time.sleep(600)"

IGNORES_SIGTERM = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(600)
"""

# The child leaves the session, its parent ends, the grandchild ignores SIGTERM.
HAS_RUNAWAY = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("runaway", os.getpid(), flush=True)
    time.sleep(600)
{then}
"""

# The same, and it has shed every mark in its environment.
HAS_NAMELESS_RUNAWAY = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    program = "import os, time; print('nameless', os.getpid(), flush=True); time.sleep(600)"
    os.execve(sys.executable, [sys.executable, "-c", program], {})
time.sleep(600)
"""

MAPS_SEGMENT = """
import mmap, os, signal, time
kept = []
for name in {names}:
    with open("/dev/shm/" + name, "w+b") as file:
        file.truncate(4096)
        kept.append(mmap.mmap(file.fileno(), 4096))
print("mapped", flush=True)
time.sleep(600)
"""

# A semaphore is mapped under a name that it loses before it gets its own.
MAPS_SEMAPHORE = """
import ctypes, time
libc = ctypes.CDLL(None)
libc.sem_open.restype = ctypes.c_void_p
assert libc.sem_open(b"/{name}", 0o100, 0o600, 1)
print("mapped", flush=True)
time.sleep(600)
"""

LEAVES_FILES = """
import pathlib, tempfile, time
pathlib.Path(tempfile.gettempdir(), "socket").write_text("")
print(tempfile.mkdtemp(), flush=True)
time.sleep(600)
"""

# Says who was told to end, and when. The child stays until it is told itself.
TELLS_WHO_IS_ASKED = """
import os, signal, sys, time
def told(*_):
    print("asked", "child" if child == 0 else "leader", time.monotonic(), flush=True)
    {then}
child = os.fork()
signal.signal(signal.SIGTERM, told)
print("up", flush=True)
while True:
    time.sleep(600)
"""


def python(program: str, *arguments: object) -> LaunchCommand:
    """A command that runs a program text."""
    words = (sys.executable, "-c", program, *map(str, arguments))
    return LaunchCommand(argv=words)


def runaway(then: str = "time.sleep(600)") -> LaunchCommand:
    return python(HAS_RUNAWAY.format(then=then))


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for something that must come true; the machine may be slow."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.02)


def said(server: Server, words: str) -> None:
    until(lambda: words in server.log(), f"the server says {words!r}")


def alive_with(tag: str) -> list[processes.Process]:
    """Every process that carries the mark of a server or descends from one."""
    return processes.tree(TAG_VARIABLE, tag)


OWNER = """
import sys, time
from pathlib import Path
from tests import victims
from tuner.hosts.server import Server
folder, lease_s, program = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
server = Server.start(
    victims.python(program), folder=folder, port=victims.free_port(), tag="owned",
    lease_s=lease_s, grace_s=1.0, run_root=folder / "root",
)
victims.said(server, "")
print(server.tag, server.pid, server._supervisor[0], flush=True)
time.sleep(600)
"""


class Owned:
    """A server whose owner is another process."""

    def __init__(self, owner: subprocess.Popen[str]) -> None:
        self.owner = owner
        assert owner.stdout is not None
        tag, server, supervisor = owner.stdout.readline().split()
        self.tag, self.server, self.supervisor = tag, int(server), int(supervisor)

    def gone(self) -> bool:
        return not alive_with(self.tag)


@contextmanager
def owned(folder: Path, program: str, *, lease_s: float = 30.0) -> Iterator[Owned]:
    """Start an owner in a process of its own; nothing of it is left afterwards."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder), str(lease_s), program],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    found = Owned(owner)
    try:
        yield found
    finally:
        owner.kill()
        owner.communicate()
        for process in alive_with(found.tag):
            processes.send(process, signal.SIGKILL)


def kill(pid: int, signal_number: int = signal.SIGKILL) -> None:
    os.kill(pid, signal_number)
