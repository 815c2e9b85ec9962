"""Records: append-only, torn tails survived, damage and newer versions named."""

import json
import os
import subprocess
import sys

import pytest

from tests.samples import record
from tuner.errors import RecordsError, StudyError
from tuner.records import SCHEMA, Records


def test_what_was_appended_is_read_back(tmp_path):
    records = Records(tmp_path)
    records.append(record(0))
    records.append(record(1, kind="search"))
    assert list(Records(tmp_path)) == [record(0), record(1, kind="search")]
    assert Records(tmp_path).next_number == 2


def test_an_empty_folder_has_no_records(tmp_path):
    assert list(Records(tmp_path)) == []
    assert Records(tmp_path).next_number == 0


def two(folder):
    """A folder with two records, and the file's content."""
    records = Records(folder)
    records.append(record(0))
    records.append(record(1))
    return records.path, records.path.read_bytes()


def zeros(content):
    """What a file system may leave of a last line whose length it kept and whose text it lost."""
    last = content[:-1].rfind(b"\n") + 1
    return content[:last] + b"\0" * (len(content) - last - 1) + b"\n"


TORN = [
    lambda content: content[:-2],
    lambda content: content[:-200],
    lambda content: content[:-200] + b"\0" * 199,
    lambda content: content[:-200] + b"\0" * 199 + b"\n",
    zeros,
]


@pytest.mark.parametrize("tear", TORN)
def test_a_torn_last_line_is_said_kept_aside_and_overwritten(tmp_path, tear):
    path, content = two(tmp_path)
    path.write_bytes(tear(content))
    again = Records(tmp_path)
    assert [r.number for r in again] == [0]
    assert f"{path}:2: the last record was cut off" in again.torn
    assert path.read_bytes() == tear(content)
    again.append(record(1, kind="search"))
    assert [(r.number, r.kind) for r in Records(tmp_path)] == [(0, "baseline"), (1, "search")]
    kept = (tmp_path / "trials.jsonl.torn").read_bytes()
    assert kept.rstrip(b"\n") == tear(content)[content.index(b"\n") + 1 :].rstrip(b"\n")
    assert not again.torn


def test_a_record_that_lacks_only_its_line_end_is_whole(tmp_path):
    path, content = two(tmp_path)
    path.write_bytes(content[:-1])
    again = Records(tmp_path)
    assert [r.number for r in again] == [0, 1]
    assert not again.torn
    again.append(record(2))
    again.append(record(3))
    assert [r.number for r in Records(tmp_path)] == [0, 1, 2, 3]
    assert path.read_bytes().startswith(content)


def test_preparing_shows_that_records_can_be_written_and_changes_none(tmp_path):
    path, content = two(tmp_path)
    Records(tmp_path).prepare()
    assert path.read_bytes() == content
    path.write_bytes(content[:-9])
    records = Records(tmp_path)
    records.prepare()
    assert path.read_bytes() == content[: content.index(b"\n") + 1]
    assert not records.torn
    (tmp_path / "trials").rmdir()
    (tmp_path / "trials").touch()
    with pytest.raises(StudyError, match="/trials: cannot be written: File exists"):
        records.prepare()


@pytest.mark.parametrize("change", [b"", b"{}\n", b"a stranger's line\n" * 400])
def test_a_file_that_something_else_wrote_to_is_not_written_over(tmp_path, change):
    two(tmp_path)
    records = Records(tmp_path)
    records.path.write_bytes(change)
    with pytest.raises(StudyError, match="something else changed it meanwhile"):
        records.append(record(2))
    assert records.path.read_bytes() == change


def test_a_number_that_stands_twice_is_refused_with_both_lines(tmp_path):
    path, content = two(tmp_path)
    path.write_bytes(content + content.splitlines(keepends=True)[0])
    with pytest.raises(RecordsError, match=r":3: a second record of trial 0, .* on line 1"):
        Records(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"2026-01-01T00:01:00+00:00"', '"yesterday"', "started_at: "),
        ('"2026-01-01T00:01:00+00:00"', '"2026-01-01T00:01:00"', "with its time zone"),
        ('"2026-01-01T00:01:00+00:00"', '"9999-12-31T23:59:59+00:00"', "of our time"),
        ('"duration_s":10.0', '"duration_s":-1', "duration_s: "),
        ('"duration_s":10.0', '"duration_s":NaN', "duration_s: "),
        ('"number":1', '"number":-1', "number: "),
        ('"outcome":"completed"', '"outcome":"fine","more":1', r"outcome: .* \(and 1 more\)"),
        ('"schema_number":1', '"schema_number":"1"', 'expected a schema_number .* found "1"'),
        ('"schema_number":1', '"schema_number":0', "expected a schema_number .* found 0"),
        ('"schema_number":1,', "", "expected a schema_number of 1 or more, found none"),
        ('"duration_s":10.0', '"duration_s":' + 20000 * "[", "expected JSON"),
        ('"search"', '"\xff"', "found the byte 0xff, expected UTF-8 text"),
    ],
)
def test_what_is_wrong_in_a_line_is_said(tmp_path, old, new, said):
    Records(tmp_path).append(record(0))
    Records(tmp_path).append(record(1, kind="search"))
    path = tmp_path / "trials.jsonl"
    first, second = path.read_text().splitlines()
    assert old in second
    path.write_bytes(f"{first}\n{second.replace(old, new)}\n".encode("latin-1"))
    with pytest.raises(RecordsError, match=rf"trials\.jsonl:2: damaged record: .*{said}"):
        Records(tmp_path)


def test_what_is_no_file_of_records_is_not_read(tmp_path):
    path = tmp_path / "trials.jsonl"
    os.mkfifo(path)
    with pytest.raises(RecordsError, match="is not a regular file"):
        Records(tmp_path)
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(RecordsError, match="is not a regular file"):
        Records(tmp_path)
    path.unlink()
    path.symlink_to("gone")
    with pytest.raises(RecordsError, match="is a link to gone, which does not exist, expected"):
        Records(tmp_path)


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("{", "damaged record"),
        ("[]", "damaged record"),
        ('{"schema_number": 1}', "damaged record"),
        (json.dumps({"schema_number": SCHEMA + 1}), "newer version"),
    ],
)
def test_damage_in_the_middle_is_named_with_its_line_and_nothing_is_changed(
    tmp_path, damage, found
):
    records = Records(tmp_path)
    records.append(record(0))
    records.append(record(1))
    first, second = records.path.read_text().splitlines()
    records.path.write_text(f"{first}\n{damage}\n{second}\n")
    before = records.path.read_bytes()
    with pytest.raises(RecordsError, match=found) as caught:
        Records(tmp_path)
    assert f"{records.path}:2:" in caught.value.message
    assert records.path.read_bytes() == before


def test_a_full_disk_loses_nothing_that_was_whole(tmp_path):
    script = (
        "import resource, sys, pathlib, signal\n"
        "from tests.samples import record\n"
        "from tuner.errors import StudyError\n"
        "from tuner.records import Records\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "records = Records(pathlib.Path(sys.argv[1]))\n"
        "records.append(record(0))\n"
        "size = records.path.stat().st_size\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, size + 20))\n"
        "try:\n"
        "    records.append(record(1))\n"
        "except StudyError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert "cannot write the record of trial 1" in done.stdout
    assert [r.number for r in Records(tmp_path)] == [0]
    assert (tmp_path / "trials.jsonl").read_bytes().endswith(b"\n")
