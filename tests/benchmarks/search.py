"""Samplers on synthetic servers that crash: regret and crashes after 30 and 60 launches.

    python -m tests.benchmarks.search            a table in under a minute
    python -m tests.benchmarks.search --seeds 24 the same with tighter error bars

Two families: `rules` crashes where two or three settings meet (about half of its space), `memory`
where numbers add up to more than there is, or where one flag is broken. Every seed is another
server. Regret is what the best measured configuration truly lacks to the optimum.
"""

import argparse
import itertools
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import tuner.search.searcher
from tuner.definitions.models import SpaceDefinition, Value
from tuner.definitions.space import Configuration, Space
from tuner.search.searcher import Completed, Crashed, Observation, Searcher

NOISE = 0.02
LAUNCHES = 60
Values = Mapping[str, Value]


@dataclass(frozen=True)
class Server:
    """A space with its truth: the gain of values, None where they crash."""

    space: Space
    gain: Callable[[Values], float | None]
    optimum: float


def _space(numbers: int, choices: int, bools: int, *, null: bool) -> Space:
    parameters: dict[str, object] = {}
    for i in range(numbers):
        default = None if null else 32
        parameters[f"n{i}"] = {"type": "int", "low": 8, "high": 64, "log": True, "default": default}
    for i in range(choices):
        parameters[f"c{i}"] = {"type": "choice", "choices": ["x", "y", "z"], "default": "x"}
    for i in range(bools):
        parameters[f"b{i}"] = {"type": "bool"}
    return Space(SpaceDefinition.model_validate({"parameters": parameters}))


def _effects(space: Space, rng: random.Random) -> Callable[[Values], float]:
    """Gains of single settings and of a few pairs, in logarithms; the defaults gain nothing."""
    default = space.configuration({}).as_dict()
    single = {
        (name, value): 0.0 if value == default[name] else rng.gauss(0.0, 0.08)
        for name in space.parameters
        for value in space.values_of(name) or ()
    }
    pairs = {}
    for a, b in rng.sample(list(itertools.combinations(space.parameters, 2)), 6):
        va, vb = (rng.choice(space.values_of(name) or [None]) for name in (a, b))
        if va != default[a] and vb != default[b]:
            pairs[(a, va), (b, vb)] = rng.gauss(0.0, 0.12)

    def gain(values: Values) -> float:
        settings = set(values.items())
        log = math.fsum(single[setting] for setting in values.items())
        log += math.fsum(more for (p, q), more in pairs.items() if p in settings and q in settings)
        return math.exp(log)

    return gain


def _server(
    space: Space, gain: Callable[[Values], float], crashes: Callable[[Values], bool]
) -> Server:
    def truth(values: Values) -> float | None:
        return None if crashes(values) else gain(values)

    truths = (truth(configuration.as_dict()) for configuration in space.configurations())
    return Server(space, truth, max(found for found in truths if found is not None))


def rules(seed: int) -> Server:
    """Crashes where two or three settings meet, in about half of the space."""
    rng = random.Random(seed)
    space = _space(4, 3, 2, null=False)
    default = space.configuration({}).as_dict()
    listed = [configuration.as_dict() for configuration in space.configurations()]
    sample = rng.sample(listed, 400)
    broken: list[set[tuple[str, Value]]] = []

    def crashes(values: Values) -> bool:
        settings = set(values.items())
        return any(rule <= settings for rule in broken)

    while statistics.fmean(crashes(values) for values in sample) < 0.45:
        names = rng.sample(list(space.parameters), rng.choice([2, 2, 3]))
        rule = {(name, rng.choice(space.values_of(name) or [None])) for name in names}
        if not rule <= set(default.items()):
            broken.append(rule)
    return _server(space, _effects(space, rng), crashes)


def memory(seed: int) -> Server:
    """Crashes where numbers add up to too much, and for one value that is broken."""
    rng = random.Random(seed)
    space = _space(4, 3, 1, null=True)
    broken = (f"c{rng.randrange(3)}", rng.choice(["y", "z"]))
    share = {f"n{i}": rng.uniform(0.3, 1.0) for i in range(4)}

    def crashes(values: Values) -> bool:
        used = math.fsum(share[n] * math.log2(float(values[n] or 16) / 8) for n in share)
        return used > 0.5 * 3 * sum(share.values()) or broken in values.items()

    return _server(space, _effects(space, rng), crashes)


