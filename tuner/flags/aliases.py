"""Flags that an engine knows by several names, whatever the version. Pure.

Sources: the parsers of SGLang 0.5.9, 0.5.17 and 0.5.23; `--tp` and its like are none of their
names, but every version reads them as one flag only. vLLM's short names have one dash, which no
flag of a study has.
"""

from collections.abc import Mapping

from tuner.flags.names import canonical
from tuner.flags.sglang import FLAGS

_SGLANG: Mapping[str, str] = {
    **{alias: flag.name for flag in FLAGS.values() for alias in flag.aliases},
    **{short: f"{short}-size" for short in ("tp", "dp", "pp", "ep")},
    "attention-data-parallel-size": "attn-dp-size",
    "enable-hicache": "enable-hierarchical-cache",
    "context-bucket": "cuda-graph-prefill-max-context",
}
ALIASES: Mapping[str, Mapping[str, str]] = {"sglang": _SGLANG, "rehearsal": _SGLANG, "vllm": {}}
"""By engine: alias → the one name that stands for the flag here."""


def one_name(engine: str, name: str) -> str:
    """The one name of a flag under which all its aliases are the same; a key of its JSON value
    stays behind the dot."""
    head, dot, rest = canonical(name).partition(".")
    return ALIASES.get(engine, {}).get(head, head) + dot + rest
