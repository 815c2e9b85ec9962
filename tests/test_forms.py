"""Every form of an export starts the same server: each is read back by its own rules."""

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.evening import edit, folder
from tests.readers import (
    SECRETS,
    config_arguments,
    expanded,
    interpolated,
    shell_argv,
    systemd_command,
    systemd_words,
    unit_lines,
)
from tuner.definitions.validation import load_study
from tuner.views.export import Container, Export, export, flags
from tuner.views.forms import FORMATS, written

NASTY = (
    *("two words", "it's", 'say "x"', "$HOME", "$(id)", "`id`", "100%", "%h", "a;b", ";", "a&b"),
    *(
        "*",
        "~",
        "#x",
        "back\\slash",
        "line\nbreak",
        "tab\there",
        "größe 数",
        "",
        "-1",
        "$$",
        "$(A)",
    ),
    *(
        '{"mode": "O3", "sizes": [1, 2], "path": "a b"}',
        "yes",
        "1e-3",
        "010",
        "null",
        "0.90",
        "0.9",
    ),
    *("{{x}}", "\\", "'", '"', "a=b", "${", "a: b", "- a", "\x1b[0m", "!x", "@x", "8192", "12:30"),
)
"""Words that a shell, systemd, YAML, compose or a cluster would each take for something else."""


def made(words=(), env=None, **changes) -> Export:
    argv = ["/opt/engine/bin/python", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"]
    for at, word in enumerate(words):
        argv += [f"--flag-{at}", word]
    argv += ["--alone", "--list", "1", "2", "--api-key", "${API_KEY}", "--both=a${API_KEY}b"]
    fields = {
        "study": "A night/of Mine!",
        "engine": "vllm",
        "command": "see argv",
        "argv": argv,
        "env": {"PLAIN": "1", "HF_TOKEN": "${HF_TOKEN}", **(env or {})},
        "program": 3,
        "gpus": 4,
        "port": 8000,
        "container": Container(
            image=None,
            options=["--ipc=host"],
            program=["python3", "-m", argv[2]],
            mounts=["/models/a, b"],
        ),
        "trial": 5,
        "why": "It won.\nrm -rf /\x1b[2J",
        "rehearsal": True,
    }
    return Export(**{**fields, **changes})


NASTY_ENV = {f"V{at}": word for at, word in enumerate(NASTY)}


def resolved(word: str) -> str:
    return re.sub(r"\$\{(\w+)\}", lambda match: SECRETS[match[1]], word)


def expected(chosen: Export) -> list[str]:
    return [resolved(word) for word in chosen.arguments]


def test_docker_starts_it(tmp_path):
    chosen = made(NASTY, NASTY_ENV)
    words, env = shell_argv(written(chosen, "docker"), "docker", tmp_path)
    assert words[:3] == ["run", "--rm", "--init"]
    at = words.index("--entrypoint")
    assert words[at : at + 5] == ["--entrypoint", "python3", "img:1", "-m", chosen.argv[2]]
    assert words[at + 5 :] == expected(chosen)
    given = dict(word.partition("=")[::2] for flag, word in pairwise(words[:at]) if flag == "-e")
    assert given.pop("HF_TOKEN") == ""
    assert env["HF_TOKEN"] == SECRETS["HF_TOKEN"]
    assert given == {"PLAIN": "1", **NASTY_ENV}
    assert words[words.index("-v") + 1] == "/models/a, b:/models/a, b:ro"
    assert words[words.index("--gpus") + 1] == "all"
    assert "--ipc=host" in words[:at]


def test_systemd_starts_it():
    chosen = made(NASTY, NASTY_ENV)
    settings = unit_lines(written(chosen, "systemd"))
    [command] = settings["ExecStart"]
    assert systemd_command(command, SECRETS) == chosen.argv[:3] + expected(chosen)
    assigned = [systemd_words(line) for line in settings["Environment"]]
    assert all(len(words) == 1 for words in assigned)
    assert dict(words[0].partition("=")[::2] for words in assigned) == {"PLAIN": "1", **NASTY_ENV}
    assert settings["EnvironmentFile"] == ["/etc/a-night-of-mine.env"]


def test_compose_starts_it():
    chosen = made(NASTY, NASTY_ENV)
    document = interpolated(yaml.safe_load(written(chosen, "compose")))
    [(name, service)] = document["services"].items()
    assert name == "a-night-of-mine"
    assert service["image"] == "img:1"
    assert service["entrypoint"] == chosen.container.program
    assert service["command"] == expected(chosen)
    secret = SECRETS["HF_TOKEN"]
    assert service["environment"] == {"PLAIN": "1", "HF_TOKEN": secret, **NASTY_ENV}
    assert service["volumes"][0]["source"] == "/models/a, b"
    [device] = service["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 4, "capabilities": ["gpu"]}


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ([], {"ipc": "host"}),
        (["--ipc=private"], {"ipc": "private"}),
        (["--shm-size", "32g"], {"shm_size": "32g"}),
        (["--shm-size=32g", "--ipc=host"], {"shm_size": "32g", "ipc": "host"}),
        (
            ["-v", "/a:/b:ro", "--volume=$HOME/c:/c"],
            {"ipc": "host", "volumes": ["/a:/b:ro", "$HOME/c:/c"]},
        ),
    ],
)
def test_compose_has_keys_of_its_own_for_options_of_run(options, keys):
    container = Container(image=None, options=options, program=["python3"], mounts=[])
    text = written(made(container=container), "compose")
    [service] = interpolated(yaml.safe_load(text))["services"].values()
    assert {key: service[key] for key in ("ipc", "shm_size", "volumes") if key in service} == keys
    assert "no place here" not in text


