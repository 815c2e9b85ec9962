"""What engines said is kept between runs, and costs nothing but time where it cannot be."""

import os

import pytest

from tuner.flags import cache
from tuner.flags.catalogue import Catalogue, Flag

MADE = Catalogue(engine="sglang", version="1.0", how="parser", flags=[Flag(name="tp-size")])


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_what_was_kept_is_found_by_the_same_words_only(home):
    assert cache.kept("python", "1.0") is None
    cache.keep(MADE, "python", "1.0")
    assert cache.kept("python", "1.0") == MADE
    assert cache.kept("python", "1.1") is None
    assert cache.kept("python1.0") is None
    assert cache.folder() == home / "serving-tuner" / "flags"


def test_it_stands_in_the_home_folder_where_nothing_else_is_said(tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.folder() == tmp_path / ".cache" / "serving-tuner" / "flags"


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"engine": "sglang"}', b"[]"])
def test_a_damaged_file_is_as_good_as_none_and_is_replaced(content):
    cache.keep(MADE, "python")
    (file,) = cache.folder().iterdir()
    file.write_bytes(content)
    assert cache.kept("python") is None
    cache.keep(MADE, "python")
    assert cache.kept("python") == MADE
    assert [entry.name for entry in cache.folder().iterdir()] == [file.name]


def test_a_cache_that_cannot_be_written_is_no_error(home):
    home.write_text("a file where the folder should be")
    cache.keep(MADE, "python")
    assert cache.kept("python") is None


def test_a_full_disk_leaves_nothing_half_written(monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    monkeypatch.setattr("pathlib.Path.replace", full)
    cache.keep(MADE, "python")
    assert cache.kept("python") is None
    assert list(cache.folder().iterdir()) == []
