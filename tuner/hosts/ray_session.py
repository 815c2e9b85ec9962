"""Ray started or attached to, and the one place where its exceptions are translated."""

import logging
import os
import re
import secrets
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Ray prints what its raylet has to say to standard output, where only answers belong. It reads
# this when it is imported.
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")

import ray
from ray.exceptions import (
    GetTimeoutError,
    RayError,
    RayTaskError,
    WorkerCrashedError,
)

from tuner.definitions.addresses import AUTO
from tuner.errors import HostError, TunerError
from tuner.hosts import processes, ray_leftovers
from tuner.hosts.job import RAY_VARIABLE
from tuner.hosts.ray_address import ATTACH_HINT, refuse_dead

_DAEMONS = ("gcs_server", "raylet")
_OBJECT_STORE_BYTES = 80_000_000

# Ray takes "localhost" for a request to find the outer address; this is loopback all the same,
# and does not change when the network does.
_LOOPBACK = "127.0.0.2"

# Ray reads it once in a process, so that a second Ray of this process must ask for the same.
_TOKEN = secrets.token_hex(32)

_OF_RAY = (RuntimeError, ValueError, OSError, RayError)

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


logger = logging.getLogger(__name__)


class HostLost(HostError):
    """A host, or the process that was asked there, is gone or does not answer."""


class JobBug(Exception):
    """The job's own code raised; the message is its traceback."""

    @property
    def last_line(self) -> str:
        """What was raised, without where."""
        return str(self).strip().splitlines()[-1]


def in_short(error: TunerError | JobBug) -> str:
    """What went wrong, in one line."""
    return error.last_line if isinstance(error, JobBug) else error.message


def fetch(ref: Any, timeout_s: float, what: str) -> Any:
    """The value of a Ray reference, or the values of several.

    Raises HostLost where it does not come in time or its process or host died, the TunerError
    that its code raised, JobBug where its code raised anything else.
    """
    try:
        return ray.get(ref, timeout=timeout_s)
    except GetTimeoutError as error:
        raise HostLost(f"{what}: no answer within {timeout_s:.0f} s") from error
    except RayTaskError as error:
        if isinstance(error.cause, TunerError):
            raise error.cause from error
        raise JobBug(_plain(error)) from error
    except WorkerCrashedError as error:
        raise HostLost(f"{what}: its process died") from error
    except RayError as error:
        raise HostLost(f"{what}: {_first_line(error)}") from error


def start(address: str | None) -> "Session":
    """Attach to a cluster, or start Ray for this process alone.

    Raises HostError where that does not work.
    """
    if ray.is_initialized():
        raise HostError("Ray already runs in this process", hint="close the other Cluster first")
    try:
        with _own_sigterm():
            return _attach(address) if address else _start_local()
    except Exception as error:
        # Ray raises the bare class where its processes do not come up in time.
        if type(error) is not Exception and not isinstance(error, _OF_RAY):
            raise
        where = f"at {address}" if address else "on this machine"
        hint = ATTACH_HINT if address else "is there room in the folder for temporary files?"
        raise HostError(f"Ray does not start {where}: {_first_line(error)}", hint=hint) from error


@contextmanager
def _own_sigterm() -> Iterator[None]:
    """Ray takes SIGTERM for itself whenever it starts: what this process does about it stays."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if callable(before) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A Ray that this process is connected to; with a folder, one that it started itself."""

    folder: Path | None = None
    daemons: tuple[processes.Process, ...] = ()

    def alive(self) -> bool:
        """False once Ray's own processes on this machine, where it started them, have died.

        Ray itself notices after a minute, and then ends the process that asks it.
        """
        return all(processes.alive(daemon.pid, daemon.started) for daemon in self.daemons)

    def stop(self) -> None:
        """Leave Ray; of one that was started here no process and no file is left."""
        ray.shutdown()
        if self.folder:
            ray_leftovers.kill_marked(lambda text: text == ray_leftovers.mark())
            shutil.rmtree(self.folder, ignore_errors=True)


def _attach(address: str) -> Session:
    if address != AUTO:
        refuse_dead(address)
    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    if os.environ.get("RAY_AUTH_MODE") != "token":
        logger.warning("Ray at %s asks for no token: who reaches it can run code there", address)
    return Session()


def _start_local() -> Session:
    ray_leftovers.sweep_ray()
    with _environment():
        context: Any = ray.init(
            address="local",
            num_cpus=1,
            num_gpus=0,
            object_store_memory=_OBJECT_STORE_BYTES,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _node_ip_address=_LOOPBACK,
            _temp_dir=str(ray_leftovers.folder()),
        )
    return Session(folder=Path(context.address_info["session_dir"]), daemons=_daemons())


def _daemons() -> tuple[processes.Process, ...]:
    found = processes.tree(RAY_VARIABLE, ray_leftovers.mark())
    return tuple(
        process
        for process in found
        if Path(processes.command_line(process.pid).partition(" ")[0]).name in _DAEMONS
    )


@contextmanager
def _environment() -> Iterator[None]:
    """What Ray's own processes are started with; this process keeps its environment.

    Ray's ports are open to the network even on one machine, hence a token that only they know.
    """
    before = dict(os.environ)
    os.environ.pop("RAY_AUTH_MODE", None)  # unset, a local Ray takes to tokens by itself
    os.environ.pop("RAY_ADDRESS", None)
    os.environ[RAY_VARIABLE] = ray_leftovers.mark()
    os.environ.update(
        RAY_AUTH_TOKEN=_TOKEN,
        RAY_USAGE_STATS_ENABLED="0",
        RAY_memory_monitor_refresh_ms="0",
        RAY_enable_metrics_collection="0",
        RAY_worker_niceness="0",
        RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
    )
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _first_line(error: BaseException) -> str:
    return next(iter(_plain(error).strip().splitlines()), type(error).__name__)


def _plain(error: BaseException) -> str:
    return _COLOUR.sub("", str(error))
