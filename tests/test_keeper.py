"""What a supervisor makes of a container's end, with the runtime's answers given."""

from pathlib import Path

import pytest

from tuner.errors import HostError
from tuner.hosts import cgroups, processes
from tuner.hosts.containers import Container, Runtime, State
from tuner.hosts.keeper import Keeper

RUNS = State(running=True, pid=1, exit_code=0, oom_killed=False, published=frozenset())


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "cid").write_text("abc")
    (tmp_path / "log").write_text("")
    return tmp_path / "log"


def kept(log: Path, monkeypatch: pytest.MonkeyPatch, state: State | None, logs: str = "") -> Keeper:
    """The keeper of a container whose runtime says this."""
    monkeypatch.setattr(Container, "state", lambda self: state)
    monkeypatch.setattr(Container, "logs", lambda self: logs)
    runtime = Runtime(program="docker", variables={})
    cidfile = str(log.parent / "cid")
    return Keeper(Container(runtime=runtime, name="tuner-a", cidfile=cidfile, tag="a"), log)


def test_a_client_that_never_saw_it_run_was_refused(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = kept(log, monkeypatch, None)
    log.write_text("\nWARNING: no swap limit\ndocker: Error response from daemon: no.\n\nRun it.\n")
    assert one.ended(125) == 125
    assert one.refused == "docker: Error response from daemon: no."


def test_a_code_that_looks_like_a_refusal_is_the_servers_once_it_ran(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = kept(log, monkeypatch, RUNS)
    one.look()
    assert one.ended(127) == 127
    assert one.refused == ""


def test_what_a_dead_client_did_not_show_is_added_once(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = kept(log, monkeypatch, RUNS, logs="a\nb\nb\nc\nb\n")
    log.write_text("WARNING: of the client\na\nb\nb\nc to")
    assert one.ended(-9) == -9
    assert log.read_text() == (
        "WARNING: of the client\na\nb\nb\nc to\nc\nb\n"
        "tuner: the client of container tuner-a died of signal 9\n"
    )


def test_all_is_added_where_nothing_was_shown(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = kept(log, monkeypatch, RUNS, logs="a\nb\n")
    one.ended(-9)
    assert log.read_text().startswith("a\nb\ntuner: ")


def test_want_of_memory_is_the_kernels_word_while_it_runs(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = log.parent / "memory.events"
    counted.write_text("oom_kill 0\n")
    monkeypatch.setattr(cgroups, "oom_counter", lambda pid: counted)
    one = kept(log, monkeypatch, RUNS)
    one.look()
    counted.write_text("oom_kill 2\n")
    one.look()
    counted.unlink()  # with its group
    assert one.ended(137) == -9
    assert log.read_text() == "tuner: memory ran out in the container: oom_kill 2\n"


def test_want_of_memory_is_the_runtimes_word_where_it_still_has_the_container(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = kept(log, monkeypatch, RUNS._replace(oom_killed=True))
    one.ended(-9)
    assert "memory ran out in the container: oom_kill 1" in log.read_text()


def test_a_silent_runtime_is_not_asked_again_at_once(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def silent(self: Container) -> State:
        asked.append(self)
        raise HostError("no answer")

    one = kept(log, monkeypatch, None)
    monkeypatch.setattr(Container, "state", silent)
    one.look()
    one.look()
    assert len(asked) == 1


def test_who_is_left_though_the_runtime_knows_no_container_is_a_survivor(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = kept(log, monkeypatch, RUNS)
    monkeypatch.setattr(Container, "stop", lambda self, grace_s: True)
    monkeypatch.setattr(Container, "remove", lambda self, limit_s: "")
    one.look()
    assert one.stop(1.0)
    monkeypatch.setattr(processes, "send", lambda process, number: False)
    _, survivors, unproven = one.remove(0.0)
    assert survivors >= 1  # process 1 of this machine and its like
    assert unproven == ""
