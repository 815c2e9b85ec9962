"""Why a launch failed: from its log and exit, or in words that need neither."""

from collections.abc import Mapping

from tuner.definitions.models import Value
from tuner.engines.base import LaunchSpec
from tuner.failures.blame import changed
from tuner.failures.classifier import Failure, Phase, classify, gave_up, verdict


def understood(
    launch: LaunchSpec,
    nearest: Mapping[str, Value],
    log: str,
    exit_code: int | None,
    *,
    serving: bool,
    waited_s: float | None,
    heard: str = "",
    stalled: str = "",
) -> Failure:
    """What the log says; `exit_code` is None for a server that was alive until it was stopped,
    `heard` what that one answered while it was waited for, `stalled` why it was so no longer.

    `nearest` holds flags and variables of the most similar configuration that served.
    """
    engine = launch.engine.name
    phase: Phase | None = "serving" if serving else None
    flags, similar = {**launch.flags, **launch.env}, nearest or None
    if exit_code is not None:
        failure = classify(
            log, engine=engine, exit_code=exit_code, phase=phase, flags=flags, nearest=similar
        )
        if failure is not None:
            return failure
        stalled = f"ended as if it had been told to (exit code {exit_code}), and not by the tuner"
    return gave_up(
        log,
        engine=engine,
        phase=phase,
        waited_s=waited_s,
        heard=heard,
        stalled=stalled,
        flags=flags,
        nearest=similar,
    )


def refused(
    launch: LaunchSpec, cause: str, phase: Phase = "starting", advice: str | None = None
) -> Failure:
    """The launch or all of its requests were refused, in words that need no log."""
    return verdict(
        "arg_validation",
        cause,
        engine=launch.engine.name,
        phase=phase,
        action="never",
        advice=advice,
    )


def wrong(launch: LaunchSpec, nearest: Mapping[str, Value], fault: str) -> Failure:
    """Fast or not: output that is no longer the model's is no result."""
    return verdict(
        "wrong_output",
        fault,
        engine=launch.engine.name,
        phase="serving",
        blame=changed({**launch.flags, **launch.env}, nearest),
        action="never",
        advice="Do not serve with these flags, however fast: compare answers by hand and report it "
        "to the engine.",
    )
