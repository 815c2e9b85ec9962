import pytest

from tuner.failures.log_phases import PHASES, STAGES, Stage, Timeline, is_sglang, phase_of

BEGIN = "[2026-02-03 21:14:12 TP{}] Load weight begin.\n"
END = "[2026-02-03 21:14:13 TP{}] Load weight end.\n"
UVICORN = "INFO:     Application startup complete.\n"
READY = "[2026-02-03 21:14:24] The server is fired up and ready to roll!\n"
BATCH = "[2026-02-03 21:14:26 TP0] Decode batch, #running-req: 8\n"
PROBE = 'INFO:     127.0.0.1:53300 - "GET /health HTTP/1.1" 200 OK\n'


def test_the_stage_at_an_offset_is_the_last_mark_before_it() -> None:
    text = BEGIN.format(0) + END.format(0)
    timeline = Timeline(text, "sglang")
    assert timeline.at(len(BEGIN.format(0)) - 1) is Stage.LOADING
    assert timeline.at(len(text)) is Stage.LOADED


def test_a_rank_is_asked_by_its_own_marks_and_by_everybodys_if_it_left_none() -> None:
    text = BEGIN.format(0) + BEGIN.format(1) + END.format(0)
    timeline = Timeline(text, "sglang")
    assert timeline.at(len(text), 0) is Stage.LOADED
    assert timeline.at(len(text), 1) is Stage.LOADING
    assert timeline.at(len(text), 7) is Stage.LOADED


def test_once_the_server_is_ready_so_is_every_rank() -> None:
    text = BEGIN.format(0) + READY
    assert Timeline(text, "sglang").at(len(text), 0) is Stage.READY


def test_nothing_is_known_before_the_first_mark() -> None:
    timeline = Timeline("hello\n" + BEGIN.format(0), "sglang")
    assert timeline.at(0) is None
    assert timeline.reached(0) is Stage.STARTING


def test_the_furthest_stage_is_kept_when_a_slower_rank_speaks_last() -> None:
    text = END.format(0) + BEGIN.format(1)
    timeline = Timeline(text, "sglang")
    assert timeline.at(len(text)) is Stage.LOADING
    assert timeline.reached(len(text)) is Stage.LOADED


def test_a_ready_server_serves_from_the_first_request_on() -> None:
    text = READY + BATCH + "working\n"
    timeline = Timeline(text, "sglang")
    assert timeline.at(len(READY) - 1) is Stage.READY
    assert timeline.at(len(text)) is Stage.SERVING
    assert timeline.served_after(0)
    assert not timeline.served_after(len(text))


def test_a_log_without_marks_that_answers_requests_is_of_a_serving_server() -> None:
    assert phase_of(BATCH + "working\n", "sglang") == "serving"


@pytest.mark.parametrize(
    "idle",
    [
        PROBE,
        PROBE.replace("/health", "/metrics"),
        "INFO 03-05 09:56:09 [loggers.py:9] Avg generation throughput: 0.0 tokens/s\n",
    ],
)
def test_probes_and_idle_reports_are_no_requests(idle: str) -> None:
    text = READY + idle
    timeline = Timeline(text, "sglang")
    assert timeline.at(len(text)) is Stage.READY
    assert not timeline.served_after(0)


def test_what_was_answered_before_readiness_was_only_a_warm_up() -> None:
    text = BATCH + READY
    assert Timeline(text, "sglang").at(len(text)) is Stage.READY
    assert Timeline(text, "sglang").ready_at == len(BATCH)
    assert Timeline(BATCH, "sglang").ready_at == -1


@pytest.mark.parametrize(
    ("engine", "phase"), [("vllm", "ready"), ("sglang", "capturing"), ("rehearsal", "capturing")]
)
def test_the_web_servers_start_is_readiness_for_vllm_alone(engine: str, phase: str) -> None:
    assert phase_of(UVICORN, engine) == phase


def test_an_unknown_engine_is_known_by_its_printed_arguments() -> None:
    assert is_sglang("server_args=ServerArgs(tp_size=2)", "other")
    assert not is_sglang("server_args=ServerArgs(tp_size=2)", "vllm")
    assert not is_sglang(UVICORN, "other")


def test_a_log_that_says_nothing_is_of_a_starting_server() -> None:
    assert phase_of("", "vllm") == "starting"


def test_a_request_to_stop_ends_the_serving() -> None:
    assert phase_of(READY + BATCH + "SIGTERM received, draining\n", "sglang") == "stopping"


def test_every_stage_has_a_phase_and_every_phase_its_first_stage() -> None:
    assert set(PHASES) == set(Stage)
    assert set(STAGES) == set(PHASES.values())
    for phase, stage in STAGES.items():
        assert stage == min(known for known in Stage if PHASES[known] == phase)
