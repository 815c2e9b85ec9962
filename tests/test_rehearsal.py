"""The rehearsal engine as a process: what it says, and how it answers."""

import json
import re
import signal
import socket
import time
from itertools import pairwise

import pytest

from tests.rehearsed import PATIENCE_S, READY, STARTUP, generate, launched, serving
from tuner.load import RungPlan, Target, play, run
from tuner.measuring.measurement import measure


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """One engine for all tests that leave it as it was."""
    with serving(tmp_path_factory.mktemp("engine"), "--enable-metrics", "--tp-size", "2") as made:
        yield made


# --- the launch


def test_it_says_first_that_it_is_a_rehearsal(engine):
    first = engine.log.splitlines()[0]
    assert "REHEARSAL of SGLang 0.5.9" in first
    assert "50 surface seconds in one second" in first
    assert "Nothing measured here is a benchmark" in first


def test_the_phases_of_a_launch_come_in_the_engines_order_and_words(engine):
    words = (
        *("server_args=ServerArgs(model_path='toy'", "TP1] Init torch distributed begin."),
        *("TP1] Load weight begin. avail mem=93.94 GB", "TP1] Load weight end."),
        *("TP1] KV Cache is allocated.", "TP1] Capture cuda graph begin."),
        *(
            "TP1] Capture cuda graph end.",
            "max_total_num_tokens=250000",
            "Uvicorn running on",
            READY,
        ),
    )
    places = [engine.log.index(word) for word in words]
    assert places == sorted(places)


def test_graphs_are_captured_only_where_they_are_not_switched_off(tmp_path):
    with serving(tmp_path, "--disable-cuda-graph") as engine:
        assert "Capture cuda graph" not in engine.log


def test_a_phase_takes_the_surfaces_time(tmp_path):
    with launched(tmp_path, startup={**STARTUP, "weights_s": 60}) as engine:
        engine.wait_for("Load weight begin")
        begun_s = time.monotonic()
        engine.wait_for("Load weight end")
        assert time.monotonic() - begun_s > 0.9 * 60 / 50


def test_it_is_not_healthy_before_it_is_ready(tmp_path):
    with launched(tmp_path, startup={**STARTUP, "warmup_s": 40}) as engine:
        engine.wait_for("Uvicorn running")
        assert engine.ask("/health")[0] == 503
        engine.wait_for(READY)
        assert engine.ask("/health")[0] == 200


def test_noise_lines_of_a_healthy_launch_are_printed(tmp_path):
    entry = {"at": "weights", "log": "[{time} TP0] nothing to worry about"}
    with serving(tmp_path, chatter=[entry]) as engine:
        assert re.search(r"^\[\d{4}-.* TP0\] nothing to worry about$", engine.log, re.MULTILINE)


def test_a_flag_that_it_does_not_know_ends_it_with_two(tmp_path):
    with launched(tmp_path, "--enable-msclpp") as engine:
        assert engine.exit_code() == 2
        assert "launch_server.py: error: unrecognized arguments: --enable-msclpp" in engine.log


def test_a_wrong_surface_ends_it_with_one_and_the_place(tmp_path):
    with launched(tmp_path, effects=[{"when": {"ep-sise": 8}}]) as engine:
        assert engine.exit_code() == 1
        assert "did you mean 'ep-size'?" in engine.log


def test_a_port_that_is_taken_ends_it_with_one(tmp_path):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        with launched(tmp_path, port=holder.getsockname()[1]) as engine:
            assert engine.exit_code() == 1
            assert "[Errno 98] error while attempting to bind on address" in engine.log


def test_sigterm_ends_it_cleanly_also_under_load(tmp_path):
    with serving(tmp_path) as engine, engine.hold() as wire:
        engine.process.send_signal(signal.SIGTERM)
        assert engine.exit_code() == 0
        assert b"[DONE]" not in b"".join(iter(lambda: wire.recv(65536), b""))


# --- what it answers


def test_resolved_arguments_are_read_back_and_say_that_it_is_a_rehearsal(tmp_path):
    surface = {
        "resolved": {"chunked-prefill-size": 8192},
        "overrides": [
            {
                "when": {"moe-a2a-backend": "flashinfer"},
                "set": {"ep-size": "$tp-size"},
                "log": "ep is tp now",
            }
        ],
    }
    with serving(
        tmp_path, "--tp-size", "8", "--moe-a2a-backend", "flashinfer", **surface
    ) as engine:
        info = engine.json("/server_info")
        assert (info["ep_size"], info["chunked_prefill_size"]) == (8, 8192)
        assert "rehearsal" in info["version"]
        assert info["internal_states"][0]["memory_usage"]["weight"] == 60.89
        assert engine.json("/get_server_info").keys() == info.keys()
        assert "WARNING: ep is tp now" in engine.log


