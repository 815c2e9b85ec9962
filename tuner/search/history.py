"""What is known of every configuration that was launched, whatever the order of the news. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tuner.definitions.space import Configuration
from tuner.search.feasibility import Feasibility
from tuner.search.observation import (
    Completed,
    Crashed,
    Duplicate,
    Observation,
    Ours,
    Pruned,
    Result,
)
from tuner.verdicts.outputs import WRONG_OUTPUT


@dataclass(slots=True)
class _Known:
    """`last` is the newest result that was not our own fault, if there is any such."""

    configuration: Configuration
    last: Result
    scores: list[float] = field(default_factory=list)


class History:
    """Everything told so far, by configuration; `told` counts observations."""

    def __init__(self) -> None:
        self.feasibility = Feasibility()
        self.told = 0
        self._known: dict[str, _Known] = {}
        self._keys: dict[int, str] = {}
        self._weighed: set[tuple[str, bool]] = set()

    def __contains__(self, configuration: Configuration) -> bool:
        return configuration.key in self._known

    def tell(self, seen: Observation) -> None:
        """Add one launch."""
        key, result = seen.configuration.key, seen.result
        self.told += 1
        self._keys[seen.number] = key
        known = self._known.setdefault(key, _Known(seen.configuration, result))
        if isinstance(result, Completed):
            known.scores.append(result.score)
        if not isinstance(result, Ours) and not self._repeats(result, key):
            known.last = result
        self._weigh(key)

    def standings(self) -> Iterator[tuple[Configuration, Result]]:
        """Each configuration with what its launches came to: the mean score of those completed,
        and for a duplicate the standing of what it duplicates."""
        for key, known in self._known.items():
            yield known.configuration, self.standing(key)

    def standing(self, key: str) -> Result:
        """What the launches of one configuration came to."""
        origin = self._origin(self._known[key])
        if isinstance(origin.last, Completed):
            return replace(origin.last, score=sum(origin.scores) / len(origin.scores))
        if isinstance(origin.last, Duplicate):
            return Ours(f"what it duplicates, trial {origin.last.of}, is not known")
        return origin.last

    def best(self) -> Configuration | None:
        """The configuration with the best mean score, all limits kept; a duplicate never is."""
        scores = {
            key: sum(known.scores) / len(known.scores)
            for key, known in self._known.items()
            if isinstance(known.last, Completed) and not known.last.breaches
        }
        if not scores:
            return None
        return self._known[max(scores, key=lambda key: scores[key])].configuration

    def _repeats(self, result: Result, key: str) -> bool:
        """Whether it only says that a configuration is a duplicate of itself."""
        return isinstance(result, Duplicate) and self._keys.get(result.of) == key

    def _origin(self, known: _Known) -> _Known:
        visited: set[str] = set()
        while isinstance(known.last, Duplicate):
            key = self._keys.get(known.last.of)
            if key is None or key in visited:
                break
            visited.add(key)
            known = self._known[key]
        return known

    def _weigh(self, key: str) -> None:
        """Once for each configuration: a launch repeated is no further evidence."""
        known = self._known[key]
        values, crashed = known.configuration.as_dict(), isinstance(known.last, Crashed)
        if (key, crashed) in self._weighed:
            return
        if isinstance(known.last, Crashed):
            if known.last.kind == WRONG_OUTPUT:  # it served, and came to light as wrong later
                self.feasibility.mistaken(values)
            self.feasibility.crashed(values, known.last.named)
        elif isinstance(self.standing(key), Completed | Pruned):
            self.feasibility.survived(values)
        else:
            return
        self._weighed.add((key, crashed))
