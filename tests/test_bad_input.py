"""Every bad input has its message: a folder holds files and the exact text said of them."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from tuner.definitions.models import Objective, SpaceDefinition
from tuner.definitions.validation import load, load_objective, load_study
from tuner.errors import DefinitionError

FOLDER = Path(__file__).parent / "bad_input"
CASES = sorted(path.parent.name for path in FOLDER.glob("*/expected.txt"))
ALONE: dict[str, type[BaseModel]] = {"space.yaml": SpaceDefinition, "objective.yaml": Objective}


def message_of() -> str:
    """What is said of the files in the working directory."""
    names = [name for name in ("study.yaml", *ALONE) if Path(name).exists()]
    with pytest.raises(DefinitionError) as error:
        load_file(names[0])
    return f"{error.value}\n"


def load_file(name: str) -> object:
    if name == "objective.yaml":
        return load_objective(Path(name))
    return load(Path(name), ALONE[name]) if name in ALONE else load_study(Path(name))


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_told_in_exactly_these_words(case, monkeypatch):
    monkeypatch.chdir(FOLDER / case)
    assert message_of() == Path("expected.txt").read_text()


def test_there_are_many_cases_and_no_folder_without_its_text():
    folders = {path.name for path in FOLDER.iterdir() if path.is_dir()} - {"good"}
    assert folders == set(CASES)
    assert len(CASES) >= 60


def test_the_good_files_that_cases_refer_to_are_good(monkeypatch):
    monkeypatch.chdir(FOLDER / "good")
    assert load_study(Path("study.yaml")).space.hypotheses[0].id == "small-graphs"
