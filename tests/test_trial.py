"""One launch over real rehearsal processes: every way it can end, and what its record says."""

import asyncio
import errno
import gzip
import json
import logging
import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.rehearsed import free_port
from tuner.definitions.models import EngineDefinition, Objective
from tuner.definitions.workload import workload
from tuner.engines.base import LaunchSpec
from tuner.errors import HostError
from tuner.hosts import processes
from tuner.hosts.executor import Slot
from tuner.measuring.quality import OutputQuality
from tuner.measuring.replicas import Replicas
from tuner.night.course import TrialNote, TrialOrder
from tuner.night.readback import effective_key
from tuner.night.trial import run_trial

OBJECTIVE = Objective.model_validate_json(
    '{"ladder": [{"concurrency": 1}, {"concurrency": 8}], "input_tokens": 16,'
    ' "output_tokens": 32, "warmup_s": 5, "window_s": 40}'
)
SURFACE: dict[str, Any] = {
    "time_scale": 50,
    "table": [
        {"concurrency": 1, "output_tok_s": 40.0, "ttft_ms": 100.0},
        {"concurrency": 8, "output_tok_s": 160.0, "ttft_ms": 200.0},
    ],
    "startup": {"distributed_s": 1, "weights_s": 1, "kv_cache_s": 1, "graphs_s": 1, "warmup_s": 1},
}
STARTS = ("starting", "loading", "capturing", "ready")
OUT_OF_MEMORY = (
    "[{time} TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
    "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n"
)


