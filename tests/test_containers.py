"""Servers in containers of a runtime that stands in for docker: none of them is a child of ours."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests import victims
from tests.stand_in_runtime import StandIn
from tests.victims import ROOT, alive_with, free_port, said, until
from tuner.engines.base import LaunchCommand
from tuner.engines.images import Image
from tuner.errors import EngineError, HostError
from tuner.hosts import containers, leftovers, processes, server, supervisor
from tuner.hosts.containers import Container, Runtime, abandoned, exit_code_of, labels
from tuner.hosts.job import JOB_VARIABLE
from tuner.hosts.server import Server, sweep

LISTENS_EVERYWHERE = victims.LISTENS.replace("127.0.0.1", "0.0.0.0")


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[StandIn]:
    stand_in = StandIn(tmp_path / "runtime")
    yield stand_in
    left, running = stand_in.containers(), stand_in.running()
    stand_in.close()
    assert (left, running) == ([], [])


def inside(runtime: StandIn, program: str, *arguments: object, **image: Any) -> LaunchCommand:
    """A command that runs a program text in a container."""
    ours = Image(runtime=str(runtime.program), image="engine:1", port=1, usual_port=8000)
    return LaunchCommand(
        argv=("python3", "-u", "-c", program, *map(str, arguments)), image=replace(ours, **image)
    )


def start(
    command: LaunchCommand, folder: Path, *, port: int | None = None, grace_s: float = 5.0
) -> Server:
    return Server.start(
        command,
        folder=folder / "server",
        port=port or free_port(),
        tag="test",
        grace_s=grace_s,
        run_root=folder / "root",
    )


def records(folder: Path) -> list[Path]:
    return list((folder / "root" / "servers").glob("*"))


@pytest.mark.parametrize("how", [{}, {"unmarked": ""}], ids=["own", "another users"])
def test_a_server_listens_in_its_container_and_is_gone_after_the_with_block(
    runtime: StandIn, tmp_path: Path, how: dict[str, str]
) -> None:
    runtime.misbehave(**how)
    port = free_port()
    with start(inside(runtime, victims.LISTENS, port), tmp_path, port=port) as server:
        until(server.listening, "the server listens")
        said(server, "listening")  # the port opens before the line is written
        assert server.exit_code() is None
        assert len(runtime.containers()) == 1
        (first, *_) = runtime.running()
        assert first not in [process.pid for process in processes.tree("NONE", "", [os.getpid()])]
    report = server.stop()
    assert (report.exit_code, report.survivors, report.unproven) == (-signal.SIGTERM, 0, "")
    assert runtime.containers() == []
    assert not processes.listening_sockets(port)
    assert records(tmp_path) == []


def test_its_container_is_ours_by_name_cidfile_and_label(runtime: StandIn, tmp_path: Path) -> None:
    with start(inside(runtime, victims.SLEEPS), tmp_path) as server:
        said(server, "up")
        config = runtime.config()
        assert config["name"] == f"tuner-{server.tag}"
        cidfile = tmp_path / "root" / "servers" / f"{server.tag}.cid"
        assert cidfile.read_text() == runtime.containers()[0]
        assert f"tuner.server={server.tag}" in config["labels"]


def test_no_value_of_a_variable_stands_on_the_command_line(
    runtime: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("NOT_ASKED_FOR", "1")
    monkeypatch.setenv(JOB_VARIABLE, "job-1")
    names = ("HF_TOKEN", "PATH", "NOT_ASKED_FOR", JOB_VARIABLE, supervisor.TAG_VARIABLE)
    program = f"import os, time; print([os.environ.get(n) for n in {names}]); time.sleep(600)"
    command = replace(
        inside(runtime, program), env={"HF_TOKEN": "${HF_TOKEN}", "PATH": "/opt/bin:/usr/bin:/bin"}
    )
    command = replace(command, argv=(sys.executable, *command.argv[1:]))
    with start(command, tmp_path) as server:
        said(server, f"['hf_secret', '/opt/bin:/usr/bin:/bin', None, 'job-1', '{server.tag}']")
        assert "hf_secret" not in " ".join(map(processes.command_line, alive_pids(server.tag)))
        assert "HF_TOKEN" in runtime.config()["asked_env"]


def alive_pids(tag: str) -> list[int]:
    return [process.pid for process in alive_with(tag)]


def test_an_exit_is_seen_with_the_code_that_it_had_inside(runtime: StandIn, tmp_path: Path) -> None:
    with start(inside(runtime, "import sys; print('bad flag'); sys.exit(2)"), tmp_path) as server:
        until(lambda: server.exit_code() is not None, "the exit is seen")
        assert server.exit_code() == 2
        assert server.log() == "bad flag\n"


def test_death_by_signal_inside_is_a_negative_exit_code(runtime: StandIn, tmp_path: Path) -> None:
    with start(inside(runtime, "import os; os.kill(os.getpid(), 11)"), tmp_path) as server:
        until(lambda: server.exit_code() is not None, "the death is seen")
        assert server.exit_code() == -signal.SIGSEGV


def test_the_codes_of_a_client_are_those_of_a_shell() -> None:
    assert [exit_code_of(code) for code in (0, 2, 125, 128, 137, 143, 255, -9)] == [
        *(0, 2, 125, 128, -9, -15, 255, -9)
    ]


def test_a_server_that_ignores_sigterm_is_killed_after_the_grace(
    runtime: StandIn, tmp_path: Path
) -> None:
    with start(inside(runtime, victims.IGNORES_SIGTERM), tmp_path, grace_s=1.0) as server:
        said(server, "deaf")
        report = server.stop()
        assert (report.exit_code, report.survivors) == (-signal.SIGKILL, 0)


def test_a_grandchild_that_left_session_parent_and_mark_goes_too(
    runtime: StandIn, tmp_path: Path
) -> None:
    with start(inside(runtime, victims.HAS_NAMELESS_RUNAWAY), tmp_path) as server:
        said(server, "nameless")
        escaped = int(server.log().split()[1])
        assert server.stop().survivors == 0
        assert processes.read(escaped) is None


def test_a_program_that_the_image_does_not_have_is_an_engine_error(
    runtime: StandIn, tmp_path: Path
) -> None:
    command = replace(inside(runtime, ""), argv=("no-such-program",))
    said = r"cannot run the command: .*exec: 'no-such-program'"
    with start(command, tmp_path) as server, pytest.raises(EngineError, match=said):
        until(lambda: server.exit_code() is not None, "the refusal is seen")


def test_an_image_that_vanished_is_a_host_error(runtime: StandIn, tmp_path: Path) -> None:
    command = inside(runtime, victims.SLEEPS, image="gone:1")
    said = r"could not be run: .*No such image: gone:1"
    with start(command, tmp_path) as server, pytest.raises(HostError, match=said):
        until(lambda: server.exit_code() is not None, "the refusal is seen")


def test_a_stranger_that_takes_the_port_is_not_taken_for_the_server(
    runtime: StandIn, tmp_path: Path
) -> None:
    port = free_port()
    with start(inside(runtime, victims.SLEEPS), tmp_path, port=port) as server:
        said(server, "up")
        stranger = subprocess.Popen([sys.executable, "-c", victims.LISTENS, str(port)])
        try:
            until(lambda: processes.listening_sockets(port), "the stranger listens")
            with pytest.raises(HostError, match=f"process {stranger.pid}"):
                server.listening()
        finally:
            stranger.kill()
            stranger.wait()


def test_who_may_not_look_into_its_processes_asks_the_container(
    runtime: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "holders", lambda sockets, pids: {})
    port, other = free_port(), free_port()
    stranger = subprocess.Popen([sys.executable, "-c", victims.LISTENS, str(other)])
    try:
        with start(inside(runtime, victims.LISTENS, port), tmp_path, port=port) as own:
            until(own.listening, "the server listens")
        until(lambda: processes.listening_sockets(other), "the stranger listens")
        monkeypatch.setattr(server, "refuse_taken", lambda port: None)
        with start(inside(runtime, victims.SLEEPS), tmp_path, port=other) as own:
            said(own, "up")
            assert not own.listening()
    finally:
        stranger.kill()
        stranger.wait()


def test_a_published_port_is_the_servers_though_the_runtime_listens(
    runtime: StandIn, tmp_path: Path
) -> None:
    port = free_port()
    command = inside(runtime, LISTENS_EVERYWHERE, port, network="bridge", port=port)
    with start(command, tmp_path, port=port) as server:
        said(server, "listening")
        until(server.listening, "the port is published")
        (holder,) = processes.holders(processes.listening_sockets(port), processes.table()).values()
        assert holder not in runtime.running()


COUNTS = """
import pathlib, signal, sys, time
def end(*_):
    pathlib.Path({told!r}).touch()
    sys.exit()
