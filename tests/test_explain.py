"""Any log is explained, with the line of its cause and what to do; what is no log is refused."""

import gzip
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT, TUNER
from tuner import cli
from tuner.errors import TunerError
from tuner.failures.rules import CLASSES
from tuner.verbs.explain import HEALTHY, explain, guessed_engine

LOGS = Path(__file__).parent / "logs"
LABELS = yaml.safe_load((LOGS / "labels.yaml").read_text())
NEEDS_FLAGS = ("captured/sglang-log-level-unknown", "captured/sglang-page-size-zero")
"""What a flag was at fault for, where the log does not say what it was."""
EP8 = str(LOGS / "written/sglang-ep8-dies-at-256.log")
NAN = LOGS / "written/sglang-nan.log"
LEAKED = """\
[2026-02-03 21:13:54] server_args=ServerArgs(model_path='m', api_key='sk-abc', tp_size=1)
[2026-02-03 21:13:55] HF_TOKEN=hf_xyz loaded, {'admin_api_key': 'sk-admin', 'tp_size': 1}
usage: sglang serve [-h] [--api-key API_KEY]
sglang serve: error: unrecognized arguments: --api-key sk-abc --enable-pieceswise
"""


@pytest.fixture
def typed(monkeypatch, capsys):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*words: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["tuner", "explain", *words])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        captured = capsys.readouterr()
        return stopped.value.code, captured.out, captured.err

    return run


def test_a_failure_is_said_with_its_cause_and_where_the_log_shows_it(typed):
    code, out, err = typed(EP8, "--engine", "sglang")
    assert (code, err) == (0, "")
    assert out.splitlines()[:6] == [
        "arch_unsupported: Failed to initialize cutlass TMA WS grouped gemm. Error: Error Internal",
        f"  at      {EP8}:186, a log of SGLang, while serving",
        "  blamed  --ep-size, --moe-a2a-backend",
        "  action  never: never launch these flags again as they are",
        "  advice  Take back expert parallelism (or LoRA), or choose a MoE runner whose tiles fit "
        "this GPU's shared memory.",
        "",
    ]
    (marked,) = [line for line in out.splitlines() if line.startswith(">")]
    assert marked.startswith(">    186  2026-02-03 21:16:02,319 - WARNING - autotuner.py:496")
    assert [line[:8] for line in out.splitlines()[6:9]] == ["     183", "     184", "     185"]


def test_json_has_the_keys_that_were_promised(typed):
    code, out, err = typed(EP8, "--json", "--exit-code", "-9")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert set(found) == {
        *("schema_number", "log", "engine", "guessed", "class", "cause", "line", "blame"),
        *("action", "advice", "phase", "exit_code", "context", "cut_off"),
    }
    assert found["class"] == "arch_unsupported"
    assert found["blame"] == ["ep-size", "moe-a2a-backend"]
    assert (found["action"], found["line"], found["exit_code"]) == ("never", 186, -9)
    assert (found["engine"], found["guessed"]) == ("sglang", True)


@pytest.mark.parametrize("name", sorted(LABELS.keys() - set(NEEDS_FLAGS)))
def test_every_log_is_explained_as_it_is_labelled_without_being_told_the_engine(name):
    label = LABELS[name]
    found = explain(
        str(LOGS / f"{name}.log"), exit_code=label.get("exit_code"), phase=label.get("given_phase")
    )
    assert found.kind == (label["kind"] or HEALTHY)
    assert found.engine == label["engine"] or name == "captured/rehearsal-invalid-choice"
    if found.kind == HEALTHY:
        assert (found.cause, found.line, found.action, found.advice) == (None, None, None, None)
        assert found.context
    else:
        assert found.kind in CLASSES
        assert found.line in [line.number for line in found.context]


