"""A server process under its supervisor: from its command to the proof that it is gone."""

import json
import os
import re
import secrets
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

from tuner.errors import EngineError, HostError, LaunchLost, writing
from tuner.hosts import containers, leftovers, processes
from tuner.hosts.containers import Container
from tuner.hosts.job import JOB_VARIABLE, RUN_VARIABLE
from tuner.hosts.launched import launched
from tuner.hosts.leftovers import default_run_root as default_run_root
from tuner.hosts.leftovers import sweep as sweep
from tuner.hosts.ports import ContainerPort, OwnPort, Port, PublishedPort, refuse_taken
from tuner.hosts.supervisor import ASKED, EXITED, KILL_LIMIT_S, RENEW, STOP, TAG_VARIABLE

if TYPE_CHECKING:
    from tuner.engines.base import LaunchCommand

_BOOT = "import sys; sys.path.append(sys.argv[1]); from tuner.hosts.supervisor import main; main()"
_START_TIMEOUT_S = 60.0
_RENEW_EVERY_S = 5.0
_MARGIN_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReport:
    """How a server ended: how many processes had to be killed, how many could not be.

    `exit_code` is that of its first process (negative: the signal), None where nobody saw it;
    `segments` are the files in /dev/shm that it left and that were removed. `unproven` says why its
    container may still run, empty where it is gone or there was none.
    """

    exit_code: int | None
    duration_s: float
    killed: int
    survivors: int
    reason: str
    segments: tuple[str, ...] = ()
    unproven: str = ""

    @property
    def meddled(self) -> bool:
        """Whether it was ended neither by its owner nor by itself."""
        return self.reason not in (ASKED, EXITED)


