"""An export as a container that docker or podman runs."""

from tuner.engines.images import ANY_ADDRESS, Image
from tuner.views.export import Export, flags

IMAGE = "${IMAGE}"
"""Stands for an image that the study does not name; a shell stops where it is not set."""

_LISTENS_TO_ITSELF = ("sglang", "rehearsal")
"""Engines that nobody outside their container reaches unless they are told an address."""


def docker_script(chosen: Export) -> str:
    """The line of shell that runs it; secrets reach the container by name alone."""
    return f"{_image(chosen).line(chosen.env, _inside(chosen), launched=False)}\n"


def docker_words(chosen: Export) -> tuple[str, ...]:
    """The words of that line, with references as `${NAME}`."""
    return _image(chosen).pasted(chosen.env, _inside(chosen)).argv


def arguments(chosen: Export, *, alone: bool) -> list[str]:
    """The engine's arguments; `alone` on a network of its own it must listen to all of it."""
    named = any(name == "host" for name, _ in flags(chosen.arguments))
    if not alone or named or chosen.engine not in _LISTENS_TO_ITSELF:
        return chosen.arguments
    return [*chosen.arguments, "--host", ANY_ADDRESS]


def _inside(chosen: Export) -> list[str]:
    container = chosen.container
    return [*container.program, *arguments(chosen, alone=container.network == "bridge")]


def _image(chosen: Export) -> Image:
    container = chosen.container
    return Image(
        runtime=container.runtime,
        image=container.image or IMAGE,
        network=container.network,
        options=tuple(container.options),
        mounts=tuple(container.mounts),
        all_gpus=chosen.gpus > 0,
        port=chosen.port,
        usual_port=chosen.port,
    )
