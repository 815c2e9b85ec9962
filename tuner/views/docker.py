"""An export as a container that docker or podman runs."""

import csv
import io
from collections.abc import Sequence

from tuner.engines.spelling import shell_word
from tuner.views.export import Export, flags

IMAGE = "${IMAGE}"
"""Stands for an image that the study does not name; a shell stops where it is not set."""

_LISTENS_TO_ITSELF = ("sglang", "rehearsal")
"""Engines that nobody outside their container reaches unless they are told an address."""


def docker_script(chosen: Export) -> str:
    """The lines of shell that run it; secrets reach the container by name alone."""
    exports = [f"export {name}={shell_word(value)}" for name, value in chosen.secret_env.items()]
    return "\n".join([*exports, " ".join(map(shell_word, docker_words(chosen)))]) + "\n"


def docker_words(chosen: Export) -> list[str]:
    """The command of the runtime, with references as `${NAME}`."""
    container = chosen.container
    return [
        *(container.runtime, "run", "--rm", "--init", "--ipc", "host"),
        *(("--gpus", str(chosen.gpus)) if chosen.gpus else ()),
        *_network(chosen),
        *(word for name in chosen.secret_env for word in ("-e", name)),
        *(word for name, value in chosen.plain_env.items() for word in ("-e", f"{name}={value}")),
        *(word for path in container.mounts for word in ("--mount", _mount(path))),
        *container.options,
        *("--entrypoint", container.program[0], container.image or IMAGE),
        *container.program[1:],
        *arguments(chosen, alone=container.network == "bridge"),
    ]


def arguments(chosen: Export, *, alone: bool) -> list[str]:
    """The engine's arguments; `alone` on a network of its own it must listen to all of it."""
    named = any(name == "host" for name, _ in flags(chosen.arguments))
    if not alone or named or chosen.engine not in _LISTENS_TO_ITSELF:
        return chosen.arguments
    return [*chosen.arguments, "--host", "0.0.0.0"]  # noqa: S104 - inside its container


def _network(chosen: Export) -> Sequence[str]:
    if chosen.container.network == "host":
        return ("--network", "host")
    return ("-p", f"{chosen.port}:{chosen.port}")


def _mount(path: str) -> str:
    """One option of `--mount`: fields as CSV has them, since a path may hold a comma."""
    line = io.StringIO()
    fields = ["type=bind", f"source={path}", f"target={path}", "readonly"]
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()
