"""A study's folder appears whole or not at all; definitions come from the tree or as copies."""

from pathlib import Path

import pytest

from tuner.errors import StudyError, TunerError
from tuner.starting import library
from tuner.starting.publish import publish


def test_a_folder_appears_with_all_its_files(tmp_path):
    folder = tmp_path / "studies" / "a"
    seen = []
    publish(folder, {"study.yaml": "s", "space.yaml": "p"}, lambda at: seen.append(at.parent))
    assert sorted(path.name for path in folder.iterdir()) == ["space.yaml", "study.yaml"]
    assert seen == [folder.parent]
    assert list(folder.parent.iterdir()) == [folder]


def test_an_empty_folder_may_be_there(tmp_path):
    (tmp_path / "a").mkdir()
    publish(tmp_path / "a", {"study.yaml": "s"}, lambda _: None)
    assert (tmp_path / "a" / "study.yaml").read_text() == "s"


def test_what_check_refuses_leaves_nothing(tmp_path):
    def refuse(_: Path) -> None:
        raise TunerError("no")

    with pytest.raises(TunerError, match="no"):
        publish(tmp_path / "x" / "y" / "a", {"study.yaml": "s"}, refuse)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("study.yaml", "there is a study already"),
        ("other", "is there already, and no empty folder"),
    ],
)
def test_nothing_is_written_over(tmp_path, name, sentence):
    (tmp_path / name).write_text("mine")
    with pytest.raises(StudyError, match=sentence):
        publish(tmp_path, {"study.yaml": "s"}, lambda _: None)
    assert (tmp_path / name).read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StudyError, match="cannot be written: File exists"):
        publish(tmp_path / "file" / "a", {"study.yaml": "s"}, lambda _: None)


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
@pytest.mark.parametrize("cpu", [False, True])
def test_the_shipped_definitions_are_there(tmp_path, engine, cpu):
    for find in (library.space_for, library.objective_for):
        found = find(engine, tmp_path / "a", cpu=cpu)
        assert found.copied
        assert found.path.is_file()


def test_a_tree_around_the_study_is_referred_to(tmp_path):
    (tmp_path / "search_spaces").mkdir()
    (tmp_path / "search_spaces" / "vllm.yaml").write_text("")
    folder = tmp_path / "studies" / "a"
    found = library.space_for("vllm", folder, cpu=False)
    assert not found.copied
    assert found.reference(folder) == "../../search_spaces/vllm.yaml"
