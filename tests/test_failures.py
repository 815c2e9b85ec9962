import random
import re
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any

import pytest
import yaml

from tuner.definitions.models import Value
from tuner.failures.classifier import Failure, classify, fatal_line, gave_up, phase_of, verdict
from tuner.failures.evidence import Reading
from tuner.failures.rules import CLASSES, NOISE, RULES
from tuner.failures.rules.rule import Rule, Tier

LOGS = Path(__file__).parent / "logs"
LABELS: dict[str, dict[str, Any]] = yaml.safe_load((LOGS / "labels.yaml").read_text())
SNIPPETS: list[dict[str, Any]] = yaml.safe_load((LOGS / "snippets.yaml").read_text())
QUIET: list[dict[str, Any]] = yaml.safe_load((LOGS / "noise.yaml").read_text())
FAILED = sorted(name for name, label in LABELS.items() if label["kind"])
HEALTHY = sorted(name for name, label in LABELS.items() if not label["kind"])
SILENT = ("captured/rehearsal-killed-serving",)
"""Died without a word."""
CAUGHT = {name: (LOGS / f"{name}.log").read_text() for name in LABELS}

STAGES = {
    "sglang": {
        "starting": "Init torch distributed begin",
        "loading": "Load weight begin",
        "loaded": "Load weight end",
        "capturing": "Capture cuda graph begin",
        "captured": "Application startup complete",
        "ready": "ready to roll",
        "serving": "SIGTERM received",
    },
    "vllm": {
        "starting": "Initializing a V1 LLM engine",
        "loading": "Starting to load model",
        "loaded": "Loading weights took",
        "ready": "Application startup complete",
        "serving": "[shutdown] API server: shutdown triggered",
    },
}
HEALTHY_LOG = {"sglang": "written/sglang-healthy", "vllm": "captured/vllm-healthy"}


def explain(name: str, log: str | None = None) -> Failure | None:
    label = LABELS[name]
    return classify(
        CAUGHT[name] if log is None else log,
        engine=label["engine"],
        exit_code=label.get("exit_code"),
        flags=label.get("flags", {}),
        nearest=label.get("nearest"),
    )


def prelude(engine: str, stage: str) -> str:
    """A healthy log up to a stage; for serving, up to where it was told to stop."""
    if stage == "nothing":
        return ""
    form = "vllm" if engine == "vllm" else "sglang"
    text = CAUGHT[HEALTHY_LOG[form]]
    end = text.index(STAGES[form][stage])
    end = text.rindex("\n", 0, end) if stage == "serving" else text.index("\n", end)
    return text[: end + 1]


def rule_of(
    log: str, engine: str, *, died: bool, flags: dict[str, Value] | None = None
) -> Rule | None:
    hit = Reading(log, engine, None, flags or {}).first_cause(died=died)
    return hit.rule if hit else None


@pytest.mark.parametrize("name", FAILED)
def test_a_labelled_log_is_explained_as_labelled(name: str) -> None:
    label, failure = LABELS[name], explain(name)
    assert failure is not None
    assert failure.kind == label["kind"]
    assert failure.action == label["action"]
    assert label["cause"] in failure.cause
    if "blame" in label:
        assert failure.blame == label["blame"]
    if "phase" in label:
        assert failure.phase == label["phase"]
    assert label.get("advice", "") in failure.advice
    assert failure.exit_code == label.get("exit_code")


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_log_is_no_failure_and_never_alarms(name: str) -> None:
    log = CAUGHT[name]
    assert classify(log, engine=LABELS[name]["engine"]) is None
    assert all(fatal_line(line) is None for line in log.splitlines(keepends=True))


@pytest.mark.parametrize("name", HEALTHY)
def test_no_beginning_of_a_healthy_log_is_a_failure(name: str) -> None:
    lines = CAUGHT[name].splitlines(keepends=True)
    for end in range(0, len(lines), 7):
        assert classify("".join(lines[:end]), engine=LABELS[name]["engine"]) is None


