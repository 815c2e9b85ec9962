from pathlib import Path

import pytest

from tuner.hosts import cgroups


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the kernel tells, as a folder."""
    monkeypatch.setattr(cgroups, "PROC", tmp_path / "proc")
    monkeypatch.setattr(cgroups, "SYSTEM", tmp_path / "sys")
    return tmp_path


def group(kernel: Path, pid: str, lines: str) -> None:
    (kernel / "proc" / pid).mkdir(parents=True)
    (kernel / "proc" / pid / "cgroup").write_text(lines)


def counter(kernel: Path, path: str, text: str) -> Path:
    file = kernel / "sys" / path
    file.parent.mkdir(parents=True)
    file.write_text(text)
    return file


def test_the_one_hierarchy_counts_in_memory_events(kernel: Path) -> None:
    group(kernel, "self", "0::/user.slice\n")
    group(kernel, "7", "0::/system.slice/docker-a.scope\n")
    file = counter(
        kernel, "system.slice/docker-a.scope/memory.events", "low 0\noom 3\noom_kill 2\n"
    )
    assert cgroups.oom_counter(7) == file
    assert cgroups.oom_kills(file) == 2


def test_the_older_hierarchies_count_in_that_of_memory(kernel: Path) -> None:
    group(kernel, "self", "4:memory:/\n0::/\n")
    group(kernel, "7", "8:pids:/docker/a\n4:memory:/docker/a\n0::/docker/a\n")
    file = counter(
        kernel,
        "memory/docker/a/memory.oom_control",
        "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
    )
    assert cgroups.oom_counter(7) == file
    assert cgroups.oom_kills(file) == 1


def test_what_is_counted_for_the_caller_too_says_nothing(kernel: Path) -> None:
    group(kernel, "self", "0::/same\n")
    group(kernel, "7", "0::/same\n")
    counter(kernel, "same/memory.events", "oom_kill 9\n")
    assert cgroups.oom_counter(7) is None


def test_nothing_is_known_of_who_is_gone(kernel: Path) -> None:
    assert cgroups.oom_counter(7) is None
    group(kernel, "self", "0::/a\n")
    group(kernel, "7", "0::/b\n")
    assert cgroups.oom_counter(7) is None
    assert cgroups.oom_kills(kernel / "none") == 0
