"""What a shell really starts: its programs replaced by one that only says how it was called."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROGRAMS = (
    *("python", "python3", "vllm", "sglang", "docker", "podman", "sudo"),
    *("numactl", "taskset", "uv"),
)
_PROMPT = re.compile(r"^(\(\w+\) )?(\w+@\w+:\S*)?\$ |^> |^```.*$", re.MULTILINE)
_STUB = """#!{python}
import json, os, sys
with open(os.environ["CALLED"], "a") as file:
    name = os.path.basename(sys.argv[0])
    file.write(json.dumps([[name, *sys.argv[1:]], dict(os.environ)]) + "\\n")
"""
_NOISE = frozenset({"PWD", "OLDPWD", "SHLVL", "_", "CALLED", "PATH", "HOME"})

ALIASES = {
    "tp": "tp-size",
    "dp": "dp-size",
    "ep": "ep-size",
    "model": "model-path",
    "-tp": "tensor-parallel-size",
}
_SEVERAL = frozenset({"cuda-graph-bs", "lora-paths", "served-model-name"})
_ALONE = frozenset({"enforce-eager"})
CONTAINER_ALONE = frozenset(
    {"-d", "-it", "-itd", "--rm", "--init", "--privileged", "--detach", "-i", "-t"}
)


@dataclass(frozen=True, kw_only=True)
class Launched:
    """A server's launch: its words before the model, the model, flags, variables, an image."""

    program: tuple[str, ...]
    model: str | None
    flags: dict[str, Any]
    env: dict[str, str]
    image: str = ""
    options: tuple[str, ...] = field(default=())


def stubs(folder: Path) -> Path:
    """A folder with every program, each of which only notes how it was called."""
    folder.mkdir()
    for name in PROGRAMS:
        (folder / name).write_text(_STUB.format(python=sys.executable))
        (folder / name).chmod(0o755)
    return folder


def calls(text: str, folder: Path, programs: Path, env: Mapping[str, str]) -> list[Any]:
    """Run a text by bash; what it called, as argv, what it set beyond `env`, and all variables."""
    (folder / "logs").mkdir(exist_ok=True)
    notes = folder / "called"
    notes.unlink(missing_ok=True)
    around = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": "/home/me", "CALLED": str(notes), **env}
    script = f"{_PROMPT.sub('', text)}\nwait\n"
    subprocess.run(
        ["bash", "-s"],
        input=script,
        text=True,
        cwd=folder,
        env=around,
        capture_output=True,
        timeout=60,
        check=False,
    )
    found = [json.loads(line) for line in notes.read_text().splitlines()]
    base = {**around, **dict.fromkeys(_NOISE)}
    return [
        (argv, {k: v for k, v in said.items() if k not in _NOISE and base.get(k) != v}, said)
        for argv, said in found
    ]


def read_argv(argv: Sequence[str], env: Mapping[str, str], image: str = "") -> Launched:
    """A command divided at its model, names in one spelling, values as what they mean."""
    words = list(argv)
    at = next(
        i
        for i, word in enumerate(words)
        if words[i - 1] == "serve"
        or word == "sglang.launch_server"
        or "api_server" in word
        or word.endswith("launch_server.py")
    )
    at += 0 if words[at - 1] == "serve" else 1
    rest, model, flags = words[at:], None, dict[str, Any]()
    name = None
    for word in rest:
        flag = re.fullmatch(r"(--?[A-Za-z][\w.-]*)(?:=(.*))?", word, re.DOTALL)
        level = re.fullmatch(r"-O(\d)", word)
        if level:
            flags["optimization-level"] = [level[1]]
        elif flag:
            name = _name(flag[1])
            flags[name] = [] if flag[2] is None else [flag[2]]
        elif name is None or name in _ALONE or (flags[name] and name not in _SEVERAL):
            model = word
        else:
            flags[name].append(word)
    if "model-path" in flags:
        model = flags.pop("model-path")[0]
    usual = "30000" if any("sglang" in w or "launch_server" in w for w in words[:at]) else "8000"
    flags.setdefault("port", [usual])
    flags.setdefault("host", ["127.0.0.1" if usual == "30000" else "0.0.0.0"])
    values = {n: [_meant(v) for v in value] for n, value in flags.items()}
    return Launched(
        program=tuple(words[:at]), model=model, flags=values, env=dict(env), image=image
    )


def _name(written: str) -> str:
    if not written.startswith("--"):
        return ALIASES.get(written, written)
    head, dot, rest = written[2:].partition(".")
    head = head.replace("_", "-")
    return ALIASES.get(head, head) + dot + rest


def _meant(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


def read_container(
    argv: Sequence[str], around: Mapping[str, str]
) -> tuple[str, list[str], dict[str, str], set[str], bool]:
    """`docker run`: image, the words inside, variables, other options, whether GPUs are given."""
    words = list(argv)[list(argv).index("run") + 1 :]
    env, options, entry, gpus = {}, set(), [], False
    while words[0].startswith("-"):
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if not equals and name not in CONTAINER_ALONE:
            value = words.pop(0)
        if name in {"-e", "--env"}:
            variable, said, text = value.partition("=")
            env[variable] = text if said else around.get(variable, "unset")
        elif name == "--entrypoint":
            entry = [value]
        elif name == "--gpus" or "nvidia" in value:
            gpus = True
        elif name in {"--network", "--net"}:
            options |= {f"--network={value}"}
        elif name not in {"--name", "--restart", "--runtime", *CONTAINER_ALONE}:
            long = {"-v": "--volume", "-w": "--workdir", "-p": "--publish"}.get(name, name)
            options.add(f"{long}={value}")
        elif name == "--privileged":
            options.add(name)
    return words[0], [*entry, *words[1:]], env, options, gpus
