"""`tuner doctor` in something like a container with low limits: its own process, its own mounts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.evening import folder
from tests.test_bad_host import PRIVATE, may_mount

GIB = 1 << 30


@pytest.fixture(scope="module", autouse=True)
def _mounts() -> None:
    if not may_mount():
        pytest.skip("needs a machine that lets its user mount a disk")


def doctor(
    tmp_path: Path, mounts: str, *before: str
) -> tuple[int, dict[str, tuple[str, str, str]]]:
    """The exit code and the checks where those mounts are in place."""
    night = folder(tmp_path)
    words = (sys.executable, "-m", "tuner", "doctor", str(night), "--json")
    script = f'set -e; {mounts}\nexec "$@"'
    done = subprocess.run(
        [*PRIVATE, "sh", "-c", script, "sh", *before, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp"), "HOME": str(tmp_path)},
    )
    assert done.returncode in (0, 1), done.stderr
    checks = json.loads(done.stdout)["checks"]
    return done.returncode, {c["name"]: (c["state"], c["found"], c["mend"]) for c in checks}


@pytest.fixture
def box(tmp_path):
    (tmp_path / "tmp").mkdir()
    return tmp_path


def given(box: Path, name: str, text: str, target: str) -> str:
    """The mount that puts a text in place of a file of the kernel's."""
    (box / name).write_text(text)
    return f"mount --bind {box / name} {target}"


def test_a_container_with_low_limits(box):
    mounts = [
        "mount -t tmpfs -o size=64k tmpfs /dev/shm",
        f"mount -t tmpfs -o size=900m tmpfs {box / 'tmp'}",
    ]
    limits = ("prlimit", "--nofile=64:64")
    code, found = doctor(box, "\n".join(mounts), *limits)
    assert code == 1
    state, said, mend = found["open files"]
    assert (state, said[:23]) == ("fail", "at most 64 may be open,")
    assert "docker run --ulimit nofile=65536" in mend
    state, said, mend = found["/dev/shm"]
    assert (state, said) == ("warn", "6.6e-05 GB of 6.6e-05 GB are free, a server wants 1 GB")
    assert "docker run --ipc=host" in mend
    state, said, mend = found["disk of TMPDIR"]
    assert state == "fail"
    assert said == f"{box / 'tmp'}: 0.94 GB of 0.94 GB are free"
    assert mend == f"free some: du -xh {box / 'tmp'} | sort -h | tail"


def test_what_the_kernel_says_of_memory_swap_and_ports(box):
    meminfo = Path("/proc/meminfo").read_text().splitlines()
    told = {
        "MemTotal": 8 * GIB,
        "MemAvailable": GIB,
        "SwapTotal": 4 * GIB,
        "SwapFree": 2 * GIB,
    }
    lines = [
        f"{name}: {told[name] // 1024} kB" if (name := line.partition(":")[0]) in told else line
        for line in meminfo
    ]
    mounts = [
        given(box, "meminfo", "\n".join(lines) + "\n", "/proc/meminfo"),
        given(box, "reserved", "1024-65535\n", "/proc/sys/net/ipv4/ip_local_reserved_ports"),
    ]
    code, found = doctor(box, "\n".join(mounts))
    assert code == 1
    assert found["memory"] == (
        *("fail", "1.1 GB of 8.6 GB are available", "ps aux --sort=-rss | head shows who has it"),
    )
    assert found["swap"][:2] == ("warn", "2.1 GB of 4.3 GB are in use")
    assert "swapoff -a" in found["swap"][2]
    assert found["ports"][0] == "fail"
    assert "ip_local_reserved_ports" in found["ports"][2]


def test_a_disk_that_takes_nothing(box):
    night = box / "night"
    code, found = doctor(box, f"mount --bind {night} {night}; mount -o remount,bind,ro {night}")
    assert code == 1
    state, said, mend = found["disk of the study"]
    assert (state, said) == ("fail", f"{night} cannot be written to")
    assert mend == f"chown or chmod {night}, or use another folder"
