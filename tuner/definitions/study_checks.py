"""What can be wrong with a study beyond its schema, by itself."""

from collections.abc import Iterator, Mapping

from tuner.definitions.addresses import AUTO, cluster_address
from tuner.definitions.findings import Findings
from tuner.definitions.models import Launch, StudyDefinition
from tuner.definitions.versions import is_version
from tuner.definitions.yaml_source import Place, Source
from tuner.flags.aliases import one_name
from tuner.flags.names import canonical

RESERVED: Mapping[str, str] = {
    "host": "the tuner gives every launch its own address",
    "port": "the tuner gives every launch its own port",
    "model": "the study names it as 'model'",
    "model-path": "the study names it as 'model'",
}


def check_study(source: Source, study: StudyDefinition, findings: Findings) -> None:
    """Note what is wrong with a study by itself."""
    faults = [*_engine_faults(study), *_container_faults(study), *_version_faults(study)]
    faults += [*_serve_faults(study), *_hardware_faults(study), *_budget_faults(study)]
    for place, message, hint in faults:
        findings.add(source, place, message, hint, key=True)
    _check_fixed(source, study.engine.name, findings)


def fixed_names(source: Source, kind: str) -> list[str]:
    """The names under fixed.flags or fixed.env as they are written."""
    fixed = source.value.get("fixed") or {}
    return list(fixed.get(kind) or {})


Fault = tuple[Place, str, str]


def _engine_faults(study: StudyDefinition) -> Iterator[Fault]:
    engine = study.engine
    rehearsal = engine.name == "rehearsal"
    launches: dict[Place, Launch] = {("engine",): engine}
    launches |= {("engine", "builds", name): build for name, build in engine.builds.items()}
    for place, launch in launches.items():
        other = "command" if launch.image is None else "image"  # inside which a command may be
        ways = [way for way in ("python", other) if getattr(launch, way) is not None]
        if len(ways) > 1:
            yield (*place, ways[1]), f"found {' and '.join(ways)}, expected one way to launch", ""
        if not ways and not rehearsal:
            yield place, "no way to launch", "name one of python, command, image"
    if rehearsal and engine.surface is None:
        yield ("engine",), "a rehearsal needs a surface", "add 'surface: surface.yaml'"
    if not rehearsal and engine.surface is not None:
        message = f"found a surface, but {engine.name} is a real engine"
        yield ("engine", "surface"), message, "only a rehearsal has one"


def _serve_faults(study: StudyDefinition) -> Iterator[Fault]:
    engine = study.engine
    images = [launch for launch in (engine, *engine.builds.values()) if launch.image is not None]
    if study.serve.publish and not (images and engine.containers.network == "bridge"):
        message = "found publish, but no launch is an image on the bridge network"
        yield ("serve", "publish"), message, "'host' and 'port' say where it listens"


def _hardware_faults(study: StudyDefinition) -> Iterator[Fault]:
    address = study.hardware.ray
    if address is not None and address != AUTO and cluster_address(address) is None:
        message = f"found '{address}', expected the address of a Ray cluster, HOST:PORT"
        hint = "its head node listens on 6379 unless told otherwise; no Ray client (ray://)"
        yield ("hardware", "ray"), message, hint


_SET_BY_THE_TUNER: Mapping[str, str] = {
    **dict.fromkeys(("-d", "--detach", "-i", "--interactive", "-t", "--tty"), "it stays attached"),
    **dict.fromkeys(("--name", "--cidfile", "--rm", "--init", "--pull"), "the tuner gives it"),
    **dict.fromkeys(("--gpus", "--cpuset-cpus"), "every launch gets those of its slot"),
    **dict.fromkeys(("-p", "--publish", "-P", "--publish-all"), "'network' decides"),
    **dict.fromkeys(("--network", "--net"), "'network' decides"),
    "--entrypoint": "'command' names the words inside the image",
    "--restart": "what has ended must stay so",
}


def _container_faults(study: StudyDefinition) -> Iterator[Fault]:
    engine = study.engine
    place: Place = ("engine", "containers")
    images = [launch for launch in (engine, *engine.builds.values()) if launch.image is not None]
    if "containers" in engine.model_fields_set and not images:
        yield place, "found containers, but no launch is an image", "name an image, or drop it"
    for index, option in enumerate(engine.containers.options):
        why = _SET_BY_THE_TUNER.get(option.partition("=")[0])
        if why is not None:
            yield (*place, "options", index), f"'{option}' cannot be given: {why}", ""
        elif index == 0 and not option.startswith("-"):
            message = f"found '{option}', expected an option such as --ipc=host"
            yield (*place, "options", index), message, ""


def _version_faults(study: StudyDefinition) -> Iterator[Fault]:
    version = study.engine.version
    if version is not None and not is_version(version):
        message = f"found the text '{version}', expected a version such as 0.5.17"
        yield ("engine", "version"), message, ""


def _budget_faults(study: StudyDefinition) -> Iterator[Fault]:
    budget = study.budget
    if budget.trials is None and budget.hours is None and budget.deadline is None:
        yield ("budget",), "no limit", "name at least one of trials, hours, deadline"


def _check_fixed(source: Source, engine: str, findings: Findings) -> None:
    seen: dict[str, str] = {}
    for written in fixed_names(source, "flags"):
        place, flag = ("fixed", "flags", written), canonical(written)
        if flag in RESERVED:
            findings.add(source, place, f"'{flag}' cannot be fixed: {RESERVED[flag]}", key=True)
        if not flag:
            message = "found dashes alone, expected the name of a flag"
            findings.add(source, place, message, key=True)
        first = seen.setdefault(one_name(engine, flag), written)
        if first != written:
            line, _ = source.mark(("fixed", "flags", first), key=True)
            as_what = "" if canonical(first) == flag else f" as '{canonical(first)}'"
            message = f"flag '{flag}' again, first{as_what} on line {line}"
            findings.add(source, place, message, key=True)
