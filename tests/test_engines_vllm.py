"""What is vLLM's alone, from its log and from the real engine where it is installed."""

import asyncio
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from tests.engine_cases import VLLM, VLLM_LOG, serving
from tuner import engines
from tuner.definitions.models import EngineDefinition
from tuner.engines.base import LaunchSpec
from tuner.errors import HttpProtocolError
from tuner.hosts.server import Server
from tuner.http.client import Http
from tuner.measuring.fidelity import distance
from tuner.measuring.passages import TEXTS

STUDY = Path(__file__).parent.parent / "studies" / "vllm-cpu"
START_LIMIT_S = 420.0


def vllm(folder, **flags: Any):
    named = {name.replace("_", "-"): value for name, value in flags.items()}
    return engines.create(VLLM.spec(folder, flags=named))


def ask(answers, question):
    async def asked(url):
        async with Http(url) as http:
            return await question(http)

    with serving(answers) as url:
        return asyncio.run(asked(url))


def test_it_is_launched_by_its_module(tmp_path):
    command = vllm(tmp_path).command(host="127.0.0.1", port=1, extra_ports=(2, 3))
    assert command.argv == (
        *("python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "some/model"),
    )
    assert command.injected_argv == ("--host", "127.0.0.1", "--port", "1", "--seed", "0")
    assert command.injected_env["VLLM_NO_USAGE_STATS"] == "1"
    assert command.injected_env["VLLM_PORT"] == "2"


def test_serve_takes_the_model_as_its_first_argument(tmp_path):
    own = EngineDefinition(name="vllm", command=["vllm", "serve"])
    command = engines.create(VLLM.spec(tmp_path, engine=own, flags={"seed": 3})).command(
        host="h", port=1, extra_ports=()
    )
    assert command.argv == ("vllm", "serve", "some/model", "--seed", "3")


def test_requests_carry_the_name_that_the_server_serves(tmp_path):
    assert vllm(tmp_path).served_model == "some/model"
    assert vllm(tmp_path, served_model_name="first second").served_model == "first"


def test_a_served_name_is_spelt_as_several_words(tmp_path):
    command = vllm(tmp_path, served_model_name="a b").command(host="h", port=1, extra_ports=())
    assert command.argv[-3:] == ("--served-model-name", "a", "b")


def test_every_kind_of_parallelism_takes_gpus(tmp_path):
    engine = vllm(tmp_path, tensor_parallel_size=2, pipeline_parallel_size=2, data_parallel_size=2)
    assert engine.gpus_needed() == 8
    assert (
        vllm(tmp_path, tensor_parallel_size=2, prefill_context_parallel_size=2).gpus_needed() == 4
    )


def test_only_the_data_parallel_ranks_of_this_server_take_gpus(tmp_path):
    four = {"tensor_parallel_size": 2, "data_parallel_size": 4}
    assert vllm(tmp_path, **four).gpus_needed() == 8
    assert vllm(tmp_path, **four, data_parallel_size_local=2).gpus_needed() == 4
    assert vllm(tmp_path, **four, data_parallel_rank=0).gpus_needed() == 2
    assert vllm(tmp_path, **four, data_parallel_external_lb=True).gpus_needed() == 2
    assert vllm(tmp_path, **four, decode_context_parallel_size=2).gpus_needed() == 8


def test_what_the_engine_resolved_stands_over_what_was_set(tmp_path):
    log = VLLM_LOG.replace("max_seq_len=1024", "max_seq_len=512")
    effective = ask(VLLM.answers(), lambda http: vllm(tmp_path).effective(http, log))
    assert effective["max-model-len"] == 512


def test_the_last_start_in_a_log_counts(tmp_path):
    again = VLLM_LOG.replace("'max_num_seqs': 4", "'max_num_seqs': 8")
    effective = ask(VLLM.answers(), lambda http: vllm(tmp_path).effective(http, VLLM_LOG + again))
    assert effective["max-num-seqs"] == 8


def test_a_log_that_does_not_say_what_was_set_gives_no_flags_to_compare(tmp_path):
    quiet = "".join(line for line in VLLM_LOG.splitlines(True) if "non-default args" not in line)
    for log in ("", quiet):
        engine = vllm(tmp_path)
        assert ask(VLLM.answers(), lambda http: engine.effective(http, log)) == {}  # noqa: B023


def test_a_log_that_says_nothing_gives_no_facts_but_the_version(tmp_path):
    engine = vllm(tmp_path)
    facts = ask(VLLM.answers(), lambda http: engine.facts(http, ""))
    assert facts.model_dump(exclude_none=True) == {"version": "0.32.0"}


def test_a_continuation_is_asked_for_greedily_and_told_in_ids(tmp_path):
    answers = VLLM.answers()
    answers.routes["/v1/completions"] = (200, {"choices": [{"token_ids": [5, 6]}]})
    found = ask(answers, lambda http: vllm(tmp_path).continuation(http, [1, 2], 2, 5.0))
    assert found == [5, 6]
    asked = answers.posted[-1][1]
    assert asked["return_token_ids"] is True
    assert (asked["temperature"], asked["repetition_penalty"]) == (0, 1.0)
    assert "min_tokens" not in asked, "it would forbid tokens that the baseline may find likeliest"


def test_an_engine_that_tells_no_ids_says_so(tmp_path):
    answers = VLLM.answers()
    answers.routes["/v1/completions"] = (200, {"choices": [{"text": "x"}]})
    with pytest.raises(HttpProtocolError, match="expected a list of token ids"):
        ask(answers, lambda http: vllm(tmp_path).continuation(http, [1, 2], 2, 5.0))


def test_an_output_is_scored_by_the_log_probabilities_of_its_prompt(tmp_path):
    rows = [None, {"2": {"logprob": -9.0}}, {"5": {"logprob": -0.2}, "7": {"logprob": -2.0}}]
    answers = VLLM.answers()
    answers.routes["/v1/completions"] = (200, {"choices": [{"prompt_logprobs": rows}]})
    scores = ask(answers, lambda http: vllm(tmp_path).scores(http, [1, 2], [5]))
    assert [tuple(score) for score in scores] == [(-0.2, -0.2, -2.0)]
    assert answers.posted[-1][1]["prompt"] == [1, 2, 5]


def test_a_server_without_a_tokenizer_reads_no_text(tmp_path):
    answers = VLLM.answers()
    assert ask(answers, lambda http: vllm(tmp_path).tokens(http, "text")) is None
    answers.routes["/tokenize"] = (200, {"tokens": [4, 5], "count": 2})
    assert ask(answers, lambda http: vllm(tmp_path).tokens(http, "text")) == [4, 5]


def installed_study():
    """The set-up of the study on this machine; where tests must not be skipped it has to be."""
    if not (STUDY / "engine" / "bin" / "python").exists() or not (STUDY / "models").exists():
        if os.environ.get("CI") == "true":
            pytest.fail("vLLM is not installed: run studies/vllm-cpu/setup.sh first")
        pytest.skip("needs studies/vllm-cpu/setup.sh")
    return LaunchSpec(
        engine=EngineDefinition(name="vllm", python="engine/bin/python"),
        model="models/dense",
        folder=STUDY,
        flags={
            "max-model-len": 1024,
            "enforce-eager": True,
            "dtype": "float32",
            "max-num-seqs": 4,
            "block-size": 64,
            "enable-prefix-caching": False,
            "max-num-batched-tokens": 512,
        },
        bool_styles={"enable-prefix-caching": "negation"},
        env={"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"},
    )


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def until_ready(engine, http, server):
    """What readiness answered, from the start to the first yes or the server's death."""
    deadline = time.monotonic() + START_LIMIT_S
    seen = []
    while time.monotonic() < deadline and server.exit_code() is None:
        seen.append(await engine.ready(http))
        if seen[-1]:
            break
        await asyncio.sleep(0.5)
    return seen


async def interview(engine, server):
    async with Http(f"http://127.0.0.1:{server.port}") as http:
        seen = await until_ready(engine, http, server)
        assert seen[0] is False
        assert seen[-1] is True, server.log()[-2000:]
        log = server.log()
        return (
            await engine.effective(http, log),
            await engine.facts(http, log),
            await engine.load_now(http),
            await words(engine, http),
        )


async def words(engine, http):
    """A passage, how the engine goes on, and how likely it finds that itself."""
    passage = await engine.tokens(http, TEXTS[0])
    output = await engine.continuation(http, passage, 8, 60.0)
    return passage, output, await engine.scores(http, passage, output)


@pytest.mark.engine
def test_the_real_engine_takes_the_flags_and_says_what_it_runs_with(tmp_path):
    spec = installed_study()
    assert engines.preflight(spec) == []
    engine = engines.create(spec)
    port = free_port()
    command = engine.command(host="127.0.0.1", port=port, extra_ports=(free_port(),))
    cores = sorted(os.sched_getaffinity(0))
    with Server.start(command, folder=tmp_path, port=port, cores=cores, tag="vllm-test") as server:
        effective, facts, load, spoken = asyncio.run(interview(engine, server))
    assert {name: effective.get(name) for name in spec.flags} == spec.flags
    assert facts.version == engines.version(spec) == "0.32.0"
    assert facts.kv_tokens == 262144
    assert load == (0.0, 0.0)
    passage, output, scores = spoken
    assert len(passage) > 20
    assert len(output) == len(scores) == 8
    assert distance(1, 8, [scores]).gap_nat < 0.01, "what it says is what it finds likeliest"
