"""The engines that can be tuned, behind one protocol (`base.Engine`)."""

from tuner.engines.base import Engine, LaunchSpec
from tuner.flags.catalogue import Catalogue

__all__ = ["catalogue", "create", "preflight", "version"]


def create(spec: LaunchSpec) -> Engine:
    """The engine that the study names, for this configuration."""
    if spec.engine.name == "vllm":
        from tuner.engines.vllm import VLLMEngine

        return VLLMEngine(spec)
    if spec.engine.name == "sglang":
        from tuner.engines.sglang import SGLangEngine

        return SGLangEngine(spec)
    from tuner.engines.rehearsal import RehearsalEngine

    return RehearsalEngine(spec)


def version(spec: LaunchSpec) -> str | None:
    """The installed version of the engine, asked of its own interpreter without loading it."""
    return create(spec).version()


def catalogue(spec: LaunchSpec) -> Catalogue | None:
    """The flags of the engine, asked of its own parser where it is installed, or as they were
    recorded of its version; None where neither is there."""
    return create(spec).catalogue()


def preflight(spec: LaunchSpec) -> list[str]:
    """What would keep this launch from starting on this machine, one sentence each."""
    return create(spec).preflight()
