"""An export as a unit of systemd.

Words are quoted as systemd.syntax(7), systemd.service(5) and systemd.unit(5) have it: C escapes
inside double quotes, `%%` for a percent sign, and in commands `$$` for a dollar.
"""

import re
import shutil

from tuner.engines.spelling import references, spelt
from tuner.views.docker import docker_words
from tuner.views.export import Export
from tuner.views.words import comment, host_label

_SAFE = re.compile(r"[A-Za-z0-9_./:=,@+-]+")
_ESCAPED = {"\\": "\\\\", '"': '\\"', "%": "%%", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def unit(chosen: Export) -> str:
    """The service; its secrets come from a file of root's that is named in it."""
    command = _command(chosen)
    asked = [name for word in command for name in references(word)]
    secrets = sorted({*chosen.secret_env, *asked})
    file = f"/etc/{host_label(chosen.study)}.env"
    needs = f"{file} must set {', '.join(secrets)}; readable by root alone."
    environment = [f"Environment={_word(f'{n}={v}')}" for n, v in _environment(chosen).items()]
    lines = [
        "[Unit]",
        f"Description=LLM server as tuned in {host_label(chosen.study)}",
        "Wants=network-online.target",
        "After=network-online.target",
        "",
        "[Service]",
        *environment,
        *([f"EnvironmentFile={file}"] if secrets else []),
        *(f"ExecStartPre=/bin/sh -c {_word(_must_be_set(name), dollar='$$')}" for name in secrets),
        f"ExecStart={' '.join(_word(word, dollar='$$') for word in command)}",
        "Restart=on-failure",
        "RestartSec=10",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return (comment(needs) if secrets else "") + "\n".join(lines) + "\n"


def _environment(chosen: Export) -> dict[str, str]:
    """A container has its variables in its own command."""
    return {} if chosen.container.image else chosen.plain_env


def _command(chosen: Export) -> list[str]:
    """The words of the launch, of which the first must be a whole path."""
    words = list(docker_words(chosen)) if chosen.container.image else chosen.argv
    if words[0].startswith("/"):
        return words
    found = shutil.which(words[0])
    return [found, *words[1:]] if found else ["/usr/bin/env", *words]


def _must_be_set(name: str) -> str:
    return f': "${{{name}:?set {name}}}"'


def _word(text: str, *, dollar: str = "$") -> str:
    """One word; `${NAME}` stays a reference, any other dollar is written as `dollar`."""
    if _SAFE.fullmatch(text):
        return text
    return f'"{spelt(text, lambda part: _text(part, dollar), lambda name: f"${{{name}}}")}"'


def _text(text: str, dollar: str) -> str:
    return "".join(_character(c, dollar) for c in text)


def _character(c: str, dollar: str) -> str:
    if c == "$":
        return dollar
    if c in _ESCAPED:
        return _ESCAPED[c]
    return c if c.isprintable() else f"\\U{ord(c):08x}"
