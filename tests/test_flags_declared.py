"""What an engine declares, by its parser and by its source: in the forms that SGLang has had."""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tuner.flags.questions import declared

OLD = """
import argparse

RUNNERS = ["auto", "triton"]
if True:
    RUNNERS.append("late")

def add_runner_choices(choices):
    RUNNERS.extend(choices)

class ServerArgs:
    tp_size: int = 1
    steps: int = 4

    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--tensor-parallel-size", "--tp-size", default=ServerArgs.tp_size)
        parser.add_argument("--steps", type=int, default=ServerArgs.steps)
        parser.add_argument("--expert-size", "--ep", "--ep-size", dest="ep_size")
        parser.add_argument("--runner", type=str, choices=RUNNERS, default="auto")
        parser.add_argument("--both", choices=["none"] + RUNNERS)
        parser.add_argument("--computed", choices=["auto"] + list(argparse.__all__))
        parser.add_argument("--fast", action="store_true", help="Be fast.")
        parser.add_argument("--sizes", type=int, nargs="+")
        parser.add_argument("--maybe", nargs="?", const=1)
        parser.add_argument("--toggle", action=argparse.BooleanOptionalAction, default=True)
        parser.add_argument("--gone", action=DeprecatedAction, help="--gone is deprecated now.")
        parser.add_argument(
            "--older", type=int, action=DeprecatedAliasStoreAction, new_flag="--steps", dest="steps"
        )
        parser.add_argument("--fuse", action="store_true", help="(Deprecated: use --fusion=auto) x")
        parser.add_argument("--paths", action=PathsAction, nargs="*")
        parser.add_argument("positional")

class DeprecatedAction(argparse.Action):
    def __init__(self, option_strings, dest, nargs=0, **kwargs):
        super().__init__(option_strings, dest, nargs=nargs, **kwargs)

class DeprecatedAliasStoreAction(argparse.Action):
    def __init__(self, option_strings, dest, new_flag=None, **kwargs):
        self.new_flag = new_flag
        super().__init__(option_strings, dest, **kwargs)

class PathsAction(argparse.Action):
    pass

def elsewhere(parser):
    parser.add_argument("--not-of-the-server")
"""
OLD_FLAGS: dict[str, dict[str, Any]] = {
    "tensor-parallel-size": {"aliases": ["tp-size"], "dest": "tensor_parallel_size", "default": 1},
    "steps": {"default": 4},
    "ep-size": {"aliases": ["expert-size", "ep"]},
    "runner": {"choices": ["auto", "triton", "late"], "default": "auto"},
    "both": {"choices": ["none", "auto", "triton", "late"]},
    "fast": {"kind": "presence", "default": False},
    "sizes": {"kind": "list"},
    "maybe": {"kind": "optional"},
    "toggle": {"kind": "negatable", "default": True},
    "gone": {"kind": "presence", "deprecated": ""},
    "older": {"dest": "steps", "deprecated": "steps"},
    "fuse": {"kind": "presence", "default": False, "deprecated": "fusion=auto"},
    "paths": {"kind": "list", "acts": True},
}
NEW = """
from typing import Annotated, List, Literal, Optional

A = Annotated
KINDS = {"a", "b"}

class Schedule:
    steps: A[int, "How many."] = 1
    chunk: A[Optional[int], f"Tokens {1}."] = None
    size: A[int | None, Arg(help="x", aliases=["--sz"], cli_name="--sized")] = None
    kind: A[str, Arg(help="x", choices=KINDS)] = "a"
    mode: A[Optional[Literal["x", "y"]], "x" + "y"] = None
    fast: A[Optional[bool], "x", NS("schedule")] = None
    lists: A[Optional[List[int]], Arg(help="x")] = None
    parsed: A[List[int], Arg(help="x", type_parser=json_list)] = None
    toggle: A[bool, Arg(help="x", action=argparse.BooleanOptionalAction)] = False
    several: A[str, Arg(help="x", action=LoRAAction, action_kwargs={"nargs": "*"})] = None
    hidden: A[bool, Arg(help="x", no_cli=True)] = False
    rank: A[int, Derived("x")]
    plain: int = 3
"""
NEW_FLAGS: dict[str, dict[str, Any]] = {
    "steps": {"default": 1},
    "chunk": {},
    "sized": {"dest": "size", "aliases": ["sz"]},
    "kind": {"choices": ["a", "b"], "default": "a"},
    "mode": {"choices": ["x", "y"]},
    "fast": {"kind": "presence"},
    "lists": {"kind": "list"},
    "parsed": {},
    "toggle": {"kind": "negatable", "default": False},
    "several": {"kind": "list", "acts": True},
}