@pytest.mark.parametrize("snippet", SNIPPETS, ids=[f"{s['rule']} {s['at']}" for s in SNIPPETS])
def test_a_rule_explains_the_line_it_was_written_for(snippet: dict[str, Any]) -> None:
    engine = snippet.get("engine", "sglang")
    log = prelude(engine, snippet["at"]) + snippet["text"].rstrip("\n") + "\n"
    died = snippet.get("dead", True)
    flags = snippet.get("flags", {})
    rule = rule_of(log, engine, died=died, flags=flags)
    assert rule is not None
    assert rule.name == snippet["rule"]
    failure = classify(log, engine=engine, exit_code=1 if died else None, flags=flags)
    assert failure is not None
    assert failure.kind == rule.kind


def test_every_rule_is_exercised() -> None:
    assert {rule.name for rule in RULES} == {snippet["rule"] for snippet in SNIPPETS}


def test_every_rule_and_class_says_why_and_what_to_do() -> None:
    names = [rule.name for rule in RULES]
    assert len(names) == len(set(names))
    assert {rule.kind for rule in RULES} <= set(CLASSES)
    assert all(rule.reason.endswith(".") for rule in RULES)
    assert all(known.advice.endswith(".") and known.summary for known in CLASSES.values())


@pytest.mark.parametrize("quiet", QUIET, ids=[entry["noise"] for entry in QUIET])
def test_noise_is_dropped_from_a_healthy_log(quiet: dict[str, Any]) -> None:
    engine, text = quiet.get("engine", "sglang"), quiet["text"].rstrip("\n")
    noise = next(noise for noise in NOISE if noise.name == quiet["noise"])
    assert any(noise.pattern.search(line) for line in text.splitlines())
    for stage in ("starting", "serving"):
        log = f"{prelude(engine, stage)}{text}\n"
        assert classify(log, engine=engine) is None
    assert fatal_line(text + "\n") is None


def test_every_noise_has_a_healthy_log() -> None:
    assert {noise.name for noise in NOISE} == {entry["noise"] for entry in QUIET}


def renamed(log: str, dice: random.Random) -> str:
    """Other names, paths, versions, times, line numbers and process ids."""
    log = re.sub(r"/opt/env/[\w./-]*/(?=[\w-]+\.py)", "/home/someone/venv/", log)
    log = re.sub(r"/models/[\w-]+", "/mnt/store/other-model", log)
    log = re.sub(r"GlmMoeForCausalLM|LlamaForCausalLM", "DeepseekV3ForCausalLM", log)
    log = re.sub(r"nccl==[\d.]+", "nccl==2.99.1", log)
    log = re.sub(r"python3\.\d+", "python3.14", log)
    log = re.sub(r"version \d+\.\d+\.\d+", "version 0.99.7", log)
    log = re.sub(
        r"\d\d:\d\d:\d\d", lambda _: f"{dice.randrange(24):02}:11:{dice.randrange(60):02}", log
    )
    log = re.sub(r"line \d+", lambda _: f"line {dice.randrange(1, 9999)}", log)
    return re.sub(r"pid=\d+", lambda _: f"pid={dice.randrange(2, 99999)}", log)


def resized(log: str, dice: random.Random) -> str:
    """Other amounts of memory and other counts."""
    log = re.sub(r"\d+\.\d\d(?= [GM]i?B)", lambda _: f"{dice.uniform(1, 150):.2f}", log)
    return re.sub(r"(?<=#[a-z-]{5}: )\d+", lambda _: str(dice.randrange(1, 99999)), log)


def shuffled(log: str, dice: random.Random) -> str:
    """Neighbouring records of different ranks in another order."""
    records: list[tuple[str | None, list[str]]] = []
    for line in log.splitlines(keepends=True):
        tag = re.match(r"\[[^\]]*?TP(\d+)\]", line)
        if tag:
            records.append((tag[1], [line]))
        elif (
            records
            and records[-1][0] is not None
            and re.match(r"\s|[A-Za-z_.]+Error|Trace|$", line)
        ):
            records[-1][1].append(line)
        else:
            records.append((None, [line]))
    for _ in range(3):
        for i in range(len(records) - 1):
            (one, _), (other, _) = records[i : i + 2]
            if one is not None and other is not None and one != other and dice.random() < 0.5:
                records[i : i + 2] = records[i + 1 : i - 1 if i else None : -1]
    return "".join(line for _, lines in records for line in lines)