def test_a_healthy_log_says_so(typed):
    log = str(LOGS / "written/sglang-healthy.log")
    code, out, _ = typed(log, "--engine", "sglang")
    assert code == 0
    assert out.splitlines()[:4] == [
        f"no failure: nothing in {log} explains a death",
        "  it is a log of SGLang, and ends while stopping",
        "  if its server ended by itself, say so with --exit-code N",
        "",
    ]
    found = json.loads(typed(log, "--json")[1])
    assert (found["class"], found["action"], found["blame"]) == ("none", None, [])


def test_a_healthy_log_of_a_server_that_ended_is_no_healthy_one(typed):
    log = str(LOGS / "captured/sglang-h200-healthy.log")
    code, out, _ = typed(log, "--exit-code", "-11")
    assert code == 0
    assert out.startswith("kernel_fault: exited with code -11 without saying why; last line: ")


def test_lines_are_counted_as_an_editor_does(tmp_path):
    """Progress bars return without a new line, and Windows ends lines with two characters."""
    lines = NAN.read_text().splitlines()
    lines.insert(3, "Loading:  0%\rLoading: 50%\rLoading: 100%")
    path = tmp_path / "server.log"
    path.write_bytes("\r\n".join(lines).encode())
    found = explain(str(path))
    assert found.line == 67
    assert "probability tensor" in lines[found.line - 1]
    shown = {line.number: line.text for line in found.context}
    assert shown[67] == lines[66]


def test_of_a_line_that_comes_twice_the_first_that_counts_is_shown(tmp_path):
    lines = NAN.read_text().splitlines()
    path = tmp_path / "server.log"
    path.write_text("\n".join([*lines, *lines[-14:]]))
    assert explain(str(path)).line == explain(str(NAN)).line == 66


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-8-sig"])
def test_packed_piped_and_foreign_encodings_are_read(encoding, tmp_path, monkeypatch):
    text = NAN.read_text().encode(encoding)
    packed = tmp_path / "server.log.gz"
    packed.write_bytes(gzip.compress(text))
    assert explain(str(packed)).line == 66
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    found = explain("-")
    assert (found.kind, found.log) == ("nan", "standard input")


def test_logs_packed_one_after_another_are_one(tmp_path):
    packed = tmp_path / "server.log.gz"
    lines = NAN.read_bytes().splitlines(keepends=True)
    packed.write_bytes(gzip.compress(b"".join(lines[:40])) + gzip.compress(b"".join(lines[40:])))
    assert explain(str(packed)).line == 66


def test_a_packed_log_that_lacks_its_end_is_read_as_far_as_it_goes(tmp_path):
    packed = tmp_path / "server.log.gz"
    noise = "".join(f"[2026-02-03 21:14:54] {os.urandom(20).hex()}\n" for _ in range(3000))
    packed.write_bytes(gzip.compress((NAN.read_text() + noise).encode())[:60_000])
    assert explain(str(packed)).line == 66


def test_secrets_that_a_server_prints_are_not_repeated(tmp_path, typed):
    path = tmp_path / "server.log"
    path.write_text(LEAKED)
    for words in ((), ("--json",)):
        code, out, _ = typed(str(path), *words)
        assert code == 0
        assert "arg_parse" in out
        assert "--enable-pieceswise" in out
        assert "tp_size" in out
        assert not [secret for secret in ("sk-abc", "hf_xyz", "sk-admin") if secret in out]