def test_generate_streams_text_so_far_and_the_count_so_far(engine):
    events = engine.events("/generate", generate(7))
    counts = [event["meta_info"]["completion_tokens"] for event in events]
    assert counts == sorted(set(counts))
    assert counts[-1] == 7
    assert all(later["text"].startswith(event["text"]) for event, later in pairwise(events))
    assert [len(event["output_ids"]) for event in events] == counts
    assert {event["meta_info"]["prompt_tokens"] for event in events} == {3}
    reasons = [event["meta_info"]["finish_reason"] for event in events]
    assert reasons == [None] * (len(events) - 1) + [{"type": "length", "length": 7}]


def test_greedy_output_depends_on_the_prompt_alone(engine):
    first, again = (engine.events("/generate", generate(9))[-1]["text"] for _ in range(2))
    other = engine.events("/generate", generate(9, input_ids=[17, 18, 20]))[-1]["text"]
    assert first == again != other


def test_generate_answers_whole_where_no_stream_is_asked_for(engine):
    whole = engine.json("/generate", generate(9))
    assert whole["text"] == engine.events("/generate", generate(9))[-1]["text"]
    assert whole["meta_info"]["completion_tokens"] == 9


def test_a_text_is_a_prompt_as_well(engine):
    payload = {"text": "The quick brown fox", "sampling_params": {"max_new_tokens": 2}}
    assert engine.json("/generate", payload)["meta_info"]["prompt_tokens"] == 5


def test_log_probabilities_come_in_the_engines_shape(engine):
    asked = generate(2, return_logprob=True, logprob_start_len=1, top_logprobs_num=2)
    meta = engine.json("/generate", asked)["meta_info"]
    (nothing, first, text), (value, second, _) = meta["input_token_logprobs"]
    assert (nothing, first, text, second) == (None, 18, None, 19)
    assert value < 0
    assert [token for _, token, _ in meta["output_token_logprobs"]] == [
        best[0][1] for best in meta["output_top_logprobs"]
    ]
    assert [None if top is None else len(top) for top in meta["input_top_logprobs"]] == [None, 2]


def test_scoring_what_was_generated_finds_it_likely(engine):
    output = engine.json("/generate", generate(20))["output_ids"]
    scored = generate(1, return_logprob=True, logprob_start_len=2)
    scored["input_ids"] = [17, 18, 19, *output]
    values = [
        v for v, _, _ in engine.json("/generate", scored)["meta_info"]["input_token_logprobs"]
    ]
    assert values[0] is None
    assert min(values[1:]) > -0.61


def test_completions_stream_increments_and_usage(engine):
    options = {"include_usage": True, "continuous_usage_stats": True}
    payload = {"model": "toy", "prompt": [1, 2], "max_tokens": 6, "stream_options": options}
    *events, last = engine.events("/v1/completions", payload)
    text = "".join(event["choices"][0]["text"] for event in events)
    assert text == engine.json("/v1/completions", payload)["choices"][0]["text"]
    assert [event["choices"][0]["finish_reason"] for event in events][-1] == "length"
    assert events[-1]["usage"]["completion_tokens"] == 6
    assert (last["choices"], last["usage"]["total_tokens"]) == ([], 8)


def test_completions_without_usage_have_none(engine):
    events = engine.events("/v1/completions", {"prompt": "some text", "max_tokens": 3})
    assert all(event["usage"] is None for event in events)
    assert events[-1]["choices"]


SAID = {"messages": [{"role": "user", "content": "how are you"}], "max_tokens": 6}


def test_a_chat_begins_with_who_speaks_and_streams_increments_and_usage(engine):
    options = {"include_usage": True, "continuous_usage_stats": True}
    payload = {**SAID, "stream_options": options}
    opening, *events, last = engine.events("/v1/chat/completions", payload)
    assert opening["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert opening["usage"]["completion_tokens"] == 0
    text = "".join(event["choices"][0]["delta"]["content"] for event in events)
    whole = engine.json("/v1/chat/completions", SAID)
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": text}
    assert [event["choices"][0]["finish_reason"] for event in events][-1] == "length"
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 6)
    assert last["usage"]["prompt_tokens"] == whole["usage"]["prompt_tokens"] > 3


def test_a_chat_is_played_with_prompts_of_about_the_length_that_was_asked(engine):
    target = Target(
        base_url=f"http://127.0.0.1:{engine.port}", api="chat", model="toy", time_scale=50.0
    )
    plan = RungPlan(
        concurrency=4,
        lengths=((200, 40),),
        warmup_s=5,
        window_s=60,
        prompt_seed=1,
        order_seed=2,
        rung_index=0,
    )
    timings = run(play(target, plan)).timings
    whole = [timing for timing in timings if timing.done_s is not None and timing.index]
    assert len(whole) > 10
    assert [timing.error for timing in timings if timing.error] == []
    assert {timing.output_tokens for timing in whole} == {40}
    assert all(abs(timing.input_tokens - 200) < 20 for timing in whole)


