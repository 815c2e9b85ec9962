"""What is asked of a server, as it is played: kept with every trial, and said in words. Pure."""

from collections.abc import Sequence
from statistics import fmean, median

from tuner.definitions.counted import counted
from tuner.definitions.lengths import Lengths
from tuner.definitions.models import Api, Objective, Prefix, Seeds
from tuner.definitions.trace import CHARACTERS_PER_TOKEN, Trace
from tuner.frozen import Frozen

PATHS: dict[Api, str] = {
    "completions": "/v1/completions",
    "chat": "/v1/chat/completions",
    "generate": "/generate",
}


class TokenRange(Frozen):
    """The lengths that requests have: the least, the most, the one in the middle, and the mean."""

    low: int
    median: float
    mean: float
    high: int

    @classmethod
    def of(cls, tokens: Sequence[int]) -> "TokenRange":
        """The range of some lengths."""
        mean = round(fmean(tokens), 1)
        return cls(low=min(tokens), median=median(tokens), mean=mean, high=max(tokens))

    def __str__(self) -> str:
        if self.low == self.high:
            return f"{self.low:,} tokens"
        return f"{self.low:,} to {self.high:,} tokens (mean {self.mean:,.0f})"


class Workload(Frozen):
    """How requests are asked, how many different ones there are and how long, and what their
    prompts share.

    `estimated` where nobody counted their tokens, `left_out` of a trace's conversations have no
    answer; `recorded` where the questions of the trace itself are asked.
    """

    api: Api
    trace: str | None
    requests: int
    input_tokens: TokenRange
    output_tokens: TokenRange
    estimated: bool
    left_out: int
    recorded: bool
    prefix: Prefix
    seeds: Seeds

    @property
    def known(self) -> str:
        """What the server knows of the prompts, in few words."""
        if self.prefix == "cold":
            return "prompts never seen before"
        if self.prefix == "warm":
            return f"the same {self.requests} prompts over and over"
        return f"{self.prefix.shared:.0%} of each prompt a start that all have"

    def sentences(self) -> list[str]:
        """All of it in words, one sentence a line."""
        said = [self._asked(), f"prompts: {self._prompts()}"]
        if self.estimated:
            said.append(f"lengths are an estimate: {CHARACTERS_PER_TOKEN} characters a token")
        if self.left_out:
            said.append(f"left out of the trace: {self._silent()}")
        return said

    def _asked(self) -> str:
        lengths = f"{self.input_tokens} in, {self.output_tokens} out"
        if self.trace is not None:
            lengths = f"{counted(self.requests, 'request')} of {self.trace}, {lengths}"
        elif self.requests > 1 and self.input_tokens.low != self.input_tokens.high:
            lengths = f"{self.requests} draws, {lengths}"
        return f"load: {PATHS[self.api]}, {lengths}"

    def _prompts(self) -> str:
        kind = {"chat": "random words"}.get(self.api, "random token ids")
        kind = "the trace's own questions" if self.recorded else kind
        if self.prefix == "cold":
            line = ", each after a line of random words" if self.recorded else ""
            return f"{kind}{line}; no two start alike"
        if self.prefix == "warm":
            held = round(self.requests * self.input_tokens.mean)
            return (
                f"{kind}; the same {self.requests} over and over, {held:,} tokens for the "
                "engine's cache to hold"
            )
        return f"{kind}; {self.prefix.shared:.0%} of each is a start that all have"

    def _silent(self) -> str:
        return f"{counted(self.left_out, 'conversation')} in which nothing is answered"


def workload(objective: Objective, lengths: Lengths, trace: Trace | None, own: Api) -> Workload:
    """What an objective asks of a server whose engine speaks `own` by itself."""
    api = objective.api or own
    return Workload(
        api=api,
        trace=objective.trace,
        requests=len(lengths),
        input_tokens=TokenRange.of([given for given, _ in lengths]),
        output_tokens=TokenRange.of([wanted for _, wanted in lengths]),
        estimated=trace is not None and trace.estimated,
        left_out=0 if trace is None else trace.left_out,
        recorded=api == "chat" and trace is not None and bool(trace.texts),
        prefix=objective.prefix,
        seeds=objective.seeds,
    )
