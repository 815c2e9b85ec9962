"""From a study to the image that a launch goes through: what is mounted, what is missing here."""

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from tuner.definitions.models import EngineDefinition, Launch
from tuner.definitions.paths import absence
from tuner.engines.base import LaunchSpec
from tuner.engines.images import Image, option_mounts
from tuner.engines.interpreter import in_folder, program_faults
from tuner.engines.spelling import resolve, unset_references
from tuner.errors import HostError
from tuner.hosts.containers import Runtime


def image_of(
    spec: LaunchSpec,
    paths: Iterable[str],
    *,
    port: int,
    usual_port: int,
    gpus: tuple[str, ...],
    all_gpus: bool,
) -> Image | None:
    """The image of this launch with those of the paths mounted that are here; None without one."""
    name = _launch(spec).image
    if name is None:
        return None
    containers = spec.engine.containers
    return Image(
        runtime=_program(spec.engine, spec.folder),
        image=name,
        network=containers.network,
        options=tuple(containers.options),
        mounts=_mounts(paths, containers.options),
        gpus=gpus,
        # Images for machines without GPUs are called by that (vllm-cpu).
        all_gpus=all_gpus and "cpu" not in name.lower(),
        port=port,
        usual_port=usual_port,
        publish=tuple(spec.serve.publish),
    )


def image_faults(image: Image) -> list[str]:
    """What keeps this image from being run on this machine, one sentence each."""
    if shutil.which(image.runtime) is None:
        return [
            fault.replace("interpreter or command", "container runtime")
            for fault in program_faults(image.runtime)
        ]
    faults = [
        f"{path} cannot be mounted: a path with a colon in it is no option of the runtime"
        for path in image.mounts
        if ":" in path
    ]
    try:
        here = Runtime.here(image.runtime).image_id(image.image)
    except HostError as error:
        return [*faults, f"the container runtime does not work: {error.message}"]
    if here is None:
        pull = f"{Path(image.runtime).name} pull {image.image}"
        faults.append(f"the image {image.image} is not on this machine: get it with `{pull}`")
    return faults


def image_ids(engine: EngineDefinition, folder: Path) -> dict[str, str]:
    """What each image of a study holds, by its name, as a digest; those that are not here are
    left out. Raises HostError where the runtime does not answer."""
    names = {launch.image for launch in (engine, *engine.builds.values()) if launch.image}
    if not names:
        return {}
    runtime = Runtime.here(_program(engine, folder))
    found = {name: runtime.image_id(name) for name in sorted(names)}
    return {name: digest for name, digest in found.items() if digest is not None}


def _launch(spec: LaunchSpec) -> Launch:
    """As far as it can be told: what is wrong with it is said by who needs its words."""
    return spec.engine.builds.get(spec.build, Launch()) if spec.build else spec.engine


def _program(engine: EngineDefinition, folder: Path) -> str:
    return in_folder(folder, engine.containers.runtime, files_only=True)


def _mounts(paths: Iterable[str], options: Sequence[str]) -> tuple[str, ...]:
    """Those paths that are here and that no option fills otherwise, each once."""
    filled = [Path(place) for place in option_mounts(options)]
    found: list[str] = []
    for path in paths:
        if not path.startswith(("/", "${")) or unset_references([path]):
            continue
        place = Path(resolve(path))
        if not absence(place) and not any(place.is_relative_to(other) for other in filled):
            found += [path, *map(str, _linked(place))]
    return tuple(dict.fromkeys(found))


def _linked(folder: Path) -> list[Path]:
    """The other folders into which the links of this one lead, as those of a model cache do."""
    if not folder.is_dir():
        return []
    targets = {entry.resolve().parent for entry in folder.iterdir() if entry.is_symlink()}
    return sorted(target for target in targets if not target.is_relative_to(folder.resolve()))