def test_a_cluster_starts_it():
    chosen = made(NASTY, NASTY_ENV)
    workload, service = yaml.safe_load_all(written(chosen, "k8s"))
    pod = workload["spec"]["template"]["spec"]
    [server] = pod["containers"]
    env: dict[str, str] = {}
    for variable in server["env"]:
        if "valueFrom" in variable:
            source = variable["valueFrom"]["secretKeyRef"]
            assert source == {"name": "a-night-of-mine-secrets", "key": variable["name"]}
            env[variable["name"]] = SECRETS[variable["name"]]
        else:
            env[variable["name"]] = expanded(variable["value"], env)
    assert env == {
        **{name: SECRETS[name] for name in ("API_KEY", "HF_TOKEN")}, "PLAIN": "1", **NASTY_ENV
    }  # fmt: skip
    assert [expanded(word, env) for word in server["command"]] == chosen.container.program
    assert [expanded(word, env) for word in server["args"]] == expected(chosen)
    assert server["resources"] == {"limits": {"nvidia.com/gpu": 4}}
    mounts = {mount["name"]: mount["mountPath"] for mount in server["volumeMounts"]}
    hosts = {v["name"]: v["hostPath"]["path"] for v in pod["volumes"] if "hostPath" in v}
    assert hosts == {"path-0": "/models/a, b"}
    assert mounts["path-0"] == "/models/a, b"
    labels = workload["spec"]["template"]["metadata"]["labels"]
    assert workload["spec"]["selector"]["matchLabels"] == labels == service["spec"]["selector"]
    assert service["spec"]["ports"][0]["targetPort"] == server["ports"][0]["containerPort"] == 8000
    assert server["readinessProbe"]["httpGet"] == {"path": "/health", "port": 8000}


def test_a_file_of_flags_says_the_same_but_for_secrets():
    chosen = made(NASTY)
    text = written(chosen, "yaml")
    said = [word for name, words in flags(config_arguments(text)) for word in (name, *words)]
    kept = [
        word
        for name, words in flags(chosen.arguments)
        if name not in ("api-key", "both")
        for word in (name, *words)
    ]
    assert said == kept
    assert "# Not in this file: --api-key, which needs API_KEY\n" in text
    assert "# Not in this file: --both, which needs API_KEY\n" in text
    assert "# Environment: HF_TOKEN=${HF_TOKEN}\n" in text


def test_json_is_the_whole_of_it():
    chosen = made(NASTY)
    assert Export.model_validate(json.loads(written(chosen, "json"))) == chosen


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))))
def test_any_words_come_back(words):
    chosen = made(["x" + word.replace("${", "{") for word in words])
    command = unit_lines(written(chosen, "systemd").replace("\u2028", ""))
    service = yaml.safe_load(written(chosen, "compose"))["services"]["a-night-of-mine"]
    assert interpolated(service["command"]) == expected(chosen)
    if all(word.isprintable() for word in words):
        assert systemd_command(command["ExecStart"][0], SECRETS)[3:] == expected(chosen)


@pytest.mark.parametrize("form", [form for form in FORMATS if form != "json"])
def test_label_and_reason_are_comments_of_one_line_and_nothing_escapes_them(form):
    lines = written(made(), form).splitlines()
    start = 1 if form in ("shell", "docker") else 0
    assert lines[start : start + 2] == [
        "# REHEARSAL: nothing behind this was measured on hardware.",
        "# It won. rm -rf /",
    ]
    assert "REHEARSAL" not in written(made(rehearsal=False), form)


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_behind_a_reference_is_in_no_form(form, tmp_path, monkeypatch):
    night = folder(tmp_path)
    edit(night, "study.yaml", "model: small",
         'model: small\nfixed: {flags: {api-key: "sk-12345"},'
         ' env: {HF_TOKEN: "${HF_TOKEN}", OTHER_TOKEN: hf_verysecret}}')  # fmt: skip
    monkeypatch.setenv("HF_TOKEN", "hf_fromenvironment")
    text = written(export(load_study(night), []), form)
    for secret in ("sk-12345", "hf_verysecret", "hf_fromenvironment"):
        assert secret not in text
    if form != "shell":
        assert "API_KEY" in text


