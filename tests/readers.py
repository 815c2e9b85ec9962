"""Readers of what an export writes: shell, systemd, compose, a cluster, an engine's config file.

Each gives back argv and environment as the program would start with them.
"""

import os
import re
import subprocess
from typing import Any

import yaml

SECRETS = {"HF_TOKEN": "hf_of this $HOME 'machine'", "API_KEY": 'sk-"1" 2', "IMAGE": "img:1"}
"""What stands behind references while a text is read back."""


def shell_argv(script: str, program: str, tmp: Any) -> tuple[list[str], dict[str, str]]:
    """Run the script with a stand-in for its program, which tells how it was called."""
    teller = tmp / program.rsplit("/", 1)[-1]
    teller.write_text('#!/bin/sh\nfor w in "$@"; do printf "%s\\0" "$w"; done\necho ENV; env -0\n')
    teller.chmod(0o755)
    text = script.replace(program, str(teller)) if "/" in program else script
    path = f"{tmp}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh"], input=text.encode(), capture_output=True, check=True, env={**SECRETS, "PATH": path}
    )
    words, _, env = done.stdout.decode().partition("ENV\n")
    pairs = (pair.partition("=") for pair in env.split("\0") if pair)
    return words.split("\0")[:-1], {name: value for name, _, value in pairs}


_C_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "s": " "}


def systemd_words(text: str) -> list[str]:
    """The words of a line by systemd.syntax(7): quotes, C escapes; then `%%` of systemd.unit(5)."""
    words: list[str] = []
    word: str | None = None
    quote = ""
    at = 0
    while at < len(text):
        c = text[at]
        at += 1
        if c == "\\":
            kind = text[at]
            size = {"x": 2, "u": 4, "U": 8}.get(kind)
            if size:
                made, at = chr(int(text[at + 1 : at + 1 + size], 16)), at + 1 + size
            else:
                made, at = _C_ESCAPES[kind], at + 1
            word = (word or "") + made
        elif quote:
            word, quote = ((word or ""), "") if c == quote else ((word or "") + c, quote)
        elif c in "\"'" and word is None:
            word, quote = "", c
        elif c in " \t":
            words, word = ([*words, word] if word is not None else words), None
        else:
            word = (word or "") + c
    assert not quote, "a quote is not closed"
    found = [*words, word] if word is not None else words
    assert all(not re.search(r"(?<!%)%(?:%%)*(?!%)", w) for w in found), "a specifier is left"
    return [w.replace("%%", "%") for w in found]


def systemd_command(text: str, env: dict[str, str]) -> list[str]:
    """A command line of systemd.service(5): words, then `${NAME}` and `$$` in each."""
    pattern = re.compile(r"\$\$|\$\{(\w+)\}")
    words = systemd_words(text)
    assert all(not re.search(r"(?<!\$)\$(?:\$\$)*(?![${])", w) for w in words), "a bare dollar"
    return [pattern.sub(lambda m: env[m[1]] if m[1] else "$", word) for word in words]


def unit_lines(text: str) -> dict[str, list[str]]:
    """The settings of a unit by name, sections left out."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line and line[0] not in "#;[":
            name, equals, value = line.partition("=")
            assert equals, line
            found.setdefault(name, []).append(value)
    return found


def interpolated(value: Any) -> Any:
    """What compose makes of `$$` and `${NAME:?message}`, everywhere in a document."""
    if isinstance(value, dict):
        return {key: interpolated(below) for key, below in value.items()}
    if isinstance(value, list):
        return [interpolated(below) for below in value]
    if not isinstance(value, str):
        return value

    def one(match: re.Match[str]) -> str:
        return SECRETS[match[1]] if match[1] else "$"

    assert not re.search(r"\$(?![${])", value.replace("$$", ""))
    return re.sub(r"\$\$|\$\{(\w+):\?[^}]*\}", one, value)


def expanded(text: str, env: dict[str, str]) -> str:
    """What a cluster makes of a word: `$$` a dollar, `$(NAME)` a variable, as its expand.go."""
    made, at = "", 0
    while at < len(text):
        following = text[at + 1 : at + 2]
        end = text.find(")", at)
        if text[at] == "$" and following == "$":
            made, at = made + "$", at + 2
        elif text[at] == "$" and following == "(" and end > 0:
            made, at = made + env[text[at + 2 : end]], end + 1
        else:
            made, at = made + text[at], at + 1
    return made


def config_arguments(text: str) -> list[str]:
    """What an engine makes of its config file: vLLM's and SGLang's loaders do the same."""
    arguments: list[str] = []
    for key, value in yaml.safe_load(text).items():
        if isinstance(value, bool):
            arguments += [f"--{key}"] if value else []
        elif isinstance(value, list):
            arguments += [f"--{key}", *map(str, value)]
        else:
            arguments += [f"--{key}", str(value)]
    return arguments