class Server:
    """A running server; leaving its `with` block stops it and proves it gone."""

    def __init__(
        self,
        supervisor: subprocess.Popen[bytes],
        spec: dict[str, Any],
        port: Port,
        container: Container | None = None,
    ) -> None:
        self._pipes = supervisor
        self._supervisor = (0, 0)
        self._spec = spec
        self._exit_code: int | None = None
        self._report: StopReport | None = None
        self._failure: EngineError | HostError | None = None
        self._refusal: EngineError | HostError | None = None
        self._port = port
        self._container = container
        self._unread = b""
        self._started = threading.Event()
        self._pipe_lock = threading.Lock()
        self._watcher = threading.Thread(target=self._watch, name=spec["tag"], daemon=True)
        self.tag: str = spec["tag"]
        self.port: int = spec["port"]
        self.log_path = Path(spec["log"])
        self.pid = 0

    @classmethod
    def start(
        cls,
        command: "LaunchCommand",
        *,
        folder: Path,
        port: int,
        cores: Sequence[int] = (),
        tag: str,
        lease_s: float = 30.0,
        grace_s: float = 10.0,
        cwd: Path | None = None,
        run_root: Path | None = None,
    ) -> Self:
        """Launch a command under a supervisor; its output goes to `folder/server.log`.

        It runs on `cores` (wherever this process may, where none are given) and only while this
        process does: it is stopped when this process or the tuner that it works for dies in any
        way, or this one stays frozen for `lease_s`.

        Raises HostError where the port is taken, the container runtime does not answer, a folder
        cannot be written, or this host has no room for it, LaunchLost where its supervisor was
        killed, EngineError where the command cannot be executed.
        """
        refuse_taken(port)
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        tag = f"{re.sub(r'[^A-Za-z0-9_.-]', '-', tag)}-{secrets.token_hex(4)}"
        with writing("the folder of running servers"):
            root = run_root or default_run_root()
            record = leftovers.records(root) / f"{tag}.json"
        scratch = root / "tmp" / tag.rpartition("-")[2]  # short: sockets with long names fail
        owner = _identity(os.getpid())
        executed = launched(command, tag, cores, owner, record.with_suffix(".cid"), scratch)
        spec = {
            "argv": list(executed.argv),
            "env": executed.env,
            "cwd": str(cwd or Path.cwd()),
            "log": str(folder.resolve() / "server.log"),
            "report": str(folder.resolve() / "server-exit.json"),
            "record": str(record),
            "cores": list(cores),
            "tag": tag,
            "port": port,
            "owner": owner,
            "tuner": _tuner(),
            "lease_s": lease_s,
            "grace_s": grace_s,
            "orphan_grace_s": min(grace_s, leftovers.ORPHAN_GRACE_S),
            "kill_limit_s": KILL_LIMIT_S,
            "job": os.environ.get(JOB_VARIABLE),
            "container": executed.container.stored() if executed.container else None,
            "scratch": None if executed.container else str(scratch),
        }
        owned = _port(command, port, tag, executed.container)
        server = cls(_start_supervisor(tag), spec, owned, executed.container)
        server._begin()
        return server

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        report = self.stop()
        if report.unproven and error is None and self._container:
            raise HostError(
                f"container {self._container.name} may still run: {report.unproven}",
                hint=f"once its runtime answers again, `{self._container.removal()}` ends it; so "
                "does the next run",
            )
        if report.survivors and error is None:
            raise HostError(
                f"{report.survivors} processes of server {self.tag} are alive "
                f"{KILL_LIMIT_S:.0f} s after SIGKILL",
                hint="they hang inside a driver: look at dmesg; the GPU may need a reset",
            )

    def log(self) -> str:
        """All that the server has printed so far."""
        try:
            return self.log_path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    def log_bytes(self) -> int:
        """How much the server has printed so far."""
        try:
            return self.log_path.stat().st_size
        except FileNotFoundError:
            return 0

    def log_since(self, offset: int) -> tuple[str, int]:
        """The whole lines logged from that byte on, and the byte after them."""
        try:
            with self.log_path.open("rb") as log:
                log.seek(offset)
                new = log.read()
        except FileNotFoundError:
            return "", offset
        whole = new.rfind(b"\n") + 1
        return new[:whole].decode(errors="replace"), offset + whole

    def work(self) -> tuple[float, float] | None:
        """Seconds of processor and bytes read by all its processes since they began.

        None where they cannot be seen: in a container of which the runtime does not say.
        """
        tree = {process.pid for process in processes.tree(TAG_VARIABLE, self.tag)}
        if self._container:
            inside = self._container.processes()
            tree |= {process.pid for process in inside}
            if not inside:
                return None
        return processes.work(tree - {self._supervisor[0]})

    def roots(self) -> list[int]:
        """The processes that all others of this server descend from, as this host sees them."""
        inside = self._container.processes() if self._container else []
        return [self.pid, *(process.pid for process in inside)]

    def exit_code(self) -> int | None:
        """The exit code of the first process, negative for a signal; None while it runs.

        Raises HostError where the container runtime could not run it at all, EngineError where
        there is no such program in the image.
        """
        if self._refusal is not None:
            raise self._refusal
        return self._exit_code

    def listening(self) -> bool:
        """True once the port is listened on, and by processes of this server alone.

        Raises HostError where a stranger listens there.
        """
        return self._port.listening()

    def renew(self) -> None:
        """Prolong the lease; a thread does so all the while this process runs."""
        self._write(RENEW)

    def stop(self) -> StopReport:
        """Stop the server and all that it started; returns once they are proven gone."""
        self._write(STOP)
        if not self._supervisor_frozen():
            self._watcher.join(self._stop_limit_s())
        while self._report is None:
            self._kill_supervisor()
            self._watcher.join(_MARGIN_S)
        return self._report

    def _begin(self) -> None:
        self._pipes.wait()  # the supervisor is its child, and nobody's from here on
        self._write(json.dumps(self._spec).encode() + b"\n")
        self._watcher.start()
        if not self._started.wait(_START_TIMEOUT_S):
            self.stop()
            raise HostError(
                f"the supervisor of {self.tag} did not start its server in {_START_TIMEOUT_S:.0f} s"
            )
        if self._failure is not None:
            self.stop()
            raise self._failure

    def _watch(self) -> None:
        """Renew the lease and hear the supervisor until it ends, then make sure of the rest."""
        output = self._pipes.stdout
        assert output is not None  # noqa: S101  (it was opened with a pipe)
        every_s = min(_RENEW_EVERY_S, self._spec["lease_s"] / 6)
        while True:
            readable, _, _ = select.select([output], [], [], every_s)
            if readable:
                said = os.read(output.fileno(), 65536)
                if not said:
                    break
                self._hear(said)
            self.renew()
        if self._report is None:
            self._clear()
        self._started.set()
        output.close()
        with self._pipe_lock:
            self._pipe().close()

    def _hear(self, said: bytes) -> None:
        *lines, self._unread = (self._unread + said).split(b"\n")
        for line in lines:
            event = json.loads(line)
            match event.pop("event"):
                case "supervising":
                    self._supervisor = tuple(event["supervisor"])
                case "started":
                    self.pid = event["pid"]
                    self._started.set()
                case "failed":
                    self._failure = _failure(event["error"], by_host=event["by_host"])
                case "refused":
                    self._refusal = _refusal(event["code"], event["text"])
                case "exited":
                    self._exit_code = event["exit_code"]
                case "done":
                    segments = tuple(event.pop("segments"))
                    self._exit_code = event["exit_code"]
                    self._report = StopReport(**event, segments=segments)

    def _clear(self) -> None:
        """The supervisor was killed before it could finish: finish for it."""
        began = time.monotonic()
        swept = leftovers.clear(self.tag, Path(self._spec["record"]), self._container)
        self._failure = self._failure or LaunchLost(f"the supervisor of {self.tag} was killed")
        self._exit_code = -9 if self._exit_code is None else self._exit_code
        self._report = StopReport(
            exit_code=self._exit_code,
            duration_s=time.monotonic() - began,
            killed=swept.killed,
            survivors=swept.survivors,
            reason="the supervisor was killed",
            segments=swept.segments,
            unproven=swept.unproven,
        )

    def _stop_limit_s(self) -> float:
        """How long a supervisor that is well may take; a runtime may be silent more than once."""
        limit_s: float = self._spec["grace_s"] + KILL_LIMIT_S + _MARGIN_S
        return limit_s + (self._spec["grace_s"] + KILL_LIMIT_S if self._container else 0.0)

    def _supervisor_frozen(self) -> bool:
        process = processes.read(self._supervisor[0])
        return process is not None and process.state == "T"

    def _kill_supervisor(self) -> None:
        process = processes.read(self._supervisor[0])
        if process and process.started == self._supervisor[1]:
            processes.send(process, signal.SIGKILL)

    def _write(self, said: bytes) -> None:
        with self._pipe_lock, suppress(OSError):
            if not self._pipe().closed:
                os.write(self._pipe().fileno(), said)

    def _pipe(self) -> IO[bytes]:
        pipe = self._pipes.stdin
        assert pipe is not None  # noqa: S101  (it was opened with a pipe)
        return pipe


