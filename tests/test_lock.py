"""One run a study: who holds it is named, and its lock goes with its process."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tuner.errors import StudyBusy, StudyError
from tuner.lock import locked


def test_a_second_run_is_refused_and_told_who_holds_the_study(tmp_path):
    with locked(tmp_path), pytest.raises(StudyBusy, match=str(os.getpid())), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


def test_the_lock_goes_with_its_process(tmp_path):
    script = (
        "import sys, time, pathlib\n"
        "from tuner.lock import locked\n"
        "with locked(pathlib.Path(sys.argv[1])):\n"
        "    print('held', flush=True)\n"
        "    time.sleep(60)\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(StudyBusy), locked(tmp_path):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    deadline = time.monotonic() + 10
    while True:
        try:
            with locked(tmp_path):
                break
        except StudyBusy:
            assert time.monotonic() < deadline


@pytest.mark.parametrize("name", ["file", "locked", "named"])
def test_a_folder_that_cannot_be_written_is_named(tmp_path, name):
    (tmp_path / "file").write_text("")
    (tmp_path / "locked" / ".lock").mkdir(parents=True)
    (tmp_path / "named" / ".lock.pid").mkdir(parents=True)
    with pytest.raises(StudyError, match=rf"{name}.*: cannot be written"), locked(tmp_path / name):
        pass


def test_a_lock_is_let_go_where_its_holder_cannot_be_written_down(tmp_path):
    (tmp_path / ".lock.pid").mkdir()
    for _ in range(2):
        with pytest.raises(StudyError, match="Is a directory"), locked(tmp_path):
            pass
    (tmp_path / ".lock.pid").rmdir()
    with locked(tmp_path):
        pass


def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch):
    def refuse(self, *_, **__):
        raise NotImplementedError("FileSystem does not appear to support flock")

    monkeypatch.setattr("tuner.lock.FileLock.acquire", refuse)
    with pytest.raises(StudyError, match="its file system cannot lock files"), locked(tmp_path):
        pass
