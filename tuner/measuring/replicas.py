"""What a configuration that is smaller than its host is measured at, and what that counts. Pure."""

from tuner.frozen import Frozen


class Replicas(Frozen):
    """How many servers of a configuration were launched, `of` as many as its host holds.

    A ladder's concurrency or rate is the host's: whoever has G GPUs and N users puts G/g replicas
    of g GPUs each on them and deals the users out. Where a single one is launched its throughput
    counts for all of them, which nobody saw. Where g does not divide G a host holds floor(G/g)
    replicas, and the GPUs that are left idle count: throughput per GPU is always the host's over
    G. `failed` is the number, from 1, of the one that ended the launch of several.
    """

    launched: int = 1
    of: int = 1
    failed: int | None = None

    @classmethod
    def on(cls, host_gpus: int, gpus: int, *, full: bool) -> "Replicas":
        """As many as a host holds of a configuration of that many GPUs, or one in their place."""
        holds = max(1, host_gpus // gpus)
        return cls(launched=holds if full else 1, of=holds)

    @property
    def extrapolated(self) -> bool:
        """Whether the numbers stand for servers that did not run."""
        return self.launched < self.of

    def streams(self, concurrency: int) -> int:
        """How many of the host's users the launched servers get, the nearest whole number (a half
        is rounded up), one at the least."""
        return max(1, (2 * concurrency * self.launched + self.of) // (2 * self.of))

    def rate(self, request_rate: float) -> float:
        """How many of the host's requests a second the launched servers get."""
        return request_rate * self.launched / self.of

    def factor(self, concurrency: int | None) -> float:
        """What their throughput counts times: the host's users over those that were played.

        A single user keeps one replica busy, however many there are: 1.0. Without a concurrency
        it is a rate that is dealt out, and a rate can be dealt out exactly.
        """
        if concurrency is None:
            return self.of / self.launched
        return concurrency / self.streams(concurrency)

    def __str__(self) -> str:
        return f"{self.launched} of {self.of}{', extrapolated' if self.extrapolated else ''}"