def cut_after_the_cause(log: str, dice: random.Random, cause: str) -> str:
    """The log as it was at some moment after the cause was printed."""
    start = log.find("\n", log.index(cause[:60]))
    ends = [match.end() for match in re.finditer(r"\n", log[start:])]
    return log[: start + dice.choice(ends)]


def last_lines(log: str, dice: random.Random, cause: str) -> str:
    """The last 200 lines of a server that was busy for long before it died."""
    at = log.rfind("\n[", 0, log.index(cause[:60])) + 1
    busy = [line for line in log[:at].splitlines(keepends=True) if "batch" in line]
    padded = log[:at] + "".join(dice.choice(busy) for _ in range(300) if busy) + log[at:]
    return "".join(padded.splitlines(keepends=True)[-200:])


def mutants(name: str, seed: int) -> Iterator[tuple[str, str]]:
    dice, log, cause = random.Random(seed), CAUGHT[name], LABELS[name]["cause"]
    yield "renamed", renamed(log, dice)
    yield "resized", resized(log, dice)
    yield "shuffled", shuffled(log, dice)
    if cause[:60] in log:
        yield "cut", cut_after_the_cause(log, dice, cause)
        yield "last lines", last_lines(log, dice, cause)
    both = shuffled(renamed(log, dice), dice)
    yield "all", cut_after_the_cause(both, dice, cause) if cause[:60] in both else both


def test_mutated_logs_keep_class_and_action() -> None:
    kept: list[bool] = []
    lost: list[tuple[str, str, str | None]] = []
    for name in FAILED:
        for seed in range(3):
            for how, log in mutants(name, seed):
                failure = explain(name, log)
                found = (failure.kind, failure.action) if failure else (None, None)
                kept.append(found == (LABELS[name]["kind"], LABELS[name]["action"]))
                if not kept[-1]:
                    lost.append((name, how, found[0]))
    assert sum(kept) / len(kept) >= 0.95, lost


def test_ten_megabytes_take_about_as_long_as_reading_them_a_few_times() -> None:
    line = (
        "[2026-02-03 21:25:48 TP0] Decode batch, #running-req: 12, token usage: 0.11, gen: 351.12\n"
    )
    other = "DEBUG 02-03 21:25:48 [core.py:11] step took 12 ms for 12 requests of rank 0 and more\n"
    log = CAUGHT["written/sglang-oom-in-serving"]
    at = log.index("[2026", log.index("ready to roll"))
    big = log[:at] + (line + other) * (10_000_000 // len(line + other)) + log[at:]
    begun = process_time()
    for _ in range(6):
        re.sub(r"\d+", "", big)
    allowance_s = process_time() - begun
    begun = process_time()
    failure = classify(big, engine="sglang")
    assert failure is not None
    assert failure.kind == "oom_runtime"
    assert process_time() - begun < allowance_s


def test_a_flood_of_errors_is_read_in_bounded_time() -> None:
    log = prelude("sglang", "serving")
    flood = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: no\n'
    begun = process_time()
    classify(log + flood * 40_000, engine="sglang", exit_code=1)
    assert process_time() - begun < 20.0


@pytest.mark.parametrize(
    "name",
    [n for n in FAILED if LABELS[n].get("exit_code") == -9 and n not in SILENT],
)
def test_the_alarm_rings_with_the_first_line_of_a_dying_sglang(name: str) -> None:
    log = CAUGHT[name]
    alarm = fatal_line(log)
    assert alarm is not None
    assert log.index(alarm) < len(log)
    seen = 0
    for end in [match.end() for match in re.finditer(r"\n", log)]:
        if fatal_line(log[seen:end]):
            break
        seen = end
    assert log[seen:].startswith(log[log.rindex("\n", 0, log.index(alarm)) + 1 :])


def test_the_alarm_is_silent_for_a_soft_watchdog_and_quoted_errors() -> None:
    assert (
        fatal_line("Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=True)\n")
        is None
    )
    assert fatal_line("error: unrecognized\nhit an exception of the rules\n") is None


def test_a_healthy_log_of_a_server_that_exited_is_a_failure_by_its_exit() -> None:
    log = prelude("sglang", "serving")
    killed = classify(log, engine="sglang", exit_code=-9)
    assert killed is not None
    assert (killed.kind, killed.action, killed.phase) == ("kernel_fault", "once", "serving")
    assert "without saying why" in killed.cause
    faulted = classify(log, engine="sglang", exit_code=-11)
    assert faulted is not None
    assert faulted.kind == "kernel_fault"
    zero = classify(log, engine="sglang", exit_code=0)
    assert zero is not None
    early = classify(prelude("sglang", "loading"), engine="vllm", exit_code=-9)
    assert early is not None
    assert early.kind == "host_oom"
    absent = classify("", engine="vllm", exit_code=127)
    assert absent is not None
    assert (absent.kind, absent.action) == ("package_env", "stop-study")


WORKER = "ERROR 12-01 11:00:00 [core.py:1] Worker proc W-0 died unexpectedly (exit code: {}).\n"


@pytest.mark.parametrize("stage", ["starting", "serving"])
@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("", -4),
        ("", 132),
        (WORKER.format(-4), 1),
        ("RuntimeError: Engine core failed. Failed core proc(s): {'EngineCore_DP0': -4}\n", 1),
        ("Fatal Python error: Illegal instruction\n", 132),
    ],
)
def test_a_cpu_that_refuses_an_instruction_is_named(stage: str, said: str, code: int) -> None:
    flags: dict[str, Value] = {"dtype": "bfloat16", "attention-backend": "x"}
    log = prelude("vllm", stage) + said
    failure = classify(log, engine="vllm", exit_code=code, flags=flags)
    assert failure is not None
    assert (failure.kind, failure.blame) == ("kernel_fault", [])
    assert failure.advice.startswith("Illegal instruction: ")
    assert "--dtype float32" in failure.advice
    assert "nvidia-smi" not in failure.advice


