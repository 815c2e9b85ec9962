"""What is asked of the load, and what it hands back."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tuner.definitions.models import Api as Api
from tuner.definitions.models import Objective, Prefix
from tuner.definitions.slo import least_requests
from tuner.load.arrivals import Arrivals
from tuner.load.pace import Ended
from tuner.load.prompts import WordRate
from tuner.measuring.measurement import ALONE, RequestTiming
from tuner.measuring.observed import Observed
from tuner.measuring.observing import observe
from tuner.measuring.replicas import Replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A running server and how to ask it.

    `time_scale` is surface seconds per real second, 1.0 for every real engine. Prompts are token
    ids from 10 up to `vocab_size`, which every tokenizer has. `replicas` are further servers of the
    same kind: streams are dealt over all of them evenly. `key` is the API key, for all of them.
    `words` is how it counts words.
    """

    base_url: str
    api: Api
    model: str
    time_scale: float = 1.0
    vocab_size: int = 1000
    replicas: tuple[str, ...] = ()
    key: str | None = field(default=None, repr=False)
    words: WordRate = field(default_factory=WordRate)


STREAMS_A_PROCESS = 512
"""An event takes some 10 us of a core. At 50 a second on each stream so many streams use a quarter
of it, and where their events fall together the last one waits no longer than 5 ms to be read."""


def processes_for(streams: int) -> int:
    """How many processes of a client so many streams want."""
    return max(1, -(-streams // STREAMS_A_PROCESS))


@dataclass(frozen=True, slots=True, kw_only=True)
class RungPlan:
    """A closed loop: `concurrency` streams, each sends its next request when the last ended. Or an
    open loop: `request_rate` requests a second are sent, whoever waits.

    `lengths` are (input, output) tokens: one pair for all requests, or those of a trace, which are
    taken in an order of `order_seed`, over and over. Seconds are on the load's clock. What prompts
    share is what `prefix` says; where it says nothing, no two rungs of which `rung_index` and
    `prompt_offset` together differ share a prompt on one `prompt_seed`, so that nothing a server
    remembers helps. `texts` are recorded
    questions, one for each of the `lengths`; `offsets_s` say when each came, for the arrivals of an
    open loop that are a trace's. The window ends early once throughput is known to
    `precision_percent`, and is prolonged for `least_requests`. `processes` are as many as may play
    it, if there are cores for them.
    """

    concurrency: int | None = None
    request_rate: float | None = None
    lengths: tuple[tuple[int, int], ...]
    warmup_s: float
    window_s: float
    prompt_seed: int
    order_seed: int
    rung_index: int
    precision_percent: float | None = None
    least_requests: int = 0
    processes: int = 1
    prefix: Prefix = "cold"
    texts: tuple[str, ...] = ()
    arrivals: Arrivals = "poisson"
    arrivals_seed: int = 3
    prompt_offset: int = 0
    offsets_s: tuple[float, ...] = ()

    @classmethod
    def of(
        cls,
        objective: Objective,
        index: int,
        *,
        lengths: tuple[tuple[int, int], ...],
        prompt_seed: int,
        texts: tuple[str, ...] = (),
        offsets_s: tuple[float, ...] = (),
        replicas: Replicas = ALONE,
    ) -> "RungPlan":
        """The rung of that index on an objective's ladder, what of it the launched servers get."""
        rung = objective.ladder[index]
        users, rate = rung.concurrency, rung.request_rate
        return cls(
            concurrency=None if users is None else replicas.streams(users),
            request_rate=None if rate is None else replicas.rate(rate),
            lengths=lengths,
            warmup_s=objective.warmup_s,
            window_s=objective.window_s,
            prompt_seed=prompt_seed,
            order_seed=objective.seeds.order,
            rung_index=index,
            precision_percent=objective.precision_percent,
            least_requests=least_requests(objective.limits_at(rung)),
            processes=processes_for(0 if users is None else replicas.streams(users)),
            prefix=objective.prefix,
            texts=texts,
            arrivals=objective.arrivals,
            arrivals_seed=objective.seeds.arrivals,
            offsets_s=offsets_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one of several processes plays of a rung: every `of`-th stream or request, and of each
    server's as many."""

    index: int = 0
    of: int = 1

    def has(self, number: int, servers: int) -> bool:
        """Whether it plays that stream or request, of which each server gets every so manieth.

        Two numbers with a factor in common would give a process the same servers each round: every
        further round begins with another process.
        """
        rounds = number // math.lcm(self.of, servers)
        return (number + rounds) % self.of == self.index


WHOLE = Share()
"""All of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What happened, in seconds of the load's clock since the first request was due.

    `start_s` and `end_s` are the window, cut short where nobody answered any more. Requests under
    way at the end were cut: they have neither `done_s` nor `error`. `lags_s` are how much later
    than the kernel the client read what came to the window's requests, in real seconds; `stamped`
    says whether the kernel told at all. `cpu_share` and `wait_share` are of one core, of the
    busiest of `processes` over the window, None where unknown. `real_s` is the window by
    `time.perf_counter`, whatever the load's clock. The window opened after `warmup_s`, `stable`
    where throughput no longer rose, and `ended` when its time was up or throughput was known
    tightly enough. `unsent_s` is when requests of an open loop were due that could not be sent; of
    `primers`, the requests that make a server know prompts before the load, `primed` were answered.
    """

    timings: tuple[RequestTiming, ...]
    start_s: float
    end_s: float
    lags_s: Sequence[float] = ()
    stamped: bool = True
    cpu_share: float | None = None
    wait_share: float | None = None
    processes: int = 1
    warmup_s: float = 0.0
    stable: bool = True
    ended: Ended = "time"
    real_s: tuple[float, float] = (0.0, 0.0)
    unsent_s: tuple[float, ...] = ()
    primers: int = 0
    primed: int = 0

    def observed(self, forgiven_s: float = 0.0) -> Observed:
        """What the client saw of itself; of a server that does not notice when a stream asks again
        so late (on the load's clock)."""
        seen = observe(
            self.timings,
            start_s=self.start_s,
            end_s=self.end_s,
            cpu_share=self.cpu_share,
            wait_share=self.wait_share,
            forgiven_s=forgiven_s,
        )
        return seen.model_copy(
            update={
                "processes": self.processes,
                "stamped": self.stamped,
                "warmup_s": self.warmup_s,
                "stable": self.stable,
                "ended": self.ended,
                "primers": self.primers,
                "primed": self.primed,
            }
        )
