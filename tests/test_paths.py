"""What is wrong with a path is a sentence, whatever the operating system raises."""

import os
from pathlib import Path

import pytest

from tuner.definitions.paths import absence, fault, study_file
from tuner.errors import DefinitionError

LONG = "n" * 300


def test_a_regular_file_has_no_fault_and_a_folder_is_not_absent(tmp_path):
    (tmp_path / "a.yaml").touch()
    assert fault(tmp_path / "a.yaml") == ""
    assert absence(tmp_path) == absence(tmp_path / "a.yaml") == ""


@pytest.mark.parametrize(
    ("name", "said", "absent"),
    [
        ("nothing", "no such file", "does not exist"),
        ("folder", "found a folder, expected a YAML file", ""),
        ("pipe", "found not a regular file, expected a YAML file", ""),
        ("dangling", "found a link to gone, which does not exist", "does not exist"),
        ("loop", "cannot be read: Too many levels of symbolic links",
         "cannot be reached (too many levels of symbolic links)"),
        (LONG, "cannot be read: File name too long", "cannot be reached (file name too long)"),
        ("file/below", "cannot be read: Not a directory", "cannot be reached (not a directory)"),
        ("a\0b", "not a path that a file can have", "is not a path that a file can have"),
    ],
)  # fmt: skip
def test_a_fault_is_said(tmp_path, name, said, absent):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dangling").symlink_to("gone")
    (tmp_path / "loop").symlink_to("loop")
    assert fault(tmp_path / name) == said
    assert absence(tmp_path / name) == absent


def test_a_study_is_its_folder_or_its_file(tmp_path):
    (tmp_path / "study.yaml").touch()
    assert study_file(tmp_path) == study_file(tmp_path / "study.yaml") == tmp_path / "study.yaml"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "no study.yaml in this folder"),
        ("nowhere", "nowhere: no such study"),
        (LONG, f"{LONG}: cannot be read: File name too long"),
    ],
)
def test_a_study_that_is_not_there_is_told_by_what_was_typed(tmp_path, monkeypatch, name, said):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DefinitionError, match=said):
        study_file(Path(name))
