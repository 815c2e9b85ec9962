"""The README says what is: its commands are those that CI runs, its names are those of files."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from tests.conftest import ROOT
from tuner import cli, errors
from tuner.cli import app
from tuner.definitions.models import Objective, SpaceDefinition, StudyDefinition
from tuner.definitions.validation import load
from tuner.night import ending, environment
from tuner.verbs import report

README = (ROOT / "README.md").read_text()
CI = (ROOT / ".ci" / "run").read_text()
PROSE = re.sub(r"<!-- \[\[\[cog.*?\[\[\[end\]\]\] -->", "", README, flags=re.S)
"""Without the help texts, which cog checks."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PROSE, flags=re.S | re.M)


def commands() -> list[str]:
    """The lines of all shell blocks, without comments."""
    lines = (line.split(" #")[0].strip() for block in blocks("sh") for line in block.splitlines())
    return [line for line in lines if line]


def test_the_quickstart_is_two_commands():
    assert blocks("sh")[0] == (
        "pip install . && tuner run studies/quickstart\npip install '.[dev]' && pytest\n"
    )


def test_ci_runs_what_the_quickstart_says():
    """With the extras, since they hold the tools; the suite itself runs the study."""
    ran = [line.replace("install -q", "install") for line in CI.splitlines()]
    assert "pip install '.[dev]'" in ran
    assert "pytest" in ran
    fixture = (ROOT / "tests" / "conftest.py").read_text()
    assert 'tuner(folder, "run", "studies/quickstart"' in fixture


def test_ci_makes_the_real_engine_as_the_readme_says():
    setup = "bash studies/vllm-cpu/setup.sh"
    assert setup in commands()
    assert setup in CI.splitlines()


def test_every_verb_that_is_mentioned_exists_and_every_verb_is_mentioned():
    mentioned = set(re.findall(r"\btuner ([a-z]+)\b", "\n".join(commands())))
    mentioned |= set(re.findall(r"`tuner ([a-z]+)[^`]*`", PROSE))
    assert mentioned == set(cli.cli.commands)


@pytest.mark.parametrize("command", [c for c in commands() if c.startswith("tuner ")])
def test_commands_parse(command):
    _, verb, *words = shlex.split(command)
    cli.cli.commands[verb].make_context(verb, words)


def test_the_first_init_works_as_printed_where_no_engine_is_installed(tmp_path, monkeypatch):
    first = next(c for c in commands() if c.startswith("tuner init"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "python3").symlink_to(sys.executable)  # an interpreter without the engine
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for name in ("search_spaces", "objectives"):
        (tmp_path / name).symlink_to(ROOT / name)
    cli.cli.main(shlex.split(first)[1:], standalone_mode=False)
    assert (tmp_path / "studies" / "glm5" / "study.yaml").exists()


@pytest.mark.parametrize("command", commands())
def test_shell_blocks_are_shell(command):
    assert subprocess.run(["sh", "-n", "-c", command], check=False).returncode == 0


def test_files_that_are_named_exist():
    paths = re.findall(r"\b(?:studies|search_spaces|objectives)/[\w./-]+", PROSE)
    named = {path.rstrip(".") for path in paths}
    assert len(named) >= 5
    missing = [name for name in named if not (ROOT / name).exists()]
    assert missing == []


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)]+)\)", PROSE)
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


def test_the_study_that_is_shown_is_a_study(tmp_path):
    """As far as its own file goes: its interpreter and its model are nobody's here."""
    folder = tmp_path / "studies" / "mine"
    folder.mkdir(parents=True)
    path = folder / "study.yaml"
    path.write_text(blocks("yaml")[0])
    study = load(path, StudyDefinition)
    assert study.engine.name == "sglang"
    assert study.budget.deadline == "07:30"
    for file in (study.space, study.objective):
        assert (ROOT / Path(file).relative_to("../..")).exists()


def test_files_of_a_study_folder_are_called_as_the_code_calls_them():
    table = dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", PROSE, flags=re.M))
    assert set(table) == {
        "study.yaml",
        "trials.jsonl",
        "trials.jsonl.torn",
        "trials/NNNN/",
        environment.FILE,
        ending.FILE,
        report.FILE,
        "optuna.journal",
    }


def test_exit_codes_are_those_of_the_code():
    said = re.search(r"^Exit codes: (.+?)\n\n", f"{PROSE}\n\n", flags=re.M | re.S)
    assert said
    codes = [int(part.split()[0]) for part in " ".join(said[1].split()).split(" · ")]
    assert codes == [
        0,
        errors.TunerError.exit_code,
        2,
        app.EXIT_NOTHING_FEASIBLE,
        errors.HostError.exit_code,
        app.EXIT_INVALID,
        app.EXIT_BUG,
        app.EXIT_INTERRUPTED,
    ]


def test_the_version_of_python_is_the_one_that_is_required():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"Python {project['requires-python'].removeprefix('>=')} or newer" in README
    assert project["scripts"]["tuner"] == "tuner.cli:main"


DOCUMENTED = (
    (StudyDefinition, 1),
    (SpaceDefinition, 2),
    (Objective, 3),
)


@pytest.mark.parametrize(("model", "block"), DOCUMENTED)
def test_each_file_that_the_readme_spells_out_is_right(model, block, tmp_path):
    path = tmp_path / "file.yaml"
    path.write_text(blocks("yaml")[block])
    load(path, model)


@pytest.mark.parametrize(("model", "block"), DOCUMENTED)
def test_the_readme_names_every_key(model, block):
    said = set(re.findall(r"[A-Za-z_]\w*(?=\*?:)", blocks("yaml")[block]))
    assert keys(model) <= said, keys(model) - said


def keys(model: type[BaseModel]) -> set[str]:
    """The keys of a model and of all models inside it."""
    found: set[str] = set()
    for name, field in model.model_fields.items():
        found.add(field.alias or name)
        for inner in models_in(field.annotation):
            found |= keys(inner)
    return found


def models_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in models_in(part)]
