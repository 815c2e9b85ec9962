"""What speaks for and against a rung's numbers: values that rules read and write."""

from typing import Literal

from tuner.frozen import Frozen


class Observed(Frozen):
    """What the load generator saw of itself in one window, on the load's clock.

    `in_flight` is the mean number of requests under way, `late_ms` how long a stream took from an
    answer's end to its next request beyond what the server makes good (a rehearsal's does),
    `cycle_ms` how long from request to request; None where no stream asked twice. `short` counts
    finished requests with fewer tokens than were asked, `together` is the share of events that one
    read brought with a later one, so that their own time is unknown. `cpu_share` and `wait_share`
    are of one core, of the busiest of `processes`, None where the system does not say; `stamped`
    says whether the kernel told when it had what was read. `slice_tok_s` is the output of equal
    slices of the window.

    The window opened after `warmup_s`, `stable` where throughput had no trend any more; it `ended`
    when its time was up, or when throughput was known tightly enough. Before it, `primed` of the
    `primers` that make the servers know prompts were answered.
    """

    in_flight: float
    cycle_ms: float | None
    late_ms: float | None
    late_p99_ms: float | None
    short: int
    together: float | None = None
    cpu_share: float | None = None
    wait_share: float | None = None
    processes: int = 1
    stamped: bool = True
    slice_tok_s: list[float] = []
    warmup_s: float | None = None
    stable: bool = True
    ended: Literal["time", "tight"] = "time"
    primers: int = 0
    primed: int = 0


class Doubt(Frozen):
    """A rule that a rung broke: what was found, the limit, what to do; `at` is the rung as people
    say it, `voids` says whether its numbers are worth nothing."""

    rule: str
    at: str
    voids: bool
    found: float
    limit: float
    said: str
    advice: str

    @classmethod
    def of(
        cls,
        rule: str,
        at: str,
        found: float,
        limit: float,
        said: str,
        advice: str,
        *,
        voids: bool = True,
    ) -> "Doubt":
        """A broken rule, its numbers as they are stored."""
        return cls(
            rule=rule,
            at=at,
            voids=voids,
            found=float(found),
            limit=float(limit),
            said=said,
            advice=advice,
        )

    def __str__(self) -> str:
        return f"at {self.at}: {self.said}. {self.advice}"
