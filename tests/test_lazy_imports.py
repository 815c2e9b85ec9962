"""Help is instant: what is slow to load is loaded by the verb that needs it."""

import json
import subprocess
import sys

import pytest

from tuner.cli import cli

SLOW = ("ray", "optuna", "pandas", "scipy", "numpy", "httpx", "rich", "pydantic", "yaml", "uvloop")
PROGRAM = f"""
import atexit, json, sys
atexit.register(lambda: print(json.dumps([m for m in {SLOW!r} if m in sys.modules]),
                              file=sys.stderr))
"""


def loaded(program: str) -> list[str]:
    """Which of the slow modules a fresh interpreter has loaded when that program has ended."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + program], capture_output=True, text=True, check=True
    )
    return list(json.loads(done.stderr))


def test_importing_the_package_loads_nothing_slow():
    assert loaded("import tuner") == []


@pytest.mark.parametrize("verb", ["", *cli.commands])
def test_help_loads_nothing_slow(verb):
    words = [word for word in ("tuner", verb, "--help") if word]
    program = f"sys.argv = {words!r}\nfrom tuner.cli import main\nmain()"
    assert loaded(program) == []


def test_a_study_that_does_not_exist_is_refused_without_ray():
    program = """
sys.argv = ["tuner", "run", "/no/such/study"]
from tuner.cli import cli
from tuner.errors import DefinitionError
try:
    cli.main(standalone_mode=False)
except DefinitionError:
    pass
"""
    assert "ray" not in loaded(program)
