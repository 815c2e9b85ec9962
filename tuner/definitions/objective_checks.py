"""What can be wrong with an objective beyond its schema."""

from collections.abc import Iterable

from tuner.definitions.findings import Findings
from tuner.definitions.models import Objective
from tuner.definitions.slo import Slo
from tuner.definitions.yaml_source import Place, Source
from tuner.errors import TunerError


def check_objective(source: Source, objective: Objective, findings: Findings) -> None:
    """Note lengths that are missing or said twice, concurrencies that come twice, and SLOs that do
    not parse."""
    for name, tokens in (
        ("input_tokens", objective.input_tokens),
        ("output_tokens", objective.output_tokens),
    ):
        if tokens is None and objective.trace is None:
            message, hint = f"missing key '{name}'", "or name a trace, which has lengths of its own"
            findings.add(source, (), message, hint, key=True)
        elif tokens is not None and objective.trace is not None:
            message = "stands beside a trace, which has lengths of its own"
            findings.add(source, (name,), message, "keep one", key=True)
    seen: dict[int, int] = {}
    for index, rung in enumerate(objective.ladder):
        place: Place = ("ladder", index, "concurrency")
        if rung.concurrency in seen:
            first, _ = source.mark(("ladder", seen[rung.concurrency], "concurrency"))
            findings.add(
                source, place, f"concurrency {rung.concurrency} again, first on line {first}"
            )
        seen.setdefault(rung.concurrency, index)
        _check_slos(source, ("ladder", index, "slos"), rung.slos, findings)
    _check_slos(source, ("slos",), objective.slos, findings)


def _check_slos(source: Source, place: Place, texts: Iterable[str], findings: Findings) -> None:
    for index, text in enumerate(texts):
        try:
            Slo.parse(text)
        except TunerError as error:
            findings.add(source, (*place, index), error.message, error.hint)
