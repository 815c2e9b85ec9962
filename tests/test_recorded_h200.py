"""A night on a real GPU, kept: one H200, SGLang 0.5.17, a 5.6 B mixture-of-experts with random
weights. Its records, what its server said of itself and what it printed when it was stopped are as
they came, but for paths and names of machines; of the arguments read back some are left out.

The night was killed once with SIGKILL, three launches in, and told to end in its fourteenth.
"""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from tests.engine_cases import SGLANG, serving
from tuner import engines
from tuner.engines.base import EngineFacts
from tuner.failures.classifier import classify
from tuner.http.client import Http
from tuner.records import Records
from tuner.verbs import inspect

RECORDED = Path(__file__).parent / "data" / "h200"
LOG = (Path(__file__).parent / "logs" / "captured" / "sglang-h200-healthy.log").read_text()
SERVER = {
    "/server_info": (200, json.loads((RECORDED / "server_info.json").read_text())),
    "/metrics": (200, (RECORDED / "metrics.txt").read_text()),
}


@pytest.fixture
def night(tmp_path):
    return shutil.copytree(RECORDED, tmp_path / "night")


@pytest.fixture
def records(night):
    return list(Records(night))


@pytest.fixture
def view(night):
    return inspect.show(night)


def ask(folder, question):
    answers = SGLANG.answers()
    answers.routes.update(SERVER)
    engine = engines.create(SGLANG.spec(folder, flags={"load-format": "dummy"}))

    async def asked(url):
        async with Http(url) as http:
            return await question(engine, http)

    with serving(answers) as url:
        return asyncio.run(asked(url))


def verdicts(view):
    return {row.id: row.verdict for row in view.hypotheses}


def test_what_a_real_server_runs_with_is_read_back(tmp_path):
    effective = ask(tmp_path, lambda engine, http: engine.effective(http, LOG))
    expected = {
        "attention-backend": "fa3",
        "chunked-prefill-size": 8192,
        "cuda-graph-config.prefill.backend": "disabled",
        "cuda-graph-config.decode.max_bs": 256,
        "cuda-graph-max-bs-decode": 256,
        "disable-cuda-graph": False,
        "ep-size": 1,
        "num-continuous-decode-steps": 1,
    }
    assert {name: effective.get(name) for name in expected} == expected


def test_what_the_scheduler_of_a_real_server_decided_late_is_what_counts(tmp_path):
    info = SERVER["/server_info"][1]
    assert info["pp_max_micro_batch_size"] is None
    effective = ask(tmp_path, lambda engine, http: engine.effective(http, LOG))
    assert effective["pp-max-micro-batch-size"] == 4096


def test_nothing_of_the_moment_is_among_a_real_server_s_arguments(tmp_path):
    effective = ask(tmp_path, lambda engine, http: engine.effective(http, LOG))
    moment = ("host", "port", "nccl-port", "random-seed", "version", "last-gen-throughput")
    assert not [
        name for name in effective if name in moment or name.startswith(("startup", "memory-"))
    ]


def test_a_real_server_tells_its_size(tmp_path):
    assert ask(tmp_path, lambda engine, http: engine.facts(http, LOG)) == EngineFacts(
        version="0.5.17",
        weight_gb_per_gpu=10.746,
        kv_tokens=3782483,
        captured_sizes=[1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64],
    )


def test_a_real_server_s_metrics_say_how_many_run_and_wait(tmp_path):
    assert ask(tmp_path, lambda engine, http: engine.load_now(http)) == (0.0, 0.0)


def test_a_scheduler_that_ends_as_told_is_called_a_crash_and_is_none():
    stopping = (RECORDED / "stopping.log").read_text()
    assert "Subprocess scheduler_0 (pid=12936) crashed with exit code -15" in stopping
    assert classify(LOG + stopping, engine="sglang", exit_code=-9) is None


def test_launches_of_one_configuration_run_with_the_same_arguments(records):
    by_key: dict[str, set[str]] = {}
    for record in records:
        if record.effective_key:
            by_key.setdefault(record.key, set()).add(record.effective_key)
    assert len(by_key) == 5
    assert all(len(keys) == 1 for keys in by_key.values())


def test_a_night_that_was_killed_goes_on_where_its_records_end(records):
    assert [record.number for record in records] == list(range(14))
    assert [record.outcome for record in records if record.outcome != "completed"] == [
        "failed",
        "interrupted",
    ]


def test_a_flag_that_nothing_reads_is_no_winner(view):
    assert verdicts(view)["decode-steps"] in ("no effect", "inconclusive")
    assert view.conclusion.winner_key is None


def test_a_collective_without_a_second_gpu_gains_nothing(view):
    assert verdicts(view)["mscclpp"] in ("no effect", "inconclusive")


def test_more_expert_ranks_than_gpus_are_never_tried_again(view):
    assert verdicts(view)["expert-parallel"] == "blocked"
    (dead,) = view.never_again
    assert dead.suspects == {"ep-size": 2}
    assert dead.trials == [5]
    assert dead.cause == "ZeroDivisionError: integer division or modulo by zero"


def test_a_model_without_graphs_is_slower_beyond_noise(view):
    assert verdicts(view)["graphs-off"] == "regresses"


def test_a_gain_inside_this_machine_s_noise_is_not_crowned(view):
    noise = view.conclusion.noise.score
    assert noise is not None
    assert 10 < noise.sd_percent < 20
    assert verdicts(view)["wider-graphs"] == "inconclusive"
    assert view.conclusion.sentence.startswith(
        "Not finished: 13 of 15 launches. So far no configuration beats the baseline beyond noise."
    )
