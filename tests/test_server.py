import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import victims
from tests.starter import Starter, named_segment, starting
from tests.victims import alive_with, free_port, owned, python, runaway, said, until
from tuner.engines.base import LaunchCommand
from tuner.errors import EngineError, HostError
from tuner.hosts import processes
from tuner.hosts.server import default_run_root, sweep


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    with starting(tmp_path) as starter:
        yield starter


@pytest.fixture
def segment() -> Iterator[str]:
    with named_segment() as name:
        yield name


def test_a_server_listens_on_its_own_port_and_is_gone_after_the_with_block(start: Starter) -> None:
    port = free_port()
    with start(python(victims.LISTENS, port), port=port) as server:
        until(server.listening, "the server listens")
        said(server, "listening")  # the port opens before the line is written
        assert server.exit_code() is None
        assert processes.read(server.pid)
    report = server.stop()
    assert (report.exit_code, report.killed, report.survivors) == (-signal.SIGTERM, 0, 0)
    assert server.exit_code() == -signal.SIGTERM
    assert processes.read(server.pid) is None
    assert not processes.listening_sockets(port)


def test_stopping_twice_gives_the_same_report(start: Starter) -> None:
    server = start(python(victims.SLEEPS))
    assert server.stop() is server.stop()


def test_an_exit_is_seen_at_once_with_its_code_and_its_log(start: Starter) -> None:
    server = start(python("import sys; print('bad flag'); sys.exit(2)"))
    until(lambda: server.exit_code() is not None, "the exit is seen")
    assert server.exit_code() == 2
    assert server.log() == "bad flag\n"
    report = server.stop()
    assert (report.reason, report.meddled) == ("the server exited", False)


def test_death_by_signal_is_a_negative_exit_code(start: Starter) -> None:
    server = start(python("import os; os.kill(os.getpid(), 9)"))
    until(lambda: server.exit_code() is not None, "the death is seen")
    assert server.exit_code() == -signal.SIGKILL


def test_a_command_that_cannot_be_executed_is_an_engine_error(start: Starter) -> None:
    with pytest.raises(EngineError, match=r"cannot start /no/such/python: .*No such file"):
        start(LaunchCommand(argv=("/no/such/python",)))


