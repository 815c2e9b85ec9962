"""A server process under its supervisor: from its command to the proof that it is gone."""

import json
import os
import re
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

from tuner.errors import EngineError, HostError
from tuner.hosts import processes
from tuner.hosts.supervisor import KILL_LIMIT_S, RENEW, STOP, TAG_VARIABLE

if TYPE_CHECKING:
    from tuner.engines.base import LaunchCommand

_BOOT = "import sys; sys.path.append(sys.argv[1]); from tuner.hosts.supervisor import main; main()"
_START_TIMEOUT_S = 60.0
_ORPHAN_GRACE_S = 3.0
_RENEW_EVERY_S = 5.0
_MARGIN_S = 5.0

# setproctitle writes its title over the environment unless it is told not to, and the mark by
# which a server's processes are found would be gone.
_KEEP_ENVIRONMENT = {"SPT_NOENV": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReport:
    """How a server ended: how many processes had to be killed, how many could not be.

    `exit_code` is that of its first process (negative: the signal), None where nobody saw it;
    `segments` are the files in /dev/shm that it left and that were removed.
    """

    exit_code: int | None
    duration_s: float
    killed: int
    survivors: int
    reason: str
    segments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What was found of a server whose owner is dead, and removed."""

    tag: str
    killed: int
    survivors: int
    segments: tuple[str, ...]


class Server:
    """A running server; leaving its `with` block stops it and proves it gone."""

    def __init__(self, supervisor: subprocess.Popen[bytes], spec: dict[str, Any]) -> None:
        self._pipes = supervisor
        self._supervisor = (0, 0)
        self._spec = spec
        self._exit_code: int | None = None
        self._report: StopReport | None = None
        self._failure = ""
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
        process does: it is stopped when this process dies in any way or stays frozen for `lease_s`.

        Raises HostError where the port is taken, EngineError where the command cannot be executed.
        """
        _refuse_taken(port)
        folder.mkdir(parents=True, exist_ok=True)
        tag = f"{re.sub(r'[^A-Za-z0-9_.-]', '-', tag)}-{secrets.token_hex(4)}"
        spec = {
            "argv": list(command.full_argv),
            "env": {**_inherited(), **command.full_env, TAG_VARIABLE: tag, **_KEEP_ENVIRONMENT},
            "cwd": str(cwd or Path.cwd()),
            "log": str(folder.resolve() / "server.log"),
            "report": str(folder.resolve() / "server-exit.json"),
            "record": str(_records(run_root or default_run_root()) / f"{tag}.json"),
            "cores": list(cores),
            "tag": tag,
            "port": port,
            "owner": _identity(os.getpid()),
            "lease_s": lease_s,
            "grace_s": grace_s,
            "orphan_grace_s": min(grace_s, _ORPHAN_GRACE_S),
        }
        server = cls(_start_supervisor(tag), spec)
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

    def exit_code(self) -> int | None:
        """The exit code of the first process, negative for a signal; None while it runs."""
        return self._exit_code

    def listening(self) -> bool:
        """True once the port is listened on, and by processes of this server alone.

        Raises HostError where a stranger listens there.
        """
        sockets = processes.listening_sockets(self.port)
        if not sockets:
            return False
        own = processes.tree(TAG_VARIABLE, self.tag)
        foreign = sockets - set(processes.holders(sockets, [process.pid for process in own]))
        stranger = _stranger(foreign)
        if stranger:
            raise _taken(self.port, stranger)
        return not foreign

    def renew(self) -> None:
        """Prolong the lease; a thread does so all the while this process runs."""
        self._write(RENEW)

    def stop(self) -> StopReport:
        """Stop the server and all that it started; returns once they are proven gone."""
        self._write(STOP)
        if not self._supervisor_frozen():
            self._watcher.join(self._spec["grace_s"] + KILL_LIMIT_S + _MARGIN_S)
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
        if self._failure:
            self.stop()
            raise EngineError(
                self._failure, hint="check the engine's interpreter or command in the study"
            )

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
                    self._failure = event["error"]
                case "exited":
                    self._exit_code = event["exit_code"]
                case "done":
                    segments = tuple(event.pop("segments"))
                    self._exit_code = event["exit_code"]
                    self._report = StopReport(**event, segments=segments)

    def _clear(self) -> None:
        """The supervisor was killed before it could finish: finish for it."""
        began = time.monotonic()
        swept = _clear(self.tag, Path(self._spec["record"]))
        self._failure = self._failure or "the supervisor was killed"
        self._exit_code = -9 if self._exit_code is None else self._exit_code
        self._report = StopReport(
            exit_code=self._exit_code,
            duration_s=time.monotonic() - began,
            killed=swept.killed,
            survivors=swept.survivors,
            reason="the supervisor was killed",
            segments=swept.segments,
        )

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


def default_run_root() -> Path:
    """Where this user's running servers are written down, for this user alone.

    Raises HostError where the folder belongs to somebody else.
    """
    root = Path(tempfile.gettempdir()) / f"serving-tuner-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    if root.is_symlink() or root.stat().st_uid != os.getuid():
        raise HostError(
            f"{root} belongs to another user",
            hint="remove it, or point TMPDIR to a folder of your own",
        )
    return root


def sweep(run_root: Path | None = None) -> tuple[Swept, ...]:
    """Remove what servers left behind whose owner is dead; everything else is left alone.

    A process belongs to a server if it carries the server's mark or descends from one that does.
    """
    swept = []
    for path in sorted(_records(run_root or default_run_root()).glob("*.json")):
        record = _read_record(path)
        if record and not processes.alive(*record["owner"]):
            _wait_for_supervisor(*record["supervisor"])
            if path.exists():
                swept.append(_clear(record["tag"], path))
    return tuple(swept)


def _clear(tag: str, record: Path) -> Swept:
    def find() -> list[processes.Process]:
        return processes.tree(TAG_VARIABLE, tag)

    segments = processes.shared_memory(process.pid for process in find())
    segments.update(_read_record(record).get("segments", ()))
    killed, survivors = processes.kill_all(find, KILL_LIMIT_S)
    removed = processes.remove_shared_memory(segments)
    if not survivors:
        record.unlink(missing_ok=True)
    return Swept(tag=tag, killed=len(killed), survivors=survivors, segments=tuple(removed))


def _read_record(path: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return record


def _wait_for_supervisor(pid: int, started: int) -> None:
    """A supervisor whose owner died is at work already, unless it is frozen."""
    end = time.monotonic() + _ORPHAN_GRACE_S + _MARGIN_S
    while time.monotonic() < end and processes.alive(pid, started):
        process = processes.read(pid)
        if process is None or process.state == "T":
            return
        time.sleep(processes.TICK_S)


def _start_supervisor(tag: str) -> subprocess.Popen[bytes]:
    package = str(Path(__file__).resolve().parents[2])
    inherited = {name: value for name, value in os.environ.items() if name.startswith("TUNER_")}
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _BOOT, package, tag],
        env={**inherited, TAG_VARIABLE: tag},
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        bufsize=0,
    )


def _inherited() -> dict[str, str]:
    # An engine that uses Ray itself must not join the tuner's cluster.
    return {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}


def _identity(pid: int) -> tuple[int, int]:
    process = processes.read(pid)
    return pid, process.started if process else 0


def _records(root: Path) -> Path:
    folder = root / "servers"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _refuse_taken(port: int) -> None:
    sockets = processes.listening_sockets(port)
    if sockets:
        raise _taken(port, _stranger(sockets) or "a process of another user")


def _stranger(sockets: set[str]) -> str:
    """Who holds the sockets, in words; empty where nobody can be seen to."""
    found = processes.holders(sockets, processes.table()) if sockets else {}
    return ", ".join(
        f"process {pid} ({processes.command_line(pid)[:120]})"
        for pid in sorted(set(found.values()))
    )


def _taken(port: int, who: str) -> HostError:
    return HostError(f"port {port} is taken by {who}", hint="stop it, or free the port")
