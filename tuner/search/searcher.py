"""What to try next. The only user of Optuna.

A proposal is a function of the seed and of what was told, so that a search that was interrupted
goes on as if it had not been. Samplers see one trial for each configuration, in memory; the
journal shows each launch by itself, to people. `telling` has the table of what is told.
"""

import importlib.util
import inspect
import math
import random
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler
from optuna.storages import InMemoryStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from tuner.definitions.models import Value
from tuner.definitions.nearest import did_you_mean
from tuner.definitions.space import Configuration, Space
from tuner.errors import StudyError, TunerError
from tuner.search.encoding import Axis, Coordinate, Encoding, Labels
from tuner.search.feasibility import Suspect
from tuner.search.history import History
from tuner.search.observation import (
    Completed,
    Crashed,
    Duplicate,
    Observation,
    Ours,
    Pruned,
    Result,
    observation,
)
from tuner.search.telling import IN_FLIGHT, Told, remarks, tell_as

__all__ = [
    "Completed",
    "Crashed",
    "Duplicate",
    "Observation",
    "Ours",
    "Pruned",
    "Result",
    "Searcher",
    "observation",
]

LOCAL_SHARE = 0.5
"""Share of the proposals that are a neighbour of the best so far."""
LOCAL_FIRST = 12
"""Launches before which all are: samplers begin at random, and chance crashes."""
DARING_SHARE = 0.03
"""Share of the proposals that ignore what is thought to crash: it may be wrong."""
LIKELY_CRASH = 0.5
DRAWS = 8
SLOW_DRAWS = {"GPSampler": 4}
"""Points that a sampler is asked for before something else is tried; GP takes seconds for one."""
RANDOM_DRAWS = 200
LISTED = 20_000
"""Spaces up to this size are searched to the last configuration."""
_PACKAGES = {"GPSampler": "torch", "CmaEsSampler": "cmaes"}
_READ_COMPLETE_ONLY = {"GPSampler", "CmaEsSampler", "NSGAIISampler", "NSGAIIISampler"}
_NO_SAMPLERS = {"BaseSampler", "BaseGASampler", "PartialFixedSampler"}


optuna.logging.set_verbosity(optuna.logging.ERROR)

Notes = dict[str, Any]
"""What a sampler writes down about a trial for its own use."""


@dataclass(frozen=True, slots=True)
class _Pending:
    """A proposal that was handed out, and the sampler's notes about it."""

    configuration: Configuration
    notes: Notes


