"""What `tuner measure` plays: a file, a few options in place of one, or options over one."""

import math
import resource
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.definitions.models import MAX_CONCURRENCY, MAX_TOKENS, Objective, Rung
from tuner.definitions.trace import Trace
from tuner.definitions.validation import Lengths, lengths_of, load_objective
from tuner.errors import TunerError

DEFAULT = Objective(
    ladder=[Rung(concurrency=1), Rung(concurrency=10), Rung(concurrency=64)],
    input_tokens=256,
    output_tokens=128,
    warmup_s=5.0,
    window_s=10.0,
)
"""What is played where nothing is said: three quarters of a minute."""

_SPARE_DESCRIPTORS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What was said on the command line; it stands above what a file says."""

    concurrency: Sequence[int] = ()
    request_rate: Sequence[float] = ()
    input_tokens: int | None = None
    output_tokens: int | None = None
    window_s: float | None = None


NONE = Options()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """An objective, the lengths of its requests, and the trace that has them."""

    objective: Objective
    lengths: Lengths
    trace: Trace | None

    def refuse_few_descriptors(self) -> None:
        """Raises TunerError where this process may not open as many streams."""
        most = max(rung.concurrency or 0 for rung in self.objective.ladder)
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY and hard < most + _SPARE_DESCRIPTORS:
            raise TunerError(
                f"{most} streams need {most + _SPARE_DESCRIPTORS} open files, and {hard} are "
                "allowed",
                hint=f"Raise the hard limit: ulimit -Hn {2 * most} (in docker: --ulimit "
                "nofile=...).",
            )

    def refuse_too_long(self, longest: int | None) -> None:
        """Raises TunerError where a server takes fewer tokens a request than are asked."""
        given, wanted = max(self.lengths, key=sum)
        if longest is not None and given + wanted > longest:
            raise TunerError(
                f"{given + wanted} tokens a request are asked ({given} in, {wanted} out), and the "
                f"server takes at most {longest}",
                hint="Ask for fewer: --input-tokens, --output-tokens, or another objective.",
            )


def asked(path: Path | None, options: Options) -> Asked:
    """What is to be played.

    Raises DefinitionError for a wrong file, TunerError for options that contradict each other or
    the file, or are beyond what a file may say.
    """
    _refuse_beyond(options)
    objective, _, trace = (DEFAULT, (), None) if path is None else load_objective(path)
    changes: dict[str, Any] = {}
    ladder = _ladder(objective, options)
    if ladder:
        changes["ladder"] = ladder
    lengths = {"input_tokens": options.input_tokens, "output_tokens": options.output_tokens}
    given = {name: tokens for name, tokens in lengths.items() if tokens is not None}
    if given and trace is not None:
        named = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        raise TunerError(
            f"{named}: the objective plays {objective.trace}, which has lengths of its own",
            hint="Leave one out.",
        )
    if options.window_s is not None:
        changes["window_s"] = options.window_s
    changed = objective.model_copy(update=changes | given)
    return Asked(objective=changed, lengths=lengths_of(changed, trace), trace=trace)


def _refuse_beyond(options: Options) -> None:
    """Raises TunerError for a number that no objective could have."""
    given = (
        ("--concurrency", options.concurrency, MAX_CONCURRENCY),
        ("--request-rate", options.request_rate, MAX_CONCURRENCY),
        ("--input-tokens", filter(None, [options.input_tokens]), MAX_TOKENS),
        ("--output-tokens", filter(None, [options.output_tokens]), MAX_TOKENS),
    )
    for name, numbers, most in given:
        for number in numbers:
            if number > most:
                raise TunerError(f"{name}: found {number}, expected at most {most}")
    if options.window_s is not None and not math.isfinite(options.window_s):
        raise TunerError(f"--window: found {options.window_s}, expected a number of seconds")


def _ladder(objective: Objective, options: Options) -> list[Rung]:
    """The rungs that were asked for, with what the file says of them; none where none were."""
    if options.concurrency and options.request_rate:
        raise TunerError(
            "--concurrency and --request-rate: a ladder is of one kind",
            hint="Measure twice, once with each.",
        )
    rungs = [
        *(Rung(concurrency=level) for level in options.concurrency),
        *(Rung(request_rate=level) for level in options.request_rate),
    ]
    twice = next((rung.said for rung in rungs if rungs.count(rung) > 1), None)
    if twice is not None:
        raise TunerError(f"{twice} comes twice in the ladder", hint="Name each once.")
    known = {rung.said: rung for rung in objective.ladder}
    return [known.get(rung.said, rung) for rung in rungs]
