"""A disk that is really full: what is said, what is kept, and that the study goes on afterwards."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.evening import SMALL
from tests.test_bad_input import FOLDER
from tuner.definitions.validation import load_study
from tuner.records import Records

PRIVATE = ("unshare", "--mount") if os.geteuid() == 0 else ("unshare", "--map-root-user", "--mount")


def may_mount() -> bool:
    """Whether this user may have a disk of its own, in a namespace of its own."""
    mount = ("mount", "-t", "tmpfs", "tmpfs", "/mnt")
    return subprocess.run([*PRIVATE, *mount], capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module", autouse=True)
def _mounts() -> None:
    if not may_mount():
        pytest.skip("needs a machine that lets its user mount a disk")


@pytest.fixture
def study(tmp_path):
    return Path(shutil.copytree(SMALL, tmp_path / "study"))


def on_a_small_disk(folder: Path, kib: int, *words: str) -> subprocess.CompletedProcess[str]:
    program = (sys.executable, "-m", "tests.bad_host", str(folder), str(kib), *words)
    return subprocess.run(
        [*PRIVATE, *program],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=Path(__file__).parent.parent,
        env={**os.environ, "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1"},
    )


def filled(study: Path, kib: int) -> None:
    """A file that takes so much of the disk."""
    (study / "ballast").write_bytes(os.urandom(1024 * kib))


def test_a_disk_that_is_full_before_anything_runs_is_told_and_nothing_is_started(tmp_path, study):
    used = sum(-(-path.stat().st_size // 4096) * 4 for path in study.iterdir())
    done = on_a_small_disk(tmp_path, used, "run", ".")
    assert done.returncode == 1
    assert "cannot be written: No space left on device" in done.stderr
    assert "Nothing was started. Make room" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_disk_that_is_read_only_is_told_before_anything_runs(tmp_path, study):
    done = on_a_small_disk(tmp_path, 1000, "--read-only", "run", ".")
    assert done.returncode == 1
    assert "/.lock: cannot be written: Read-only file system\n  Nothing was started." in done.stderr
    assert sorted(p.name for p in (tmp_path / "after").iterdir()) == sorted(
        p.name for p in study.iterdir()
    )


def test_a_server_that_fills_the_disk_is_not_taken_for_a_bad_configuration(tmp_path, study):
    for name in ("space.yaml", "objective.yaml"):
        shutil.copy(FOLDER / "good" / name, study)
    shutil.copy(Path(__file__).with_name("wrong_server.py"), study)
    (study / "answers.json").write_text(json.dumps({"log": ["loading"] * 1_000_000}))
    (study / "serve").write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS wrong_server.py "$@"\n')
    (study / "serve").chmod(0o755)
    (study / "study.yaml").write_text(
        "engine: {name: vllm, command: [./serve]}\nmodel: m\nspace: space.yaml\n"
        "objective: objective.yaml\nbudget: {trials: 8}\n"
    )
    done = on_a_small_disk(tmp_path, 16_000, "run", ".")
    assert done.returncode in (1, 4)
    assert "No space left on device" in done.stderr or "its disk is full" in done.stderr
    assert "Make room" in done.stderr
    assert "Traceback" not in done.stderr
    after = tmp_path / "after"
    assert [record.outcome for record in Records(after)] in ([], ["interrupted"])


def test_a_disk_that_fills_up_during_the_night_loses_no_record_and_the_night_goes_on(
    tmp_path, study
):
    filled(study, 1500)
    done = on_a_small_disk(tmp_path, 1660, "run", ".")
    assert done.returncode in (1, 4)
    assert "No space left on device" in done.stderr or "its disk is full" in done.stderr
    assert "Traceback" not in done.stderr
    after = tmp_path / "after"
    kept = [record for record in Records(after) if record.outcome != "interrupted"]
    assert kept
    assert (after / "trials.jsonl").read_bytes().endswith(b"\n")
    (after / "ballast").unlink()
    records = Records(load_study(after).folder)
    records.prepare()
    records.append(kept[0].model_copy(update={"number": records.next_number}))