class Searcher:
    """Proposes configurations that were never tried, and learns from what came of them.

    `journal` is an index for optuna-dashboard, written anew by each Searcher: the caller holds
    the study's lock. `local_share` of the proposals are neighbours of the best so far. Raises
    TunerError where the sampler does not exist, lacks a package or cannot search this space,
    StudyError where the journal cannot be written.
    """

    def __init__(
        self,
        space: Space,
        *,
        sampler: str,
        seed: int,
        journal: Path | None,
        name: str,
        local_share: float = LOCAL_SHARE,
    ) -> None:
        self._space = space
        self._sampler_name = sampler
        self._seed = seed
        self._draws = SLOW_DRAWS.get(sampler, DRAWS)
        self._local_share = local_share
        self._encoding = Encoding(space)
        self._distributions = {at: _distribution(axis) for at, axis in self._encoding.axes.items()}
        self._history = History()
        self._pending: dict[str, _Pending] = {}
        self._notes: dict[str, Notes] = {}
        self._study_notes: Notes = {}
        self._new_sampler = _sampler_factory(sampler, space, self._encoding)
        next(self._points(seed))  # a sampler that cannot search this space is refused now
        self._index = _Index(journal, name) if journal else None

    def replay(self, observations: Iterable[Observation]) -> None:
        """Tell all earlier observations, in their order. Raises as `tell`."""
        for seen in observations:
            self.tell(seen)

    def warn(self, values: Mapping[str, Value], named: Iterable[str]) -> None:
        """These values, of parameters of this space, crashed elsewhere: they are judged as a crash
        of this search, the `named` ones most of all."""
        self._history.feasibility.crashed(values, named)

    def ask(self) -> Configuration | None:
        """A configuration that was never told nor proposed; None where nothing plausible is left.

        Raises TunerError where the sampler gives up.
        """
        told, pending = self._history.told, len(self._pending)
        rng = random.Random(f"{self._seed} {told} {pending}")  # noqa: S311 - no secret
        limit = math.inf if rng.random() < DARING_SHARE else LIKELY_CRASH
        for configuration, notes in self._candidates(rng):
            seen = configuration in self._history or configuration.key in self._pending
            if not seen and self.p_crash(configuration) < limit:
                self._pending[configuration.key] = _Pending(configuration, notes)
                return configuration
        return None

    def tell(self, seen: Observation) -> None:
        """Learn from a launch that is over, whether it was proposed here or not.

        Raises StudyError where the journal cannot be written.
        """
        pending = self._pending.pop(seen.configuration.key, None)
        if pending:
            self._notes[seen.configuration.key] = pending.notes
        self._history.tell(seen)
        if self._index:
            self._index.add(self._shown(seen))

    def p_crash(self, configuration: Configuration) -> float:
        """How likely the configuration crashes, from 0 to 1."""
        return self._history.feasibility.p_crash(configuration.as_dict())

    def suspects(self) -> list[Suspect]:
        """What is thought to crash the server, likeliest first."""
        return self._history.feasibility.suspects()

    def _candidates(self, rng: random.Random) -> Iterator[tuple[Configuration, Notes]]:
        """In order of preference, and always ending; the last are for when all before fail."""
        local = self._neighbours_of_best(rng)
        if rng.random() < self._share_of_neighbours():
            yield from ((neighbour, {}) for neighbour in local)
        for point, notes in islice(self._points(rng.getrandbits(32)), self._draws):
            yield from ((configuration, notes) for configuration in self._admitted(point))
        yield from ((neighbour, {}) for neighbour in local)
        for _ in range(RANDOM_DRAWS):
            point = self._encoding.random_point(rng)
            yield from ((configuration, {}) for configuration in self._admitted(point))
        if (self._size or math.inf) <= LISTED:
            yield from ((configuration, {}) for configuration in self._space.configurations())

    def _share_of_neighbours(self) -> float:
        first = self._history.told < LOCAL_FIRST and self._local_share > 0
        return 1.0 if first else self._local_share

    @cached_property
    def _size(self) -> int | None:
        return self._space.size()

    def _neighbours_of_best(self, rng: random.Random) -> list[Configuration]:
        best = self._history.best()
        neighbours = [] if best is None else self._space.neighbours(best)
        rng.shuffle(neighbours)
        return neighbours

    def _admitted(self, point: Mapping[str, Coordinate]) -> list[Configuration]:
        """The configuration of a point, or nothing where the space forbids it."""
        values = self._encoding.values(point)
        return [] if self._space.broken(values) else [self._space.configuration(values)]

    def _points(self, seed: int) -> Iterator[tuple[dict[str, Coordinate], Notes]]:
        """Points that a fresh sampler proposes, without end, each with its notes.

        A point that was not taken stays in flight, so that the next one keeps away from it.
        """
        storage = InMemoryStorage()
        with _translated(self._sampler_name):
            study = self._study(storage, self._new_sampler(seed))
            study_id = storage.get_study_id_from_name(study.study_name)
        while True:
            with _translated(self._sampler_name):
                point = study.ask(self._distributions).params
                self._study_notes = dict(storage.get_study_system_attrs(study_id))
                notes = dict(storage.get_all_trials(study_id, deepcopy=False)[-1].system_attrs)
            yield point, notes

    def _study(self, storage: InMemoryStorage, sampler: BaseSampler) -> optuna.Study:
        """What samplers see: one trial for each configuration, and those in flight."""
        study = optuna.create_study(storage=storage, sampler=sampler, direction="maximize")
        study_id = storage.get_study_id_from_name(study.study_name)
        for key, value in self._study_notes.items():
            storage.set_study_system_attr(study_id, key, value)
        standings = list(self._history.standings())
        worst = min((r.score for _, r in standings if isinstance(r, Completed)), default=1.0)
        imputed = worst if self._sampler_name in _READ_COMPLETE_ONLY else None
        for configuration, result in standings:
            row = tell_as(result, imputed)
            study.add_trial(self._trial(configuration, row, self._notes.get(configuration.key)))
        for pending in self._pending.values():
            study.add_trial(self._trial(pending.configuration, IN_FLIGHT, pending.notes))
        return study

    def _trial(self, configuration: Configuration, row: Told, notes: Notes | None) -> FrozenTrial:
        point = self._encoding.point(configuration)
        attrs = {"imputed": True} if row.imputed else {}
        return _frozen(row, point, self._distributions, attrs, notes)

    def _shown(self, seen: Observation) -> FrozenTrial:
        """The trial that people look at: this launch alone, with the parameters that it had."""
        key, result = seen.configuration.key, seen.result
        told = self._history.standing(key) if isinstance(result, Duplicate) else result
        attrs = {"record": seen.number, "kind": seen.label, "key": key, **remarks(result)}
        shown = self._encoding.shown(seen.configuration)
        trial = _frozen(tell_as(told), shown, self._distributions, attrs)
        if seen.started_at is not None:
            trial.datetime_start = seen.started_at
            trial.datetime_complete = seen.started_at + timedelta(seconds=seen.duration_s)
        return trial


