"""What a supervisor does about a server in a container, whose client alone is its child.

Standard library only, like the supervisor.
"""

import time
from contextlib import suppress
from pathlib import Path

from tuner.errors import HostError
from tuner.hosts import cgroups, processes
from tuner.hosts.containers import REFUSED, Container, exit_code_of, tree_of
from tuner.hosts.processes import Process

_LOOK_AGAIN_S = 15.0
_REMOVE_LIMIT_S = 15.0
"""A daemon that is only started anew has answered by then."""


class Keeper:
    """One container while its client runs, when that has ended, and until it is gone."""

    def __init__(self, container: Container, log: Path) -> None:
        self.refused = ""
        """Why the runtime did not run it at all; empty where it did."""
        self._container = container
        self._log = log
        self._pid = 0
        self._inside: list[Process] = []
        self._counter: Path | None = None
        self._oom_kills = 0
        self._look_at = 0.0

    def look(self) -> None:
        """Learn its first process once it has one, then watch what the kernel kills in it."""
        if self._counter is not None:
            self._oom_kills = max(self._oom_kills, cgroups.oom_kills(self._counter))
        if self._pid or time.monotonic() < self._look_at or not self._container.created():
            return
        try:
            state = self._container.state()
        except HostError:
            # Each question that a silent runtime leaves open holds the supervisor up.
            self._look_at = time.monotonic() + _LOOK_AGAIN_S
            return
        if state and state.pid:
            self._pid = state.pid
            self._counter = cgroups.oom_counter(state.pid)

    def ended(self, client: int) -> int:
        """The server's exit code by that of its client; what else is known of it is logged."""
        if client < 0:
            self._drain()
            self._ask_oom()
            self._note(f"the client of container {self._container.name} died of signal {-client}")
        elif client in REFUSED and not self._pid:
            self.refused = self._complaint()
        if self._oom_kills:
            self._note(f"memory ran out in the container: oom_kill {self._oom_kills}")
        return exit_code_of(client)

    def stop(self, grace_s: float) -> bool:
        """Have it end, and remember what ran in it; whether its client will end by itself."""
        self._inside = tree_of(self._pid) or self._container.processes()
        try:
            return self._container.stop(grace_s)
        except HostError:
            return False

    def remove(self, limit_s: float) -> tuple[int, int, str]:
        """What had to be killed, what is left, and why it is not proven to be gone, if it is not.

        Its client must be dead.
        """
        return remove(self._container, self._inside, limit_s)

    def _drain(self) -> None:
        """Add what it printed and no client was there to show."""
        with suppress(HostError, OSError):
            printed = self._container.logs().splitlines(keepends=True)
            *shown, torn = self._log.read_text(errors="replace").split("\n")
            missed = printed[_common([f"{line}\n" for line in shown], printed) :]
            self._append(("\n" if torn else "") + "".join(missed))

    def _ask_oom(self) -> None:
        with suppress(HostError):
            state = self._container.state()
            self._oom_kills = max(self._oom_kills, int(state.oom_killed) if state else 0)

    def _note(self, text: str) -> None:
        with suppress(OSError):
            self._append(f"tuner: {text}\n")

    def _append(self, text: str) -> None:
        with self._log.open("ab") as log:
            log.write(text.encode())

    def _complaint(self) -> str:
        try:
            lines = [line.strip() for line in self._log.read_text(errors="replace").splitlines()]
        except OSError:
            lines = []
        said = [line for line in lines if line] or ["it says nothing"]
        return next((line for line in said if "rror" in line or "annot" in line), said[-1])


def remove(container: Container, inside: list[Process], limit_s: float) -> tuple[int, int, str]:
    """Remove a container whose client is dead, and all that ran in it: (killed, survivors, why it
    is not proven gone)."""
    unproven = container.remove(min(limit_s, _REMOVE_LIMIT_S))

    def left() -> list[Process]:
        return [process for process in inside if processes.alive(process.pid, process.started)]

    killed, survivors = processes.kill_all(left, limit_s)
    return len(killed), max(survivors, int(bool(unproven))), unproven


def _common(shown: list[str], printed: list[str]) -> int:
    """How many of the lines printed were shown; lines of the client's own may stand between."""
    last = shown[-1] if shown else ""
    reached = (at for at, line in enumerate(printed[: len(shown)]) if line == last)
    return max(reached, default=-1) + 1
