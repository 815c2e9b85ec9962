"""Launch commands as people publish them: each gives the study beside it, or the sentence."""

import io
import shutil
from pathlib import Path

import pytest

from tests.launched import Launched, calls, read_argv, read_container, stubs
from tuner.errors import TunerError
from tuner.flags.sglang import FLAGS
from tuner.night.opening import open_study
from tuner.records import Records
from tuner.starting.drafting import Asked
from tuner.verbs import inspect
from tuner.verbs.init import init
from tuner.views.export import export

CORPUS = Path(__file__).parent / "launch_commands"
SOURCES = sorted(
    path
    for path in (*CORPUS.glob("*.sh"), *CORPUS.glob("*.yaml"))
    if not path.name.endswith(".study.yaml")
)
SECRETS = {
    "HF_TOKEN": "hf_abcdefghijklmnopqrstuvwxyz",
    "HUGGING_FACE_HUB_TOKEN": "hf_other",
    "API_KEY": "s3cret with blanks",
}
"""What the references of the studies stand for where a launch is tried."""
READABLE = [path for path in SOURCES if (CORPUS / f"{path.stem}.study.yaml").exists()]
UNREADABLE = [path for path in SOURCES if path not in READABLE]


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A folder with spaces and objectives, in which everything is typed."""
    place = tmp_path / "tree"
    place.mkdir()
    for kind in ("search_spaces", "objectives"):
        shutil.copytree(CORPUS / kind, place / kind)
    monkeypatch.chdir(place)
    monkeypatch.setenv("HOME", "/home/me")
    for name in (*SECRETS, "TP"):
        monkeypatch.delenv(name, raising=False)
    return place


def started(tree: Path, source: Path, asked: Asked | None = None) -> Path:
    shutil.copy(source, tree)
    init(Path(source.stem), source.name, io.StringIO(), asked=asked)
    return tree / "studies" / source.stem


def test_every_source_has_its_answer_and_every_answer_its_source():
    answers = {
        path.name.removesuffix(ending)
        for ending in (".study.yaml", ".sentence.txt")
        for path in CORPUS.glob(f"*{ending}")
    }
    assert answers == {path.stem for path in SOURCES}
    assert len(READABLE) >= 25
    assert len(UNREADABLE) >= 15


@pytest.mark.parametrize("source", READABLE, ids=lambda path: path.name)
def test_it_becomes_this_study_which_check_accepts(tree, source):
    study = started(tree, source)
    text = (study / "study.yaml").read_text().replace(str(tree), "TREE")
    assert text == (CORPUS / f"{source.stem}.study.yaml").read_text()
    inspect.check(study)


@pytest.mark.parametrize("source", UNREADABLE, ids=lambda path: path.name)
def test_what_cannot_be_read_is_told_in_this_sentence_and_leaves_nothing(tree, source):
    with pytest.raises(TunerError) as caught:
        started(tree, source)
    assert f"{caught.value}\n" == (CORPUS / f"{source.stem}.sentence.txt").read_text()
    assert not (tree / "studies").exists()


def exported(study: Path) -> str:
    loaded = open_study(study)
    return export(loaded, list(Records(loaded.folder))).command


@pytest.mark.parametrize(
    "source", [path for path in READABLE if path.suffix == ".sh"], ids=lambda path: path.name
)
def test_exported_again_a_shell_starts_the_same_server(tree, tmp_path, source):
    command = exported(started(tree, source))
    assert not any(secret in command for secret in SECRETS.values())
    programs, secrets = stubs(tmp_path / "programs"), _secrets(source)
    before = [_read(call, tmp_path, programs) for call in _run(source.read_text(), tree, programs)]
    (after,) = [_read(call, tmp_path, programs) for call in _run(command, tree, programs, secrets)]
    assert before == [_alike(after, before[0])]


def _alike(after: Launched, before: Launched) -> Launched:
    """What is reachable from nowhere is published to this machine: that may be added."""
    if any(option.startswith("--publish=") for option in before.options):
        return after
    own = f"--publish=127.0.0.1:{after.flags['port'][0]}:{after.flags['port'][0]}"
    return Launched(**{**vars(after), "options": tuple(o for o in after.options if o != own)})


def _secrets(source: Path) -> dict[str, str]:
    """What each variable would have to be set to for the source to mean the same."""
    own = {"vllm_llama": {"API_KEY": "token-abc123"}, "docker_sglang": {"HF_TOKEN": "<secret>"}}
    return {**SECRETS, **own.get(source.stem, {})}


def _run(text: str, folder: Path, programs: Path, secrets: dict[str, str] | None = None):
    return calls(text, folder, programs, secrets or {"HF_TOKEN": SECRETS["HF_TOKEN"]})


def _read(call, folder: Path, programs: Path) -> Launched:
    argv, env, around = call
    argv = argv[1:] if argv[0] == "sudo" else argv
    if argv[0] not in {"docker", "podman"}:
        return read_argv(argv, env)
    image, inside, inner, options, gpus = read_container(argv, around)
    if inside[:2] == ["bash", "-c"]:
        ((inside, *_),) = calls(inside[2], folder, programs, {})
    if inside[:1] and inside[0].startswith("-"):
        inside = ["python3", "-m", "vllm.entrypoints.openai.api_server", *inside]
    found = read_argv(
        inside, {k: v for k, v in inner.items() if not k.startswith("NVIDIA_")}, image
    )
    assert gpus or "cpu" in image or "NVIDIA_VISIBLE_DEVICES" in inner or "--gpus" in argv
    return Launched(**{**vars(found), "options": tuple(sorted(options))})


BY_HAND = {
    "compose_vllm": (
        "--model Qwen/Qwen3-30B-A3B-Instruct-2507 --tensor-parallel-size 2"
        " --gpu-memory-utilization 0.9 --max-model-len 65536",
        {"HUGGING_FACE_HUB_TOKEN": "hf_x", "VLLM_ATTENTION_BACKEND": "FLASHINFER"},
        "vllm/vllm-openai:v0.11.0",
    ),
    "compose_sglang": (
        "python3 -m sglang.launch_server --model-path zai-org/GLM-4.5-Air-FP8 --tp 4"
        " --mem-fraction-static 0.88",
        {"HF_TOKEN": "hf_x", "SGLANG_ENABLE_SPEC_V2": "1", "START": "12:30"},
        "lmsysorg/sglang:v0.5.9",
    ),
    "kubernetes_vllm": (
        "vllm serve mistralai/Mistral-7B-Instruct-v0.3 --trust-remote-code"
        " --enable-chunked-prefill --max-num-batched-tokens 1024",
        {"HUGGING_FACE_HUB_TOKEN": "hf_x"},
        "vllm/vllm-openai:v0.10.0",
    ),
    "kubernetes_sglang": (
        "python3 -m sglang.launch_server --model-path /models/DeepSeek-V3.1 --tp 8"
        " --enable-torch-compile --host 0.0.0.0",
        {"MODEL": "/models/DeepSeek-V3.1", "NCCL_IB_DISABLE": "1"},
        "lmsysorg/sglang:v0.5.9-cu130",
    ),
}
"""What the YAML files start, read by a person."""


@pytest.mark.parametrize(
    "source", [p for p in READABLE if p.suffix == ".yaml"], ids=lambda p: p.name
)
def test_exported_again_a_manifest_starts_the_same_server(tree, tmp_path, source):
    line, env, image = BY_HAND[source.stem]
    words = line.split()
    if words[0] == "--model":
        words = ["python3", "-m", "vllm.entrypoints.openai.api_server", *words]
    programs = stubs(tmp_path / "programs")
    command = exported(started(tree, source))
    secrets = dict.fromkeys(("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"), "hf_x")
    (after,) = [_read(call, tmp_path, programs) for call in _run(command, tree, programs, secrets)]
    assert Launched(**{**vars(after), "options": ()}) == read_argv(words, env, image)


@pytest.mark.parametrize("source", [p for p in READABLE if p.suffix == ".sh"], ids=lambda p: p.name)
def test_with_the_shipped_spaces_only_what_the_engine_does_by_itself_may_be_said_as_well(
    tree, tmp_path, source
):
    for kind in ("search_spaces", "objectives"):
        shutil.rmtree(tree / kind)
    study = started(tree, source, Asked(version=VERSIONS[_engine(source)]))
    assert {path.name for path in study.iterdir()} == {
        "objective.yaml",
        "space.yaml",
        "study.yaml",
    }
    inspect.check(study)
    programs = stubs(tmp_path / "programs")
    before = [_read(call, tmp_path, programs) for call in _run(source.read_text(), tree, programs)]
    command = exported(study)
    (after,) = [
        _read(call, tmp_path, programs) for call in _run(command, tree, programs, _secrets(source))
    ]
    (asked,) = before
    after = _alike(after, asked)
    added = {name: v for name, v in after.flags.items() if name not in asked.flags}
    assert {name: FLAGS[name].default for name in added} == {n: v[0] for n, v in added.items()}
    assert Launched(**{**vars(after), "flags": asked.flags | added}) == after
    assert Launched(**{**vars(after), "flags": asked.flags}) == asked


VERSIONS = {"sglang": "0.5.9", "vllm": "0.32.0"}


def _engine(source: Path) -> str:
    return "vllm" if "vllm serve" in source.read_text() or "vllm" in source.stem else "sglang"
