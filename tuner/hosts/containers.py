"""Containers through their runtime: what it says of one, and the proof that one is gone.

A container is nobody's child here: the client that shows its output may die, and it runs on. Only
the runtime (docker or podman, by its command line) can end it and say that it is gone; one that
does not answer has proven nothing.

Standard library only: the supervisor imports it in an interpreter without site-packages.
"""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from tuner.errors import HostError
from tuner.hosts import processes
from tuner.hosts.processes import Process

LABEL = "tuner.server"
OWNER_LABEL = "tuner.owner"
MACHINE_LABEL = "tuner.machine"

RUNTIME_FAILED = 125
REFUSED = (RUNTIME_FAILED, 126, 127)
"""What the client of a runtime exits with where it could not run the container at all."""

_ANSWER_S = 10.0
_AGAIN_S = 0.5
_LATE_S = 2.0
_SIGNALS = range(1, 65)

# What tells a client which daemon it speaks to, and where its own programs and settings are.
_VARIABLES = (
    *("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH"),
    *("XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME"),
    *("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY"),
    *("CONTAINER_HOST", "CONTAINER_CONNECTION", "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF"),
)


class State(NamedTuple):
    """A container as its runtime tells of it; `pid` is that of its first process on this host."""

    running: bool
    pid: int
    exit_code: int
    oom_killed: bool
    published: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """A container runtime as it is called: its program, and the variables that it goes by."""

    program: str
    variables: Mapping[str, str]

    @classmethod
    def here(cls, program: str) -> Self:
        """The runtime as this process would call it, to be called alike by another process."""
        found = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
        return cls(program=shutil.which(program) or program, variables=found)

    def ask(self, *words: str, timeout_s: float | None = None) -> str:
        """What the runtime prints. Raises HostError where it fails, or is silent for too long."""
        code, out, err = self.call(*words, timeout_s=timeout_s)
        if code != 0:
            said = (err.strip() or out.strip() or f"exit code {code}").splitlines()[0]
            raise HostError(f"{self._called(words)}: {said}", hint=self._hint())
        return out

    def call(self, *words: str, timeout_s: float | None = None) -> tuple[int, str, str]:
        """Its exit code, and what it prints where. Raises HostError where there is no answer."""
        limit_s = _ANSWER_S if timeout_s is None else timeout_s
        try:
            done = subprocess.run(
                [self.program, *words],
                env=dict(self.variables),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            silent = f"{self._called(words)}: no answer in {limit_s:g} s"
            raise HostError(silent, hint=self._hint()) from error
        except OSError as error:
            missing = f"cannot run {self.program}: {error.strerror}"
            raise HostError(missing, hint="install it, or correct engine.containers") from error
        return done.returncode, done.stdout.decode(errors="replace"), _text(done.stderr)

    def _called(self, words: Sequence[str]) -> str:
        return f"{Path(self.program).name} {words[0]}"

    def _hint(self) -> str:
        return f"look with `{Path(self.program).name} ps` whether its daemon runs"

    def image_id(self, image: str) -> str | None:
        """The content of an image, as a digest; None where it is not on this host.

        Raises HostError where the runtime does not answer.
        """
        code, out, _ = self.call("image", "inspect", "--format", "{{.Id}}", image)
        if code == 0:
            return out.strip()
        self.ask("ps", "-q")  # a daemon that is gone fails alike
        return None

    def labelled(self, label: str, value: str) -> list[str]:
        """Every container with this label, running or not. Raises HostError."""
        found = self.ask("ps", "-a", "-q", "--no-trunc", "--filter", f"label={label}={value}")
        return found.split()

    def inspected(self, name: str) -> dict[str, Any] | None:
        """All that the runtime knows of a container, None where there is none. Raises HostError."""
        code, out, _ = self.call("inspect", "--type", "container", name)
        with suppress(ValueError, LookupError):
            if code == 0:
                found: dict[str, Any] = json.loads(out)[0]
                return found
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One container of the tuner's, by all that finds it again."""

    runtime: Runtime
    name: str
    cidfile: str
    tag: str

    def stored(self) -> dict[str, Any]:
        """As it stands in a record and in the supervisor's specification."""
        return asdict(self)

    @classmethod
    def restored(cls, stored: Mapping[str, Any] | None) -> Self | None:
        """The container of a record, None where it has none."""
        if not stored:
            return None
        return cls(**{**stored, "runtime": Runtime(**stored["runtime"])})

    def created(self) -> bool:
        """True once the runtime has made it."""
        with suppress(OSError):
            return bool(Path(self.cidfile).read_text().strip())
        return False

    def exists(self) -> bool:
        """Whether the runtime knows it, running or not. Raises HostError."""
        return bool(self.runtime.labelled(LABEL, self.tag))

    def state(self) -> State | None:
        """How it is; None where the runtime knows it not, or does not say. Raises HostError."""
        found = self.runtime.inspected(self.name)
        return None if found is None else _state(found)

    def processes(self) -> list[Process]:
        """All that runs in it, as this host sees it; nothing where the runtime does not say."""
        with suppress(HostError):
            state = self.state()
            return tree_of(state.pid) if state else []
        return []

    def sockets(self) -> set[str]:
        """Inode numbers of the sockets that it holds, as it sees itself.

        For who may not look into its processes from outside. Raises HostError.
        """
        look = "ls -l /proc/[0-9]*/fd 2>/dev/null; true"
        seen = self.runtime.ask("exec", self.name, "sh", "-c", look)
        return set(re.findall(r"socket:\[(\d+)\]", seen))

    def logs(self) -> str:
        """All that it has printed. Raises HostError."""
        code, out, err = self.runtime.call("logs", self.name)
        return out + err if code == 0 else ""

    def stop(self, grace_s: float) -> bool:
        """Have it end by itself, or killed after that time; whether the runtime says that it has.

        Raises HostError where it does not answer.
        """
        seconds = str(max(1, round(grace_s)))
        words = ("stop", "-t", seconds, self.name)
        return self.runtime.call(*words, timeout_s=grace_s + _ANSWER_S)[0] == 0

    def remove(self, limit_s: float) -> str:
        """Kill and remove it; empty once the runtime says that it is gone, else why it may not be.

        Its client must be dead: a living one could still be about to start it.
        """
        began = time.monotonic()
        # What a client asked for just before it died may be carried out after it.
        late_s = 0.0 if self.created() else _LATE_S
        while True:
            unproven = self._remove_once()
            passed_s = time.monotonic() - began
            if not unproven and passed_s >= late_s:
                with suppress(OSError):
                    Path(self.cidfile).unlink()
                return ""
            if unproven and passed_s > limit_s:
                return unproven
            time.sleep(_AGAIN_S)

    def removal(self) -> str:
        """The command that removes it by hand."""
        return f"{Path(self.runtime.program).name} rm -f {self.name}"

    def _remove_once(self) -> str:
        try:
            if not self.exists():
                return ""
            self.runtime.call("kill", self.name)
            self.runtime.call("rm", "-f", "-v", self.name)
            return f"{Path(self.runtime.program).name} still lists it" if self.exists() else ""
        except HostError as error:
            return error.message


def tree_of(pid: int) -> list[Process]:
    """A process of this host and all that descends from it; nothing for number 0."""
    if not pid:
        return []
    table = processes.table()
    found = processes.descendants([pid], table) | {pid}
    return [table[each] for each in found if each in table]


def labels(tag: str, owner: tuple[int, int]) -> tuple[str, ...]:
    """What a container carries so that it is found by whoever comes after its owner."""
    pid, started = owner
    return (f"{LABEL}={tag}", f"{OWNER_LABEL}={pid}-{started}", f"{MACHINE_LABEL}={_machine()}")


def abandoned(runtime: Runtime) -> list[str]:
    """Ids of containers whose owner was this user's on this machine and is dead.

    Raises HostError.
    """
    found = []
    for container in runtime.labelled(MACHINE_LABEL, _machine()):
        inspected = runtime.inspected(container) or {}
        owner = (inspected.get("Config", {}).get("Labels") or {}).get(OWNER_LABEL, "")
        pid, _, started = owner.partition("-")
        if pid.isdecimal() and started.isdecimal() and not processes.alive(int(pid), int(started)):
            found.append(container)
    return found


def remove_abandoned(runtime: Runtime) -> list[str]:
    """Remove what `abandoned` finds; returns the ids. Raises HostError."""
    found = abandoned(runtime)
    for container in found:
        runtime.ask("rm", "-f", "-v", container)
    return found


def exit_code_of(client: int) -> int:
    """The exit code of what ran inside, negative for a signal, by that of the client."""
    return 128 - client if client - 128 in _SIGNALS else client


def _machine() -> str:
    """This boot of this machine, where process numbers mean the same, and the user: whether the
    owner lives cannot be told of a container that another user or another container started."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}-{Path('/proc/self/ns/pid').stat().st_ino}-{os.getuid()}"


def _state(found: Mapping[str, Any]) -> State:
    state = found.get("State") or {}
    ports = (found.get("HostConfig") or {}).get("PortBindings") or {}
    bindings = [binding for bound in ports.values() for binding in bound or ()]
    numbers = [str(binding.get("HostPort", "")) for binding in bindings]
    return State(
        running=bool(state.get("Running")),
        pid=int(state.get("Pid") or 0),
        exit_code=int(state.get("ExitCode") or 0),
        oom_killed=bool(state.get("OOMKilled")),
        published=frozenset(int(number) for number in numbers if number.isdecimal()),
    )


def _text(printed: bytes) -> str:
    return printed.decode(errors="replace")
