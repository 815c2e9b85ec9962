"""The contract of every engine: one suite, run over all of them."""

import asyncio
import os
import shlex
import subprocess
from typing import Any

import pytest

from tests.engine_cases import REHEARSAL, SGLANG, VLLM, serving
from tuner import engines
from tuner.errors import EngineError
from tuner.http.client import Http

ADDRESS: dict[str, Any] = {
    "host": "127.0.0.1",
    "port": 18777,
    "extra_ports": (18778, 18779, 18780),
}


@pytest.fixture(params=[VLLM, SGLANG, REHEARSAL], ids=lambda case: case.name)
def case(request):
    """Every engine."""
    return request.param


def launch(case, folder, **changes):
    return engines.create(case.spec(folder, **changes)).command(**ADDRESS)


def ask(answers, question):
    """What the engine makes of a real server that gives these answers."""

    async def asked(url):
        async with Http(url) as http:
            return await question(http)

    with serving(answers) as url:
        return asyncio.run(asked(url))


def words_of(line: str, **env: str) -> list[str]:
    """The words that a POSIX shell makes of a line, assignments first."""
    shell = ["sh", "-c", f"printf '%s\\0' {line}"]
    done = subprocess.run(shell, capture_output=True, check=True, env={**os.environ, **env})
    return done.stdout.decode().split("\0")[:-1]


# --- the command line


def test_every_flag_asked_for_is_spelt_once(case, tmp_path):
    argv = launch(case, tmp_path).argv
    for name in case.flags:
        assert argv.count(f"--{name}") == 1
    for name, value in case.flags.items():
        if not isinstance(value, bool):
            assert argv[argv.index(f"--{name}") + 1] == str(value)


def test_a_flag_without_a_value_is_left_out(case, tmp_path):
    argv = launch(case, tmp_path, flags={**case.flags, "unset-flag": None}).argv
    assert argv == launch(case, tmp_path).argv


def test_of_two_spellings_of_one_flag_the_last_counts(case, tmp_path):
    flags = {f"--{case.size_flag}": 2, case.size_flag.replace("-", "_"): 4}
    argv = launch(case, tmp_path, flags=flags).argv
    assert argv.count(f"--{case.size_flag}") == 1
    assert argv[argv.index(f"--{case.size_flag}") + 1] == "4"
    assert engines.create(case.spec(tmp_path, flags=flags)).gpus_needed() == 4


def test_a_fixed_flag_is_taken_back_by_none(case, tmp_path):
    argv = launch(case, tmp_path, flags={"--some-flag": 2, "some-flag": None}).argv
    assert "--some-flag" not in argv


@pytest.mark.parametrize(
    ("style", "value", "spelt"),
    [
        ("presence", True, ["--some-flag"]),
        ("presence", False, []),
        ("value", True, ["--some-flag", "true"]),
        ("value", False, ["--some-flag", "false"]),
        ("negation", True, ["--some-flag"]),
        ("negation", False, ["--no-some-flag"]),
    ],
)
def test_a_bool_is_spelt_in_its_style(case, tmp_path, style, value, spelt):
    asked = {"flags": {"some-flag": value}, "bool_styles": {"some-flag": style}}
    without = launch(case, tmp_path, flags={}).argv
    assert list(launch(case, tmp_path, **asked).argv) == [*without, *spelt]


def test_a_style_of_bool_that_does_not_exist_is_refused(case, tmp_path):
    with pytest.raises(EngineError, match="--some-flag: there is no style of bool named 'yes'"):
        launch(case, tmp_path, flags={"some-flag": True}, bool_styles={"some-flag": "yes"})


def test_a_list_becomes_several_words(case, tmp_path):
    argv = launch(case, tmp_path, flags={case.list_flag: "1 64 256"}).argv
    assert argv[-4:] == (f"--{case.list_flag}", "1", "64", "256")


def test_a_value_that_begins_with_a_dash_is_not_taken_for_a_flag(case, tmp_path):
    argv = launch(case, tmp_path, flags={"a": -1, "b": "-x"}).argv
    assert argv[-3:] == ("--a", "-1", "--b=-x")


def test_the_model_is_named_once_however_often_it_is_set(case, tmp_path):
    argv = launch(case, tmp_path, flags={case.model_flag: "another"}).argv
    assert argv.count("some/model") == 1
    assert "another" not in argv


# --- what the tuner adds


def test_what_is_injected_stays_apart_and_comes_last(case, tmp_path):
    command = launch(case, tmp_path)
    assert command.full_argv == command.argv + command.injected_argv
    for word in ("--host", "--port", "18777"):
        assert word in command.injected_argv
        assert word not in command.argv
        assert word not in shlex.split(command.shell())


