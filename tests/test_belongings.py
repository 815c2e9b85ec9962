"""What servers leave in /dev/shm and in their temporary folders is removed, and nothing else."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import victims
from tests.starter import Starter, named_segment, starting
from tests.victims import python, said, until
from tuner.engines.base import LaunchCommand
from tuner.hosts.server import Server


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    with starting(tmp_path) as starter:
        yield starter


@pytest.fixture
def segment() -> Iterator[str]:
    with named_segment() as name:
        yield name


def test_segments_of_the_tree_are_removed_even_after_sigkill(start: Starter, segment: str) -> None:
    server = start(python(victims.MAPS_SEGMENT.format(names=[segment])))
    record = start.root / "servers" / f"{server.tag}.json"
    until(lambda: segment in record.read_text(), "the segment is noted")
    os.kill(server.pid, signal.SIGKILL)
    report = server.stop()
    assert report.segments == (f"/dev/shm/{segment}",)
    assert not (Path("/dev/shm") / segment).exists()


def test_segments_are_removed_even_when_server_and_supervisor_are_killed_at_once(
    start: Starter, segment: str
) -> None:
    server = start(python(victims.MAPS_SEGMENT.format(names=[segment])))
    record = start.root / "servers" / f"{server.tag}.json"
    until(lambda: segment in record.read_text(), "the segment is noted")
    os.kill(server._supervisor[0], signal.SIGSTOP)
    os.kill(server.pid, signal.SIGKILL)
    os.kill(server._supervisor[0], signal.SIGKILL)
    until(lambda: server.exit_code() is not None, "the owner notices")
    assert server.stop().segments == (f"/dev/shm/{segment}",)
    assert not (Path("/dev/shm") / segment).exists()


def test_a_semaphore_of_a_killed_tree_is_removed(start: Starter, segment: str) -> None:
    server = start(python(victims.MAPS_SEMAPHORE.format(name=segment)))
    path = f"/dev/shm/sem.{segment}"
    record = start.root / "servers" / f"{server.tag}.json"
    until(lambda: path in record.read_text(), "the semaphore is noted")
    os.kill(server.pid, signal.SIGKILL)
    assert server.stop().segments == (path,)
    assert not Path(path).exists()


def scratch_of(server: Server) -> Path:
    said(server, "/")
    return Path(server.log().strip()).parent


def test_temporary_files_go_with_the_server(start: Starter) -> None:
    server = start(python(victims.LEAVES_FILES))
    scratch = scratch_of(server)
    assert scratch.parent == start.root / "tmp"
    assert (scratch / "socket").exists()
    assert scratch.stat().st_mode & 0o777 == 0o700
    os.kill(server.pid, signal.SIGKILL)
    server.stop()
    assert not scratch.exists()


def test_temporary_files_go_where_the_study_says(start: Starter, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    command = LaunchCommand(
        argv=python(victims.LEAVES_FILES).argv, env={"TMPDIR": str(tmp_path / "mine")}
    )
    server = start(command)
    assert scratch_of(server) == tmp_path / "mine"
    server.stop()
    assert (tmp_path / "mine" / "socket").exists()


def test_what_was_compiled_is_not_temporary(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", "/somewhere")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    program = "import os; print(os.environ['TORCHINDUCTOR_CACHE_DIR'], flush=True)"
    server = start(python(program))
    said(server, "/torchinductor_")
    assert str(start.root) not in server.log()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/cache")
    said(start(python(program)), "/cache")


def test_a_segment_that_somebody_else_maps_stays(start: Starter, segment: str) -> None:
    server = start(python(victims.MAPS_SEGMENT.format(names=[segment])))
    said(server, "mapped")
    with (Path("/dev/shm") / segment).open("rb"):
        assert server.stop().segments == ()
        assert (Path("/dev/shm") / segment).exists()
