import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.victims import ROOT
from tuner.errors import EngineError, HttpStatusError, PortTaken
from tuner.hosts import job
from tuner.hosts.executor import Note, Slot

SLOT = Slot(
    host="here",
    gpus=("0",),
    real_gpus=False,
    server_cores=(0,),
    client_cores=(min(os.sched_getaffinity(0)),),
    ports=(20000,),
)


def echo(payload: Any, slot: Slot, folder: Path, note: Note) -> Any:
    note({"host": slot.host})
    note(folder)
    return payload


def refuse(payload: Any, slot: Slot, folder: Path, note: Note) -> Any:
    raise EngineError("no such engine", hint="install it")


def stumble(payload: Any, slot: Slot, folder: Path, note: Note) -> Any:
    raise KeyError(payload)


def test_notes_are_sent_pickled_and_the_result_comes_back(tmp_path: Path) -> None:
    sent: list[bytes] = []
    assert job.call(echo, 7, SLOT, tmp_path, sent.append) == job.Returned(result=7)
    assert [pickle.loads(note) for note in sent] == [{"host": "here"}, tmp_path]


def test_an_error_of_the_tuners_own_is_returned_in_words(tmp_path: Path) -> None:
    returned = job.call(refuse, None, SLOT, tmp_path, lambda _: None)
    assert returned == job.Returned(refused="no such engine\n  install it")


def test_a_port_that_a_stranger_took_is_no_reason_not_to_try_again(tmp_path: Path) -> None:
    def taken(*_: object) -> None:
        raise PortTaken("port 8000 is taken")

    returned = job.call(taken, None, SLOT, tmp_path, lambda _: None)
    assert returned == job.Returned(refused="port 8000 is taken", again=True)


def test_a_bug_goes_through(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        job.call(stumble, "missing", SLOT, tmp_path, lambda _: None)


def test_errors_with_keyword_arguments_survive_pickling() -> None:
    for error in (EngineError("a", hint="b"), HttpStatusError("c", status=503, hint="d")):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))


def test_entering_undoes_rays_settings_and_pins_every_thread() -> None:
    program = """
import os, threading
from pathlib import Path
from tests.test_job import SLOT
from tuner.hosts import job
threading.Thread(target=threading.Event().wait, daemon=True).start()
os.environ.update(OMP_NUM_THREADS="1", KEPT="from ray")
job.enter("job-1", SLOT, {"KEPT": "from the tuner"})
threads = [int(thread.name) for thread in Path("/proc/self/task").iterdir()]
assert len(threads) > 1
assert {tuple(os.sched_getaffinity(thread)) for thread in threads} == {SLOT.client_cores}
print([os.environ.get(name) for name in ("OMP_NUM_THREADS", "KEPT", job.JOB_VARIABLE)])
"""
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout == "[None, 'from the tuner', 'job-1']\n"


def test_a_folder_travels_and_is_gone_where_it_was(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    (there / "deep").mkdir(parents=True)
    (there / "deep" / "server.log").write_text("ready")
    here.mkdir()
    archive = job.pack(there)
    assert archive is not None
    assert not there.exists()
    job.unpack(archive, here)
    assert (here / "deep" / "server.log").read_text() == "ready"
    assert job.pack(there) is None
