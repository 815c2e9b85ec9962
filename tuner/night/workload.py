"""What a study asks of its servers, and what its engine's flags say against that."""

from tuner import engines
from tuner.definitions.validation import LoadedStudy
from tuner.definitions.workload import Workload, workload
from tuner.night.launches import launch_spec

_OFF = {
    "disable-radix-cache": True,
    "enable-prefix-caching": False,
    "no-enable-prefix-caching": True,
}
"""Flags that keep an engine from remembering prefixes, with the value that does."""


def workload_of(study: LoadedStudy) -> Workload:
    """What every launch of a study is asked. Raises EngineError where it has no engine."""
    own = engines.create(launch_spec(study, study.baseline)).api
    return workload(study.objective, study.lengths, study.trace, own)


def contradictions(study: LoadedStudy) -> list[str]:
    """What the baseline's flags say against the objective's prompts, a sentence each."""
    if study.objective.prefix == "cold":
        return []
    flags = launch_spec(study, study.baseline).flags
    off = [name for name, value in _OFF.items() if flags.get(name) is value]
    return [f"prompts share a start, and --{name} keeps the engine from using it" for name in off]
