"""A look at a real machine: what it says is what the machine is, and leftovers are gone."""

import json
import os
import pwd
import resource
import socket
import subprocess
import sys
import tempfile
from datetime import UTC, datetime

import pytest

from tests.conftest import ROOT
from tuner.hosts import inspection, kernel_counts, processes
from tuner.hosts.inspection import inspect_host
from tuner.hosts.job import RAY_VARIABLE
from tuner.hosts.leftovers import records
from tuner.hosts.ray_leftovers import RaySwept
from tuner.hosts.supervisor import TAG_VARIABLE

LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 300))
from tuner.hosts.inspection import inspect_host
print(inspect_host().model_dump_json())
"""
BURNS = "while True: pass"


@pytest.fixture
def own_root(tmp_path, monkeypatch):
    """A TMPDIR of its own, so that no other run's leftovers are seen."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"serving-tuner-{os.getuid()}"


def test_this_machine_is_as_the_system_says(own_root, tmp_path):
    inspect_host(tmp_path)  # removes what an earlier test's killed Ray has left
    seen = inspect_host(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert (seen.open_files_soft, seen.open_files_hard) == tuple(
        None if value == resource.RLIM_INFINITY else value for value in (soft, hard)
    )
    assert seen.study is not None
    assert (seen.study.path, seen.study.writable, seen.study.problem) == (str(tmp_path), True, "")
    assert seen.tmp.path == str(tmp_path)
    assert 0 < seen.study.free_gb <= seen.study.total_gb
    assert 0 < seen.available_gb <= seen.memory_gb
    assert seen.cores == len(os.sched_getaffinity(0))
    assert 0 <= seen.busy_cores <= (os.cpu_count() or 1)
    assert abs((datetime.now(UTC) - seen.now).total_seconds()) < 60
    assert seen.ephemeral[0] < seen.ephemeral[1]
    assert (seen.swept, seen.unswept) == ([], [])


def test_low_limits_are_seen(own_root, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LIMITED],
        capture_output=True, text=True, check=True, cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    seen = json.loads(done.stdout)
    assert (seen["open_files_soft"], seen["open_files_hard"]) == (200, 300)


@pytest.mark.parametrize(
    ("mark", "word", "ours"),
    [
        ({}, "x", False),
        ({RAY_VARIABLE: f"{os.getpid()}-{processes.table()[os.getpid()].started}"}, "x", True),
        ({TAG_VARIABLE: "trial-1-abcd"}, "x", True),
        ({}, "/a/bin/tuner run night", True),
        ({}, "tuner.py run", False),
    ],
)
def test_a_process_that_burns_a_core_is_named_with_its_owner(own_root, mark, word, ours):
    burns = [sys.executable, "-c", BURNS + "#", word]
    with subprocess.Popen(burns, env={**os.environ, **mark}) as burner:
        try:
            for _ in range(20):
                users = {user.pid: user for user in inspect_host().cpu_users}
                if burner.pid in users:
                    break
        finally:
            burner.kill()
    assert users[burner.pid].command.endswith(f"{BURNS}# {word}")
    assert users[burner.pid].user == pwd.getpwuid(os.getuid()).pw_name
    assert users[burner.pid].ours == ours
    assert users[burner.pid].cores >= inspection._BUSY_CORES


def test_a_listener_is_seen(own_root):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert listener.getsockname()[1] in inspect_host().listening


def test_what_a_dead_run_left_is_removed_and_said(own_root):
    tag = "trial-7-abcd"
    own_root.mkdir(mode=0o700)
    dead = [1 << 30, 1]
    record = {"tag": tag, "owner": dead, "supervisor": dead, "segments": []}
    (records(own_root) / f"{tag}.json").write_text(json.dumps(record))
    session = own_root / "ray" / f"session_2026-01-01_00-00-00_000000_{1 << 30}"
    session.mkdir(parents=True)
    orphan = subprocess.Popen(["sleep", "600"], env={**os.environ, TAG_VARIABLE: tag})
    try:
        seen = inspect_host()
        assert orphan.wait(60) == -9
    finally:
        orphan.kill()
        orphan.wait()
    assert seen.swept == ["server trial-7-abcd: 1 process", f"Ray: 1 folder ({session})"]
    assert seen.unswept == []
    assert not session.exists()
    assert inspect_host().swept == []


def test_of_a_ray_the_processes_and_folders_are_named():
    both = RaySwept(killed=(7, 9), survivors=0, folders=("/r/session_1", "/r/session_2"))
    assert inspection._ray_words(both) == (
        "2 processes (pid 7, 9), 2 folders (/r/session_1, /r/session_2)"
    )
    many = RaySwept(killed=tuple(range(1, 15)), survivors=0, folders=())
    assert inspection._ray_words(many).endswith("10, 11, 12 and 2 more)")
    one = RaySwept(killed=(7,), survivors=0, folders=())
    assert inspection._ray_words(one) == "1 process (pid 7)"


def test_a_run_root_of_another_user_is_a_fault_and_no_end(own_root, tmp_path):
    own_root.symlink_to(tmp_path)
    assert inspect_host().unswept == [f"{own_root} belongs to another user"]


def test_a_folder_that_is_not_there(tmp_path):
    assert inspection._disk(tmp_path / "none") is None
    file = tmp_path / "file"
    file.touch()
    found = inspection._disk(file / "inside")
    assert found is not None
    assert (found.problem, found.writable) == ("Not a directory", False)


@pytest.mark.parametrize(
    ("files", "limit_gb", "used_gb", "quota"),
    [
        (
            {
                "memory.max": "8000000000\n",
                "memory.current": "6000000000\n",
                "memory.stat": "anon 5\ninactive_file 1000000000\n",
                "cpu.max": "150000 100000\n",
            },
            *(8.0, 5.0, 1.5),
        ),
        (
            {
                "memory/memory.limit_in_bytes": "4000000000",
                "memory/memory.usage_in_bytes": "1000000000",
                "memory/memory.stat": "total_inactive_file 500000000\n",
                "cpu/cpu.cfs_quota_us": "200000",
                "cpu/cpu.cfs_period_us": "100000",
            },
            *(4.0, 0.5, 2.0),
        ),
        ({"memory.max": "max\n", "cpu.max": "max 100000\n"}, None, 0.0, None),
        (
            {"memory/memory.limit_in_bytes": "9223372036854771712", "cpu/cpu.cfs_quota_us": "-1"},
            *(None, 0.0, None),
        ),
        ({}, None, 0.0, None),
    ],
)
def test_the_limits_of_a_container_of_either_version(
    files, limit_gb, used_gb, quota, tmp_path, monkeypatch
):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for module in (inspection, kernel_counts):
        monkeypatch.setattr(module, "SYSTEM", tmp_path)
    assert kernel_counts._container_memory_gb() == (limit_gb, used_gb)
    assert inspection._quota_cores() == quota