def test_a_unit_does_not_start_without_its_secrets():
    settings = unit_lines(written(made(), "systemd"))
    checks = [systemd_command(line, {}) for line in settings["ExecStartPre"]]
    assert [words[:2] for words in checks] == [["/bin/sh", "-c"]] * 2
    assert [words[2] for words in checks] == [
        ': "${API_KEY:?set API_KEY}"', ': "${HF_TOKEN:?set HF_TOKEN}"'
    ]  # fmt: skip


def test_a_unit_names_its_program_by_a_whole_path():
    def first(*argv: str) -> list[str]:
        chosen = made(argv=[*argv, "serve", "m"], program=len(argv) + 1)
        [command] = unit_lines(written(chosen, "systemd"))["ExecStart"]
        return systemd_command(command, SECRETS)

    assert first("/my env/bin/vllm")[0] == "/my env/bin/vllm"
    assert Path(first("sh")[0]).is_absolute()
    assert first("no-such-program")[:2] == ["/usr/bin/env", "no-such-program"]


def test_an_image_is_run_by_the_study_s_own_runtime_network_and_options(tmp_path):
    container = Container(image="lmsysorg/sglang:v0.5.9", runtime="podman", network="bridge",
                          options=["--shm-size=32g", "${API_KEY}"], mounts=[],
                          program=["python3", "-m", "sglang"])  # fmt: skip
    argv = ["python3", "-m", "sglang.launch_server", "--model-path", "m"]
    chosen = made(container=container, engine="sglang", port=30000).model_copy(
        update={"argv": argv, "env": {"B": "c d"}}
    )
    words, _ = shell_argv(written(chosen, "docker"), "podman", tmp_path)
    at = words.index("--shm-size=32g") + 1
    assert words[at] == SECRETS["API_KEY"]
    assert words[at + 1 : at + 4] == ["--entrypoint", "python3", "lmsysorg/sglang:v0.5.9"]
    assert words[words.index("-p") + 1] == "127.0.0.1:30000:30000"
    assert "--device=nvidia.com/gpu=all" in words[:at]
    assert words[-2:] == ["--host", "0.0.0.0"]
    document = yaml.safe_load(written(chosen, "compose"))
    service = document["services"]["a-night-of-mine"]
    assert service["ports"] == ["127.0.0.1:30000:30000"]
    assert "network_mode" not in service
    assert service["shm_size"] == "32g"
    assert written(chosen, "compose").splitlines()[3].endswith("have no place here: ${API_KEY}")
    unit = unit_lines(written(chosen, "systemd"))
    assert len(unit["ExecStartPre"]) == 1
    command = systemd_command(unit["ExecStart"][0], SECRETS)
    assert "podman" in command[:2] or command[0].endswith("/podman")
    assert "B=c d" in command
    assert "Environment" not in unit


def served(night: Path, serve: str, engine: str) -> Export:
    """The export of an installed engine's baseline that listens as it is said."""
    (night / "surface.yaml").unlink(missing_ok=True)
    (night / "space.yaml").write_text(
        "parameters: {schedule-conservativeness: {type: choice, choices: [null, 1], default: null}}"
    )
    (night / "objective.yaml").write_text(
        "ladder: [{concurrency: 1}]\ninput_tokens: 8\noutput_tokens: 8\n"
    )
    (night / "study.yaml").write_text(
        f"engine: {engine}\nmodel: m\nspace: space.yaml\nobjective: objective.yaml\n"
        f"budget: {{hours: 1}}\nserve: {serve}\n"
    )
    return export(load_study(night), [])


SGLANG = "{name: sglang, version: 0.5.9, command: [sglang, serve]}"
IMAGE = "{name: sglang, version: 0.5.9, image: img, containers: {network: bridge}}"


def test_it_listens_where_the_study_says_in_every_form(tmp_path):
    chosen = served(tmp_path, "{host: 0.0.0.0, port: 9000}", SGLANG)
    words = ["--model-path", "m", "--host", "0.0.0.0", "--port", "9000"]
    assert (chosen.arguments, chosen.port) == (words, 9000)
    assert chosen.command == f"sglang serve {' '.join(words)}"
    listens = "# Listens on 0.0.0.0:9000."
    for form in ("shell", "docker", "compose", "systemd", "yaml"):
        text = written(chosen, form)
        assert text.splitlines().count(listens) == 1
        if form != "yaml":
            assert f"{words[-3]}" in text
            assert "9000" in text.replace(listens, "")
    service = yaml.safe_load(written(chosen, "compose"))["services"]
    assert [s["command"] for s in service.values()] == [words]
    assert config_arguments(written(chosen, "yaml")) == words
    workload, front = yaml.safe_load_all(written(chosen, "k8s"))
    [server] = workload["spec"]["template"]["spec"]["containers"]
    assert (server["args"], server["ports"]) == (words, [{"containerPort": 9000}])
    assert front["spec"]["ports"] == [{"port": 9000, "targetPort": 9000}]
    assert "# Its Service answers on port 9000.\n" in written(chosen, "k8s")


