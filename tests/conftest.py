"""What several tests share: a copy of the definitions, and one quickstart that has run."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TUNER = (sys.executable, "-m", "tuner")


def tuner(
    folder: Path, *words: str, check: bool = True, timeout_s: float = 540
) -> subprocess.CompletedProcess[str]:
    """`tuner WORDS` in a folder, as a process of its own."""
    done = subprocess.run(
        [*TUNER, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, "NO_COLOR": "1"},
        check=False,
    )
    if check:
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def checkout(folder: Path, studies: Sequence[str]) -> Path:
    """Spaces, objectives and some studies, as a fresh clone would have them."""
    for name in ("search_spaces", "objectives"):
        shutil.copytree(ROOT / name, folder / name)
    made_by_runs = shutil.ignore_patterns(
        "trials",
        "trials.jsonl",
        "optuna.journal*",
        "environment.json",
        "ended.json",
        ".lock*",
        "engine",
        "models",
    )
    for name in studies:
        shutil.copytree(ROOT / "studies" / name, folder / "studies" / name, ignore=made_by_runs)
    return folder


@pytest.fixture(scope="session")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout in which the quickstart has run as the README says, once for all tests."""
    folder = checkout(tmp_path_factory.mktemp("quickstart"), ["quickstart"])
    tuner(folder, "run", "studies/quickstart", timeout_s=1200)
    return folder
