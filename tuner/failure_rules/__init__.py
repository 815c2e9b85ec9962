"""The data that `tuner.failures` reads: rules, noise, classes. The order of rules is theirs."""

from tuner.failure_rules import arguments, engine, host, kernels, memory
from tuner.failure_rules.classes import CLASSES as CLASSES
from tuner.failure_rules.engine import DEATH as DEATH
from tuner.failure_rules.engine import SECONDARY as SECONDARY
from tuner.failure_rules.exits import EXITS as EXITS
from tuner.failure_rules.exits import FATAL as FATAL
from tuner.failure_rules.exits import SILENT_CHILD as SILENT_CHILD
from tuner.failure_rules.noise import NOISE as NOISE
from tuner.failure_rules.rule import Rule

RULES: tuple[Rule, ...] = (
    *host.RULES,
    *memory.RULES,
    *kernels.RULES,
    *arguments.RULES,
    *engine.RULES,
)
"""Of the rules that match a line the first holds; of the lines, the best tier, then the first."""