@pytest.mark.parametrize("stage", ["starting", "serving"])
def test_another_signal_is_no_illegal_instruction_and_needs_no_gpu(stage: str) -> None:
    log = prelude("vllm", stage) + WORKER.format(-11)
    failure = classify(log, engine="vllm", exit_code=1)
    assert failure is not None
    assert "died of a signal" in failure.advice
    assert "nvidia-smi" not in failure.advice


def test_a_server_that_was_told_to_stop_did_not_fail() -> None:
    log = CAUGHT["written/sglang-healthy"]
    assert classify(log, engine="sglang", exit_code=0) is None
    assert classify(prelude("sglang", "serving"), engine="sglang", exit_code=-15) is None


def test_noise_that_became_the_last_word_is_the_probable_cause() -> None:
    skip = next(entry["text"] for entry in QUIET if entry["noise"] == "skipped tactic")
    log = prelude("sglang", "serving") + skip
    assert classify(log, engine="sglang") is None
    failure = classify(log, engine="sglang", exit_code=-9, flags={"ep-size": 8, "tp-size": 8})
    assert failure is not None
    assert failure.kind == "arch_unsupported"
    assert "grouped gemm" in failure.cause
    assert failure.blame == ["ep-size"]


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
@pytest.mark.parametrize("code", [-9, 137])
def test_a_server_killed_while_it_served_is_tried_once_more(engine: str, code: int) -> None:
    handled = "Traceback (most recent call last):\nValueError: a request without a prompt\n"
    answered = 'INFO:     127.0.0.1:1 - "POST /v1/completions HTTP/1.1" 200 OK\n'
    for log in ("", handled + answered):
        failure = classify(
            prelude(engine, "serving") + log,
            engine=engine,
            exit_code=code,
            flags={"page-size": 64},
            nearest={},
        )
        assert failure is not None
        assert (failure.action, failure.phase, failure.blame) == ("once", "serving", [])
        assert "without saying why" in failure.cause
        assert "OOM killer" in failure.advice
        assert "dmesg" in failure.advice


