"""What a killed Ray leaves is found by its mark and removed; one that lives is left alone."""

import os
import subprocess
import sys
import tempfile

import pytest

from tuner.hosts import processes, ray_leftovers
from tuner.hosts.job import RAY_VARIABLE


@pytest.fixture
def own_root(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def sleeper(mark: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"],
        env={**os.environ, RAY_VARIABLE: mark},
    )


def test_the_dead_are_removed_and_the_living_kept(own_root):
    sessions = ray_leftovers.folder()
    dead = sessions / f"session_2026-01-01_00-00-00_000000_{1 << 30}"
    ours = sessions / f"session_2026-01-01_00-00-00_000000_{os.getpid()}"
    other = sessions / "session_latest"
    for path in (dead, ours, other):
        (path / "logs").mkdir(parents=True)
    orphan, living = sleeper(f"{1 << 30}-1"), sleeper(ray_leftovers.mark())
    stranger = sleeper("a word of somebody else's")
    try:
        found = ray_leftovers.sweep_ray()
        assert (found.survivors, found.folders) == (0, (str(dead),))
        assert orphan.pid in found.killed
        assert orphan.wait(60) == -9
        assert living.poll() is None
        assert stranger.poll() is None
        assert [path.exists() for path in (dead, ours, other)] == [False, True, True]
        again = ray_leftovers.sweep_ray()
        assert (again.killed, again.folders) == ((), ())
    finally:
        for process in (orphan, living, stranger):
            process.kill()
            process.wait()


def test_this_process_is_its_own_mark():
    pid, _, started = ray_leftovers.mark().partition("-")
    assert processes.alive(int(pid), int(started))
