"""What can be wrong with an objective beyond its schema."""

from collections.abc import Iterable

from tuner.definitions.findings import Findings
from tuner.definitions.lengths import highest
from tuner.definitions.models import LengthDistribution, Objective, Rung, SharedPrefix
from tuner.definitions.slo import PER_REQUEST, Slo, of_single_requests
from tuner.definitions.trace import Trace
from tuner.definitions.yaml_source import Place, Source
from tuner.errors import TunerError


def check_objective(source: Source, objective: Objective, findings: Findings) -> None:
    """Note lengths that are missing or said twice, rungs that are neither a concurrency nor a
    request rate, of two kinds, or come twice, and SLOs that do not parse."""
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
        if isinstance(tokens, LengthDistribution):
            _check_distribution(source, name, tokens, findings)
    _check_ladder(source, objective, findings)
    _check_arrivals(source, objective, findings)
    _check_score(source, objective, findings)
    for index, rung in enumerate(objective.ladder):
        _check_slos(source, ("ladder", index, "slos"), rung.slos, findings)
    _check_slos(source, ("slos",), objective.slos, findings)


def check_trace(source: Source, objective: Objective, trace: Trace, findings: Findings) -> None:
    """Note what an objective wants of its trace and cannot have."""
    if objective.api == "chat" and trace.texts and isinstance(objective.prefix, SharedPrefix):
        message = "the trace's own questions are asked, and they share what they share"
        findings.add(source, ("prefix", "shared"), message, "say cold or warm", key=True)
    if objective.arrivals == "trace" and trace.offsets_s is None:
        message = f"found 'trace', and no request of {objective.trace} has a timestamp"
        findings.add(source, ("arrivals",), message, "say poisson or constant")


def _check_distribution(
    source: Source, name: str, lengths: LengthDistribution, findings: Findings
) -> None:
    high = highest(lengths)
    if lengths.low > high:
        at = "low" if lengths.high is None else "high"
        value = lengths.low if lengths.high is None else high
        bound = f"at most {high}, ten times the mean" if at == "low" else f"at least {lengths.low}"
        findings.add(source, (name, at), f"found {value}, expected {bound}")
    elif not lengths.low <= lengths.mean <= high:
        message = f"found {lengths.mean:g}, expected a mean from {lengths.low} to {high}"
        findings.add(source, (name, "mean"), message)


def _check_ladder(source: Source, objective: Objective, findings: Findings) -> None:
    seen: dict[tuple[str, float], int] = {}
    for index, rung in enumerate(objective.ladder):
        kinds = _kinds(rung)
        place: Place = ("ladder", index)
        if not kinds:
            hint = "or request_rate: N a second, for a load that waits for nobody"
            findings.add(source, place, "missing key 'concurrency'", hint)
            continue
        if len(kinds) == 2:
            message = "stands beside a concurrency: a rung is one or the other"
            findings.add(source, (*place, "request_rate"), message, "keep one", key=True)
            continue
        (kind,) = kinds
        first, _ = source.mark(("ladder", seen.get((kind, rung.level), index), kind))
        if (kind, rung.level) in seen:
            said = f"{kind} {rung.level:g} again, first on line {first}"
            findings.add(source, (*place, kind), said)
        elif other := next((k for k, _ in seen if k != kind), None):
            first, _ = source.mark(("ladder", next(iter(seen.values())), other))
            message = f"found {kind}, and the ladder began with {other} on line {first}"
            hint = "a ladder is all of one kind: write two objectives"
            findings.add(source, (*place, kind), message, hint, key=True)
            return
        seen.setdefault((kind, rung.level), index)


def _kinds(rung: Rung) -> list[str]:
    given = {"concurrency": rung.concurrency, "request_rate": rung.request_rate}
    return [kind for kind, level in given.items() if level is not None]


def _check_arrivals(source: Source, objective: Objective, findings: Findings) -> None:
    place: Place = ("arrivals",)
    if "arrivals" in objective.model_fields_set and not objective.by_rate:
        message = "says when the requests of rates come, and the ladder has none"
        hint = "leave it out, or write the rungs as request_rate"
        findings.add(source, place, message, hint, key=True)
    elif objective.arrivals == "trace" and objective.trace is None:
        message = "found 'trace', and the objective names no trace"
        findings.add(source, place, message, "add trace: FILE, or say poisson or constant")


def _check_score(source: Source, objective: Objective, findings: Findings) -> None:
    if objective.score != "goodput":
        return
    without = [
        r for r in objective.ladder if not any(map(of_single_requests, objective.slos_at(r)))
    ]
    if without:
        names = ", ".join(PER_REQUEST)
        message = f"goodput is of requests that keep their limits, and the rung {without[0].said}"
        findings.add(
            source,
            ("score",),
            f"{message} has none on {names}",
            "add slos, such as 'ttft_ms p99 <= 500'",
        )


def _check_slos(source: Source, place: Place, texts: Iterable[str], findings: Findings) -> None:
    for index, text in enumerate(texts):
        try:
            Slo.parse(text)
        except TunerError as error:
            findings.add(source, (*place, index), error.message, error.hint)
