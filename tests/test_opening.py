"""A space is read for the version that is stated, and else for the one that is installed."""

import stat
import sys

import pytest

from tests.conftest import ROOT
from tests.evening import edit, folder
from tuner.errors import DefinitionError
from tuner.night.opening import installed_version, open_study, other_version

PARAMETER = "parameters:\n  old: {type: bool, versions: '<0.5'}\n"
ENGINE = "engine: {name: rehearsal, surface: surface.yaml}"


@pytest.fixture
def study(tmp_path):
    """A study of vLLM with a parameter that only old versions have."""
    night = folder(tmp_path)
    edit(night, "space.yaml", "parameters:\n", PARAMETER)
    edit(night, "study.yaml", ENGINE, "engine: {name: vllm, python: ./python}")
    return night


def install(night, version):
    """An interpreter that says that this version of the engine is installed."""
    site = night / "site" / f"vllm-{version}.dist-info"
    site.mkdir(parents=True)
    (site / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
    (night / "site" / "vllm").mkdir()
    python = night / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={night}/site exec {sys.executable} "$@"\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize(("version", "is_there"), [("0.4.2", True), ("0.32.0+cpu", False)])
def test_the_installed_version_decides(study, version, is_there):
    install(study, version)
    opened = open_study(study)
    assert opened.space.version == version
    assert ("old" in opened.space.parameters) is is_there


def test_where_none_is_known_the_study_must_state_one(study):
    with pytest.raises(DefinitionError) as error:
        open_study(study)
    assert "space.yaml has parameters by version, and the version of vllm is not known here\n" in (
        str(error.value)
    )
    assert error.value.problems[0].hint == "say engine.version"
    edit(study, "study.yaml", "python: ./python", "python: ./python, version: 0.4.1")
    assert open_study(study).space.version == "0.4.1"


def test_another_version_than_the_stated_one_is_noticed(study):
    install(study, "0.32.0+cpu")
    edit(study, "study.yaml", "python: ./python", "python: ./python, version: '0.32'")
    assert other_version(open_study(study)) is None
    edit(study, "study.yaml", "version: '0.32'", "version: 0.31.1")
    assert other_version(open_study(study)) == (
        "engine.version says 0.31.1, and the vllm that would be launched is 0.32.0+cpu"
    )


def test_a_rehearsal_has_the_version_whose_flags_it_takes():
    quickstart = open_study(ROOT / "studies" / "quickstart")
    assert installed_version(quickstart.folder, quickstart.definition) == "0.5.9"
    assert quickstart.space.version == "0.5.9"
    assert other_version(quickstart) is None
