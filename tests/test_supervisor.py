import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import victims
from tests.victims import ROOT, alive_with, until
from tuner.hosts import processes, supervisor
from tuner.hosts.server import _BOOT
from tuner.hosts.supervisor import RENEW, STOP, TAG_VARIABLE


class Supervised:
    """A supervisor as its owner sees it, spoken to by hand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tag = f"by-hand-{os.getpid()}-{time.monotonic_ns()}"
        self.record = folder / "record.json"
        self.report = folder / "report.json"
        self.log = folder / "server.log"
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _BOOT, str(ROOT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={TAG_VARIABLE: self.tag},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.input, self.output = self.process.stdin, self.process.stdout

    def start(self, program: str = victims.SLEEPS, **changes: Any) -> None:
        spec = {
            "argv": victims.python(program).argv,
            "env": {**os.environ, TAG_VARIABLE: self.tag},
            "cwd": "/",
            "log": str(self.log),
            "report": str(self.report),
            "record": str(self.record),
            "cores": [],
            "tag": self.tag,
            "port": 1,
            "owner": [os.getpid(), 1],
            "lease_s": 60.0,
            "grace_s": 5.0,
            "orphan_grace_s": 5.0,
        }
        self.say(json.dumps({**spec, **changes}).encode() + b"\n")
        self.pid = self.event("supervising")["supervisor"][0]

    def say(self, said: bytes) -> None:
        self.input.write(said)
        self.input.flush()

    def event(self, name: str) -> dict[str, Any]:
        event: dict[str, Any] = json.loads(self.output.readline())
        assert event["event"] == name, event
        return event


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Supervised]:
    one = Supervised(tmp_path)
    yield one
    one.input.close()
    until(lambda: not alive_with(one.tag), "all are gone")
    one.process.wait()
    one.output.close()
    assert not one.record.exists()


def test_asked_to_stop_it_reports_and_its_record_goes(supervised: Supervised) -> None:
    supervised.start()
    server = supervised.event("started")["pid"]
    record = json.loads(supervised.record.read_text())
    assert record["server"] == server
    assert record["supervisor"][0] == supervised.pid
    assert record["tag"] == supervised.tag
    supervised.say(RENEW + STOP)
    assert supervised.event("exited")["exit_code"] == -signal.SIGTERM
    done = supervised.event("done")
    assert (done["reason"], done["survivors"]) == ("asked to stop", 0)
    del done["event"]
    assert json.loads(supervised.report.read_text()) == done
    assert supervised.output.read() == b""


def test_it_is_nobodys_child_and_in_a_session_apart_from_its_server(
    supervised: Supervised,
) -> None:
    supervised.start()
    server = supervised.event("started")["pid"]
    found = processes.read(supervised.pid)
    assert found is not None
    assert found.parent not in (os.getpid(), supervised.process.pid)
    assert os.getsid(server) == server != os.getsid(supervised.pid)


def test_the_end_of_the_pipe_stops_the_server(supervised: Supervised) -> None:
    supervised.start()
    supervised.event("started")
    supervised.input.close()
    supervised.event("exited")
    assert supervised.event("done")["reason"] == "the owner is gone"


def test_the_end_of_the_tuner_stops_the_server_whatever_its_owner_does(
    supervised: Supervised,
) -> None:
    tuner = subprocess.Popen([sys.executable, "-c", victims.SLEEPS])
    seen = processes.read(tuner.pid)
    assert seen
    supervised.start(tuner=[tuner.pid, seen.started])
    supervised.event("started")
    supervised.say(RENEW)
    tuner.kill()
    tuner.wait()
    supervised.event("exited")
    assert supervised.event("done")["reason"] == "the tuner is gone"


def test_a_lapsed_lease_stops_the_server(supervised: Supervised) -> None:
    supervised.start(lease_s=0.5)
    supervised.event("started")
    supervised.event("exited")
    assert supervised.event("done")["reason"] == "the owner let the lease lapse"


def test_a_supervisor_that_was_frozen_itself_hears_renewals_before_it_judges(
    supervised: Supervised,
) -> None:
    supervised.start(lease_s=2.0)
    server = supervised.event("started")["pid"]
    os.kill(supervised.pid, signal.SIGSTOP)
    time.sleep(2.5)
    supervised.say(RENEW)
    os.kill(supervised.pid, signal.SIGCONT)
    time.sleep(1.0)
    assert processes.read(server)


def test_sigterm_stops_the_server_and_keyboard_signals_do_not(supervised: Supervised) -> None:
    supervised.start()
    supervised.event("started")
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        os.kill(supervised.pid, ignored)
    time.sleep(0.2)
    assert processes.read(supervised.pid)
    os.kill(supervised.pid, signal.SIGTERM)
    supervised.event("exited")
    assert supervised.event("done")["reason"] == "the supervisor was told to terminate"


def test_orphans_get_a_shorter_grace(supervised: Supervised) -> None:
    supervised.start(victims.IGNORES_SIGTERM, grace_s=600.0, orphan_grace_s=0.2)
    supervised.event("started")
    until(lambda: "deaf" in supervised.log.read_text(), "it ignores SIGTERM")
    supervised.input.close()
    supervised.event("exited")
    assert supervised.event("done")["killed"] == 1


def test_what_cannot_be_executed_is_said_in_the_log_too(supervised: Supervised) -> None:
    supervised.start(argv=["/no/such/engine"])
    event = supervised.event("failed")
    assert event["error"].startswith("cannot start /no/such/engine: ")
    assert not event["by_host"]
    assert supervised.event("done")["exit_code"] == 127
    assert "cannot start /no/such/engine" in supervised.log.read_text()


def test_what_the_host_has_no_room_for_is_told_from_what_cannot_be_executed(
    supervised: Supervised,
) -> None:
    until(lambda: len(alive_with(supervised.tag)) == 1, "it waits for what to start")
    (waiting,) = alive_with(supervised.tag)
    resource.prlimit(waiting.pid, resource.RLIMIT_NOFILE, (5, 5))
    supervised.start()
    event = supervised.event("failed")
    assert event["by_host"]
    assert event["error"].endswith("Too many open files")


def test_a_deleted_folder_does_not_keep_a_server_alive(supervised: Supervised) -> None:
    supervised.start(report="/no/such/folder/report.json")
    supervised.event("started")
    supervised.say(STOP)
    supervised.event("exited")
    assert supervised.event("done")["survivors"] == 0


def test_an_owner_that_dies_before_it_said_what_to_start_leaves_nothing(
    supervised: Supervised,
) -> None:
    supervised.input.close()
    assert supervised.output.read() == b""


def test_it_needs_nothing_but_the_standard_library() -> None:
    program = (
        f"import sys; sys.path.append({str(ROOT)!r}); before = set(sys.modules)\n"
        "import tuner.hosts.supervisor\n"
        "print(*sorted(name.split('.')[0] for name in set(sys.modules) - before))"
    )
    result = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True
    )
    assert set(result.stdout.split()) - set(sys.stdlib_module_names) == {"tuner"}
    assert supervisor.__doc__
