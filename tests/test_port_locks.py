import os
import subprocess
import sys
from pathlib import Path

from tests.victims import ROOT
from tuner.hosts import port_locks

TAKES = """
import sys
from pathlib import Path
from tuner.hosts import port_locks
lock = port_locks.take(Path(sys.argv[1]), 20000)
print(bool(lock), flush=True)
sys.stdin.read()
"""


def test_a_lock_is_one_processs_and_its_file_goes_with_it(tmp_path: Path) -> None:
    lock = port_locks.take(tmp_path, 20000)
    assert lock
    assert port_locks.take(tmp_path, 20000) is None
    other = port_locks.take(tmp_path, 20016)
    assert other
    port_locks.release([lock, other])
    assert not list((tmp_path / "ports").iterdir())
    again = port_locks.take(tmp_path, 20000)
    assert again
    port_locks.release([again])


def test_a_lock_on_a_file_that_was_removed_is_none(tmp_path: Path) -> None:
    lock = port_locks.take(tmp_path, 20000)
    assert lock
    late = os.open(lock.path, os.O_RDWR)  # opened by another before it is removed
    port_locks.release([lock])
    lock.path.touch()
    assert not port_locks._is_at(lock.path, late)
    os.close(late)


def test_the_files_of_the_dead_are_swept_and_those_of_the_living_stay(tmp_path: Path) -> None:
    one = subprocess.Popen(
        [sys.executable, "-c", TAKES, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert one.stdout is not None
    assert one.stdout.readline() == b"True\n"
    port_locks.sweep(tmp_path)
    assert [path.name for path in (tmp_path / "ports").iterdir()] == ["20000"]
    one.kill()
    one.communicate()
    port_locks.sweep(tmp_path)
    assert not list((tmp_path / "ports").iterdir())


def test_there_is_nothing_to_sweep_where_nothing_ran(tmp_path: Path) -> None:
    port_locks.sweep(tmp_path)