@pytest.mark.parametrize(
    "line",
    [
        "Decode batch, #running-req: 10, gen throughput (token/s): 38.13, #queue-req: 0",
        "Prefill batch, #new-seq: 1, #new-token: 315, #cached-token: 0, token usage: 0.00",
        "time per output token: 12.5ms, of the pool per token: 3%, #token: 31400/512000.",
        "max_num_batched_tokens=8192, tokenizer='m', hf_overrides={}, sk-learn",
    ],
)
def test_numbers_of_tokens_are_shown(tmp_path, line):
    path = tmp_path / "server.log"
    path.write_text(f"{line}\n")
    assert [shown.text for shown in explain(str(path)).context] == [line]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("token=abc, HF_TOKEN: abc", "token=(hidden), HF_TOKEN: (hidden)"),
        ("{'hf-token': '123'} --hf-token 12ab", "{'hf-token': (hidden)} --hf-token (hidden)"),
        ("token: 1234567890123, password: 4", "token: (hidden), password: (hidden)"),
        (
            "['--api-key', 'ab12'] api_key=['a', 'b'], x",
            "['--api-key', (hidden)] api_key=(hidden), x",
        ),
        ("Authorization: Bearer ab-12.x", "Authorization: Bearer (hidden)"),
        ("proxy http://me:pw12@host:80/ is away", "proxy http://(hidden)@host:80/ is away"),
        (f"Bearer hf_{'aB3' * 11} or sk-{'x-_9' * 6}.", "Bearer (hidden) or (hidden)."),
    ],
)
def test_what_may_be_a_token_itself_is_hidden(tmp_path, line, shown):
    path = tmp_path / "server.log"
    path.write_text(f"{line}\n")
    assert [masked.text for masked in explain(str(path)).context] == [shown]


def test_what_a_terminal_would_obey_is_not_printed(tmp_path, typed):
    path = tmp_path / "server.log"
    path.write_text(LEAKED + "\x1b]0;owned\x07\x1b[2J[bold]x[/bold]\n")
    _, out, _ = typed(str(path))
    assert "\x1b" not in out
    assert "[bold]x[/bold]" in out


