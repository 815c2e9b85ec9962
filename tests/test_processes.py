import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.victims import until
from tuner.hosts import processes
from tuner.hosts.processes import Process

SLEEP = "import time; time.sleep(600)"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-c", SLEEP], env={**os.environ, "TUNER_TEST_MARK": "one"}
    )
    # The environment is that of the caller until the program has been executed.
    until(lambda: SLEEP in processes.command_line(process.pid), "it runs")
    yield process
    process.kill()
    process.wait()


def test_a_process_is_known_by_its_number_and_its_start(sleeper: subprocess.Popen[bytes]) -> None:
    found = processes.read(sleeper.pid)
    assert found is not None
    assert found.parent == os.getpid()
    assert processes.alive(found.pid, found.started)
    assert not processes.alive(found.pid, found.started + 1)
    assert sleeper.pid in processes.table()


def test_a_mark_that_is_not_ours_names_nobody() -> None:
    assert processes.named("12-3456") == (12, 3456)
    assert processes.named("12") is None
    assert processes.named("yes-no") is None


def test_a_zombie_counts_as_gone(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.kill()
    until(lambda: processes.read(sleeper.pid) is None, "it is a zombie")
    assert Path(f"/proc/{sleeper.pid}").exists()


def test_a_process_whose_main_thread_ended_is_still_there() -> None:
    program = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    process = subprocess.Popen([sys.executable, "-c", program])
    try:
        stat = Path(f"/proc/{process.pid}/stat")
        until(lambda: ") Z " in stat.read_text(), "the main thread ended")
        assert processes.read(process.pid) is not None
    finally:
        process.kill()
        process.wait()


def test_a_name_with_parentheses_and_spaces_is_read(tmp_path: Path) -> None:
    odd = tmp_path / "a) Z (b"
    odd.symlink_to("/bin/sleep")
    process = subprocess.Popen([odd, "600"])
    try:
        until(lambda: "a) Z" in Path(f"/proc/{process.pid}/comm").read_text(), "it runs")
        found = processes.read(process.pid)
        assert found is not None
        assert found.parent == os.getpid()
        assert found.state in {"S", "R", "D"}
    finally:
        process.kill()
        process.wait()


def test_descendants_are_followed_to_any_depth() -> None:
    table = {pid: Process(pid, parent, "S", 0) for pid, parent in [(2, 1), (3, 2), (4, 3), (5, 1)]}
    assert processes.descendants([2], table) == {3, 4}
    assert processes.descendants([1], table) == {2, 3, 4, 5}
    assert processes.descendants([9], table) == set()


def test_a_mark_is_a_whole_variable(sleeper: subprocess.Popen[bytes]) -> None:
    pids = [sleeper.pid, os.getpid()]
    assert processes.marks("TUNER_TEST_MARK", pids) == {sleeper.pid: "one"}
    assert processes.marks("TEST_MARK", pids) == {}
    assert processes.tree("TUNER_TEST_MARK", "on") == []


def test_a_tree_leaves_out_roots_and_caller(sleeper: subprocess.Popen[bytes]) -> None:
    def pids(*roots: int) -> set[int]:
        return {each.pid for each in processes.tree("TUNER_TEST_MARK", "one", roots)}

    assert pids() == {sleeper.pid}
    assert sleeper.pid in pids(os.getpid())
    assert os.getpid() not in pids(os.getpid())
    assert pids(sleeper.pid) == set()


def test_only_this_very_process_is_signalled(sleeper: subprocess.Popen[bytes]) -> None:
    found = processes.read(sleeper.pid)
    assert found is not None
    assert not processes.send(found._replace(started=found.started + 1), signal.SIGKILL)
    assert processes.alive(found.pid, found.started)
    assert processes.send(found, signal.SIGKILL)
    sleeper.wait()
    assert not processes.send(found, signal.SIGKILL)


def test_what_cannot_be_killed_is_counted() -> None:
    immortal = Process(1 << 30, 1, "D", 0)
    assert processes.kill_all(lambda: [immortal], limit_s=0.1) == (set(), 1)


def test_one_empty_look_is_no_proof_that_nothing_is_left(sleeper: subprocess.Popen[bytes]) -> None:
    looks = iter([[], [processes.read(sleeper.pid)]])

    def find() -> list[Process]:
        return [process for process in next(looks, []) if process]

    killed, survivors = processes.kill_all(find, limit_s=5.0)
    assert ([each.pid for each in killed], survivors) == ([sleeper.pid], 0)


def test_a_listening_socket_is_found_with_its_holder() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        (inode,) = sockets = processes.listening_sockets(port)
        assert processes.holders(sockets, processes.table()) == {inode: os.getpid()}
        assert processes.holders(sockets, []) == {}
    assert processes.listening_sockets(port) == set()


def test_a_socket_of_ip_version_six_is_found() -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6) as listener:
        assert processes.listening_sockets(listener.getsockname()[1])


def test_a_segment_is_removed_once_nobody_holds_it() -> None:
    path = Path(f"/dev/shm/tuner-test-{os.getpid()}-{time.monotonic_ns()}")
    with path.open("wb"):
        assert str(path) in processes.shared_memory([os.getpid()])
        assert processes.remove_shared_memory([str(path)]) == []
    assert processes.remove_shared_memory([str(path), "/dev/shm/never-was"]) == [str(path)]
    assert not path.exists()


def test_an_unreadable_process_has_no_secrets_to_tell() -> None:
    assert processes.read(1 << 30) is None
    assert processes.command_line(1 << 30) == "?"
    assert processes.shared_memory([1 << 30]) == set()