def test_the_address_of_the_study_reaches_the_export_and_not_the_launch(case, tmp_path):
    flags = {**case.flags, "host": "0.0.0.0", "port": 30000, case.key_flag: "${MY_KEY}"}
    command = launch(case, tmp_path, flags=flags)
    launched = command.full_argv
    assert launched.count("--host") == launched.count("--port") == 1
    assert launched[launched.index("--host") + 1] == "127.0.0.1"
    assert launched[launched.index("--port") + 1] == "18777"
    assert f"--{case.key_flag}" not in launched
    exported = words_of(command.shell(), MY_KEY="k")
    assert exported[exported.index("--host") + 1] == "0.0.0.0"
    assert exported[exported.index("--port") + 1] == "30000"
    assert exported[exported.index(f"--{case.key_flag}") + 1] == "k"


def test_every_launch_has_a_seed_and_a_seed_of_the_study_is_its_own(case, tmp_path):
    flag = case.seed_flag
    assert f"--{flag}" in launch(case, tmp_path).injected_argv
    command = launch(case, tmp_path, flags={flag: 7})
    assert command.full_argv.count(f"--{flag}") == 1
    assert command.argv[-2:] == (f"--{flag}", "7")


def test_no_launch_reports_to_anybody(case, tmp_path):
    command = launch(case, tmp_path)
    assert command.full_env["DO_NOT_TRACK"] == "1"
    assert "DO_NOT_TRACK" not in command.shell()
    asked = launch(case, tmp_path, env={"DO_NOT_TRACK": "0"})
    assert asked.full_env["DO_NOT_TRACK"] == "1"
    assert "DO_NOT_TRACK=0" in asked.shell()