def test_models_model_info_and_health(engine):
    assert engine.json("/v1/models")["data"][0]["id"] == "toy"
    assert engine.json("/model_info")["model_path"] == "toy"
    assert engine.ask("/health")[0] == engine.ask("/health_generate")[0] == 200


def test_the_served_name_is_what_models_are_called(tmp_path):
    with serving(tmp_path, "--served-model-name", "another") as engine:
        assert engine.json("/v1/models")["data"][0]["id"] == "another"


def test_metrics_are_there_only_when_asked_for(engine, tmp_path):
    status, text = engine.ask("/metrics")
    assert status == 200
    assert re.search(r'^sglang:num_running_reqs\{.*model_name="toy"\} 0\.0$', text, re.MULTILINE)
    with serving(tmp_path) as silent:
        assert silent.ask("/metrics")[0] == 404


@pytest.mark.parametrize(
    ("path", "payload", "status"),
    [
        ("/nowhere", None, 404),
        ("/generate", [1], 400),
        ("/generate", {"input_ids": []}, 400),
        ("/generate", {"input_ids": [[1], [2]]}, 400),
        ("/generate", {"input_ids": [1], "sampling_params": {"max_new_tokens": "x"}}, 400),
        ("/generate", generate(1, return_logprob=True, logprob_start_len=9), 400),
        ("/v1/completions", {"max_tokens": 3}, 400),
        ("/v1/chat/completions", {"max_tokens": 3}, 400),
        ("/v1/chat/completions", {"messages": ["Hi"]}, 400),
        ("/v1/chat/completions", {"messages": [{"role": "user"}]}, 400),
    ],
)
def test_what_it_cannot_answer_is_refused(engine, path, payload, status):
    assert engine.ask(path, payload)[0] == status


def test_requests_may_come_in_pieces_and_one_after_the_other(engine):
    body = json.dumps(generate(1)).encode()
    request = b"POST /generate HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    with socket.create_connection(("127.0.0.1", engine.port)) as wire:
        for byte in request[:60]:
            wire.send(bytes([byte]))
        wire.send(request[60:] + request + b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: wire.recv(65536), b""))
    assert answer.count(b"HTTP/1.1 200 OK") == 3
    assert answer.count(b'"completion_tokens":1') == 2


def test_a_request_without_a_length_is_refused(engine):
    with socket.create_connection(("127.0.0.1", engine.port)) as wire:
        wire.send(b"POST /generate HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
        answer = wire.recv(65536)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"expected HTTP/1.1 with a Content-Length" in answer


# --- its speed


def _measured(engine, concurrency, *, tokens=64):
    target = Target(
        base_url=f"http://127.0.0.1:{engine.port}", api="generate", model="toy", time_scale=50.0
    )
    plan = RungPlan(
        concurrency=concurrency,
        lengths=((16, tokens),),
        warmup_s=30.0,
        window_s=75.0,
        prompt_seed=1,
        order_seed=2,
        rung_index=concurrency,
    )
    played = run(play(target, plan))
    return measure(
        played.timings, concurrency=concurrency, start_s=played.start_s, end_s=played.end_s, gpus=1
    )


@pytest.mark.parametrize(("concurrency", "tok_s"), [(1, 10), (10, 40), (100, 200)])
def test_a_real_load_finds_the_table(engine, concurrency, tok_s):
    found = [0.0]
    while len(found) < 5 and found[-1] != pytest.approx(tok_s, rel=0.01):
        found.append(_measured(engine, concurrency).output_tok_s)  # the machine may be busy
    assert found[-1] == pytest.approx(tok_s, rel=0.01), found


def test_what_exceeds_the_pool_is_counted_as_queued(tmp_path):
    arguments = ("--enable-metrics", "--max-running-requests", "10")
    with serving(tmp_path, *arguments) as engine:
        wires = [engine.hold() for _ in range(15)]
        deadline_s = time.monotonic() + PATIENCE_S
        assert engine.metric("num_running_reqs") == 10
        assert engine.metric("num_queue_reqs") == 5
        assert engine.ask("/flush_cache")[0] == 400
        for wire in wires:
            wire.close()
        while engine.ask("/flush_cache")[0] != 200:
            assert time.monotonic() < deadline_s
            time.sleep(0.01)


def test_a_nonce_repeats_a_launch_and_without_one_each_differs(tmp_path):
    def speed(**env):
        noise = {"launch_sd": 0.05}
        started = serving(tmp_path, "--enable-metrics", noise=noise, env=env)
        with started as engine, engine.hold():
            return engine.metric("gen_throughput")

    assert speed(TUNER_REHEARSAL_NONCE="a") == speed(TUNER_REHEARSAL_NONCE="a")
    assert len({speed() for _ in range(3)}) > 1