class Trial:
    """A launch of the rehearsal engine with a surface of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes: list[TrialNote] = []
        self.ports = [free_port() for _ in range(6)]

    def run(self, surface: dict[str, Any] | None = None, **changes: Any):
        (self.folder / "surface.yaml").write_text(json.dumps({**SURFACE, **(surface or {})}))
        engine = EngineDefinition(
            name="rehearsal",
            surface="surface.yaml",
            ready_timeout_s=changes.pop("patience_s", 60),
            stall_timeout_s=changes.pop("stall_s", 120),
        )
        launch = LaunchSpec(
            engine=engine, model="m", folder=self.folder, flags=changes.pop("flags", {})
        )
        order = TrialOrder(
            number=0,
            kind=changes.pop("kind", "search"),
            key="k",
            values={},
            launch=launch,
            gpus=2,
            objective=changes.pop("objective", OBJECTIVE),
            lengths=changes.pop("lengths", ((16, 32),)),
            **changes,
        )
        slot = Slot(
            host="here",
            gpus=("0", "1"),
            real_gpus=False,
            server_cores=tuple(os.sched_getaffinity(0)),
            client_cores=tuple(os.sched_getaffinity(0)),
            ports=tuple(self.ports),
        )
        record = run_trial(order, slot, self.folder / "trial", self.notes.append)
        assert not processes.tree("TUNER_SERVER_TAG", "trial-0")
        return record


@pytest.fixture
def trial(tmp_path):
    return Trial(tmp_path)


def test_a_healthy_launch_climbs_the_ladder_and_is_read_back(trial):
    record = trial.run()
    assert record.outcome == "completed"
    assert record.rehearsal
    assert [rung.concurrency for rung in record.rungs] == [1, 8]
    assert record.rungs[0].output_tok_s == pytest.approx(40, rel=0.15)
    assert record.rungs[1].output_tok_s == pytest.approx(160, rel=0.15)
    assert record.rungs[1].tok_s_per_gpu == pytest.approx(80, rel=0.15)
    seen, load = record.rungs[1].machine, record.rungs[1].engine_load
    assert seen is not None
    assert 0 < (seen.host_cpu_share or 0) <= 1
    assert (seen.power_w, seen.foreign_pids) == (None, [])  # of a rehearsal no GPU is looked at
    assert load is not None
    assert load.running_max >= 7
    assert record.effective
    assert record.effective_key
    assert record.facts.warnings == []
    assert set(record.server_cores) == set(record.client_cores) == os.sched_getaffinity(0)
    assert record.ready_s is not None
    # A phase that lasts less than a look is not seen.
    assert {"starting", "load", "stop"} <= record.phase_s.keys()
    assert record.phase_s.keys() <= {*STARTS, "load", "stop"}
    assert sum(record.phase_s.get(name, 0.0) for name in STARTS) <= record.ready_s + 0.01
    assert [(n.phase, n.at, n.rung is not None) for n in trial.notes] == [
        ("starting", None, False),
        ("rung", "1", False),
        ("rung", "1", True),
        ("rung", "8", False),
        ("rung", "8", True),
        ("stopping", None, False),
    ]


def test_the_files_of_a_launch_hold_the_command_the_log_and_every_request(trial):
    record = trial.run()
    folder = trial.folder / "trial"
    assert record.command in (folder / "command.sh").read_text()
    assert "ready to roll" in (folder / "server.log").read_text()
    with gzip.open(folder / "requests.jsonl.gz", "rt") as lines:
        requests = [json.loads(line) for line in lines]
    assert {r["concurrency"] for r in requests} == {1, 8}
    assert not {"prompt", "text"} & requests[0].keys()


def test_requests_have_the_lengths_of_a_trace(trial):
    record = trial.run(lengths=((8, 16), (24, 64)))
    assert record.outcome == "completed"
    with gzip.open(trial.folder / "trial" / "requests.jsonl.gz", "rt") as lines:
        requests = [json.loads(line) for line in lines]
    whole = [r for r in requests if r["done_s"] is not None and r["index"] > 0]
    assert {(r["input_tokens"], r["output_tokens"]) for r in whole} == {(8, 16), (24, 64)}


def test_prefixes_are_forgotten_before_each_rung_and_what_was_asked_is_kept(trial):
    objective = OBJECTIVE.model_copy(update={"api": "chat"})
    texts = ("how are you", "what is new")
    asked = workload(objective, ((8, 16), (24, 64)), None, "generate")
    record = trial.run(
        objective=objective, lengths=((8, 16), (24, 64)), texts=texts, workload=asked
    )
    assert [rung.flush for rung in record.rungs] == ["done", "done"]
    assert record.workload == asked
    with gzip.open(trial.folder / "trial" / "requests.jsonl.gz", "rt") as lines:
        requests = [json.loads(line) for line in lines]
    assert len({r["prompt"] for r in requests}) == 2
    assert not {r["prompt"] for r in requests} & set(texts)


def test_a_twin_of_an_earlier_trial_is_not_measured_again(trial):
    first = trial.run()
    again = trial.run(known={first.effective_key: 7})
    assert again.outcome == "duplicate"
    assert again.duplicate_of == 7
    assert again.rungs == []


def test_a_death_at_load_is_understood(trial):
    record = trial.run({"crashes": [{"when": {}, "at": "kv-cache", "log": OUT_OF_MEMORY}]})
    assert record.outcome == "failed"
    assert record.ready_s is None
    assert record.failure.kind == "oom_kv"
    assert record.failure.action == "never"
    assert record.failure.phase == "loading"


def test_a_death_at_a_rung_keeps_the_rungs_before_it(trial):
    record = trial.run({"crashes": [{"when": {}, "running": 8, "log": OUT_OF_MEMORY}]})
    assert record.outcome == "failed"
    assert [rung.concurrency for rung in record.rungs] == [1]
    assert record.failure.phase == "serving"


def test_a_server_that_lingers_after_its_fatal_line_is_not_waited_for(trial):
    crash = {"when": {}, "running": 8, "log": OUT_OF_MEMORY, "linger_s": 3000}
    record = trial.run({"crashes": [crash]})
    assert record.outcome == "failed"
    assert record.duration_s < 30


def test_a_server_that_never_gets_ready_is_given_up_in_its_own_words(trial):
    record = trial.run({"hangs": [{"when": {}, "at": "weights"}]}, patience_s=3)
    assert record.outcome == "failed"
    assert record.failure.kind == "never_ready"


def test_a_server_that_is_healthy_and_generates_nothing_is_not_ready(trial):
    record = trial.run({"hangs": [{"when": {}, "requests": 0}]}, patience_s=3)
    assert record.outcome == "failed"
    assert record.rungs == []


def test_wrong_output_is_a_failure_however_fast(trial):
    honest = {1: OutputQuality(requests=100), 8: OutputQuality(requests=100)}
    record = trial.run(
        {"wrong_output": [{"when": {}, "kind": "repeated"}]},
        flags={"moe-runner-backend": "triton"},
        baseline_quality=honest,
        nearest={"moe-runner-backend": "auto"},
    )
    assert record.outcome == "failed"
    assert record.failure.kind == "wrong_output"
    assert record.failure.blame == ["moe-runner-backend"]
    assert record.failure.action == "never"


def test_the_model_is_right_by_its_own_standard(trial):
    honest = trial.run().quality_at
    assert set(honest) == {1, 8}
    for heard in honest.values():
        assert heard.requests > 0
        assert (heard.empty, heard.repeated, heard.short) == (0, 0, 0)


def test_a_hopeless_trial_stops_after_a_rung_only_where_it_may(trial):
    doomed = {"reference": {1: 4000.0, 8: 160.0}, "noise": {1: 0.01, 8: 0.01}}
    record = trial.run(prune=True, **doomed)
    assert record.outcome == "pruned"
    assert "x at 1 of the baseline" in record.pruned_because
    assert len(record.rungs) == 1
    assert trial.run(prune=False, **doomed).outcome == "completed"


# --- several servers


PAIR = Replicas(launched=2, of=2)


def test_a_set_is_measured_as_one_host(trial):
    record = trial.run(replicas=PAIR)
    assert record.outcome == "completed"
    assert record.replicas == PAIR
    # One user has a server to itself; eight are four on each, where the table says 80 tok/s.
    assert record.rungs[0].output_tok_s == pytest.approx(40, rel=0.15)
    assert record.rungs[1].output_tok_s == pytest.approx(2 * four_at_a_time(), rel=0.15)
    assert record.rungs[1].engine_load.running_mean == pytest.approx(8, rel=0.15)
    assert record.effective_key
    with gzip.open(trial.folder / "trial" / "requests.jsonl.gz", "rt") as lines:
        streams = {(r["concurrency"], r["stream"]) for r in map(json.loads, lines)}
    assert streams == {(1, 0), *((8, stream) for stream in range(8))}


def four_at_a_time() -> float:
    """Between the points of the table on log-log axes."""
    return float(40.0 * (160.0 / 40.0) ** (math.log(4) / math.log(8)))


def second(trial, **entry: Any) -> list[dict[str, Any]]:
    """What befalls the second server alone."""
    return [{"when": {"port": trial.ports[3]}, **entry}]


def test_one_that_dies_in_service_ends_the_set_with_its_cause(trial):
    record = trial.run({"crashes": second(trial, running=4, log=OUT_OF_MEMORY)}, replicas=PAIR)
    assert record.outcome == "failed"
    assert [rung.concurrency for rung in record.rungs] == [1]
    assert (record.failure.kind, record.failure.phase) == ("oom_kv", "serving")
    assert record.replicas == Replicas(launched=2, of=2, failed=2)
    assert "Not enough memory" in (trial.folder / "trial/replica-2/server.log").read_text()
    assert "Not enough memory" not in (trial.folder / "trial/server.log").read_text()


def test_one_that_dies_at_load_ends_the_set_with_its_cause(trial):
    record = trial.run({"crashes": second(trial, at="kv-cache", log=OUT_OF_MEMORY)}, replicas=PAIR)
    assert (record.outcome, record.ready_s, record.rungs) == ("failed", None, [])
    assert (record.failure.kind, record.failure.phase) == ("oom_kv", "loading")
    assert record.replicas.failed == 2


def test_one_that_falls_silent_ends_the_set(trial):
    record = trial.run({"hangs": second(trial, requests=12)}, replicas=PAIR, stall_s=3.0)
    assert record.outcome == "failed"
    assert [rung.concurrency for rung in record.rungs] == [1]
    assert record.failure.phase == "serving"
    assert record.failure.cause.startswith("no token in 2 windows at 8")
    assert record.replicas.failed == 2
    said = [doubt.said for attempt in record.invalid for doubt in attempt.doubts]
    assert sum(one.startswith("no token from server 2 of 2 in a window of ") for one in said) == 2


def test_what_one_of_a_set_refuses_are_failed_requests_of_the_set(trial):
    record = trial.run({"refusals": second(trial, above=1)}, replicas=PAIR)
    assert record.outcome == "completed"
    assert record.rungs[0].requests_failed == 0
    assert record.rungs[1].requests_failed > 0


def test_the_set_that_is_a_twin_is_not_measured_again(trial):
    first = trial.run()
    again = trial.run(replicas=PAIR, known={first.effective_key: 7})
    assert (again.outcome, again.duplicate_of) == ("duplicate", 7)


def test_the_effective_key_tells_arguments_variables_and_builds_apart(tmp_path):
    def key(effective, **changes):
        engine = EngineDefinition(name="rehearsal", surface="s")
        spec = LaunchSpec(engine=engine, model="m", folder=tmp_path, **changes)
        return effective_key(effective, spec)

    one = key({"a": 1, "b": 2})
    assert one == key({"b": 2, "a": 1})
    assert one != key({"a": 1, "b": 3})
    assert one != key({"a": 1, "b": 2}, env={"X": "1"})
    assert one != key({"a": 1, "b": 2}, build="patched")


def test_a_dead_argument_is_in_no_effective_key(tmp_path):
    spec = LaunchSpec(
        engine=EngineDefinition(name="rehearsal", surface="s"), model="m", folder=tmp_path
    )
    one, other = {"a": 1, "steps": 1}, {"a": 1, "steps": 8}
    assert effective_key(one, spec) != effective_key(other, spec)
    assert effective_key(one, spec, ["steps"]) == effective_key(other, spec, ["steps"])
    assert effective_key(one, spec, ["steps"]) != effective_key({"a": 2}, spec, ["steps"])


def test_a_launch_that_fails_on_a_full_disk_is_the_hosts_failure(trial, monkeypatch):
    monkeypatch.setattr("tuner.night.trial._ROOM_BYTES", 1 << 60)
    died = {"when": {"max-running-requests": 8}, "at": "weights", "log": "bye", "exit": "sigquit"}
    with pytest.raises(HostError, match="its disk is full, and the launch failed"):
        trial.run({"crashes": [died]}, flags={"max-running-requests": 8})


ONE_RUNG = OBJECTIVE.model_copy(update={"ladder": OBJECTIVE.ladder[1:], "window_s": 10.0})


@pytest.mark.parametrize("name", ["command.sh", "requests.jsonl.gz"])
def test_a_file_that_cannot_be_written_is_named(trial, name):
    (trial.folder / "trial" / name).mkdir(parents=True)
    with pytest.raises(HostError, match=f"{name}: cannot be written: Is a directory") as found:
        trial.run(objective=ONE_RUNG)
    assert found.value.hint.startswith("Move away what is in its place")


def test_a_host_without_room_for_a_process_is_not_said_to_be_unwritable(trial, monkeypatch):
    def none(*_: Any, **__: Any) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr("tuner.hosts.server.subprocess.Popen", none)
    said = r"the supervisor of trial-0-\w+ could not be started: Resource temporarily unavailable"
    with pytest.raises(HostError, match=said):
        trial.run()


@pytest.mark.parametrize(
    ("raised", "found", "said"),
    [
        (OSError(errno.EMFILE, "Too many open files"), HostError, "has: Too many open files"),
        (TimeoutError("a bug"), TimeoutError, "a bug"),
    ],
)
def test_what_else_fails_is_called_what_it_is(trial, monkeypatch, raised, found, said):
    def fails(*_: Any, **__: Any) -> None:
        raise raised

    monkeypatch.setattr("tuner.night.trial.started", fails)
    with pytest.raises(found, match=said):
        trial.run()


def test_a_baseline_that_dies_while_it_scores_keeps_its_numbers_and_says_so(
    trial, monkeypatch, caplog
):
    async def dies(order, serving, course):
        os.kill(serving.servers[0].pid, signal.SIGKILL)
        await asyncio.sleep(600)

    monkeypatch.setattr("tuner.night.trial.rescore", dies)
    with caplog.at_level(logging.WARNING):
        record = trial.run(kind="baseline", objective=ONE_RUNG)
    assert (record.outcome, record.failure) == ("completed", None)
    assert record.not_compared.startswith("the baseline died while it scored: exited with code -9")
    assert record.not_compared in caplog.text
    other = trial.run(kind="search", objective=ONE_RUNG)
    assert (other.outcome, other.not_compared) == ("completed", "")
