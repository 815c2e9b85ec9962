"""Compose files and Kubernetes manifests: every form of their keys, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from tuner.definitions.yaml_source import parse_foreign
from tuner.errors import TunerError
from tuner.starting import compose, kubernetes
from tuner.starting.commands import Context
from tuner.starting.pasted import Container, Pasted

CONTEXT = Context(folder=Path("/w"), variables={"HOME": "/home/me", "SET": "set"})


def service(text: str, name: str | None = None) -> Pasted:
    lines = "\n".join(f"    {line}" for line in text.strip().split("\n"))
    document = f"services:\n  a:\n    image: vllm/vllm-openai:v0.11.0\n{lines}\n"
    return compose.find(parse_foreign(document, name="c")[0], CONTEXT, name)


def inside(found: Pasted) -> Container:
    assert found.container is not None
    return found.container


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("command: --model m --x 'a b'", ("--model", "m", "--x", "a b")),
        ("command: [--model, m, --x, 1]", ("--model", "m", "--x", "1")),
        ("entrypoint: vllm serve\ncommand: [m]", ("vllm", "serve", "m")),
        (
            "entrypoint: [sh, -c]\ncommand: [vllm serve $$A]\nenvironment: {A: m}",
            ("vllm", "serve", "m"),
        ),
        (
            "command: --model ${SET} --y ${UNSET} --z ${D:-8} --w $$5",
            ("--model", "set", "--y", "${UNSET}", "--z", "8", "--w", "$5"),
        ),
    ],
)
def test_commands_of_a_service(text, words):
    assert service(text).words == words


@pytest.mark.parametrize(
    "text",
    [
        "environment: {A: 1, B: yes, C: null, D: 12:30}",
        "environment: [A=1, B=yes, C, 'D=12:30']",
    ],
)
def test_variables_of_a_service(text):
    found = service(f"command: --model m\n{text}")
    assert found.env == {"A": "1", "B": "yes", "C": "${C}", "D": "12:30"}


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("ipc: host\nshm_size: 2gb", ("--ipc=host", "--shm-size=2gb")),
        (
            "volumes: [./a:/b, '~/c:/d:ro', n:/e]",
            ("--volume=/w/a:/b", "--volume=/home/me/c:/d:ro", "--volume=n:/e"),
        ),
        ("volumes: [{source: /a, target: /b, read_only: true}]", ("--volume=/a:/b:ro",)),
        (
            "ulimits: {memlock: -1, stack: {soft: 1, hard: 2}}",
            ("--ulimit=memlock=-1", "--ulimit=stack=1:2"),
        ),
        ("privileged: true\ncap_add: [A]", ("--cap-add=A", "--privileged")),
        ("env_file: .env", ("--env-file=/w/.env",)),
        ("env_file: [{path: a.env}]", ("--env-file=/w/a.env",)),
        ("network_mode: host\nrestart: always\nruntime: nvidia", ()),
    ],
)
def test_options_of_a_service(text, options):
    assert inside(service(f"command: --model m\n{text}")).options == options


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("gpus: all", None),
        ("gpus: [{count: 2}]", 2),
        ("deploy: {resources: {reservations: {devices: [{count: all}]}}}", None),
        ("deploy: {resources: {reservations: {devices: [{count: 4}]}}}", 4),
        ("deploy: {resources: {reservations: {devices: [{device_ids: ['0', '3']}]}}}", 2),
        ("runtime: nvidia\nenvironment: [NVIDIA_VISIBLE_DEVICES=0]", 1),
        ("environment: [NVIDIA_VISIBLE_DEVICES=all]", None),
    ],
)
def test_gpus_of_a_service(text, gpus):
    found = service(f"command: --model m\n{text}")
    assert found.gpus == gpus
    assert found.env == {}


def test_what_has_no_place_is_said():
    found = service("command: --model m\nhealthcheck: {test: x}\nlogging: {driver: x}")
    assert found.left_out == ("services.a: healthcheck, logging left out",)


def test_one_of_two_engines_is_named():
    document = {
        "services": {
            name: {"image": "vllm/vllm-openai", "command": f"--model {name}"} for name in "ab"
        }
    }
    with pytest.raises(TunerError, match="2 of its services start engines: a, b"):
        compose.find(document, CONTEXT, None)
    assert compose.find(document, CONTEXT, "b").words == ("--model", "b")
    with pytest.raises(TunerError, match="there is no service named 'c'"):
        compose.find(document, CONTEXT, "c")


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({"services": {"a": {"build": "."}}}, r"none of its services \(none\) starts an engine"),
        ({"services": {"a": {"extends": {"service": "b"}}}}, "cannot read 'extends'"),
        ({"services": ["a"]}, "services: found a list, expected a mapping"),
        ({"services": {"a": {"image": ["x"]}}}, "services.a.image: found a list, expected a text"),
        ({"services": {"a": {"image": "x", "command": "'"}}}, "a quote is not closed"),
        ({"services": {"a": {"image": "redis"}}}, r"none of its services \(a\)"),
        ({"services": {"a": {"image": "x", "command": "${A/b/c}"}}}, r"cannot read '\${A/b/c}'"),
    ],
)
def test_a_compose_file_that_cannot_be_read(document, sentence):
    with pytest.raises(TunerError, match=sentence):
        compose.find(document, CONTEXT, None)


def test_a_service_without_an_image_is_said_where_it_was_asked_for():
    with pytest.raises(TunerError, match=r"services.a: has no image"):
        compose.find({"services": {"a": {"build": "."}}}, CONTEXT, "a")


def pod(container: dict[str, Any], **spec: Any) -> dict[str, Any]:
    full = {"name": "s", "image": "img", "command": ["vllm", "serve"], "args": ["m"], **container}
    return {"kind": "Pod", "spec": {"containers": [full], **spec}}


def found(container: dict[str, Any], **spec: Any) -> Pasted:
    return kubernetes.find([pod(container, **spec)], CONTEXT, None)


def test_a_container_of_a_pod():
    server = found({"env": [{"name": "A", "value": "1"}], "args": ["$(A)", "$$(A)"]})
    assert server.words == ("vllm", "serve", "1", "$(A)")
    assert server.env == {"A": "1"}
    assert server.where == "container s"
    assert inside(server).network == "bridge"


def test_secrets_of_the_cluster_become_references():
    source = {"secretKeyRef": {"name": "n", "key": "k"}}
    assert found({"env": [{"name": "T", "valueFrom": source}]}).env == {"T": "${T}"}


def test_what_only_the_cluster_knows_is_said_and_refused_where_it_matters():
    env = [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    assert found({"env": env}).left_out == ("container s: IP comes from the cluster, left out",)
    with pytest.raises(TunerError, match=r"cannot read '\$\(IP\)', which only the cluster knows"):
        found({"env": env, "args": ["$(IP)"]})


@pytest.mark.parametrize("kind", ["limits", "requests"])
def test_gpus_of_a_container(kind):
    assert found({"resources": {kind: {"nvidia.com/gpu": "4"}}}).gpus == 4


@pytest.mark.parametrize(
    ("volume", "options"),
    [
        ({"hostPath": {"path": "/a"}}, ("--volume=/a:/dev/shm",)),
        ({"emptyDir": {"medium": "Memory"}}, ("--ipc=host",)),
        ({"emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}}, ("--shm-size=16g",)),
    ],
)
def test_volumes_of_a_container(volume, options):
    mounts = [{"name": "v", "mountPath": "/dev/shm"}]
    server = found({"volumeMounts": mounts}, volumes=[{"name": "v", **volume}])
    assert inside(server).options == options


def test_a_volume_of_the_cluster_is_said():
    mounts = [{"name": "v", "mountPath": "/models"}]
    server = found({"volumeMounts": mounts}, volumes=[{"name": "v", "persistentVolumeClaim": {}}])
    assert "what is mounted at /models comes from the cluster" in server.left_out[0]


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "Job", "ReplicaSet", "DaemonSet"])
def test_kinds_with_a_template(kind):
    template = {"spec": {"template": {"spec": pod({})["spec"]}}}
    assert kubernetes.find([{"kind": kind, **template}], CONTEXT, None).words[-1] == "m"


def test_lists_and_other_kinds():
    items = [{"kind": "Service"}, pod({}), None]
    server = kubernetes.find([{"kind": "List", "items": items}], CONTEXT, None)
    assert server.left_out == ("Service left out",)


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({"kind": "RayService"}, "a RayService spreads one server over several hosts"),
        ({"kind": "Service"}, r"none of its containers \(none\) starts an engine"),
        (
            {"kind": "Pod", "spec": {"containers": "x"}},
            "Pod.containers: found 'x', expected a list",
        ),
        ({"kind": "Pod", "spec": {"containers": [{"image": "redis"}]}}, r"\(server\) starts"),
        ({"spec": {}}, "kind: found nothing, expected a text"),
        ("x", "the manifest: found 'x', expected a mapping"),
    ],
)
def test_a_manifest_that_cannot_be_read(document, sentence):
    with pytest.raises(TunerError, match=sentence):
        kubernetes.find([document], CONTEXT, None)


def test_ports_of_a_service_are_those_of_docker_in_both_spellings():
    ports = (
        '["30000:30000", "127.0.0.1:80:30000/tcp", {target: 30000, published: "81"},'
        ' {target: 30000, published: 82, host_ip: 10.0.0.1, protocol: tcp}, "5",'
        ' {target: 9, published: "9", protocol: udp}]'
    )
    server = service(f"command: --model m\nports: {ports}")
    assert inside(server).publish == (
        "30000:30000",
        "127.0.0.1:80:30000",
        "81:30000",
        "10.0.0.1:82:30000",
    )
    assert server.left_out == tuple(
        f"services.a: port {port}: expected ADDRESS:PORT:PORT; write it as serve.publish"
        for port in ("5", "9:9/udp")
    )