def test_noise_that_a_server_lived_through_explains_no_later_death() -> None:
    skip = next(entry["text"] for entry in QUIET if entry["noise"] == "skipped tactic")
    ready = prelude("sglang", "ready")
    batch = "[2026-02-03 21:14:26 TP0] Decode batch, #running-req: 8, token usage: 0.10\n"
    before = prelude("sglang", "captured") + skip + ready.splitlines(keepends=True)[-1]
    for log in (before, before + batch, ready + batch + skip + batch):
        failure = classify(log, engine="sglang", exit_code=-9, flags={"ep-size": 8})
        assert failure is not None
        assert (failure.kind, failure.action) == ("kernel_fault", "once")
        assert failure.blame == []
    announced = ready + batch + skip + batch + "[x] SIGQUIT received. signum=3, frame=None.\n"
    died = classify(announced, engine="sglang", exit_code=-9, flags={"ep-size": 8})
    assert died is not None
    assert (died.kind, died.blame) == ("arch_unsupported", ["ep-size"])


def test_an_error_that_a_server_lived_through_explains_no_later_kill() -> None:
    error = "[TensorRT-LLM][ERROR] Assertion failed: no such tile\n"
    answered = 'INFO:     127.0.0.1:1 - "POST /v1/completions HTTP/1.1" 200 OK\n'
    log = prelude("sglang", "serving") + error
    last = classify(log, engine="sglang", exit_code=-9)
    assert last is not None
    assert last.kind == "kernel_assert"
    outlived = classify(log + answered, engine="sglang", exit_code=-9)
    assert outlived is not None
    assert outlived.kind == "kernel_fault"
    announced = log + answered + "[x] SIGQUIT received. signum=3, frame=None.\n"
    died = classify(announced, engine="sglang", exit_code=-9)
    assert died is not None
    assert died.kind == "kernel_assert"


def test_noise_long_before_the_death_explains_nothing() -> None:
    skip = next(entry["text"] for entry in QUIET if entry["noise"] == "skipped tactic")
    busy = "".join(f"DEBUG 02-03 21:25:48 [core.py:11] step {i}\n" for i in range(200))
    log = prelude("sglang", "serving") + skip + busy
    failure = classify(log, engine="sglang", exit_code=-9)
    assert failure is not None
    assert failure.kind == "kernel_fault"
    assert "grouped gemm" not in failure.cause


def test_the_stage_tells_look_alike_memory_errors_apart() -> None:
    error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.\n"
    kinds = [
        failure.kind
        for stage in ("loading", "loaded", "capturing", "serving")
        if (failure := classify(prelude("sglang", stage) + error, engine="sglang"))
    ]
    assert kinds == ["oom_load", "oom_profile", "oom_graph", "oom_runtime"]


def test_the_callers_phase_decides_where_the_log_lost_its_marks() -> None:
    error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.\n"
    loading = classify(error, engine="sglang", phase="loading")
    serving = classify(error, engine="sglang", phase="serving")
    assert loading is not None
    assert serving is not None
    assert (loading.kind, serving.kind) == ("oom_load", "oom_runtime")


def test_an_error_that_the_server_survived_is_not_its_death() -> None:
    start = prelude("sglang", "loaded")
    ready = CAUGHT["written/sglang-healthy"][len(start) :]
    survived = start + "ImportError: No module named 'fancy'\n" + ready
    assert classify(survived, engine="sglang") is None
    refused = prelude("sglang", "serving")
    refused += (
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: bad request\n'
    )
    assert classify(refused, engine="sglang") is None


def test_what_is_wrong_with_a_request_is_no_failure_of_the_launch() -> None:
    refused = prelude("vllm", "ready") + (
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for Request\n"
        "max_tokens\n"
        "  Input should be a valid integer [type=int_parsing, input_value='many', input_type=str]\n"
        "ValueError: No adapter found for ghost\n"
    )
    assert classify(refused, engine="vllm") is None


def test_a_method_that_failed_in_a_worker_is_no_death() -> None:
    failed = prelude("vllm", "ready") + (
        "(Worker pid=9) ERROR 12-01 10:54:13 [x.py:9] WorkerProc hit an exception.\n"
        "(Worker pid=9) ERROR 12-01 10:54:13 [x.py:9] Traceback (most recent call last):\n"
        "(Worker pid=9) ERROR 12-01 10:54:13 [x.py:9] ValueError: No adapter found for ghost\n"
    )
    assert classify(failed, engine="vllm") is None
    died = classify(failed + "EngineCore encountered a fatal error.\n", engine="vllm")
    assert died is not None


