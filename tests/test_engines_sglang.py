"""What is SGLang's alone: its ports, its parallelism, two generations of its answers."""

import asyncio
from typing import Any

import pytest

from tests.engine_cases import SGLANG, serving
from tuner import engines
from tuner.errors import HttpProtocolError, HttpStatusError
from tuner.http.client import Http


def sglang(folder, **flags: Any):
    named = {name.replace("_", "-"): value for name, value in flags.items()}
    return engines.create(SGLANG.spec(folder, flags=named))


def ask(answers, question):
    async def asked(url):
        async with Http(url) as http:
            return await question(http)

    with serving(answers) as url:
        return asyncio.run(asked(url))


def injected(engine):
    return engine.command(host="127.0.0.1", port=1, extra_ports=(2, 3, 4)).injected_argv


def test_it_is_launched_by_its_module_with_metrics(tmp_path):
    command = sglang(tmp_path).command(host="127.0.0.1", port=1, extra_ports=())
    assert command.argv == ("python3", "-m", "sglang.launch_server", "--model-path", "some/model")
    assert command.injected_argv == (
        *("--host", "127.0.0.1", "--port", "1", "--enable-metrics", "--random-seed", "1"),
    )


def test_metrics_that_the_study_asks_for_are_exported_and_injected_once(tmp_path):
    command = sglang(tmp_path, enable_metrics=True).command(host="h", port=1, extra_ports=())
    assert command.full_argv.count("--enable-metrics") == 1
    assert "--enable-metrics" in command.shell()


def test_collectives_get_a_port_of_the_slot(tmp_path):
    words = injected(sglang(tmp_path))
    assert words[-2:] == ("--nccl-port", "2")
    assert "--dist-init-addr" not in words


def test_dp_attention_counts_its_ports_from_one_of_the_slot(tmp_path):
    words = injected(sglang(tmp_path, enable_dp_attention=True))
    assert words[-2:] == ("--dist-init-addr", "127.0.0.1:3")


def test_dp_attention_shares_gpus_and_replicas_do_not(tmp_path):
    assert sglang(tmp_path, tp_size=4, dp_size=2).gpus_needed() == 8
    assert sglang(tmp_path, tp_size=4, dp_size=2, enable_dp_attention=True).gpus_needed() == 4
    assert sglang(tmp_path, tp=2, pp_size=2).gpus_needed() == 4
    assert sglang(tmp_path, tp=2, pp_size=2, dp=2).gpus_needed() == 8


def test_parallelism_within_the_tensor_parallel_group_takes_no_gpus_of_its_own(tmp_path):
    within = {"ep_size": 4, "moe_dp_size": 2, "attn_cp_size": 2, "moe_dense_tp_size": 1}
    assert sglang(tmp_path, tp_size=4, **within).gpus_needed() == 4
    assert sglang(tmp_path, tp_size=4, dp_size=4, dwdp_size=4).gpus_needed() == 4


def test_an_older_server_answers_under_the_older_path(tmp_path):
    answers = SGLANG.answers()
    answers.routes["/get_server_info"] = answers.routes.pop("/server_info")
    effective = ask(answers, lambda http: sglang(tmp_path).effective(http, ""))
    assert effective["moe-a2a-backend"] == "flashinfer"


def test_what_the_scheduler_changed_later_is_what_counts(tmp_path):
    engine = sglang(tmp_path, ep_size=1)
    assert ask(SGLANG.answers(), lambda http: engine.effective(http, ""))["ep-size"] == 8


def test_a_seed_of_the_study_is_an_argument_and_ours_is_not(tmp_path):
    ours, own = sglang(tmp_path), sglang(tmp_path, random_seed=1)
    assert "random-seed" not in ask(SGLANG.answers(), lambda http: ours.effective(http, ""))
    assert ask(SGLANG.answers(), lambda http: own.effective(http, ""))["random-seed"] == 1


def test_nothing_of_the_moment_is_among_the_arguments(tmp_path):
    effective = ask(SGLANG.answers(), lambda http: sglang(tmp_path).effective(http, ""))
    assert not {
        *("port", "nccl-port", "host", "status", "startup-time", "version", "internal-states"),
        *("max-total-num-tokens", "memory-usage", "last-gen-throughput", "enable-metrics"),
    } & set(effective)


def test_facts_come_from_the_log_where_an_older_server_does_not_say(tmp_path):
    answers = SGLANG.answers()
    answers.routes["/server_info"] = (200, {"version": "0.4.6"})
    older = SGLANG.log.replace(
        "Capture target decode CUDA graph begin. backend=full, num_tokens_per_req=1, bs=",
        "Capture cuda graph bs ",
    )
    facts = ask(answers, lambda http: sglang(tmp_path).facts(http, older))
    assert facts.weight_gb_per_gpu == 60.89
    assert facts.kv_tokens == 399999
    assert facts.captured_sizes == [1, 2, 4, 8]


def test_a_server_that_captured_nothing_has_no_sizes(tmp_path):
    assert ask(SGLANG.answers(), lambda h: sglang(tmp_path).facts(h, "")).captured_sizes is None


def test_an_answer_that_is_no_server_info_is_an_error_of_its_own(tmp_path):
    engine = sglang(tmp_path)
    answers = SGLANG.answers()
    answers.routes["/server_info"] = (200, [1])
    with pytest.raises(HttpProtocolError, match="expected the server's arguments"):
        ask(answers, lambda http: engine.effective(http, ""))
    answers.routes["/server_info"] = (500, {})
    answers.routes["/get_server_info"] = SGLANG.routes["/server_info"]
    with pytest.raises(HttpStatusError):
        ask(answers, lambda http: engine.effective(http, ""))


def test_a_continuation_is_asked_for_greedily_and_told_in_ids(tmp_path):
    answers = SGLANG.answers()
    answers.routes["/generate"] = (200, {"text": "x", "output_ids": [5, 6], "meta_info": {}})
    engine = sglang(tmp_path)
    assert ask(answers, lambda http: engine.continuation(http, [1, 2], 2, 5.0)) == [5, 6]
    asked = answers.posted[-1][1]
    assert asked["input_ids"] == [1, 2]
    assert asked["sampling_params"]["temperature"] == 0
    assert asked["sampling_params"]["repetition_penalty"] == 1.0


def test_an_output_is_scored_from_the_last_token_of_its_prompt_on(tmp_path):
    told = {
        "input_token_logprobs": [[None, 2, None], [-0.2, 5, None], [-3.0, 6, None]],
        "input_top_logprobs": [
            None,
            [[-0.2, 5, None], [-2.0, 7, None]],
            [[-0.1, 8, None], [-2.5, 9, None]],
        ],
    }
    answers = SGLANG.answers()
    answers.routes["/generate"] = (200, {"text": "", "output_ids": [1], "meta_info": told})
    engine = sglang(tmp_path)
    scores = ask(answers, lambda http: engine.scores(http, [1, 2], [5, 6]))
    assert [tuple(score) for score in scores] == [(-0.2, -0.2, -2.0), (-3.0, -0.1, -2.5)]
    asked = answers.posted[-1][1]
    assert asked["input_ids"] == [1, 2, 5, 6]
    assert (asked["return_logprob"], asked["logprob_start_len"]) == (True, 1)
