"""The instrument alone, against servers whose every answer is known, and against a rehearsal."""

import asyncio
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import ROOT, TUNER
from tests.rehearsed import serving
from tuner import cli
from tuner.definitions.models import Objective, Rung
from tuner.engines.base import EngineFacts
from tuner.hosts import processes
from tuner.load import Played, Target
from tuner.measuring import client_rules, window_rules
from tuner.measuring.machine import MachineUse
from tuner.measuring.observed import Doubt
from tuner.observers.observer import Seen, Subject
from tuner.verbs import measure
from tuner.verbs.neighbours import subject_of
from tuner.verbs.servers import Found
from tuner.views.words import PER_USER

OBJECTIVE = """\
ladder: [{concurrency: 1}, {concurrency: 4}]
input_tokens: 16
output_tokens: 8
warmup_s: 0.2
window_s: 1
"""
PATIENCE_S = 60
NOTHING_SEEN = Seen(machine=MachineUse(), load=None)


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server whose every answer is known."""
    port_file = tmp_path_factory.mktemp("truth") / "port"
    command = [sys.executable, "-m", "tests.truth_server", str(port_file)]
    with subprocess.Popen(command, cwd=ROOT) as process:
        while not (port_file.exists() and port_file.read_text()):
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port_file.read_text()}"
        process.kill()


@pytest.fixture
def objective(tmp_path):
    path = tmp_path / "objective.yaml"
    path.write_text(OBJECTIVE)
    return path


@pytest.fixture
def patient(monkeypatch):
    """Limits that a machine with other work keeps: what is tested is not the machine."""
    for name in ("LATE_SHARE", "CPU_SHARE", "BUSY_SHARE", "WAIT_SHARE", "HINDERED_SHARE"):
        monkeypatch.setattr(client_rules, name, 9)
    monkeypatch.setattr(client_rules, "REACHED_SHARE", 0)
    monkeypatch.setattr(window_rules, "DRIFT_SHARE", 9)


@pytest.fixture
def typed(monkeypatch, capfd):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*words: object) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["tuner", "measure", *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        captured = capfd.readouterr()
        return stopped.value.code, captured.out, captured.err

    return run


def test_a_page_says_what_was_measured_and_that_it_may_be_believed(
    truth, objective, typed, patient
):
    url = f"{truth}/ttft_ms=5"
    code, out, err = typed(url, "--objective", objective)
    assert code == 0, out
    said = out.splitlines()
    assert said[:2] == [
        f"{url}: an unnamed engine, m, completions",
        "16 tokens in, 8 out, prompts never seen before; 0.2 s of warm-up, a window of 1 s",
    ]
    rows = [line.split("  ")[0].strip() for line in said[2:15]]
    assert rows == [
        *("streams", "output tok/s", "total tok/s", "tok/s a user"),
        *("TTFT ms p50 / p99", "TPOT ms p50 / p99", "ITL ms p50 / p99", "E2E ms p50 / p99"),
        *("running / queued", "requests", "errors"),
        *("instrument lag ms p50 / p99", "client's core"),
    ]
    assert said[2].split() == ["streams", "1", "4"]
    rest = said[15 : said.index(PER_USER)]
    assert any(line.startswith(" host's cores busy ") for line in rest)
    assert said[-1] == "VALID"
    progress = err.splitlines()
    assert progress[0] == f"{url}: m, completions; streams 1, 4; about 2 s"
    assert [line.split(":")[0] for line in progress[1:]] == ["at 1", "at 4"]


def test_json_is_one_document_with_every_number(truth, objective, typed, patient):
    url = f"{truth}/ttft_ms=5,owner=vllm"
    code, out, _ = typed(url, "--objective", objective, "--json")
    found = json.loads(out)
    assert (code, found["schema_number"], found["valid"], found["reasons"]) == (0, 1, True, [])
    assert (found["url"], found["model"], found["api"]) == (url, "m", "completions")
    assert (found["engine"], found["version"], found["rehearsal"]) == ("vllm", None, False)
    assert [rung["measurement"]["concurrency"] for rung in found["rungs"]] == [1, 4]
    for rung in found["rungs"]:
        measured, seen = rung["measurement"], rung["observed"]
        assert measured["requests_failed"] == 0
        assert measured["ttft_ms"]["count"] > 1
        assert seen["in_flight"] > 0
        assert seen["short"] == 0
        assert 0 < seen["cpu_share"] < 1.5
        assert len(seen["slice_tok_s"]) == 10


def test_no_prompt_of_one_measurement_is_asked_again_in_the_next(truth, objective, typed):
    seeds = [
        json.loads(typed(f"{truth}/ttft_ms=1", "--objective", objective, "--json")[1])[
            "prompt_seed"
        ]
        for _ in range(2)
    ]
    assert seeds[0] != seeds[1]


def test_an_slo_that_the_window_cannot_show_makes_it_invalid(truth, objective, typed, patient):
    """Though it is prolonged to four times what was asked for."""
    short = OBJECTIVE.replace("window_s: 1", "window_s: 0.25")
    objective.write_text(short + "slos: [ttft_ms p99 <= 1000]\n")
    code, out, _ = typed(f"{truth}/ttft_ms=200", "--objective", objective)
    assert code == 5
    said = out.splitlines()
    first, second = said[said.index("INVALID") + 1 :]
    assert [line for line in said if line.startswith("note: at ")] == [
        f"note: at {level}: measured twice, the first attempt was void (percentiles)"
        for level in (1, 4)
    ]
    assert first.startswith("  at 1: ttft_ms p99 is of ")
    assert second.endswith(
        " values, an SLO on it needs 100. Raise window_s in the objective, or set the SLO on a "
        "lower percentile."
    )
    assert "breaks" not in out


def test_where_goodput_is_scored_a_limit_counts_requests_and_asks_for_no_percentile(
    truth, objective, typed, patient
):
    objective.write_text(OBJECTIVE + "score: goodput\nslos: [ttft_ms p99 <= 1000]\n")
    code, out, _ = typed(f"{truth}/ttft_ms=100", "--objective", objective, "--json")
    found = json.loads(out)
    assert (code, found["reasons"]) == (0, [])
    for rung in found["rungs"]:
        assert rung["measurement"]["requests_completed"] < 100
        assert rung["measurement"]["goodput_rps"] > 0
        assert [doubt["voids"] for doubt in rung["doubts"] if doubt["rule"] == "percentiles"] in (
            [],
            [False],
        )


def course_of(url: str, objective: Objective, **more: Any) -> measure._Course:
    return measure._Course(
        server=server_at(url), objective=objective, lengths=((16, 8),), trace=None, prompt_seed=1,
        gpus=1, **more,
    )  # fmt: skip


def server_at(url: str) -> Found:
    target = Target(base_url=url, api="completions", model="m", key="sk-1")
    return Found(
        target=target, engine=None, facts=EngineFacts(), rehearsal=False, recorded=True,
        longest=None, asked=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("here", "idle", "first", "second"),
    [
        *((True, 0.0, 1, 1), (True, 0.8, 1, 1), (True, 2.4, 1, 3), (True, 9.0, 1, 4)),
        *((False, 0.0, 4, 1), (False, 2.4, 4, 3)),
    ],
)
def test_a_second_process_of_the_client_takes_no_core_from_a_server(here, idle, first, second):
    ladder = [Rung(concurrency=2000), Rung(concurrency=2048)]
    asked = Objective(ladder=ladder, input_tokens=16, output_tokens=8)
    course = course_of("http://127.0.0.1:1", asked, client_idle_cores=idle)
    assert measure._plan(course, 0, here=here).processes == first
    played = Played(timings=(), start_s=0.0, end_s=1.0)
    course.rungs.append(measure._judged(course, ladder[0], played, NOTHING_SEEN))
    assert measure._plan(course, 1, here=here).processes == second


@pytest.mark.parametrize("here", [True, False])
def test_the_cores_of_the_client_are_seen_wherever_the_server_is(here):
    async def seen() -> tuple[Seen, MachineUse]:
        with measure._observing(Subject(here=here)) as observers:
            await observers.seen(0.0, 0.0)  # once both look
            since_s = time.perf_counter()
            await asyncio.sleep(0.1)
            return await observers.seen(since_s, time.perf_counter())

    of_server, client = asyncio.run(seen())
    assert client.host_cpu_share is not None
    assert (of_server.machine.host_cpu_share is not None) == here


@pytest.mark.parametrize("void", [True, False])
def test_a_rung_that_is_worth_nothing_breaks_no_limit(monkeypatch, void):
    found = [Doubt.of("drift", "1", 0.5, 0.05, "it drifted", "Wait.", voids=void)]
    monkeypatch.setattr(measure, "doubts", lambda *_: found)
    rung = Rung(concurrency=1)
    asked = Objective(ladder=[rung], input_tokens=16, output_tokens=8, slos=["output_tok_s >= 5"])
    course = course_of("http://127.0.0.1:1", asked)
    judged = measure._judged(course, rung, Played(timings=(), start_s=0, end_s=1), NOTHING_SEEN)
    assert judged.breaches == ([] if void else ["output_tok_s >= 5 at 1: found 0"])


@pytest.mark.parametrize("fault", ["503", "reset"])
def test_a_server_that_fails_under_load_is_measured_invalid(
    truth, objective, typed, patient, fault, monkeypatch
):
    """What is asked first comes to its end, four tokens early."""
    how = "fault=reset,at=5" if fault == "reset" else "refuse=2"
    code, out, _ = typed(f"{truth}/ttft_ms=1,{how}", "--objective", objective, "--json")
    found = json.loads(out)
    assert (code, found["valid"]) == (5, False)
    assert " requests failed (100.0%, at most 1% may), the first with: " in found["reasons"][0]
    assert found["not_played"] == ["4"]
    assert found["ended"] == "every request failed"
    assert found["reasons"][-1] == "every request failed, so 4 was not played"


def test_a_server_that_answers_short_is_measured_invalid(truth, objective, typed, patient):
    code, out, _ = typed(f"{truth}/ttft_ms=1,cap=6", "--objective", objective, "--json")
    reasons = json.loads(out)["reasons"]
    assert code == 5
    assert reasons[0].startswith("at 1: ")
    assert "answers were shorter than asked (" in reasons[0]


def test_a_rehearsal_is_labelled_and_its_engine_is_asked(tmp_path, objective, typed, patient):
    with serving(tmp_path, "--enable-metrics") as engine:
        url = f"http://127.0.0.1:{engine.port}"
        code, out, _ = typed(url, "--objective", objective)
        assert code == 0, out
        assert out.startswith("REHEARSAL: numbers in real time")
        assert ": sglang 0.5.9 (rehearsal), toy, generate\n" in out
        (loads,) = [line for line in out.splitlines() if "running / queued" in line]
        assert re.search(r"\d / \d", loads)  # a look a second: a short window may have none


def test_the_first_way_of_asking_that_brings_tokens_is_taken(truth, objective, typed):
    for how, api in (
        ("only=generate", "generate"),
        ("only=completions,owner=sglang", "completions"),
    ):
        url = f"{truth}/ttft_ms=1,{how}"
        code, out, _ = typed(url, "--objective", objective, "--json")
        assert code in (0, 5)
        assert json.loads(out)["api"] == api
    code, out, err = typed(f"{truth}/ttft_ms=1,only=generate", "--api", "completions")
    assert (code, out) == (1, "")
    assert "generates nothing; /v1/completions: status 404" in err


def test_an_objective_says_how_to_ask_and_the_option_has_the_last_word(truth, objective, typed):
    objective.write_text(OBJECTIVE.replace("input_tokens: 16", "api: chat\ninput_tokens: 45"))
    url = f"{truth}/ttft_ms=1"
    found = json.loads(typed(url, "--objective", objective, "--json")[1])
    assert found["api"] == found["workload"]["api"] == "chat"
    assert [rung["measurement"]["requests_failed"] for rung in found["rungs"]] == [0, 0]
    asked = ("--objective", objective, "--json", "--api", "generate")
    assert json.loads(typed(url, *asked)[1])["workload"]["api"] == "generate"


def test_a_key_comes_from_a_variable_and_is_shown_nowhere(truth, objective, typed, monkeypatch):
    url = f"{truth}/ttft_ms=1,key=sk-secret"
    monkeypatch.setenv("SERVER_KEY", "sk-secret")
    for words in ((), ("--json",)):
        code, out, err = typed(
            url.replace("127.0.0.1", "localhost"),
            *("--objective", objective, "--api-key-env", "SERVER_KEY", *words),
        )
        assert code in (0, 5), err
        assert "sk-secret" not in (out + err).replace("key=sk-secret", "")
    monkeypatch.setenv("SERVER_KEY", "sk-other")
    for more in ([], ["--api-key-env", "SERVER_KEY"]):
        assert typed(url, *more) == (
            *(1, ""),
            f"tuner: {url} asks for an API key, or refuses the one given (status 401)\n"
            "  Put the key into a variable and name that: --api-key-env NAME.\n",
        )


def test_what_cannot_be_measured_is_one_message_and_exit_1(truth, typed, monkeypatch, tmp_path):
    monkeypatch.setenv("SPACED_KEY", "two words")
    monkeypatch.delenv("NO_KEY", raising=False)
    long = tmp_path / "long.yaml"
    long.write_text(OBJECTIVE.replace("input_tokens: 16", "input_tokens: 5000"))
    typo = tmp_path / "typo.yaml"
    typo.write_text(OBJECTIVE.replace("window_s", "windows_s"))
    home = "http://127.0.0.1:1"
    plain = "  Give it as http://HOST:PORT.\n"
    alone = "expected the server's address alone"
    program = "  Is it an LLM server? Another program may listen there.\n"
    said = {
        ("127.0.0.1:30000",): "127.0.0.1:30000 is not the address of a server\n"
        "  Give it as http://127.0.0.1:30000.\n",
        ("localhost:30000",): "localhost:30000 is not the address of a server\n"
        "  Give it as http://localhost:30000.\n",
        ("",): f"an empty text is not the address of a server\n{plain}",
        ("ftp://host",): f"ftp://host is not the address of a server\n{plain}",
        ("http://[::1",): f"(a URL that cannot be read) is not the address of a server\n{plain}",
        (
            "http://me:secret@127.0.0.1:1",
        ): f"{home}: a user name or password in the address is not supported\n"
        "  Put the server's API key into a variable: --api-key-env NAME.\n",
        (f"{home}/v1/completions",): f"{home}/v1/completions: found a path of an API, {alone}\n"
        f"  Give it as {home}.\n",
        (f"{home}/?key=secret",): f"{home}/: found a query, expected an address alone\n"
        f"  Give it as {home}.\n",
        (home,): f"GET {home}/v1/models: Connection refused\n"
        f"  Is the server up, and reachable from here? curl {home}/v1/models\n",
        (f"{home}/v1",): f"GET {home}/v1/models: Connection refused\n"
        f"  Is the server up, and reachable from here? curl {home}/v1/models\n",
        (f"{truth}/models=html",): f"GET {truth}/models=html/v1/models: expected JSON, found "
        f"'<html>nginx</html>'\n{program}",
        (f"{truth}/models=text",): f"GET {truth}/models=text/v1/models: expected a list of models, "
        f"found hello\n{program}",
        (f"{truth}/models=none",): f"GET {truth}/models=none/v1/models: status 404, "
        '\'{"detail": "Not Found"}\'\n  Is it an LLM server? One without a list of models needs '
        "--model, or --api generate.\n",
        (
            f"{truth}/x=1",
            "--model",
            "mm",
        ): "the server has no model 'mm' (did you mean 'm'?)\n  It serves: m.\n",
        (f"{truth}/fault=503",): f"{truth}/fault=503 generates nothing; /v1/completions: status "
        '503: \'{"error": "refused"}\'; /v1/chat/completions: status 503: \'{"error": "refused"}\''
        "; "
        '/generate: status 503: \'{"error": "refused"}\'\n'
        "  Is its model loaded, and a model that generates? Its log says more: tuner explain.\n",
        (f"{truth}/x=1", "--objective", "none.yaml"): "none.yaml: no such file\n",
        (f"{truth}/x=1", "--objective", str(long)): "5008 tokens a request are asked (5000 in, 8 "
        "out), and the server takes at most 4096\n"
        "  Ask for fewer: --input-tokens, --output-tokens, or another objective.\n",
        (home, "--api-key-env", "NO_KEY"): "--api-key-env: the variable NO_KEY is not set\n"
        "  Set it first: export NO_KEY=...\n",
        (home, "--api-key-env", "SPACED_KEY"): "--api-key-env: what SPACED_KEY holds is no key: it "
        "has spaces or other characters that no header can carry\n",
    }
    for words, text in said.items():
        assert typed(*words) == (1, "", f"tuner: {text}"), words
    code, out, err = typed(home, "--objective", typo)
    assert (code, out) == (1, "")
    assert "typo.yaml:5:1: unknown key 'windows_s' (did you mean 'window_s'?)" in err


def test_more_streams_than_files_may_be_open_are_refused(typed, objective, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 64))
    assert typed("http://127.0.0.1:1", "--objective", objective) == (
        *(1, ""),
        "tuner: 4 streams need 68 open files, and 64 are allowed\n"
        "  Raise the hard limit: ulimit -Hn 8 (in docker: --ulimit nofile=...).\n",
    )


def test_options_stand_above_the_objective_and_need_none(truth, objective, typed, patient):
    url = f"{truth}/ttft_ms=1"
    quick = ("--input-tokens", 12, "--output-tokens", 6, "--window", 0.4, "--json")
    code, out, _ = typed(url, "--objective", objective, "--concurrency", "2,3", *quick)
    found = json.loads(out)
    assert code == 0, found["reasons"]
    assert [rung["measurement"]["concurrency"] for rung in found["rungs"]] == [2, 3]
    assert (found["input_tokens"], found["output_tokens"], found["window_s"]) == (12, 6, 0.4)
    assert found["warmup_s"] == 0.2
    code, out, _ = typed(url, "--objective", objective, "--request-rate", "20", *quick)
    found = json.loads(out)
    assert [rung["measurement"]["request_rate"] for rung in found["rungs"]] == [20]


def test_options_that_contradict_are_one_message_and_exit_1(typed, objective, tmp_path):
    (tmp_path / "trace.jsonl").write_text('{"input_tokens": 3, "output_tokens": 4}\n')
    trace = tmp_path / "of_trace.yaml"
    trace.write_text("ladder: [{concurrency: 1}]\ntrace: trace.jsonl\n")
    for words, said in {
        ("--concurrency", "1", "--request-rate", "2"): "tuner: --concurrency and --request-rate: a "
        "ladder is of one kind\n  Measure twice, once with each.\n",
        ("--concurrency", "4,4"): "tuner: 4 comes twice in the ladder\n  Name each once.\n",
        ("--objective", trace, "--input-tokens", "9"): "tuner: --input-tokens: the objective plays "
        "trace.jsonl, which has lengths of its own\n  Leave one out.\n",
    }.items():
        assert typed("http://127.0.0.1:1", *words) == (1, "", said)


def test_a_void_rung_is_measured_once_more_and_both_are_told(
    truth, objective, typed, patient, monkeypatch
):
    asked: list[str] = []

    def void_at_first(measured, seen, slos):
        asked.append(measured.said)
        void = [Doubt.of("drift", measured.said, 0.5, 0.05, "it drifted", "Wait.")]
        return void if len(asked) == 1 else []

    monkeypatch.setattr(measure, "doubts", void_at_first)
    code, out, err = typed(f"{truth}/ttft_ms=1", "--objective", objective, "--json")
    found = json.loads(out)
    assert (code, asked, found["reasons"]) == (0, ["1", "1", "4"], [])
    assert [rung["first"] is None for rung in found["rungs"]] == [False, True]
    assert found["rungs"][0]["first"]["doubts"][0]["rule"] == "drift"
    assert "at 1: measured twice, the first attempt was void (drift)" in found["notes"]
    said = [line.partition(":")[2] for line in err.splitlines() if line.startswith("at 1: ")]
    assert said[0].endswith(", INVALID (drift)")
    assert said[1] == " measured once more"
    assert len(said) == 3


def test_what_serves_is_found_by_who_listens_with_all_that_began_with_it(truth):
    here = subject_of(server_at(truth))
    assert (here.here, here.gpus, here.names, here.key) == (True, None, None, "sk-1")
    assert os.getpid() in here.roots  # who started the server stands in its group
    assert any("tests.truth_server" in processes.command_line(pid) for pid in here.roots)
    elsewhere = subject_of(server_at("http://192.0.2.1:8000"))
    assert (elsewhere.here, elsewhere.roots) == (False, ())


@pytest.mark.parametrize(
    "words",
    [
        *((), ("u", "--api", "tgi"), ("u", "--gpus", "0"), ("u", "v"), ("u", "--window", "0")),
        *(("u", "--concurrency", "1.5"), ("u", "--request-rate", "0"), ("u", "--concurrency", "x")),
    ],
)
def test_usage_exits_2(typed, words):
    code, out, err = typed(*words)
    assert (code, out) == (2, "")
    assert "Usage: tuner measure" in err


def test_ctrl_c_keeps_what_was_measured_and_exits_130(truth, tmp_path):
    objective = tmp_path / "objective.yaml"
    many = ", ".join(f"{{concurrency: {n}}}" for n in range(4, 24))  # a busy machine hears late
    objective.write_text(OBJECTIVE.replace("{concurrency: 4}", many))
    done = subprocess.Popen(
        [*TUNER, "measure", f"{truth}/ttft_ms=1", "--objective", str(objective), "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1"},
        # a shell's background jobs are born deaf to Ctrl-C, and these tests may be one
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert done.stderr is not None
    for line in done.stderr:
        if line.startswith("at 4: "):  # the one before is whole, measured once more or not
            break
    done.send_signal(signal.SIGINT)
    out, err = done.communicate(timeout=PATIENCE_S)
    assert done.returncode == 130
    assert err.endswith("interrupted; what is above was measured before\n")
    found = json.loads(out)
    assert found["ended"] == "interrupted"
    assert len(found["rungs"]) + len(found["not_played"]) == 21
    assert found["rungs"][0]["measurement"]["requests_completed"] > 0
    assert found["reasons"][-1].startswith("interrupted: ")
    assert found["reasons"][-1].endswith(" and 23 were not played")
