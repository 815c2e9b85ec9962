"""A night of servers in containers behind a stand-in runtime, cut in its middle and continued."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT, TUNER, tuner
from tests.stand_in_runtime import StandIn
from tests.test_interrupted import wait_until_first_launch
from tests.victims import until
from tuner.hosts import processes
from tuner.hosts.supervisor import TAG_VARIABLE
from tuner.records import Records


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[StandIn]:
    stand_in = StandIn(tmp_path / "runtime")
    yield stand_in
    left, running = stand_in.containers(), stand_in.running()
    stand_in.close()
    assert (left, running) == ([], [])


@pytest.fixture
def night(tmp_path: Path, runtime: StandIn, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a study of one launch of each hypothesis, in containers; what is written down
    of its servers stands apart from that of others."""
    shutil.copytree(ROOT / "tests" / "small_night", tmp_path / "night")
    study = tmp_path / "night" / "study.yaml"
    image = f'image: "engine:1", containers: {{runtime: {runtime.program}}}'
    text = study.read_text().replace("surface: surface.yaml", f"surface: surface.yaml, {image}")
    study.write_text(text.replace("trials: 26", "trials: 6"))
    with tempfile.TemporaryDirectory(prefix="n") as short:  # the names of Ray's sockets are long
        monkeypatch.setenv("TMPDIR", short)
        yield tmp_path


def begun(night: Path) -> "subprocess.Popen[bytes]":
    """A run that has begun to launch."""
    log = night / "stderr.log"
    with log.open("w") as errors:
        run = subprocess.Popen(
            [*TUNER, "run", "night"], cwd=night, stdout=subprocess.DEVNULL, stderr=errors
        )
    wait_until_first_launch(run, log)
    return run


def supervisors(runtime: StandIn) -> list[int]:
    """Processes that carry a server's mark and run a supervisor."""
    tag = next(
        label.partition("=")[2]
        for label in runtime.config()["labels"]
        if label.startswith("tuner.server=")
    )
    marked = processes.marks(TAG_VARIABLE, processes.table())
    return [
        pid
        for pid, mark in marked.items()
        if mark == tag and "hosts.supervisor" in processes.command_line(pid)
    ]


def kill(*pids: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def test_a_killed_night_goes_on_and_leaves_no_container(night: Path, runtime: StandIn) -> None:
    run = begun(night)
    until(runtime.containers, "a container runs")
    kill(run.pid)
    run.wait()
    until(lambda: not runtime.containers(), "its container is gone")

    run = begun(night)
    until(runtime.containers, "a container runs")
    (supervisor,) = supervisors(runtime)
    # The worker that owns the server lives a moment longer: it must not be the one that clears up.
    kill(supervisor, run.pid)
    run.wait()

    tuner(night, "run", "night")
    records = [record for record in Records(night / "night") if record.outcome != "interrupted"]
    assert [record.outcome for record in records if record.kind == "baseline"] == ["completed"] * 3
    (died,) = [record for record in records if record.hypothesis == "flashinfer"]
    assert died.failure is not None
    assert died.failure.kind == "oom_kv"
    assert died.failure.cause.startswith("RuntimeError: Not enough memory.")
    assert all(record.command.startswith(f"{runtime.program} run ") for record in records)

    # The same name with another content is another engine: its numbers do not go with these.
    runtime.image("engine:1", "sha256:" + "2" * 64)
    study = night / "night" / "study.yaml"
    study.write_text(study.read_text().replace("trials: 6", "trials: 7"))
    done = tuner(night, "run", "night", check=False)
    assert done.returncode == 1
    assert "images.engine:1 was" in done.stderr


def test_without_its_daemon_a_night_is_refused_before_it_begins(
    night: Path, runtime: StandIn
) -> None:
    runtime.crash()
    done = tuner(night, "run", "night", check=False)
    assert done.returncode == 1
    assert "the container runtime does not work: docker ps: Cannot connect" in done.stderr
    assert "Nothing was started." in done.stderr


def test_a_daemon_that_goes_in_the_night_ends_it_as_the_host_does(
    night: Path, runtime: StandIn
) -> None:
    run = begun(night)
    until(runtime.containers, "a container runs")
    runtime.crash()
    code = run.wait(timeout=300)
    said = (night / "stderr.log").read_text()
    assert code == 4, said
    assert "Cannot connect to the Docker daemon" in said
    assert "Traceback" not in said
    runtime.revive()
    until(lambda: not runtime.running(), "nothing runs on")
    tuner(night, "doctor", "night", check=False)
    assert runtime.containers() == []