@dataclass(frozen=True)
class Method:
    """A way to search; without blame it proposes what it thinks will crash."""

    sampler: str
    local_share: float
    blame: bool


METHODS = {
    "random": Method("RandomSampler", 0.0, blame=False),
    "random + blame": Method("RandomSampler", 0.0, blame=True),
    "TPE": Method("TPESampler", 0.0, blame=False),
    "TPE + blame": Method("TPESampler", 0.0, blame=True),
    "TPE + local": Method("TPESampler", 0.5, blame=False),
    "ours": Method("TPESampler", 0.5, blame=True),
    "local + blame": Method("TPESampler", 1.0, blame=True),
}


@dataclass
class Outcome:
    """After each launch: crashes so far, and true gain of the best measured."""

    crashes: list[int]
    best: list[float]
    search_s: float


def play(server: Server, method: Method, seed: int) -> Outcome:
    """One night: three launches of the baseline, then proposals."""
    tuner.search.searcher.LIKELY_CRASH = 0.5 if method.blame else math.inf
    rng = random.Random(seed)
    searcher = Searcher(
        server.space,
        sampler=method.sampler,
        seed=seed,
        journal=None,
        name="benchmark",
        local_share=method.local_share,
    )
    outcome, best, crashes = Outcome([], [], 0.0), (0.0, 0.0), 0
    for number, configuration in enumerate(_proposals(searcher, server.space, outcome)):
        true = server.gain(configuration.as_dict())
        measured = None if true is None else true * math.exp(rng.gauss(0.0, NOISE))
        result = Crashed("crash") if measured is None else Completed(measured)
        searcher.tell(
            Observation(number=number, configuration=configuration, label="search", result=result)
        )
        crashes += true is None
        if measured is not None and true is not None:
            best = max(best, (measured, true))
        outcome.crashes.append(crashes)
        outcome.best.append(best[1])
    return outcome


def _proposals(searcher: Searcher, space: Space, outcome: Outcome) -> Iterator[Configuration]:
    yield from [space.configuration({})] * 3
    for _ in range(LAUNCHES - 3):
        begun = time.perf_counter()
        configuration = searcher.ask()
        outcome.search_s += time.perf_counter() - begun
        if configuration is None:
            return
        yield configuration


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument(
        "--methods", nargs="*", default=["random", "TPE", "ours"], choices=list(METHODS)
    )
    options = parser.parse_args()
    columns = ("crash30", "crash60", "regret30", "regret60", "ask ms")
    widths = (9, 9, 15, 15, 8)
    heads = "".join(f"{head:>{width}}" for head, width in zip(columns, widths, strict=True))
    print(f"{'family':8}{'method':16}{heads}")
    for family in (rules, memory):
        servers = [family(seed) for seed in range(options.seeds)]
        for name in options.methods:
            played = [play(server, METHODS[name], seed) for seed, server in enumerate(servers)]
            _print(family.__name__, name, servers, played)


def _print(family: str, name: str, servers: list[Server], played: list[Outcome]) -> None:
    def crashed(at: int) -> float:
        return statistics.fmean(outcome.crashes[:at][-1] for outcome in played)

    def regret(at: int) -> str:
        lacking = [
            100 * (1 - outcome.best[:at][-1] / server.optimum)
            for server, outcome in zip(servers, played, strict=True)
        ]
        error = statistics.stdev(lacking) / math.sqrt(len(lacking))
        return f"{statistics.fmean(lacking):.1f} +- {error:.1f} %"

    asks = sum(len(outcome.best) - 3 for outcome in played)
    ask_ms = 1000 * sum(outcome.search_s for outcome in played) / asks
    print(
        f"{family:8}{name:16}{crashed(30):9.1f}{crashed(60):9.1f}{regret(30):>15}{regret(60):>15}"
        f"{ask_ms:8.1f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
