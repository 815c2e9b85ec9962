"""The data that the classifier reads: rules, noise, classes. The order of rules is theirs."""

from tuner.failures.rules import arguments, engine, host, kernels, memory, packages
from tuner.failures.rules.classes import CLASSES as CLASSES
from tuner.failures.rules.engine import DEATH as DEATH
from tuner.failures.rules.engine import SECONDARY as SECONDARY
from tuner.failures.rules.exits import EXITS as EXITS
from tuner.failures.rules.exits import FATAL as FATAL
from tuner.failures.rules.exits import KILLED_SERVING as KILLED_SERVING
from tuner.failures.rules.exits import SILENT_CHILD as SILENT_CHILD
from tuner.failures.rules.noise import NOISE as NOISE
from tuner.failures.rules.rule import Rule

RULES: tuple[Rule, ...] = (
    *host.RULES,
    *packages.RULES,
    *memory.RULES,
    *kernels.RULES,
    *arguments.RULES,
    *engine.RULES,
)
"""Of the rules that match a line the first holds; of the lines, the best tier, then the first."""