@pytest.mark.parametrize(
    ("serve", "said"),
    [
        ("{}", "127.0.0.1:30000; host and port by the engine's default, 'serve' in the study"
               " changes them"),
        ("{port: 1}", "127.0.0.1:1; host by the engine's default, 'serve' in the study changes it"),
        ('{host: "::"}', "[::]:30000; port by the engine's default, 'serve' in the study"
                         " changes it"),
    ],
)  # fmt: skip
def test_where_nothing_was_said_the_engine_s_default_is_named_and_not_passed(tmp_path, serve, said):
    chosen = served(tmp_path, serve, SGLANG)
    assert f"# Listens on {said}.\n" in written(chosen, "shell")
    assert ("--host" in chosen.argv) is ("host" in serve)
    assert ("--port" in chosen.argv) is ("port" in serve)


def test_vllm_listens_on_every_address_by_itself(tmp_path):
    text = written(served(tmp_path, "{}", "{name: vllm, command: [vllm, serve]}"), "shell")
    assert "# Listens on every address, port 8000; host and port by" in text


@pytest.mark.parametrize(
    ("publish", "ports", "front"),
    [
        ("[30000:30000]", ["30000:30000"], 30000),
        ("[10.0.0.1:80:30000, 9:9]", ["10.0.0.1:80:30000", "9:9"], 80),
        ("[]", ["127.0.0.1:30000:30000"], 30000),
    ],
)
def test_the_same_ports_are_published_in_every_form(tmp_path, publish, ports, front):
    chosen = served(tmp_path, f"{{publish: {publish}}}", IMAGE)
    for text in (chosen.command, written(chosen, "docker"), written(chosen, "systemd")):
        assert re.findall(r" -p (\S+)", text) == ports
    [service] = yaml.safe_load(written(chosen, "compose"))["services"].values()
    assert service["ports"] == ports
    _, cluster = yaml.safe_load_all(written(chosen, "k8s"))
    assert cluster["spec"]["ports"] == [{"port": front, "targetPort": 30000}]
    for form in ("shell", "docker", "compose", "systemd"):
        assert f"# Published (HOST:CONTAINER): {', '.join(ports)}.\n" in written(chosen, form)


def test_in_a_network_of_its_own_no_server_listens_to_itself_alone(tmp_path):
    chosen = served(tmp_path, "{host: 127.0.0.1, port: 9000}", SGLANG)
    workload = next(iter(yaml.safe_load_all(written(chosen, "k8s"))))
    args = workload["spec"]["template"]["spec"]["containers"][0]["args"]
    assert args == ["--model-path", "m", "--port", "9000", "--host", "0.0.0.0"]


def test_only_who_listens_to_himself_is_told_to_listen_to_all():
    for engine, argv_has_host, told in (("sglang", False, True), ("vllm", False, False),
                                        ("sglang", True, False)):  # fmt: skip
        chosen = made(engine=engine)
        if argv_has_host:
            chosen = chosen.model_copy(update={"argv": [*chosen.argv, "--host", "10.0.0.1"]})
        workload = next(iter(yaml.safe_load_all(written(chosen, "k8s"))))
        args = workload["spec"]["template"]["spec"]["containers"][0]["args"]
        assert (args[-2:] == ["--host", "0.0.0.0"]) is told
        assert "0.0.0.0" not in written(chosen, "docker")


def test_a_cluster_starts_a_whole_set_of_servers():
    chosen = made(replicas=["a", "b"])
    workload = next(iter(yaml.safe_load_all(written(chosen, "k8s"))))
    assert workload["spec"]["replicas"] == 2
    assert "One of" not in written(chosen, "k8s")
    assert "# One of 2 servers" in written(chosen, "compose")


def test_an_image_that_is_not_named_keeps_it_from_starting(tmp_path):
    with pytest.raises(Exception, match="returned non-zero"):
        shell_argv(written(made(), "docker").replace("${IMAGE", "${NO_IMAGE"), "docker", tmp_path)
    service = yaml.safe_load(written(made(), "compose"))["services"]["a-night-of-mine"]
    assert service["image"] == "${IMAGE:?set IMAGE}"
    pod = next(iter(yaml.safe_load_all(written(made(), "k8s"))))["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "${IMAGE}"  # no name of an image: it is refused