def _port(command: "LaunchCommand", port: int, tag: str, container: Container | None) -> Port:
    if container is None or command.image is None:
        return OwnPort(port, tag)
    kind = PublishedPort if command.image.network == "bridge" else ContainerPort
    return kind(port, container)


def _failure(said: str, *, by_host: bool) -> EngineError | HostError:
    if by_host:
        return HostError(said, hint="make room or raise the limit that it names, then run again")
    return EngineError(said, hint="Check the engine's interpreter or command in the study.")


def _refusal(code: int, said: str) -> EngineError | HostError:
    if code == containers.RUNTIME_FAILED:
        return HostError(
            f"the container could not be run: {said}",
            hint="look whether its daemon runs, and at engine.containers in the study",
        )
    return EngineError(
        f"the image cannot run the command: {said}", hint="check engine.command in the study"
    )


def _start_supervisor(tag: str) -> subprocess.Popen[bytes]:
    """Raises HostError where this host has no room for a further process."""
    package = str(Path(__file__).resolve().parents[2])
    inherited = {name: value for name, value in os.environ.items() if name.startswith("TUNER_")}
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", "-c", _BOOT, package, tag],
            env={**inherited, TAG_VARIABLE: tag},
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )
    except OSError as error:
        raise HostError(
            f"the supervisor of {tag} could not be started: {error.strerror}",
            hint="Free some memory, or raise ulimit -u and -n, then run again.",
        ) from error


def _tuner() -> tuple[int, int] | None:
    """The tuner that this process works for, where it can be seen from here."""
    tuner = processes.named(os.environ.get(RUN_VARIABLE, ""))
    return tuner if tuner and processes.alive(*tuner) else None


def _identity(pid: int) -> tuple[int, int]:
    process = processes.read(pid)
    return pid, process.started if process else 0
