"""A small process between the tuner and one server, so that the server never outlives it.

Runs as `python -I -S`, standard library only. It is the subreaper of all that the server starts,
so that no descendant can slip away to init. It stops the server when its owner closes the pipe,
lets the lease lapse or asks, when the tuner that the owner works for is gone, and when it is told
to terminate; when the server exits it stops what
the server left behind. Should it be killed itself, the kernel kills the server's first process,
and the owner (or the next sweep) finds the rest by the mark in their environment.

Protocol. Standard input: one line of JSON (the specification), then one byte at a time: RENEW
prolongs the lease, STOP ends the server, end of file means that the owner died. Standard output:
one line of JSON an event: `supervising`, `started` or `failed`, `refused`, `exited`, `done`.

Where the server is a container its child is only the client: `tuner.hosts.keeper` then asks the
runtime for what the kernel does with a process.
"""

import ctypes
import errno
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tuner.hosts import processes
from tuner.hosts.belongings import Belongings
from tuner.hosts.containers import Container
from tuner.hosts.keeper import Keeper
from tuner.hosts.processes import Process

TAG_VARIABLE = "TUNER_SERVER_TAG"
RENEW = b"."
STOP = b"s"

KILL_LIMIT_S = 30.0
"""How long a process may stay in the kernel after SIGKILL before it is reported as a survivor."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_TICK_S = 0.5
_CLIENT_S = 5.0
_LEADER_S = 3.0
_ALONE_S = 0.5
_CANNOT_EXECUTE = 127
ASKED = "asked to stop"
EXITED = "the server exited"
_OF_THE_HOST = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO),
    *(errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE),
)
"""What keeps a program from being started that is not its own fault."""

_libc = ctypes.CDLL(None, use_errno=True)


class Supervisor:
    """One server from its first instruction to the proof that nothing of it is left."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        me = processes.read(os.getpid())
        self.identity = (os.getpid(), me.started if me else 0)
        self.server = 0
        self.exit_code: int | None = None
        self.why = ""
        self.renewed_at = time.monotonic()
        self.belongings = Belongings(spec.get("scratch"))
        container = Container.restored(spec.get("container"))
        self.keeper = Keeper(container, Path(spec["log"])) if container else None

    def run(self) -> None:
        """Start the server, watch it, stop it, report."""
        _tell({"event": "supervising", "supervisor": self.identity})
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        wakeup = self._listen_to_signals()
        self._write_record()
        try:
            self._start()
        except OSError as error:
            self._fail(error)
            return
        self._write_record()
        _tell({"event": "started", "pid": self.server})
        self._watch(wakeup)
        self._finish()

    def _listen_to_signals(self) -> int:
        # A blocked signal would stay blocked in the server (Ray's workers block SIGINT).
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(ignored, signal.SIG_IGN)
        readable, writable = os.pipe()
        os.set_blocking(readable, False)
        os.set_blocking(writable, False)
        signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._terminated)
        return readable

    def _terminated(self, *_: object) -> None:
        self.why = self.why or "the supervisor was told to terminate"

    def _start(self) -> None:
        self.belongings.prepare()
        with Path(self.spec["log"]).open("wb") as log:
            process = subprocess.Popen(
                self.spec["argv"],
                env=self.spec["env"],
                cwd=self.spec["cwd"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=self._become_server,  # noqa: PLW1509  (one thread only)
            )
        self.server = process.pid
        # waitpid(-1) below collects it; Popen must neither poll nor warn.
        process.returncode = 0

    def _become_server(self) -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if self.spec["cores"]:
            os.sched_setaffinity(0, self.spec["cores"])
        for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(ignored, signal.SIG_DFL)

    def _watch(self, wakeup: int) -> None:
        while not self.why:
            with suppress(InterruptedError):
                readable, _, _ = select.select([0, wakeup], [], [], _TICK_S)
                if wakeup in readable:
                    os.read(wakeup, 4096)
                if 0 in readable:
                    self._hear(os.read(0, 4096))
            self._reap()
            if self.belongings.look(self._tree):
                # Who clears up after a killed supervisor can know them from there alone.
                self._write_record()
            if self.keeper and self.exit_code is None:
                self.keeper.look()
            if self.exit_code is not None:
                self.why = self.why or EXITED
            elif self._abandoned():
                self.why = self.why or "the tuner is gone"
            elif time.monotonic() - self.renewed_at > self.spec["lease_s"]:
                # What the owner wrote while this process was itself frozen counts: it was read
                # above, before the lease is judged.
                self.why = self.why or "the owner let the lease lapse"

    def _abandoned(self) -> bool:
        """A worker of Ray may outlive the tuner that it works for by many seconds."""
        tuner = self.spec.get("tuner")
        return tuner is not None and not processes.alive(*tuner)

    def _hear(self, said: bytes) -> None:
        if not said:
            self.why = self.why or "the owner is gone"
        elif STOP in said:
            self.why = self.why or ASKED
        else:
            self.renewed_at = time.monotonic()

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.server:
                    self._exited(os.waitstatus_to_exitcode(status))

    def _exited(self, code: int) -> None:
        self.exit_code = code
        if self.keeper:
            self.exit_code = self.keeper.ended(code)
            if self.keeper.refused:
                refused = {"code": code, "text": self.keeper.refused}
                _tell({"event": "refused", **refused})
        _tell({"event": "exited", "exit_code": self.exit_code})

    def _tree(self) -> list[Process]:
        self._reap()
        return processes.tree(TAG_VARIABLE, self.spec["tag"], [os.getpid()])

    def _finish(self) -> None:
        began = time.monotonic()
        tree = self._tree()
        self.belongings.add(tree)
        if self.keeper and self.keeper.stop(self._grace_s()):
            # It says how the container ended, which a client that is told to end does not.
            self._wait(lambda: self.exit_code is None and bool(self._tree()), _CLIENT_S)
            tree = self._tree()
        self._terminate(tree)
        limit_s = self.spec.get("kill_limit_s", KILL_LIMIT_S)
        killed, survivors = processes.kill_all(self._tree, limit_s)
        inside, left, unproven = self.keeper.remove(limit_s) if self.keeper else (0, 0, "")
        self._report(
            duration_s=time.monotonic() - began,
            killed=len(killed) + inside,
            survivors=survivors + left,
            segments=self.belongings.remove(),
            unproven=unproven,
        )

    def _grace_s(self) -> float:
        grace_s: float = self.spec["grace_s" if self.why == ASKED else "orphan_grace_s"]
        return grace_s

    def _terminate(self, tree: list[Process]) -> None:
        """Ask the first process, which knows best how to end the others, then all of them."""
        if not tree:
            return
        end = time.monotonic() + self._grace_s()
        for process in tree:
            # A stopped process hears nothing until it is continued.
            processes.send(process, signal.SIGCONT)
        if self.exit_code is None:
            self._signal(tree, lambda process: process.pid == self.server)
            self._wait(self._lives, min(_LEADER_S, self._grace_s() / 2))
        self._signal(self._tree(), lambda process: process.pid != self.server)
        self._wait(lambda: bool(self._others()), end - time.monotonic())
        # A leader that was left alone has nothing more to end: SGLang's sleeps on for seconds.
        left_s = end - time.monotonic()
        self._wait(self._lives, min(_ALONE_S, left_s) if len(tree) > 1 else left_s)

    def _signal(self, tree: list[Process], whom: Callable[[Process], bool]) -> None:
        for process in filter(whom, tree):
            processes.send(process, signal.SIGTERM)

    def _lives(self) -> bool:
        """Whether the server's first process is still there."""
        return any(process.pid == self.server for process in self._tree())

    def _others(self) -> list[Process]:
        return [process for process in self._tree() if process.pid != self.server]

    def _wait(self, while_: Callable[[], bool], limit_s: float) -> None:
        end = time.monotonic() + limit_s
        while while_() and time.monotonic() < end:
            time.sleep(processes.TICK_S)

    def _fail(self, error: OSError) -> None:
        text = f"cannot start {self.spec['argv'][0]}: {error.strerror}"
        self.exit_code = _CANNOT_EXECUTE
        self.why = text
        with suppress(OSError), Path(self.spec["log"]).open("ab") as log:
            log.write(f"{text}\n".encode())
        _tell({"event": "failed", "error": text, "by_host": error.errno in _OF_THE_HOST})
        self._report(duration_s=0.0, killed=0, survivors=0, segments=self.belongings.remove())

    def _report(self, **facts: Any) -> None:
        report = {"exit_code": self.exit_code, "reason": self.why, **facts}
        _write_json(self.spec["report"], report)
        if not facts.get("unproven"):  # whoever comes next then tries again
            with suppress(OSError):
                Path(self.spec["record"]).unlink()
        _tell({"event": "done", **report})

    def _write_record(self) -> None:
        record = {
            "tag": self.spec["tag"],
            "supervisor": self.identity,
            "owner": self.spec["owner"],
            "server": self.server,
            "port": self.spec["port"],
            "log": self.spec["log"],
            "segments": sorted(self.belongings.segments),
            "scratch": self.belongings.scratch,
            "job": self.spec.get("job"),
            "container": self.spec.get("container"),
        }
        _write_json(self.spec["record"], record)


def _write_json(path: str, value: dict[str, Any]) -> None:
    """Whole or not at all; a folder that was deleted meanwhile must not keep a server alive."""
    temporary = Path(f"{path}.{os.getpid()}")
    with suppress(OSError):
        temporary.write_text(json.dumps(value))
        temporary.replace(path)


def _tell(event: dict[str, Any]) -> None:
    with suppress(OSError):
        os.write(1, json.dumps(event).encode() + b"\n")


def _read_spec() -> dict[str, Any]:
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 1)
        if not piece:
            sys.exit("the owner closed the pipe before it said what to start")
        line += piece
    spec: dict[str, Any] = json.loads(line)
    return spec


def main() -> None:
    """Supervise what standard input specifies, as nobody's child."""
    if os.fork() != 0:
        # A Ray worker that ends kills its own children, whatever their session: have no parent.
        os._exit(0)
    Supervisor(_read_spec()).run()
