"""How the rehearsal engine fails: each form of death, standstill and wrong answer, for real."""

import os
import signal
import time

import pytest

from tests.rehearsed import PATIENCE_S, READY, generate, launched, serving
from tuner.hosts import processes

ALWAYS: dict[str, object] = {"when": {}}
AT_LAUNCH = "Received sigquit from a child process. It usually means the child failed."
SERVING = "SIGQUIT received. signum=3, frame=None. It usually means one child failed."


def gone(engine):
    """Ask until nobody answers."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        try:
            engine.ask("/health")
        except OSError:
            return True
        time.sleep(0.02)
    return False


# --- deaths while launching


@pytest.mark.parametrize(
    ("phase", "before", "never"),
    [
        ("arguments", "REHEARSAL", "server_args"),
        ("distributed", "Init torch distributed begin", "Init torch distributed ends"),
        ("weights", "Load weight begin", "Load weight end"),
        ("kv-cache", "Load weight end", "KV Cache is allocated"),
        ("graphs", "Capture cuda graph begin", "Capture cuda graph end"),
        ("warmup", "Uvicorn running", READY),
    ],
)
def test_a_launch_can_die_in_each_phase(tmp_path, phase, before, never):
    crash = {**ALWAYS, "at": phase, "log": "[{time} TP3] Scheduler hit an exception: boom"}
    with launched(tmp_path, crashes=[crash]) as engine:
        assert engine.exit_code() == -signal.SIGKILL
        assert engine.log.index(before) < engine.log.index("TP3] Scheduler hit an exception: boom")
        assert engine.log.index("boom") < engine.log.index(AT_LAUNCH)
        assert never not in engine.log


def test_a_traceback_leaves_with_one_and_no_word_of_sigquit(tmp_path):
    crash = {**ALWAYS, "at": "arguments", "log": "ValueError: no", "exit": "traceback"}
    with launched(tmp_path, crashes=[crash]) as engine:
        assert engine.exit_code() == 1
        assert engine.log.endswith("ValueError: no\n")


def test_being_killed_leaves_no_word(tmp_path):
    crash = {**ALWAYS, "at": "weights", "exit": "killed"}
    with launched(tmp_path, crashes=[crash]) as engine:
        assert engine.exit_code() == -signal.SIGKILL
        assert engine.log.splitlines()[-1].endswith("Load weight begin. avail mem=93.94 GB")


def test_a_crash_befalls_only_those_whom_it_concerns(tmp_path):
    when = {"SGLANG_MSCCLPP_MAX_BYTES": "4MB", "enable-mscclpp": True}
    crashes = [{"when": when, "at": "distributed", "log": "int() says no"}]
    refused = {"SGLANG_MSCCLPP_MAX_BYTES": "4MB"}
    with launched(tmp_path, "--enable-mscclpp", env=refused, crashes=crashes) as engine:
        assert engine.exit_code() == -signal.SIGKILL
        assert "int() says no" in engine.log
    for argv, env in (((), refused), (("--enable-mscclpp",), {})):
        with serving(tmp_path, *argv, env=env, crashes=crashes) as engine:
            assert engine.ask("/health")[0] == 200


# --- deaths while serving


def test_reaching_a_concurrency_kills_and_cuts_off_what_is_under_way(tmp_path):
    crash = {**ALWAYS, "running": 3, "after_s": 5, "log": "one too many", "linger_s": 10}
    with serving(tmp_path, crashes=[crash]) as engine:
        wires = [engine.hold(), engine.hold()]
        time.sleep(0.3)
        assert "one too many" not in engine.log
        wires.append(engine.hold())
        assert engine.exit_code() == -signal.SIGKILL
        assert engine.log.index("one too many") < engine.log.index(SERVING)
        for wire in wires:
            assert b"[DONE]" not in _rest(wire)
            wire.close()


def _rest(wire):
    try:
        return b"".join(iter(lambda: wire.recv(65536), b""))
    except ConnectionResetError:
        return b""


def test_health_is_green_and_nothing_is_generated_while_it_dies(tmp_path):
    crash = {**ALWAYS, "requests": 1, "log": "dead", "linger_s": 200}
    with serving(tmp_path, crashes=[crash]) as engine:
        engine.json("/generate", generate(1))
        engine.wait_for(SERVING)
        assert engine.ask("/health")[0] == 200
        with pytest.raises(TimeoutError):
            engine.ask("/generate", generate(1), timeout_s=0.3)
        assert gone(engine)
        assert engine.exit_code() == -signal.SIGKILL


def test_a_zombie_stays_up_and_answers_nothing(tmp_path):
    crash = {**ALWAYS, "requests": 1, "exit": "zombie"}
    with serving(tmp_path, crashes=[crash]) as engine:
        engine.json("/generate", generate(1))
        with pytest.raises(TimeoutError):
            engine.ask("/generate", generate(1), timeout_s=0.5)
        assert engine.ask("/health")[0] == 200
        assert engine.process.poll() is None
        assert "SIGQUIT" not in engine.log


# --- standstills


def test_a_launch_can_stand_still_before_it_listens(tmp_path):
    with launched(tmp_path, hangs=[{**ALWAYS, "at": "distributed"}]) as engine:
        engine.wait_for("Init torch distributed begin")
        time.sleep(0.5)
        assert engine.process.poll() is None
        assert "Init torch distributed ends" not in engine.log
        with pytest.raises(ConnectionRefusedError):
            engine.ask("/health")


def test_a_launch_can_stand_still_after_it_listens(tmp_path):
    with launched(tmp_path, hangs=[{**ALWAYS, "at": "warmup"}]) as engine:
        engine.wait_for("Uvicorn running")
        time.sleep(0.3)
        assert engine.ask("/health")[0] == 503
        engine.process.send_signal(signal.SIGTERM)
        assert engine.exit_code() == 0


def test_healthy_and_silent_from_the_first_request(tmp_path):
    with serving(tmp_path, hangs=[{**ALWAYS, "requests": 0}]) as engine:
        with pytest.raises(TimeoutError):
            engine.ask("/generate", generate(1), timeout_s=0.5)
        assert engine.ask("/health")[0] == 200
        assert engine.ask("/health_generate")[0] == 503
        assert "couldn't get a response from detokenizer" in engine.log


def test_healthy_and_silent_after_some_requests(tmp_path):
    with serving(tmp_path, hangs=[{**ALWAYS, "requests": 2}]) as engine:
        assert engine.json("/generate", generate(1))["text"]
        assert engine.json("/generate", generate(1))["text"]
        with pytest.raises(TimeoutError):
            engine.ask("/generate", generate(1), timeout_s=0.5)
        assert engine.ask("/health")[0] == 200


# --- what is left behind


def test_an_orphan_has_lost_its_parent_and_its_session_and_outlives_the_engine(tmp_path):
    with serving(tmp_path, orphans=[ALWAYS]) as engine:
        pid = int(engine.log.split("left behind, pid=")[1].split()[0])
        orphan = processes.read(pid)
        assert orphan
        try:
            assert orphan.parent != engine.process.pid
            assert os.getsid(pid) not in (os.getsid(engine.process.pid), engine.process.pid)
            engine.process.kill()
            engine.process.wait()
            assert processes.alive(pid, orphan.started)
        finally:
            os.kill(pid, signal.SIGKILL)


# --- wrong answers


def answer(folder, kind, tokens=24, **more):
    entry = {**ALWAYS, "kind": kind, **more}
    with serving(folder, wrong_output=[entry]) as engine:
        return engine.json("/generate", generate(tokens))


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("right")) as engine:
        yield engine


def test_repeated_output_is_one_token_over_and_over(tmp_path):
    found = answer(tmp_path, "repeated")
    assert found["text"] == "!" * 24
    assert set(found["output_ids"]) == {0}


def test_empty_output_counts_tokens_without_text(tmp_path):
    found = answer(tmp_path, "empty")
    assert (found["text"], found["meta_info"]["completion_tokens"]) == ("", 24)


def test_short_output_stops_half_way(tmp_path):
    meta = answer(tmp_path, "short")["meta_info"]
    assert (meta["completion_tokens"], meta["finish_reason"]["type"]) == (12, "stop")


def test_drifting_output_is_fluent_but_unlikely_to_the_right_engine(tmp_path, right):
    output = answer(tmp_path, "drifting")["output_ids"]
    assert len(set(output)) == 24
    scored = generate(1, return_logprob=True, logprob_start_len=2)
    scored["input_ids"] = [17, 18, 19, *output]
    values = right.json("/generate", scored)["meta_info"]["input_token_logprobs"]
    assert max(value for value, _, _ in values[1:]) < -3


def test_a_drifting_engine_scores_right_output_worse(tmp_path, right):
    scored = generate(1, return_logprob=True, logprob_start_len=2)
    scored["input_ids"] = [17, 18, 19, *right.json("/generate", generate(24))["output_ids"]]

    def mean(engine):
        values = engine.json("/generate", scored)["meta_info"]["input_token_logprobs"]
        return sum(value for value, _, _ in values[1:]) / 24

    with serving(tmp_path, wrong_output=[{**ALWAYS, "kind": "drifting"}]) as drifting:
        assert mean(drifting) < mean(right) - 3


def test_wrong_output_may_befall_a_share_of_the_requests(tmp_path):
    entry = {**ALWAYS, "kind": "repeated", "share": 0.5}
    with serving(tmp_path, wrong_output=[entry]) as engine:
        texts = [engine.json("/generate", generate(2))["text"] for _ in range(60)]
        assert 10 < texts.count("!!") < 50


# --- refused load


def test_load_above_what_it_takes_is_refused(tmp_path):
    with serving(tmp_path, refusals=[{**ALWAYS, "above": 1}]) as engine:
        with engine.hold():
            status, body = engine.ask("/generate", generate(1))
            assert (status, "The request queue is full." in body) == (503, True)
        deadline_s = time.monotonic() + PATIENCE_S
        while engine.ask("/generate", generate(1))[0] != 200:
            assert time.monotonic() < deadline_s


def test_the_engines_own_limit_of_the_queue_refuses_as_well(tmp_path):
    limits = ("--max-running-requests", "1", "--max-queued-requests", "0")
    with serving(tmp_path, *limits) as engine, engine.hold():
        assert engine.ask("/generate", generate(1))[0] == 503
