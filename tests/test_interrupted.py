"""A night that a person interrupts: it says so, records what was measured, and leaves nothing.

What befalls nights unasked is in `tests/chaos`.
"""

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT, TUNER
from tuner.records import Records

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def night(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "tests" / "small_night", tmp_path / "night")
    return tmp_path


def servers(folder: Path) -> list[int]:
    """Processes that serve this study, by its surface file in their command line."""
    marker = str(folder / "night" / "surface.yaml").encode()
    return [
        pid for pid, words in command_lines() if marker in words and b"tuner.rehearsal" in words
    ]


def command_lines() -> Iterator[tuple[int, bytes]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                yield int(entry.name), (entry / "cmdline").read_bytes()
            except OSError:
                continue


def wait_until_first_launch(run: "subprocess.Popen[bytes]", log: Path) -> None:
    """A run that has not begun its first launch has nothing to lose."""
    deadline = time.monotonic() + 120
    while "trial" not in log.read_text():
        if run.poll() is not None:
            return
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_records_stops_its_server_and_exits_130(
    night: Path, number: int
) -> None:
    log = (night / "stderr.log").open("w")
    run = subprocess.Popen([*TUNER, "run", "night"], cwd=night, stdout=log, stderr=log)
    deadline = time.monotonic() + 120
    while not servers(night):
        assert time.monotonic() < deadline, (night / "stderr.log").read_text()
        time.sleep(0.05)
    run.send_signal(number)
    assert run.wait(timeout=60) == 130
    log.close()
    said = (night / "stderr.log").read_text()
    assert "interrupted; everything measured is recorded" in said
    assert "Traceback" not in said
    assert not servers(night)
    assert Records(night / "night").next_number >= 1
