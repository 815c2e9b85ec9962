"""What can be wrong with an objective beyond its schema."""

from collections.abc import Iterable

from tuner.definitions.findings import Findings
from tuner.definitions.models import Objective
from tuner.definitions.slo import Slo
from tuner.definitions.yaml_source import Place, Source
from tuner.errors import TunerError


def check_objective(source: Source, objective: Objective, findings: Findings) -> None:
    """Note concurrencies that come twice and SLOs that do not parse."""
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
