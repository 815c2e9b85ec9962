"""Load: workload → played; one `RequestTiming` a request, no statistic."""

from tuner.load.plan import Api, Played, RungPlan, Target
from tuner.load.player import play
from tuner.load.runner import run

__all__ = ["Api", "Played", "RungPlan", "Target", "play", "run"]
