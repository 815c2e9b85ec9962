import json

import pytest

from tuner.definitions.findings import Findings
from tuner.definitions.models import StudyDefinition
from tuner.definitions.study_checks import check_study, fixed_names
from tuner.definitions.yaml_source import parse
from tuner.errors import DefinitionError

STUDY = """engine: {name: vllm, python: python3, builds: {patched: {python: python4}}}
model: m
space: space.yaml
objective: objective.yaml
budget: {hours: 8}
"""


def said_of(text):
    source, findings = parse(text, name="x"), Findings()
    check_study(source, StudyDefinition.model_validate_json(json.dumps(source.value)), findings)
    try:
        findings.settled(())
    except DefinitionError as error:
        return [str(problem) for problem in error.problems]
    return []


@pytest.mark.parametrize(
    "engine",
    [
        "{name: sglang, command: [sglang, serve], builds: {patched: {python: p}}}",
        "{name: vllm, python: python3, builds: {patched: {command: [x]}}}",
        "{name: rehearsal, surface: s.yaml, builds: {patched: {}}}",
        "{name: rehearsal, surface: s.yaml, python: r, builds: {patched: {python: p}}}",
    ],
)
def test_each_engine_has_its_ways_to_launch(engine):
    assert said_of(STUDY.replace(STUDY.splitlines()[0], f"engine: {engine}")) == []


@pytest.mark.parametrize("budget", ["{trials: 1}", "{hours: 0.5}", '{deadline: "07:30"}'])
def test_one_limit_is_budget_enough(budget):
    assert said_of(STUDY.replace("{hours: 8}", budget)) == []


@pytest.mark.parametrize("version", ["0.5.17", "0.32.0+cpu", "0.5.10rc1", "0.5.18.dev3+gabc"])
def test_a_version_is_that_of_a_package(version):
    assert said_of(STUDY.replace("python: python3", f"python: python3, version: {version}")) == []


def test_what_is_no_version_is_said_where_it_stands():
    said = said_of(STUDY.replace("python: python3", "python: python3, version: main"))
    assert said == [
        "x:1:39: engine.version: found the text 'main', expected a version such as 0.5.17"
    ]


BRIDGE = "{name: vllm, image: i, containers: {network: bridge}}"


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        (BRIDGE, []),
        *(
            (
                engine,
                ["x:6:9: serve.publish: found publish, but no launch is an image on the bridge"
                 " network\n  'host' and 'port' say where it listens"],
            )
            for engine in ("{name: vllm, python: p}", "{name: vllm, image: i}")
        ),
    ],
)  # fmt: skip
def test_ports_are_published_by_an_image_on_the_bridge_alone(engine, said):
    text = STUDY.replace(STUDY.splitlines()[0], f"engine: {engine}")
    assert said_of(f'{text}serve: {{publish: ["1:2"]}}\n') == said


def test_fixed_names_are_as_they_are_written():
    source = parse(STUDY + "fixed: {flags: {--tp_size: 8}, env: {A: x}}\n", name="x")
    assert (fixed_names(source, "flags"), fixed_names(source, "env")) == (["--tp_size"], ["A"])
    assert fixed_names(parse(STUDY, name="x"), "flags") == []


def test_a_flag_is_fixed_once_under_any_of_its_names():
    flags = "fixed: {flags: {tp: 8, tp-size: 4, --tp_size: 2, tensor-parallel-size: 1}}\n"
    where = "x:6:24: fixed.flags.tp-size"
    assert said_of(STUDY.replace("name: vllm", "name: sglang") + flags) == [
        f"{where}: flag 'tp-size' again, first as 'tp' on line 6",
        "x:6:36: fixed.flags.--tp_size: flag 'tp-size' again, first as 'tp' on line 6",
        "x:6:50: fixed.flags.tensor-parallel-size: flag 'tensor-parallel-size' again, first as"
        " 'tp' on line 6",
    ]
    assert said_of(STUDY + flags) == [
        "x:6:36: fixed.flags.--tp_size: flag 'tp-size' again, first on line 6"
    ]


IMAGE = "engine: {name: vllm, image: i, containers: CONTAINERS, builds: {patched: {python: p}}}"


def said_of_containers(containers):
    return said_of(STUDY.replace(STUDY.splitlines()[0], IMAGE.replace("CONTAINERS", containers)))


def test_containers_are_those_of_an_image():
    said = said_of(STUDY.replace("python: python3,", "python: python3, containers: {},"))
    assert said == [
        "x:1:39: engine.containers: found containers, but no launch is an image\n"
        "  name an image, or drop it"
    ]
    build = "containers: {runtime: podman}, builds: {patched: {image: i}}}"
    assert said_of(STUDY.replace("builds: {patched: {python: python4}}}", build)) == []


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("-d", "it stays attached"),
        ("--name=mine", "the tuner gives it"),
        ("--gpus=all", "every launch gets those of its slot"),
        ("--network=none", "'network' decides"),
        ("--entrypoint", "'command' names the words inside the image"),
        ("--restart=always", "what has ended must stay so"),
    ],
)
def test_an_option_that_the_tuner_sets_cannot_be_given(option, why):
    (said,) = said_of_containers(f"{{options: [--ipc=host, {option}]}}")
    assert said.endswith(f"engine.containers.options.1: '{option}' cannot be given: {why}")


def test_options_begin_with_an_option():
    assert said_of_containers("{options: [-v, /a:/b, --shm-size=32g]}") == []
    (said,) = said_of_containers("{options: [ipc=host]}")
    assert said.endswith("found 'ipc=host', expected an option such as --ipc=host")


def test_an_image_may_have_a_command_inside_it_and_no_python():
    assert said_of_containers("{network: bridge}") == []
    inside = IMAGE.replace("image: i", "image: i, command: [vllm, serve]")
    study = STUDY.replace(STUDY.splitlines()[0], inside.replace("CONTAINERS", "{}"))
    assert said_of(study) == []
    (said,) = said_of(study.replace("image: i", "image: i, python: p"))
    assert said.endswith("found python and image, expected one way to launch")
