"""Records: append-only, torn tails survived, damage and newer versions named, one run a study."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.samples import record
from tuner.errors import RecordsError, StudyBusy, StudyError
from tuner.records import SCHEMA, Records, locked


def test_what_was_appended_is_read_back(tmp_path):
    records = Records(tmp_path)
    records.append(record(0))
    records.append(record(1, kind="search"))
    assert list(Records(tmp_path)) == [record(0), record(1, kind="search")]
    assert Records(tmp_path).next_number == 2


def test_an_empty_folder_has_no_records(tmp_path):
    assert list(Records(tmp_path)) == []
    assert Records(tmp_path).next_number == 0


@pytest.mark.parametrize("cut", [1, 10, 200])
def test_a_torn_last_line_is_dropped_and_overwritten(tmp_path, cut):
    records = Records(tmp_path)
    records.append(record(0))
    records.append(record(1))
    content = records.path.read_bytes()
    records.path.write_bytes(content[:-cut])
    again = Records(tmp_path)
    assert [r.number for r in again] == [0]
    again.append(record(1, kind="search"))
    assert [(r.number, r.kind) for r in Records(tmp_path)] == [(0, "baseline"), (1, "search")]


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


def test_a_second_run_is_refused_and_told_who_holds_the_study(tmp_path):
    with locked(tmp_path), pytest.raises(StudyBusy, match=str(os.getpid())), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


def test_the_lock_goes_with_its_process(tmp_path):
    script = (
        "import sys, time, pathlib\n"
        "from tuner.records import locked\n"
        "with locked(pathlib.Path(sys.argv[1])):\n"
        "    print('held', flush=True)\n"
        "    time.sleep(60)\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(StudyBusy), locked(tmp_path):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    deadline = time.monotonic() + 10
    while True:
        try:
            with locked(tmp_path):
                break
        except StudyBusy:
            assert time.monotonic() < deadline


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StudyError, match="cannot be written"), locked(tmp_path / "file"):
        pass