def told(name: str, **differs: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "name": name,
        "aliases": [],
        "dest": name.replace("-", "_"),
        "kind": "value",
        "choices": None,
        "default": None,
        "deprecated": None,
        "acts": False,
    }
    return plain | differs


def engine(folder: Path, **files: str) -> Path:
    root = folder / "sglang"
    (root / "srt" / "arg_groups").mkdir(parents=True)
    for package in (root, root / "srt", root / "srt" / "arg_groups"):
        (package / "__init__.py").write_text("")
    for name, text in files.items():
        (root / "srt" / f"{name.replace('__', '/')}.py").write_text(text)
    return root


def by_name(flags: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {flag["name"]: flag for flag in flags}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"server_args": OLD}, {**OLD_FLAGS, "computed": {}}),
        ({"server_args": "", "arg_groups__schedule": NEW}, NEW_FLAGS),
    ],
    ids=["calls of add_argument", "annotated fields"],
)
def test_source_is_read_as_it_is_written(tmp_path, files, expected):
    found = by_name(declared.from_source(engine(tmp_path, **files)))
    assert found == {name: told(name, **differs) for name, differs in expected.items()}


def test_the_parser_says_what_the_source_says_and_more(tmp_path, monkeypatch):
    source = declared.from_source(engine(tmp_path, server_args=OLD))
    monkeypatch.syspath_prepend(str(tmp_path))
    parser = declared.from_parser("sglang")
    assert by_name(parser)["computed"]["choices"] == ["auto", *argparse.__all__]
    for name in [name for name in sys.modules if name.partition(".")[0] == "sglang"]:
        monkeypatch.delitem(sys.modules, name)
    computed = {"computed": by_name(source)["computed"]}
    assert by_name(parser) | computed == by_name(source)


def script(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", Path(declared.__file__).read_text(), *arguments],
        env={"PYTHONPATH": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_as_a_script_it_prints_one_line_whatever_the_engine_prints(tmp_path):
    engine(tmp_path, server_args=f"print('loading')\n{OLD}")
    done = script(tmp_path, "sglang", "parser")
    assert "loading" in done.stderr
    assert len(json.loads(done.stdout.splitlines()[-1])) == len(OLD_FLAGS) + 1


def test_an_engine_that_cannot_be_imported_has_a_source_all_the_same(tmp_path):
    engine(tmp_path, server_args=f"import no_such_module\n{OLD}")
    assert script(tmp_path, "sglang", "parser").returncode == 1
    done = script(tmp_path, "sglang", "source")
    assert len(json.loads(done.stdout)) == len(OLD_FLAGS) + 1


@pytest.mark.parametrize("by", ["parser", "source"])
def test_without_the_engine_there_is_no_answer(tmp_path, by):
    done = script(tmp_path, "sglang", by)
    assert done.returncode == 1
    assert done.stdout == ""


def test_vllm_is_asked_where_its_parser_stands_in_older_and_newer_versions(tmp_path):
    for at, name in enumerate(["launchers", "openai"]):
        folder = tmp_path / str(at) / "vllm" / "entrypoints" / name
        folder.mkdir(parents=True)
        (folder / "cli_args.py").write_text(
            "def make_arg_parser(parser):\n"
            "    parser.add_argument('--max-num-seqs', type=int, default=8)\n"
            "    return parser\n"
        )
        (tmp_path / str(at) / "vllm" / "utils.py").write_text(
            "from argparse import ArgumentParser as FlexibleArgumentParser\n"
        )
        done = script(tmp_path / str(at), "vllm", "parser")
        assert json.loads(done.stdout) == [told("max-num-seqs", default=8)], done.stderr


@pytest.mark.parametrize(
    ("said", "new"),
    [
        ("Be fast.", None),
        ("It replaces a deprecated flag.", None),
        ("Deprecated.", ""),
        ("[Deprecated] Use --new instead.", "new"),
        ("(Deprecated: use --new-one=auto) Fuse.", "new-one=auto"),
        ("Note: --old is deprecated now. Please use --new instead.", "new"),
    ],
)
def test_a_help_text_says_what_took_a_flags_place(said, new):
    assert declared.deprecation(said) == new


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ([1, 2], "1 2"),
        ([], None),
        ({"a": 1}, None),
        (float("inf"), None),
        (1.5, 1.5),
        (argparse.Namespace(value="enum"), "enum"),
    ],
)
def test_defaults_are_such_as_json_holds(value, plain):
    assert declared.plain(value) == plain
