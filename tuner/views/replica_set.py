"""Several servers on one host: the command of each, apart from the others' GPUs and ports."""

from collections.abc import Sequence
from dataclasses import replace

from tuner import engines
from tuner.definitions.space import Configuration
from tuner.definitions.validation import LoadedStudy
from tuner.engines.base import LaunchCommand
from tuner.engines.images import Image
from tuner.engines.spelling import without
from tuner.night.launches import launch_command, launch_spec, replicas

BALANCER = (
    "A full set: all of these servers together. A load balancer that deals requests out evenly"
    " (SGLang's router, nginx, HAProxy) is needed in front of them, and is not in this file."
)
DERIVED_PORTS = 100
"""Between servers of SGLang with DP attention: they count ports of their own up from theirs."""

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_OWN_FLAGS = ("--port", "--nccl-port", "--dist-init-addr")
_OWN_VARIABLES = ("VLLM_PORT", _VISIBLE)
"""What no two servers can share; only the port is given anew, the engine finds the rest."""


def replica_commands(study: LoadedStudy, configuration: Configuration, port: int) -> list[str]:
    """A line of shell for each server of a full set, the first on that port; none where the
    configuration takes more than half of the host's GPUs.

    GPUs are those of a `CUDA_VISIBLE_DEVICES` that the study sets, else numbers from 0. Raises
    EngineError where it cannot be spelt.
    """
    servers = replicas(study, configuration).of
    if servers == 1:
        return []
    command = launch_command(study, configuration)
    gpus = engines.create(launch_spec(study, configuration)).gpus_needed()
    visible = _visible(command, gpus * servers)
    step = DERIVED_PORTS if "--enable-dp-attention" in command.argv else 1
    return [
        _own(command, visible[place * gpus : (place + 1) * gpus], port, place * step).shell()
        for place in range(servers)
    ]


def _visible(command: LaunchCommand, count: int) -> list[str]:
    listed = {**command.env, **command.withheld_env}.get(_VISIBLE, "").split(",")
    enough = len(listed) >= count and all(listed)
    return listed if enough else [str(number) for number in range(count)]


def _own(command: LaunchCommand, gpus: Sequence[str], port: int, by: int) -> LaunchCommand:
    env = {name: v for name, v in command.withheld_env.items() if name not in _OWN_VARIABLES}
    return replace(
        command,
        withheld_argv=(*without(command.withheld_argv, _OWN_FLAGS), "--port", str(port + by)),
        withheld_env={**env, _VISIBLE: ",".join(gpus)},
        image=command.image and replace(command.image, publish=_moved(command.image, port, by)),
    )


def _moved(image: Image, port: int, by: int) -> tuple[str, ...]:
    """What is published, that much further outside, and inside where the server listens."""
    parts = [published.rsplit(":", 2) for published in image.publish]
    return tuple(
        ":".join([*address, str(int(outside) + by), str(int(inside) + by * (int(inside) == port))])
        for *address, outside, inside in parts
    )