def test_a_launch_sees_its_own_gpus_only(case, tmp_path):
    engine = engines.create(case.spec(tmp_path, env={"CUDA_VISIBLE_DEVICES": "3"}))
    command = engine.command(**ADDRESS, gpus=("GPU-a", "GPU-b"))
    assert command.full_env["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    assert "CUDA_VISIBLE_DEVICES=3" in command.shell()
    assert "CUDA_VISIBLE_DEVICES" not in engine.command(**ADDRESS).full_env


# --- the shell, and secrets


def test_the_exported_line_means_the_same_in_a_shell(case, tmp_path):
    awkward = 'it\'s "a" $HOME `b` \\ *\n;&'
    command = launch(
        case, tmp_path, flags={**case.flags, "odd": awkward}, env={**case.env, "ODD": awkward}
    )
    words = words_of(command.shell())
    env = dict(word.split("=", 1) for word in words[: len(command.env)])
    assert env == {**case.env, "ODD": awkward}
    assert tuple(words[len(command.env) :]) == command.argv


def test_the_launched_line_is_what_is_launched(case, tmp_path):
    command = launch(case, tmp_path)
    words = words_of(command.launched_shell())
    assert tuple(words[-len(command.full_argv) :]) == command.full_argv
    assert dict(w.split("=", 1) for w in words[: len(command.full_env)]) == command.full_env


def test_a_reference_is_looked_up_by_the_launch_alone(case, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf-very-secret")
    flags = {**case.flags, "note": "with-${HF_TOKEN}!"}
    command = launch(case, tmp_path, flags=flags, env={"HF_TOKEN": "${HF_TOKEN}"})
    assert command.full_env["HF_TOKEN"] == "hf-very-secret"
    assert "with-hf-very-secret!" in command.full_argv
    for text in (command.shell(), command.launched_shell(), repr(command)):
        assert "very-secret" not in text
    assert words_of(command.shell(), HF_TOKEN="pasted")[0] == "HF_TOKEN=pasted"
    assert "with-pasted!" in words_of(command.shell(), HF_TOKEN="pasted")


def test_a_secret_written_out_is_launched_and_never_shown(case, tmp_path):
    flags = {**case.flags, "hf-token": "hf-very-secret", "x.password": "pw-very-secret"}
    env = {"MY_API_KEY": "sk-very-secret", "HTTPS_PROXY": "http://me:very-secret@proxy:3128"}
    command = launch(case, tmp_path, flags=flags, env=env)
    assert command.full_env["MY_API_KEY"] == "sk-very-secret"
    assert "hf-very-secret" in command.full_argv
    shown = [*command.shown_argv(), *command.shown_env().values()]
    for text in (command.shell(), command.launched_shell(), repr(command), *shown):
        assert "very-secret" not in text
    assert '--hf-token "${HF_TOKEN:?set HF_TOKEN}"' in command.shell()
    assert 'MY_API_KEY="${MY_API_KEY:?set MY_API_KEY}"' in command.shell()


def test_flags_and_variables_that_count_tokens_are_no_secrets(case, tmp_path):
    flags = {"long-prefill-token-threshold": "512", "max-total-tokens": "9", "tokenizer": "t"}
    env = {"SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION": "4096"}
    line = launch(case, tmp_path, flags=flags, env=env).shell()
    assert "${" not in line
    assert "SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION=4096" in line


def test_the_exported_line_stops_where_a_secret_is_not_set(case, tmp_path):
    line = launch(case, tmp_path, env={"NOT_SET_ANYWHERE": "${NOT_SET_ANYWHERE}"}).shell()
    done = subprocess.run(["sh", "-c", line], capture_output=True, check=False)
    assert done.returncode != 0
    assert b"set NOT_SET_ANYWHERE" in done.stderr


def test_a_launch_stops_where_a_reference_is_not_set(case, tmp_path):
    command = launch(case, tmp_path, env={"A": "${NOT_SET_ANYWHERE}"})
    with pytest.raises(EngineError, match="NOT_SET_ANYWHERE, which is not set"):
        _ = command.full_env
    faults = engines.preflight(case.spec(tmp_path, env={"A": "${NOT_SET_ANYWHERE}"}))
    assert "the launch needs the variable NOT_SET_ANYWHERE, which is not set" in faults


def test_a_name_that_no_shell_can_assign_is_refused(case, tmp_path):
    with pytest.raises(EngineError, match="'2-x' is not the name of a variable"):
        launch(case, tmp_path, env={"2-x": "1"})


# --- GPUs


def test_gpus_are_counted_over_width_and_replicas(case, tmp_path):
    def needed(**flags):
        named = {name.replace("_", "-"): value for name, value in flags.items()}
        return engines.create(case.spec(tmp_path, flags=named)).gpus_needed()

    assert needed() == 1
    assert needed(**{case.size_flag: 4}) == 4
    assert needed(**{case.size_flag: 4, case.replica_flag: 2}) == 8
    assert needed(**{case.size_flag: 2, "pipeline-parallel-size": 3}) == 6
    assert needed(**{case.size_flag: None}) == 1
    for wrong in ("many", 0, -1):
        with pytest.raises(EngineError, match=f"--{case.size_flag}: found {wrong}, expected a"):
            needed(**{case.size_flag: wrong})


# --- readiness


def test_a_server_is_ready_once_it_generates(case, tmp_path):
    engine = engines.create(case.spec(tmp_path))
    answers = case.answers()
    assert ask(answers, engine.ready) is True
    path, payload = answers.posted[0]
    assert path == case.generation_path
    assert payload.get("model", engine.served_model) == engine.served_model


def test_health_alone_is_not_readiness(case, tmp_path):
    engine = engines.create(case.spec(tmp_path))
    failures: list[tuple[int, Any]] = [
        (503, {}),
        (200, case.tokens_given[0]),
        (200, "<html>"),
        (200, {}),
        (200, []),
    ]
    for generation in failures:
        answers = case.answers()
        answers.routes[case.generation_path] = generation
        assert ask(answers, engine.ready) is False
    answers = case.answers()
    answers.routes["/health"] = (503, "")
    assert ask(answers, engine.ready) is False
    assert not answers.posted


def test_a_server_that_does_not_listen_is_not_ready(case, tmp_path):
    engine = engines.create(case.spec(tmp_path))
    with serving(case.answers()) as url:
        pass

    async def asked():
        async with Http(url) as http:
            return await engine.ready(http)

    assert asyncio.run(asked()) is False


# --- what a server says


def test_effective_arguments_are_read_back(case, tmp_path):
    engine = engines.create(case.spec(tmp_path))
    effective = ask(case.answers(), lambda http: engine.effective(http, case.log))
    assert {name: effective.get(name) for name in case.effective} == dict(case.effective)
    assert "very-secret" not in str(effective)


def test_effective_arguments_do_not_depend_on_the_launch(case, tmp_path):
    engine = engines.create(case.spec(tmp_path))
    first = ask(case.answers(), lambda http: engine.effective(http, case.log))
    again = case.answers()
    text = case.log.replace("18200", "18999").replace("pid=7", "pid=77")
    status, info = again.routes.get("/server_info", (404, {}))
    again.routes["/server_info"] = (
        status,
        {**info, "port": 18999, "nccl_port": 19000, "startup_time": 99.0, "random_seed": 12345},
    )
    assert ask(again, lambda http: engine.effective(http, text)) == first


def test_facts_come_from_the_server_and_its_log(case, tmp_path):
    engine = engines.create(case.spec(tmp_path))
    assert ask(case.answers(), lambda http: engine.facts(http, case.log)) == case.facts


def test_what_is_running_and_queued_is_the_engines_own_count(case, tmp_path):
    engine = engines.create(case.spec(tmp_path))
    answers = case.answers()
    assert ask(answers, engine.load_now) == case.load
    answers.routes["/metrics"] = (200, "# nothing\n")
    assert ask(answers, engine.load_now) is None
