"""From a configuration to the launch an engine can spell, and how long a launch will take."""

from collections.abc import Sequence

from tuner import engines
from tuner.definitions.slo import least_requests
from tuner.definitions.space import Configuration
from tuner.definitions.validation import LoadedStudy
from tuner.engines.base import LaunchCommand, LaunchSpec
from tuner.load.pace import LONGEST_WARMUP, LONGEST_WINDOW
from tuner.measuring.replicas import Replicas
from tuner.night.heeding import LONGER
from tuner.records import TrialKind, TrialRecord

TYPICAL_START_S = {"vllm": 60.0, "sglang": 90.0, "rehearsal": 0.8}
"""Seconds until ready where nothing was measured yet: an order of magnitude, said as such."""
STOP_S = 3.0


def launch_spec(study: LoadedStudy, configuration: Configuration) -> LaunchSpec:
    """The fixed part of the study with the configuration on top."""
    settings = study.space.settings(configuration)
    fixed = study.definition.fixed
    return LaunchSpec(
        engine=study.definition.engine,
        model=study.definition.model,
        folder=study.folder,
        build=settings.build,
        flags={**fixed.flags, **settings.flags},
        bool_styles=settings.bool_styles,
        env={**fixed.env, **settings.env},
        serve=study.definition.serve,
    )


def launch_command(study: LoadedStudy, configuration: Configuration) -> LaunchCommand:
    """The launch as a person would make it: the address in it is no real one, and is not shown.

    Raises EngineError where it cannot be spelt.
    """
    engine = engines.create(launch_spec(study, configuration))
    return engine.command(host="127.0.0.1", port=1, extra_ports=(2, 3))


def replicas(
    study: LoadedStudy, configuration: Configuration, kind: TrialKind = "confirm"
) -> Replicas:
    """How many servers such a launch makes: as many as the host holds, of what the search proposes
    one in their place, since its numbers choose and do not judge.

    Raises EngineError where the size of the configuration cannot be told.
    """
    gpus = engines.create(launch_spec(study, configuration)).gpus_needed()
    return Replicas.on(study.definition.hardware.gpus, gpus, full=kind != "search")


def time_scale(study: LoadedStudy) -> float:
    """Surface seconds per real second; 1.0 for every real engine."""
    return study.surface.time_scale if study.surface else 1.0


def expected_launch_s(study: LoadedStudy, records: Sequence[TrialRecord]) -> float:
    """Real seconds that a whole launch takes: the mean of the last ten, or the start-up that the
    study expects (typical of the engine where it says nothing) plus the ladder."""
    made = [record.duration_s for record in records if record.outcome == "completed"][-10:]
    if made:
        return sum(made) / len(made)
    engine = study.definition.engine
    return (engine.start_s or TYPICAL_START_S[engine.name]) + ladder_s(study) + STOP_S


def ladder_s(study: LoadedStudy) -> float:
    """Real seconds of load in one launch, as the objective has them."""
    objective = study.objective
    surface_s = len(objective.ladder) * (objective.warmup_s + objective.window_s)
    return surface_s / time_scale(study)


def longest_ladder_s(study: LoadedStudy) -> float:
    """Real seconds that no launch's load exceeds: every warm-up that does not settle, every window
    that waits for the requests of a percentile, every rung measured twice and longer then."""
    objective, twice = study.objective, 1 + LONGER
    waiting = (least_requests(objective.slos_at(rung)) > 0 for rung in objective.ladder)
    surface_s = sum(
        twice * LONGEST_WARMUP * objective.warmup_s
        + (twice * LONGEST_WINDOW if waits else 2) * objective.window_s
        for waits in waiting
    )
    return surface_s / time_scale(study)