def test_bad_input_is_one_message_and_exit_1(tmp_path, typed, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study, trial = tmp_path / "night", tmp_path / "night" / "trials" / "0003"
    trial.mkdir(parents=True)
    (study / "study.yaml").touch()
    (trial / "server.log").write_text("x\n")
    (tmp_path / "empty.log").write_text("\n \n")
    (tmp_path / "picture.log").write_bytes(bytes(range(256)) * 40)
    (tmp_path / "cut.log.gz").write_bytes(gzip.compress(b"x" * 5000)[:10] + b"\xff" * 40)
    (tmp_path / "empty.gz").write_bytes(gzip.compress(b""))
    empty = (
        "Say how the server ended where it printed nothing: its exit code, and the kernel's log "
        "(dmesg -T) for what killed it."
    )
    said = {
        "servr.log": "servr.log: no such file",
        "emty.log": "emty.log: no such file (did you mean 'empty.log'?)",
        ".": ".: a folder, expected the log of a server\n"
        "  Give the file that the server's output went to.",
        "night": "night: a folder, expected the log of a server\n"
        "  Give the log of a trial: night/trials/NNNN/server.log",
        "night/trials/0003": "night/trials/0003: a folder, expected the log of a server\n"
        "  Give the log in it: tuner explain night/trials/0003/server.log",
        "empty.log": f"empty.log: empty\n  {empty}",
        "empty.gz": f"empty.gz: empty\n  {empty}",
        "picture.log": "picture.log: not a text: 61% of its characters are none\n"
        "  Give what the server printed: its standard output and standard error.",
        "empty.log/x": "empty.log/x: cannot be read: Not a directory",
        "x" * 300: f"{'x' * 300}: cannot be read: File name too long",
    }
    for word, text in said.items():
        assert typed(word) == (1, "", f"tuner: {text}\n")
    code, out, err = typed("cut.log.gz")
    assert (code, out) == (1, "")
    assert err.startswith("tuner: cut.log.gz: packed by gzip and damaged: Error -3")


@pytest.mark.parametrize(
    "words",
    [(), ("x", "--engine", "tgi"), ("x", "--exit-code", "nine"), ("x", "--phase", "late")],
)
def test_usage_exits_2(typed, words):
    code, out, err = typed(*words)
    assert (code, out) == (2, "")
    assert "Usage: tuner explain" in err


def test_a_log_that_has_no_end_is_refused(monkeypatch):
    monkeypatch.setattr("tuner.verbs.explain._LIMIT_BYTES", 10_000_000)
    with pytest.raises(TunerError, match=r"/dev/zero: more than 10 MB, expected the log of one"):
        explain("/dev/zero")


def test_ten_megabytes_take_about_as_long_as_ten_times_one(tmp_path):
    """No absolute time: machines differ; what must not be is more than in proportion."""
    lines = NAN.read_text().splitlines(keepends=True)
    filler = "".join(lines[55:65]) + "[2026-02-03 21:14:00 TP0] a line of another kind\n"

    def took_s(megabytes: int) -> float:
        path = tmp_path / f"{megabytes}.log"
        count = megabytes * 1_000_000 // len(filler)
        path.write_text("".join(lines[:60]) + filler * count + "".join(lines[60:]))
        begun = time.process_time()
        assert explain(str(path)).kind == "nan"
        return time.process_time() - begun

    took_s(1)
    assert took_s(10) < 25 * took_s(1)


def test_whose_log_it_is():
    stamped = "(APIServer pid=7) INFO 02-03 21:16:02 [api_server.py:1] "
    assert guessed_engine(f"{stamped}sglang\nsglang\n") == "vllm"
    assert guessed_engine("[2026-02-03 21:16:02 TP0] vllm vllm\n") == "sglang"
    assert guessed_engine('  File "/site-packages/vllm/v1/engine.py", line 1, in f\n') == "vllm"
    assert guessed_engine("ModuleNotFoundError: No module named 'sglang'\n") == "sglang"
    assert guessed_engine("sglang and vllm and vLLM, CUDA out of memory") is None
    assert guessed_engine((ROOT / "README.md").read_text()) is None


SERVED = """INFO:     Uvicorn running on http://0.0.0.0:8000 (Press CTRL+C to quit)
INFO:     127.0.0.1:5000 - "GET /health HTTP/1.1" 200 OK
"""


def test_of_an_engine_that_cannot_be_told_no_end_is_claimed(typed, tmp_path):
    log = tmp_path / "server.log"
    log.write_text(SERVED)
    code, out, _ = typed(str(log))
    assert code == 0
    assert out.splitlines()[:3] == [
        f"no failure: nothing in {log} explains a death",
        "  its engine cannot be told from it: say --engine",
        "  if its server ended by itself, say so with --exit-code N",
    ]
    found = json.loads(typed(str(log), "--json")[1])
    assert (found["engine"], found["guessed"], found["phase"]) == (None, False, None)
    said = "  it is a log of vLLM, and ends while "
    assert said in typed(str(log), "--engine", "vllm")[1]


def test_a_failure_is_explained_also_where_the_engine_cannot_be_told(typed, tmp_path):
    log = tmp_path / "server.log"
    log.write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    assert typed(str(log))[1].splitlines()[1] == (
        f"  at      {log}:1, its engine cannot be told from it: say --engine, while starting"
    )


def test_a_packed_log_that_is_cut_off_says_so(typed, tmp_path):
    packed = tmp_path / "cut.log.gz"
    whole = gzip.compress(NAN.read_bytes())
    packed.write_bytes(whole[: len(whole) * 9 // 10])
    note = "  note    the packed file is cut off: what came after its end was not read"
    assert note in typed(str(packed))[1].splitlines()
    assert json.loads(typed(str(packed), "--json")[1])["cut_off"] is True
    packed.write_bytes(whole)
    assert note not in typed(str(packed))[1].splitlines()


def test_a_process_substitution_is_a_file_too():
    done = subprocess.run(
        ["bash", "-c", f"{' '.join(TUNER)} explain <(cat {NAN})"],
        capture_output=True, text=True, check=True, env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip
    assert done.stdout.startswith("nan: probability tensor contains")
