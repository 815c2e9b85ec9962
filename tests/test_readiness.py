"""Servers that only look ready, or are so for a while: each ends its launch in words of its own."""

import json
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.rehearsed import serving
from tests.test_trial import Trial
from tuner.errors import LaunchLost, PortTaken
from tuner.hosts import processes
from tuner.hosts.leftovers import default_run_root, records
from tuner.hosts.supervisor import TAG_VARIABLE
from tuner.night.course import TrialNote

ALWAYS: dict[str, object] = {"when": {}}


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial(tmp_path)


def test_a_stranger_that_serves_on_the_port_is_named_and_not_measured(
    trial: Trial, tmp_path: Path
) -> None:
    (tmp_path / "stranger").mkdir()
    with serving(tmp_path / "stranger", port=trial.ports[0]) as stranger:
        taken = rf"port {trial.ports[0]} is taken by process {stranger.process.pid} \(.*rehearsal"
        with pytest.raises(PortTaken, match=taken):
            trial.run()
        assert stranger.ask("/health")[0] == 200


def test_a_server_that_is_healthy_and_generates_nothing_is_not_ready(trial: Trial) -> None:
    record = trial.run({"hangs": [{**ALWAYS, "requests": 0}]}, stall_s=3.0, patience_s=600)
    assert (record.outcome, record.ready_s, record.rungs) == ("failed", None, [])
    assert record.failure
    assert record.failure.cause.startswith("listens, and no sign of life for ")
    assert "a small request is not answered" in record.failure.cause
    assert record.phase_s["ready"] > 2.0


def test_a_server_that_dies_after_a_hundred_requests_is_no_result(trial: Trial) -> None:
    crash = {**ALWAYS, "requests": 100, "exit": "killed"}
    record = trial.run({"crashes": [crash]})
    assert record.outcome == "failed"
    assert record.ready_s
    assert record.failure
    assert (record.failure.phase, record.failure.exit_code) == ("serving", -9)
    assert record.failure.cause.startswith("exited with code -9 without saying why")


def test_a_server_that_somebody_told_to_end_is_said_to_have_been(trial: Trial) -> None:
    class Tells(list[TrialNote]):
        """Tells the server to end once a rung begins."""

        def append(self, note: TrialNote) -> None:
            if note.phase == "rung":
                for pid in set(own_marks()) - set(own_supervisors()):
                    os.kill(pid, signal.SIGTERM)

    trial.notes = Tells()
    record = trial.run()
    assert record.outcome == "failed"
    assert record.failure
    assert record.failure.action != "never"
    assert "as if it had been told to (exit code " in record.failure.cause


def test_a_server_that_falls_silent_in_the_middle_of_a_rung_is_given_up(trial: Trial) -> None:
    record = trial.run({"hangs": [{**ALWAYS, "requests": 40}]}, stall_s=3.0, patience_s=600)
    assert record.outcome == "failed"
    assert record.ready_s
    assert record.failure
    assert record.failure.kind == "engine_stall"
    assert record.failure.phase == "serving"
    assert record.failure.cause.startswith("no token from any of ")
    assert record.failure.exit_code is None


def test_a_launch_whose_supervisor_was_killed_says_nothing_of_its_configuration(
    trial: Trial,
) -> None:
    class Kills(list[TrialNote]):
        """Ends the supervisor of the server once a rung begins."""

        def append(self, note: TrialNote) -> None:
            if note.phase == "rung":
                for pid in own_supervisors():
                    os.kill(pid, signal.SIGKILL)

    trial.notes = Kills()
    with pytest.raises(LaunchLost, match="ended from outside: the supervisor was killed"):
        trial.run()


def own_marks() -> dict[int, str]:
    """The processes of this test's servers: others may run on this machine."""
    owned: set[str] = set()
    for path in records(default_run_root()).glob("*.json"):
        with suppress(OSError, ValueError):
            record = json.loads(path.read_text())
            owned.update({record["tag"]} if record["owner"][0] == os.getpid() else ())
    marks = processes.marks(TAG_VARIABLE, processes.table())
    return {pid: mark for pid, mark in marks.items() if mark in owned}


def own_supervisors() -> list[int]:
    return [pid for pid in own_marks() if "hosts.supervisor" in processes.command_line(pid)]
