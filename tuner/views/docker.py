"""An export as a container that docker or podman runs."""

from tuner.engines.images import ANY_ADDRESS, Image, own_port
from tuner.engines.spelling import without
from tuner.http.client import is_loopback
from tuner.views.export import Export, flags

LOOPBACK = "127.0.0.1"
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
    if not alone or not is_loopback(address(chosen)):
        return chosen.arguments
    return [*without(chosen.arguments, ("--host",)), "--host", ANY_ADDRESS]


def address(chosen: Export) -> str:
    """Where the server listens: as it is told, else as its engine does by itself."""
    said = [values[0] for name, values in flags(chosen.arguments) if name == "host" and values]
    usual = LOOPBACK if chosen.engine in _LISTENS_TO_ITSELF else ANY_ADDRESS
    return said[-1] if said else usual


def published(chosen: Export) -> list[str]:
    """The ports that a container on a network of its own shows, as `[ADDRESS:]PORT:PORT`."""
    return chosen.container.publish or [own_port(chosen.port)]


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
        publish=tuple(chosen.container.publish),
    )
