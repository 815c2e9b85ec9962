import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import victims
from tests.victims import ROOT, runaway, until
from tuner.errors import EngineError, HostError
from tuner.hosts import cluster as hosts
from tuner.hosts import processes, ray_session, roster
from tuner.hosts.agent import Settled
from tuner.hosts.cluster import Cluster
from tuner.hosts.executor import Event, Executor, JobDone, JobLost, JobNote, Note, Slot
from tuner.hosts.job import JOB_VARIABLE
from tuner.hosts.ray_session import HostLost, JobBug, fetch
from tuner.hosts.server import Server

SLOT = Slot(
    host="here", gpus=("1",), real_gpus=False, server_cores=(0,), client_cores=(0,), ports=()
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(2) as running:
        yield running


def finish(cluster: Cluster, *jobs: int | None) -> list[Event]:
    """All events up to the end of these jobs."""
    events: list[Event] = []
    left = set(jobs)
    end = time.monotonic() + victims.DEADLINE_S
    while left:
        assert time.monotonic() < end, f"jobs {left} do not end; so far {events}"
        new = cluster.poll(1.0)
        left -= {event.job for event in new if not isinstance(event, JobNote)}
        events += new
    return events


def first_note(cluster: Cluster) -> Any:
    end = time.monotonic() + victims.DEADLINE_S
    while time.monotonic() < end:
        for event in cluster.poll(1.0):
            assert isinstance(event, JobNote), event
            return event.note
    raise AssertionError("no note came")


def marked(prefix: str) -> list[int]:
    """Processes of servers of any job whose mark begins like this."""
    mark = f"{JOB_VARIABLE}={prefix}".encode()
    found = []
    for pid in processes.table():
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if any(entry.startswith(mark) for entry in environment.split(b"\0")):
            found.append(pid)
    return found


def agent_pid() -> int:
    """The agent's process; another tuner's on this machine is not ours to kill."""
    ours = processes.descendants([os.getpid()], processes.table())
    (agent,) = [pid for pid in ours if processes.command_line(pid).startswith("ray::Agent")]
    return agent


def look_around(payload: Any, slot: Slot, folder: Path, note: Note) -> Any:
    for number in range(20):
        note(number)
    (folder / "file.txt").write_text(payload)
    affinities = {
        tuple(os.sched_getaffinity(int(thread.name)))
        for thread in Path("/proc/self/task").iterdir()
    }
    return slot, affinities, os.environ.get("OMP_NUM_THREADS"), os.nice(0)


def wait_for_file(payload: Path, slot: Slot, folder: Path, note: Note) -> Slot:
    until(payload.exists, "the file is there")
    return slot


def has_bug(payload: Any, slot: Slot, folder: Path, note: Note) -> Any:
    raise ZeroDivisionError("nothing to divide by")


def refuses(payload: Any, slot: Slot, folder: Path, note: Note) -> Any:
    raise EngineError("no such engine", hint="install it")


def dies(payload: Any, slot: Slot, folder: Path, note: Note) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def serves(payload: str, slot: Slot, folder: Path, note: Note) -> Any:
    server = Server.start(
        runaway(),
        folder=folder,
        port=slot.ports[0],
        cores=slot.server_cores,
        tag="trial",
        grace_s=1.0,
    )
    victims.said(server, "runaway")
    note((os.environ[JOB_VARIABLE], os.getpid()))
    if payload == "forgets":
        return "done"
    time.sleep(600)
    return None


def test_the_cluster_is_an_executor_and_knows_its_host(cluster: Cluster) -> None:
    executor: Executor = cluster
    (host,) = executor.hosts
    assert host.gpus == ("0", "1")
    assert not host.real_gpus
    assert host.cores == len(os.sched_getaffinity(0))
    assert host.memory_gb > 0.5


def test_a_job_says_its_notes_in_order_before_it_is_done(cluster: Cluster, tmp_path: Path) -> None:
    job = cluster.submit(look_around, "text", gpus=1, folder=tmp_path / "new")
    *notes, done = finish(cluster, job)
    assert [event.note for event in notes if isinstance(event, JobNote)] == list(range(20))
    assert isinstance(done, JobDone)
    assert (tmp_path / "new" / "file.txt").read_text() == "text"
    slot, affinities, threads, niceness = done.result
    assert niceness == os.nice(0)
    assert affinities == {slot.client_cores}
    assert threads is None
    if len(os.sched_getaffinity(0)) > 1:
        assert not set(slot.client_cores) & set(slot.server_cores)


def test_jobs_at_once_share_nothing_and_wait_for_room(cluster: Cluster, tmp_path: Path) -> None:
    go = tmp_path / "go"
    first = cluster.submit(wait_for_file, go, gpus=1, folder=tmp_path)
    second = cluster.submit(wait_for_file, go, gpus=1, folder=tmp_path)
    assert cluster.submit(wait_for_file, go, gpus=1, folder=tmp_path) is None
    go.touch()
    one, two = (event.result for event in finish(cluster, first, second) if type(event) is JobDone)
    assert not set(one.gpus) & set(two.gpus)
    assert not set(one.ports) & set(two.ports)
    third = cluster.submit(wait_for_file, go, gpus=2, folder=tmp_path)
    (done,) = finish(cluster, third)
    assert isinstance(done, JobDone)
    assert done.result.gpus == ("0", "1")


def test_a_folder_that_cannot_be_made_is_told_and_costs_no_slot(
    cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    for _ in range(3):
        with pytest.raises(HostError, match="/file/new: cannot be made: Not a directory"):
            cluster.submit(look_around, "text", gpus=2, folder=tmp_path / "file" / "new")
    job = cluster.submit(look_around, "text", gpus=2, folder=tmp_path / "new")
    assert any(isinstance(event, JobDone) for event in finish(cluster, job))


def test_a_job_is_not_done_before_its_last_note_is_heard(cluster: Cluster, tmp_path: Path) -> None:
    done = JobDone(job=99, result=None)
    settled = Settled(survivors=0, notes=1, quarantined={})
    job = hosts._Job(
        number=99,
        mark="job-99",
        host=cluster._roster.hosts[0],
        slot=SLOT,
        folder=tmp_path,
        task=None,
        outcome=done,
        settled=settled,
    )
    cluster._jobs[99] = job
    assert cluster._ended(job) == []
    job.early[0] = pickle.dumps("late")
    assert list(job.said()) == [JobNote(job=99, note="late")]
    assert cluster._ended(job) == [done]


def test_a_result_is_delivered_where_its_servers_were_not_seen_to_end(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> Any:
        raise JobBug("Traceback\nKeyError: 'GPU-a'")

    host = cluster._roster.hosts[0]
    done = JobDone(job=99, result="the record")
    job = hosts._Job(99, "job-99", host, SLOT, tmp_path, None, outcome=done, settling="ref")
    cluster._jobs[99] = job
    with monkeypatch.context() as patch:
        patch.setattr(hosts, "fetch", fails)
        cluster._advance(job, ["ref"])
    assert cluster._ended(job) == [done]
    with pytest.raises(HostError) as error:
        cluster.submit(look_around, "", gpus=2, folder=tmp_path)
    host.quarantined = {}
    assert error.value.message == (
        "2 GPUs are asked for, the largest host has 1 "
        "(1 is in quarantine: its servers were not seen to end: KeyError: 'GPU-a')"
    )


def test_a_tuner_that_was_frozen_does_not_hold_it_against_its_hosts(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[str] = []
    monkeypatch.setattr(cluster, "_lose", lambda host, why: lost.append(why))
    host = cluster._roster.hosts[0]
    cluster._ask(host)
    host.asked_at_s -= 3600
    cluster._waited_s -= 3600
    cluster._notice_absence()
    cluster._hear(host, answered=False)
    assert lost == []
    host.asked_at_s -= 3600
    cluster._notice_absence()
    cluster._hear(host, answered=False)
    assert lost == ["its agent does not answer"]
    host.asked_at_s = time.monotonic()


def test_files_that_cannot_be_unpacked_do_not_take_the_result_with_them(
    cluster: Cluster, tmp_path: Path
) -> None:
    host = cluster._roster.hosts[0]
    done = JobDone(job=99, result="the record")
    job = hosts._Job(99, "job-99", host, SLOT, tmp_path, None, outcome=done)
    cluster._jobs[99] = job
    cluster._settled(job, Settled(survivors=0, notes=0, archive=b"no archive"))
    assert cluster._ended(job) == [done]


def test_more_gpus_than_any_host_has_are_refused(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(HostError, match="3 GPUs are asked for, the largest host has 2"):
        cluster.submit(look_around, "", gpus=3, folder=tmp_path)


def test_a_bug_comes_with_its_traceback(cluster: Cluster, tmp_path: Path) -> None:
    (lost,) = finish(cluster, cluster.submit(has_bug, None, gpus=1, folder=tmp_path))
    assert isinstance(lost, JobLost)
    assert lost.reason == "ZeroDivisionError: nothing to divide by"
    assert lost.bug is not None
    assert "in has_bug" in lost.bug
    assert not lost.again
    assert "\x1b" not in lost.bug


def test_an_error_of_the_tuners_own_is_a_reason_and_no_bug(
    cluster: Cluster, tmp_path: Path
) -> None:
    (lost,) = finish(cluster, cluster.submit(refuses, None, gpus=1, folder=tmp_path))
    assert isinstance(lost, JobLost)
    assert (lost.reason, lost.bug) == ("no such engine\n  install it", None)
    assert not lost.again


def test_a_job_whose_process_dies_is_lost_and_nothing_is_printed(
    cluster: Cluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job = cluster.submit(dies, None, gpus=2, folder=tmp_path)
    (lost,) = finish(cluster, job)
    assert isinstance(lost, JobLost)
    assert (lost.reason, lost.bug, lost.again) == (f"job {job}: its process died", None, True)
    assert capfd.readouterr().out == ""


def test_a_cancelled_jobs_servers_are_gone_when_the_event_comes(
    cluster: Cluster, tmp_path: Path
) -> None:
    job = cluster.submit(serves, "", gpus=2, folder=tmp_path)
    mark, _ = first_note(cluster)
    assert job is not None
    cluster.cancel(job)
    cluster.cancel(job)
    assert finish(cluster, job) == [JobLost(job=job, reason="cancelled", again=False)]
    assert marked(mark) == []


def test_a_job_that_ended_meanwhile_is_not_cancelled(cluster: Cluster, tmp_path: Path) -> None:
    job = cluster.submit(serves, "forgets", gpus=1, folder=tmp_path)
    first_note(cluster)
    assert job is not None
    until(lambda: cluster._wait(0.1) == [] and cluster._jobs[job].outcome, "it has ended")
    cluster.cancel(job)
    assert finish(cluster, job) == [JobDone(job=job, result="done")]


def test_a_frozen_job_can_be_cancelled(cluster: Cluster, tmp_path: Path) -> None:
    job = cluster.submit(serves, "", gpus=2, folder=tmp_path)
    mark, worker = first_note(cluster)
    os.kill(worker, signal.SIGSTOP)
    assert job is not None
    cluster.cancel(job)
    assert finish(cluster, job) == [JobLost(job=job, reason="cancelled", again=False)]
    assert marked(mark) == []
    assert processes.read(worker) is None


def test_a_server_that_a_job_forgets_is_gone_when_the_job_is_done(
    cluster: Cluster, tmp_path: Path
) -> None:
    job = cluster.submit(serves, "forgets", gpus=2, folder=tmp_path)
    note, done = finish(cluster, job)
    assert done == JobDone(job=job or 0, result="done")
    assert isinstance(note, JobNote)
    assert marked(note.note[0]) == []


def test_files_come_back_from_a_host_that_does_not_see_ours(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster._roster.hosts[0].local = False
    try:
        job = cluster.submit(look_around, "far", gpus=1, folder=tmp_path / "here")
        done = finish(cluster, job)[-1]
    finally:
        cluster._roster.hosts[0].local = True
    assert isinstance(done, JobDone)
    assert (tmp_path / "here" / "file.txt").read_text() == "far"


def test_a_killed_agent_loses_its_jobs_and_another_takes_its_place(
    cluster: Cluster, tmp_path: Path
) -> None:
    job = cluster.submit(serves, "", gpus=2, folder=tmp_path)
    mark, _ = first_note(cluster)
    os.kill(agent_pid(), signal.SIGKILL)
    (lost,) = finish(cluster, job)
    assert isinstance(lost, JobLost)
    assert "is lost" in lost.reason
    assert lost.again
    assert marked(mark) == []
    again = cluster.submit(look_around, "", gpus=2, folder=tmp_path)
    assert isinstance(finish(cluster, again)[-1], JobDone)


def test_ray_is_started_afresh_where_it_was_killed(cluster: Cluster, tmp_path: Path) -> None:
    job = cluster.submit(serves, "", gpus=2, folder=tmp_path)
    mark, _ = first_note(cluster)
    for daemon in cluster._session.daemons:
        os.kill(daemon.pid, signal.SIGKILL)
    assert finish(cluster, job) == [JobLost(job=job or 0, reason="Ray died on this machine")]
    assert marked(mark) == []
    again = cluster.submit(look_around, "", gpus=2, folder=tmp_path)
    assert isinstance(finish(cluster, again)[-1], JobDone)


def test_what_had_ended_keeps_its_result_when_ray_dies_and_does_not_start_again(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses_to_start(address: str | None) -> ray_session.Session:
        raise HostError("no room")

    job = cluster.submit(serves, "forgets", gpus=2, folder=tmp_path)
    first_note(cluster)
    assert job is not None
    until(lambda: cluster._wait(0.1) == [] and cluster._jobs[job].outcome, "it has ended")
    for daemon in cluster._session.daemons:
        os.kill(daemon.pid, signal.SIGKILL)
    with monkeypatch.context() as patch:
        patch.setattr(ray_session, "start", refuses_to_start)
        assert finish(cluster, job) == [JobDone(job=job, result="done")]
        with pytest.raises(HostError, match="no room"):
            cluster.poll(1.0)
    again = cluster.submit(look_around, "", gpus=2, folder=tmp_path)
    assert isinstance(finish(cluster, again)[-1], JobDone)


def test_a_host_that_is_away_is_waited_for_and_found_again(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = cluster.submit(serves, "", gpus=2, folder=tmp_path)
    first_note(cluster)
    with monkeypatch.context() as patch:
        patch.setattr(roster, "_REVIVE_S", 0.0)
        os.kill(agent_pid(), signal.SIGKILL)
        (lost,) = finish(cluster, job)
    assert isinstance(lost, JobLost)
    assert lost.again
    assert cluster.hosts == ()
    assert cluster.submit(look_around, "", gpus=2, folder=tmp_path) is None
    with monkeypatch.context() as patch:
        patch.setattr(roster, "_AWAY_LIMIT_S", 0.0)
        with pytest.raises(HostError, match=r"every host is lost: .*: no answer within 0 s"):
            cluster.submit(look_around, "", gpus=2, folder=tmp_path)
        with pytest.raises(HostError, match=r"every host is lost: .*: no answer within 0 s"):
            cluster.poll(0.1)
    until(lambda: cluster.poll(0.5) == [] and cluster.hosts, "the host is back")
    again = cluster.submit(look_around, "", gpus=2, folder=tmp_path)
    assert isinstance(finish(cluster, again)[-1], JobDone)


def test_no_answer_in_time_is_a_lost_host(cluster: Cluster) -> None:
    late = cluster._roster.hosts[0].agent.take.remote(5.0)
    with pytest.raises(HostLost, match="the news: no answer within 0 s"):
        fetch(late, 0.01, "the news")


def test_two_clusters_in_one_process_are_refused(cluster: Cluster) -> None:
    with pytest.raises(HostError, match="already runs"):
        Cluster(1)


DRIVER = """
import sys, time
from pathlib import Path
from tests.test_hosts import serves
from tuner.hosts.cluster import Cluster
cluster = Cluster(1)
cluster.submit(serves, "", gpus=1, folder=Path(sys.argv[1]))
while not (events := cluster.poll(1.0)):
    pass
print(events[0].note[0], flush=True)
time.sleep(600)
"""


def test_a_killed_tuner_leaves_nothing_behind(tmp_path: Path) -> None:
    tuner = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert tuner.stdout is not None
        mark = tuner.stdout.readline().strip()
        known = processes.table()
        tree = [known[pid] for pid in processes.descendants([tuner.pid], known)]
        # Two helpers of Ray's try for a minute to tell their dead server that it is dead.
        tree = [
            each
            for each in tree
            if processes.command_line(each.pid)
            not in ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
        ]
        servers = marked(mark)
        assert len(servers) >= 3
    finally:
        tuner.kill()
        tuner.communicate()
    until(lambda: not marked(mark), "the servers are gone")
    until(lambda: not any(processes.alive(each.pid, each.started) for each in tree), "Ray is gone")