class _Index:
    """The journal that optuna-dashboard opens: written, never read."""

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        with self._writing():
            for stale in (path, path.with_name(f"{path.name}.lock")):
                stale.unlink(missing_ok=True)
            storage = JournalStorage(JournalFileBackend(str(path)))
            self._study = optuna.create_study(
                storage=storage, study_name=name, direction="maximize"
            )

    def add(self, trial: FrozenTrial) -> None:
        """Append one trial."""
        with self._writing():
            self._study.add_trial(trial)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            with _quiet():
                yield
        except OSError as error:
            raise StudyError(
                f"{self._path}: cannot be written: {error.strerror}",
                hint="It is an index for optuna-dashboard: it may be deleted at any time.",
            ) from error


def _frozen(
    row: Told,
    point: Mapping[str, Coordinate],
    distributions: Mapping[str, BaseDistribution],
    attrs: Mapping[str, Any],
    notes: Notes | None = None,
) -> FrozenTrial:
    state = TrialState[row.state]
    return optuna.trial.create_trial(
        state=state,
        value=row.value,
        params=dict(point),
        distributions={name: distributions[name] for name in point},
        user_attrs=dict(attrs),
        system_attrs=dict(notes or {}),
        intermediate_values=dict(enumerate(row.rungs.values())),  # whole numbers only
        constraints=dict(row.constraints) if state.is_finished() else None,
    )


def _distribution(axis: Axis) -> BaseDistribution:
    if isinstance(axis, Labels):
        return CategoricalDistribution(axis.labels)
    if axis.whole:
        return IntDistribution(int(axis.low), int(axis.high), axis.log, int(axis.step or 1))
    return FloatDistribution(axis.low, axis.high, axis.log, axis.step)


def _sampler_factory(name: str, space: Space, encoding: Encoding) -> Callable[[int], BaseSampler]:
    """How a sampler of optuna.samplers is made from a seed. Raises TunerError."""
    names = [known for known in optuna.samplers.__all__ if _is_sampler(known)]
    if name not in names:
        meant = did_you_mean(name, names)
        raise TunerError(f"unknown sampler '{name}'{meant}", hint=f"one of {', '.join(names)}")
    package = _PACKAGES.get(name)
    if package and importlib.util.find_spec(package) is None:
        raise TunerError(
            f"sampler {name} needs the package {package}, which is not installed",
            hint=f"pip install {package}, or leave the sampler out: TPESampler needs nothing more.",
        )
    sampler = getattr(optuna.samplers, name)
    if name == "GridSampler":
        return _grid_factory(space, encoding)
    accepted = inspect.signature(sampler).parameters
    silent = {"warn_independent_sampling": False} if name != "TPESampler" else {}
    options = {option: value for option, value in silent.items() if option in accepted}
    return lambda seed: sampler(seed=seed, **options)


def _grid_factory(space: Space, encoding: Encoding) -> Callable[[int], BaseSampler]:
    grids = {name: axis.grid for name, axis in encoding.axes.items()}
    size = math.prod(len(grid or ()) for grid in grids.values())
    if not 0 < size <= LISTED:
        found = "holds a continuous parameter" if not size else f"has {size} combinations"
        raise TunerError(
            f"sampler GridSampler cannot search this space: it {found}",
            hint=f"It takes up to {LISTED} combinations; TPESampler searches every space.",
        )
    lists = {name: list(grid or ()) for name, grid in grids.items()}
    # its order of cells follows from its seed, and must be the same for every proposal
    return lambda _: optuna.samplers.GridSampler(lists, seed=0)


def _is_sampler(name: str) -> bool:
    return isinstance(getattr(optuna.samplers, name), type) and name not in _NO_SAMPLERS


@contextmanager
def _translated(sampler: str) -> Iterator[None]:
    """A sampler's own complaint as one of ours."""
    try:
        with _quiet():
            yield
    except (ValueError, NotImplementedError, RuntimeError, ImportError) as error:
        raise TunerError(
            f"sampler {sampler} cannot search this space: {error}",
            hint="TPESampler searches every space.",
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Optuna's warnings are for those who call it: people here could not act on them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