def test_a_stranger_on_the_port_is_named_before_anything_starts(start: Starter) -> None:
    port = free_port()
    stranger = subprocess.Popen([sys.executable, "-c", victims.LISTENS, str(port)])
    try:
        until(lambda: processes.listening_sockets(port), "the stranger listens")
        with pytest.raises(HostError, match=rf"port {port} is taken by process {stranger.pid} \("):
            start(python(victims.SLEEPS), port=port)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_stranger_that_takes_the_port_later_is_not_taken_for_the_server(start: Starter) -> None:
    port = free_port()
    server = start(python(victims.SLEEPS), port=port)
    assert not server.listening()
    stranger = subprocess.Popen([sys.executable, "-c", victims.LISTENS, str(port)])
    try:
        until(lambda: processes.listening_sockets(port), "the stranger listens")
        with pytest.raises(HostError, match=f"process {stranger.pid}"):
            server.listening()
        server.stop()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_listener_whose_owner_cannot_be_seen_is_not_the_server(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    server = start(python(victims.LISTENS, port), port=port)
    until(server.listening, "the server listens")
    monkeypatch.setattr(processes, "holders", lambda sockets, pids: {})
    assert not server.listening()


def test_a_listener_in_a_child_of_another_session_is_the_servers_own(start: Starter) -> None:
    port = free_port()
    program = victims.LISTENS_IN_CHILD.format(port=port)
    server = start(python(program), port=port)
    until(server.listening, "the child listens")


def test_a_server_that_ignores_sigterm_is_killed_after_the_grace(start: Starter) -> None:
    server = start(python(victims.IGNORES_SIGTERM), grace_s=0.5)
    said(server, "deaf")
    report = server.stop()
    assert (report.exit_code, report.killed, report.survivors) == (-signal.SIGKILL, 1, 0)
    assert report.duration_s >= 0.5


def test_a_stopped_server_is_continued_so_that_it_can_end(start: Starter) -> None:
    server = start(python(victims.SLEEPS))
    said(server, "up")
    os.kill(server.pid, signal.SIGSTOP)
    report = server.stop()
    assert (report.exit_code, report.killed, report.survivors) == (-signal.SIGTERM, 0, 0)


def test_a_grandchild_that_left_session_and_parent_goes_too(start: Starter) -> None:
    server = start(runaway(), grace_s=0.5)
    said(server, "runaway")
    escaped = int(server.log().split()[1])
    report = server.stop()
    assert (report.killed, report.survivors) == (1, 0)
    assert processes.read(escaped) is None


def test_a_grandchild_that_shed_its_mark_as_well_goes_too(start: Starter) -> None:
    server = start(python(victims.HAS_NAMELESS_RUNAWAY))
    said(server, "nameless")
    escaped = int(server.log().split()[1])
    assert b"TUNER" not in Path(f"/proc/{escaped}/environ").read_bytes()
    assert server.stop().survivors == 0
    assert processes.read(escaped) is None


def test_what_an_exited_server_leaves_behind_goes_too(start: Starter) -> None:
    server = start(runaway(then="time.sleep(0.5); sys.exit(7)"), grace_s=0.5)
    until(lambda: server.exit_code() is not None, "the exit is seen")
    until(lambda: not alive_with(server.tag), "the runaway is gone")
    report = server.stop()
    assert (report.exit_code, report.killed, report.survivors) == (7, 1, 0)


def test_a_server_runs_on_the_cores_that_it_is_given(start: Starter) -> None:
    core = min(os.sched_getaffinity(0))
    server = start(python("import os; print(sorted(os.sched_getaffinity(0)))"), cores=(core,))
    said(server, f"[{core}]")


def test_a_server_has_the_commands_environment_and_none_of_rays(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    monkeypatch.setenv("TUNER_TEST_KEPT", "kept")
    names = ("RAY_ADDRESS", "TUNER_TEST_KEPT", "ASKED", "INJECTED")
    program = f"import os; print([os.environ.get(name) for name in {names}])"
    command = LaunchCommand(
        argv=python(program).argv, env={"ASKED": "1"}, injected_env={"INJECTED": "2"}
    )
    said(start(command), "[None, 'kept', '1', '2']")


def test_a_server_starts_with_default_signal_handling(start: Starter) -> None:
    program = "import signal; print(signal.getsignal(1).name, signal.pthread_sigmask(0, []))"
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        server = start(python(program))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    said(server, "SIG_DFL set()")


def test_the_first_process_is_asked_before_the_others(start: Starter) -> None:
    server = start(python(victims.TELLS_WHO_IS_ASKED.format(then="pass")), grace_s=1.0)
    until(lambda: server.log().count("up") == 2, "both are up")
    report = server.stop()
    asked = [line.split() for line in server.log().splitlines() if line.startswith("asked")]
    assert [who for _, who, _ in asked] == ["leader", "child"]
    assert float(asked[1][2]) - float(asked[0][2]) >= 0.5
    assert (report.killed, report.survivors) == (2, 0)


def test_a_leader_that_is_left_alone_is_not_waited_for(start: Starter) -> None:
    then = "child or os._exit(0)"  # the child ends when it is asked, the leader never
    server = start(python(victims.TELLS_WHO_IS_ASKED.format(then=then)), grace_s=600.0)
    until(lambda: server.log().count("up") == 2, "both are up")
    report = server.stop()
    assert (report.exit_code, report.killed, report.survivors) == (-signal.SIGKILL, 1, 0)
    assert report.duration_s < 300


def test_a_killed_supervisor_takes_its_server_along(start: Starter) -> None:
    server = start(runaway())
    said(server, "runaway")
    os.kill(server._supervisor[0], signal.SIGKILL)
    until(lambda: server.exit_code() is not None, "the owner notices")
    until(lambda: not alive_with(server.tag), "all are gone")
    report = server.stop()
    assert (report.reason, report.meddled) == ("the supervisor was killed", True)


def test_a_frozen_supervisor_does_not_hold_up_the_stop(start: Starter) -> None:
    server = start(runaway())
    said(server, "runaway")
    os.kill(server._supervisor[0], signal.SIGSTOP)
    until(server._supervisor_frozen, "the supervisor is frozen")
    assert server.stop().survivors == 0


def test_a_killed_owner_takes_its_server_along(tmp_path: Path) -> None:
    with owned(tmp_path, victims.HAS_RUNAWAY.format(then="time.sleep(600)")) as server:
        server.owner.kill()
        until(server.gone, "the server is gone")
    assert not list((tmp_path / "root" / "servers").glob("*"))


def test_a_frozen_owner_keeps_its_server_until_the_lease_ends(tmp_path: Path) -> None:
    with owned(tmp_path, victims.SLEEPS, lease_s=3.0) as server:
        server.owner.send_signal(signal.SIGSTOP)
        time.sleep(1.0)
        assert not server.gone()
        until(server.gone, "the server is gone")
        assert server.owner.poll() is None


def test_a_short_freeze_costs_nothing(tmp_path: Path) -> None:
    with owned(tmp_path, victims.SLEEPS, lease_s=3.0) as server:
        server.owner.send_signal(signal.SIGSTOP)
        time.sleep(1.0)
        server.owner.send_signal(signal.SIGCONT)
        time.sleep(3.5)
        assert not server.gone()


def test_sweep_finds_what_is_left_when_owner_and_supervisor_were_killed(
    tmp_path: Path, start: Starter, segment: str
) -> None:
    program = victims.MAPS_SEGMENT.format(names=[segment])
    program = program.replace("time.sleep(600)", victims.HAS_RUNAWAY.format(then="time.sleep(600)"))
    program = f"import tempfile; tempfile.mkstemp()\n{program}"
    stranger = start(python(victims.SLEEPS))
    with owned(tmp_path, program) as server:
        until(lambda: len(alive_with(server.tag)) >= 3, "the runaway is there")
        server.owner.send_signal(signal.SIGSTOP)
        victims.kill(server.supervisor)
        server.owner.kill()
        server.owner.wait()
        until(lambda: not processes.read(server.server), "the kernel killed the server")
        assert not server.gone()
        (swept,) = sweep(tmp_path / "root")
        assert server.gone()
    assert (swept.tag, swept.killed, swept.survivors) == (server.tag, 1, 0)
    assert swept.segments == (f"/dev/shm/{segment}",)
    assert not (tmp_path / "root" / "tmp" / server.tag.rpartition("-")[2]).exists()
    assert sweep(tmp_path / "root") == ()
    assert stranger.exit_code() is None


def test_sweep_leaves_living_owners_alone(start: Starter) -> None:
    server = start(python(victims.SLEEPS))
    assert sweep(start.root) == ()
    assert server.exit_code() is None


def test_sweep_waits_for_a_supervisor_that_is_at_work(tmp_path: Path) -> None:
    with owned(tmp_path, victims.IGNORES_SIGTERM) as server:
        server.owner.kill()
        server.owner.wait()
        assert sweep(tmp_path / "root") == ()
        assert server.gone()


def test_the_run_root_is_for_its_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert default_run_root().stat().st_mode & 0o777 == 0o700
    default_run_root().rmdir()
    (tmp_path / f"serving-tuner-{os.getuid()}").symlink_to("/tmp")
    with pytest.raises(HostError, match="belongs to another user"):
        default_run_root()