def test_blame_prefers_names_in_the_text_then_what_is_new() -> None:
    log = prelude("sglang", "loading") + "TypeError: cannot unpack non-iterable NoneType object\n"
    flags = {"tp-size": 8, "enable-single-batch-overlap": True, "page-size": None}
    failure = classify(log, engine="sglang", flags=flags, nearest={"tp-size": 8})
    assert failure is not None
    assert failure.blame == ["enable-single-batch-overlap"]
    log = prelude("sglang", "loading") + "AssertionError: 129280 is not divisible by 24\n"
    failure = classify(log, engine="sglang", flags={"tp-size": 24, "ep-size": 8})
    assert failure is not None
    assert failure.blame == ["tp-size"]


def test_what_the_log_says_it_was_launched_with_stands_in_for_flags() -> None:
    failure = classify(CAUGHT["written/sglang-ep8-dies-at-256"], engine="sglang", exit_code=-9)
    assert failure is not None
    assert failure.blame == ["ep-size", "moe-a2a-backend"]


def test_a_wait_in_vain_is_classed_by_how_far_the_server_came() -> None:
    rendezvous = gave_up(prelude("sglang", "starting"), engine="sglang", waited_s=600)
    assert (rendezvous.kind, rendezvous.action) == ("never_ready", "stop-study")
    assert "600 s" in rendezvous.cause
    loading = gave_up(prelude("sglang", "loading"), engine="sglang")
    assert (loading.kind, loading.action, loading.phase) == ("never_ready", "once", "loading")
    hung = prelude("sglang", "capturing") + "[x TP0] Registering 0 cuda graph addresses\n"
    assert gave_up(hung, engine="sglang").kind == "masked_hang"
    assert gave_up(prelude("sglang", "serving"), engine="sglang").kind == "engine_stall"
    heard = gave_up(
        "Starting\n", engine="vllm", waited_s=30, heard="GET http://h/health: status 500"
    )
    assert heard.kind == "never_ready"
    assert heard.cause == (
        "listens, and is not ready after 30 s: GET http://h/health: status 500; last line: Starting"
    )
    silent = gave_up("", engine="vllm", phase="starting")
    assert (silent.kind, silent.cause) == ("never_ready", "no output")
    said = gave_up(CAUGHT["written/sglang-watchdog"], engine="sglang")
    assert said.kind == "watchdog_timeout"


def test_a_verdict_takes_action_and_advice_from_its_class() -> None:
    failure = verdict("wrong_output", "token 0 over and over", engine="sglang", phase="serving")
    assert failure.action == "never"
    assert failure.advice == CLASSES["wrong_output"].advice


def test_advice_names_the_flags_of_the_engine() -> None:
    def advice(engine: str) -> str:
        return verdict("oom_graph", "x", engine=engine, phase="capturing").advice

    assert "--mem-fraction-static" in advice("sglang")
    assert "--gpu-memory-utilization" in advice("vllm")
    assert "{" not in "".join(verdict(k, "x", engine="vllm", phase="ready").advice for k in CLASSES)


@pytest.mark.parametrize(
    ("stage", "phase"),
    [
        ("nothing", "starting"),
        ("starting", "starting"),
        ("loading", "loading"),
        ("loaded", "loading"),
        ("capturing", "capturing"),
        ("captured", "capturing"),
        ("ready", "ready"),
        ("serving", "serving"),
    ],
)
def test_the_phase_is_the_furthest_mark(stage: str, phase: str) -> None:
    assert phase_of(prelude("sglang", stage), "sglang") == phase


def test_a_server_that_was_told_to_stop_is_stopping() -> None:
    assert phase_of(CAUGHT["written/sglang-healthy"], "sglang") == "stopping"


def test_tiers_put_causes_before_those_who_report_them() -> None:
    assert Tier.HARDWARE < Tier.LOCAL < Tier.FAULT < Tier.PEER < Tier.WATCHDOG < Tier.CLIENT
