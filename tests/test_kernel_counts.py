"""What the kernel counts, of the kernel under this test and of one that says little."""

import os
import time
from pathlib import Path

import pytest

from tuner.hosts import kernel_counts
from tuner.hosts.kernel_counts import (
    machine_ticks,
    memory,
    memory_stall_s,
    swapped_pages,
)


def test_cores_are_counted_and_idle_is_part_of_all() -> None:
    first = machine_ticks()
    until_s = time.monotonic() + 30
    while machine_ticks().total == first.total:
        assert time.monotonic() < until_s
    now = machine_ticks()
    assert 0 <= now.idle - first.idle <= now.total - first.total


def test_memory_is_in_gigabytes() -> None:
    found = memory()
    pages = os.sysconf("SC_PHYS_PAGES") * kernel_counts.PAGE_BYTES / 1e9
    assert 0 < found.available_gb <= found.total_gb <= pages * 1.001
    assert 0 <= found.swap_free_gb <= found.swap_gb


def test_swap_and_waiting_only_grow() -> None:
    pages, stall_s = swapped_pages(), memory_stall_s()
    assert swapped_pages() >= pages >= 0
    assert stall_s is None or (memory_stall_s() or 0) >= stall_s >= 0


def test_files_are_read_as_the_kernel_writes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {
        "/proc/stat": "cpu  10 1 5 80 4 0 0 0 7 7\ncpu0 1 1 1 1 1 1 1 1 0 0\n",
        "/proc/vmstat": "pswpin 3\npswpout 4\npgpgin 9\n",
        "/proc/pressure/memory": "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\n"
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=9\n",
    }
    monkeypatch.setattr(kernel_counts, "text", lambda path: said.get(str(path), ""))
    assert machine_ticks() == (100, 84)
    assert swapped_pages() == 7
    assert memory_stall_s() == 2.5


def test_a_kernel_that_counts_no_pressure_says_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kernel_counts, "text", lambda _: "")
    assert memory_stall_s() is None
    assert swapped_pages() == 0
    monkeypatch.undo()
    assert kernel_counts.text(tmp_path / "none") == ""