signal.signal(signal.SIGTERM, end)
for n in range(10**6):
    print("line", n)
    time.sleep(0.01)
"""


def test_a_killed_client_costs_neither_the_log_nor_the_end_of_the_container(
    runtime: StandIn, tmp_path: Path
) -> None:
    runtime.misbehave(unmarked="")
    server = start(inside(runtime, COUNTS.format(told=str(tmp_path / "told"))), tmp_path)
    said(server, "line 5\n")
    os.kill(server.pid, signal.SIGKILL)
    until(lambda: server.exit_code() is not None, "the death is seen")
    report = server.stop()
    assert (report.exit_code, report.survivors, report.unproven) == (-signal.SIGKILL, 0, "")
    *lines, last = server.log().splitlines()
    assert last == f"tuner: the client of container tuner-{server.tag} died of signal 9"
    assert lines == [f"line {n}" for n in range(len(lines))]
    assert (tmp_path / "told").exists()
    assert runtime.running() == []


def test_a_killed_supervisor_leaves_the_container_to_its_owner(
    runtime: StandIn, tmp_path: Path
) -> None:
    server = start(inside(runtime, victims.SLEEPS), tmp_path)
    said(server, "up")
    os.kill(server._supervisor[0], signal.SIGKILL)
    until(lambda: server.exit_code() is not None, "the owner notices")
    report = server.stop()
    assert (report.reason, report.survivors) == ("the supervisor was killed", 0)
    assert runtime.containers() == []
    assert records(tmp_path) == []


OWNER = """
import sys, time
from pathlib import Path
from tests import test_containers, victims
from tests.stand_in_runtime import StandIn
runtime = StandIn.__new__(StandIn)
runtime.program = Path(sys.argv[2])
folder = Path(sys.argv[1])
server = test_containers.start(test_containers.inside(runtime, victims.SLEEPS), folder, grace_s=1)
victims.said(server, "up")
print(server.tag, server.pid, server._supervisor[0], flush=True)
time.sleep(600)
"""


@pytest.fixture
def owned(
    request: pytest.FixtureRequest, runtime: StandIn, tmp_path: Path
) -> Iterator[victims.Owned]:
    """A server in a container, whose owner is another process; `how` the runtime misbehaves."""
    callspec = getattr(request.node, "callspec", None)
    runtime.misbehave(**(callspec.params["how"] if callspec else {}))
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path), str(runtime.program)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield victims.Owned(owner)
    owner.kill()
    owner.communicate()


def test_a_killed_owner_takes_its_container_along(
    runtime: StandIn, tmp_path: Path, owned: victims.Owned
) -> None:
    owned.owner.kill()
    until(lambda: not runtime.containers(), "the container is gone")
    until(lambda: not records(tmp_path), "its record is gone")
    assert runtime.running() == []


@pytest.mark.parametrize("how", [{}, {"unmarked": ""}], ids=["own", "another users"])
def test_sweep_removes_it_when_owner_and_supervisor_were_killed(
    how: dict[str, str], runtime: StandIn, tmp_path: Path, owned: victims.Owned
) -> None:
    owned.owner.send_signal(signal.SIGSTOP)
    victims.kill(owned.supervisor)
    owned.owner.kill()
    owned.owner.wait()
    time.sleep(0.5)
    assert len(runtime.containers()) == 1
    (swept,) = sweep(tmp_path / "root")
    assert (swept.tag, swept.survivors, swept.unproven) == (owned.tag, 0, "")
    assert runtime.containers() == []
    assert records(tmp_path) == []


def test_without_its_record_the_next_launch_finds_it_by_its_labels(
    runtime: StandIn, tmp_path: Path, owned: victims.Owned
) -> None:
    owned.owner.send_signal(signal.SIGSTOP)
    victims.kill(owned.supervisor)
    (left,) = runtime.containers()
    assert abandoned(Runtime.here(str(runtime.program))) == []
    owned.owner.kill()
    owned.owner.wait()
    for record in records(tmp_path):
        record.unlink()
    with start(inside(runtime, victims.SLEEPS), tmp_path) as server:
        said(server, "up")
        assert left not in runtime.containers()


def test_labels_tell_owners_apart() -> None:
    assert labels("a", (1, 2))[:2] == ("tuner.server=a", "tuner.owner=1-2")
    assert labels("a", (1, 2))[2] == labels("b", (3, 4))[2]


def test_a_daemon_that_is_gone_is_said_before_anything_starts(
    runtime: StandIn, tmp_path: Path
) -> None:
    runtime.crash()
    with pytest.raises(HostError, match="docker ps: Cannot connect to the Docker daemon"):
        start(inside(runtime, victims.SLEEPS), tmp_path)
    assert records(tmp_path) == []


def test_a_container_that_cannot_be_proven_gone_is_never_said_to_be(
    runtime: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (server, leftovers):
        monkeypatch.setattr(module, "KILL_LIMIT_S", 1.0)
    seen = start(inside(runtime, victims.SLEEPS), tmp_path, grace_s=1.0)
    said(seen, "up")
    runtime.crash()
    with pytest.raises(HostError, match=rf"container tuner-{seen.tag} may still run: ") as raised:
        seen.__exit__(None, None, None)
    assert f"`docker rm -f tuner-{seen.tag}` ends it" in raised.value.hint
    assert seen.stop().survivors == 1
    record = tmp_path / "root" / "servers" / f"{seen.tag}.json"
    assert leftovers.clear(seen.tag, record).unproven.startswith("docker ps: Cannot connect")
    assert record.exists()
    runtime.revive()
    assert leftovers.clear(seen.tag, record).survivors == 0
    assert records(tmp_path) == []


def test_a_runtime_that_does_what_it_is_not_told_is_overruled(
    runtime: StandIn, tmp_path: Path
) -> None:
    with start(inside(runtime, victims.SLEEPS), tmp_path, grace_s=0.5) as server:
        said(server, "up")
        runtime.misbehave(deaf="")
        assert server.stop().survivors == 0
        assert runtime.running() == []


def test_a_runtime_that_hangs_has_proven_nothing(
    runtime: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers, "_ANSWER_S", 0.5)
    here = Runtime.here(str(runtime.program))
    ours = Container(runtime=here, name="x", cidfile=str(tmp_path / "none"), tag="x")
    runtime.misbehave(hang="all")
    with pytest.raises(HostError, match=r"docker ps: no answer in 0\.5 s"):
        here.ask("ps")
    assert ours.remove(0.0).startswith("docker ps: no answer in ")


def test_what_a_dead_client_asked_for_late_is_waited_for(runtime: StandIn, tmp_path: Path) -> None:
    cidfile = tmp_path / "cid"
    ours = Container(
        runtime=Runtime.here(str(runtime.program)), name="late", cidfile=str(cidfile), tag="late"
    )
    words = [
        "--name",
        "late",
        "--label=tuner.server=late",
        "--entrypoint",
        "python3",
        "engine:1",
        "-c",
    ]
    run = [str(runtime.program), "run", *words, victims.SLEEPS]
    late = subprocess.Popen(["sh", "-c", 'sleep 0.7; exec "$@"', "sh", *run])
    try:
        assert ours.remove(10.0) == ""
        assert late.wait(60) == 137
    finally:
        late.kill()
        late.wait()


def test_a_runtime_is_called_as_its_owner_called_it(
    runtime: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///elsewhere")
    monkeypatch.setenv("DOCKER_PASSWORD", "secret")
    ours = Container(runtime=Runtime.here("docker"), name="a", cidfile="b", tag="c")
    stored = ours.stored()
    assert stored["runtime"]["variables"]["DOCKER_HOST"] == "unix:///elsewhere"
    assert "secret" not in str(stored)
    assert Container.restored(stored) == ours
    assert Container.restored(None) is None
