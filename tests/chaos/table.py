"""What was done and what survived it, as a table in Markdown."""

from collections.abc import Sequence

from tests.chaos.suite import Result


def table(results: Sequence[Result], broken: Sequence[str], *, seed: int, took_s: float) -> str:
    """One line for each kind of fault, and below it what did not hold."""
    lines = [
        "| what happened | times | the night went on | the next run continued it "
        "| servers gone after, s (median, longest) |",
        "|---|---|---|---|---|",
    ]
    kinds = sorted({(each.fault.target, each.fault.action) for each in results})
    lines += [
        _line([each for each in results if (each.fault.target, each.fault.action) == kind])
        for kind in kinds
    ]
    wrong = [fault for result in results for fault in result.broken] + list(broken)
    said = f"{len(results)} faults in {took_s / 60:.0f} minutes, seed {seed}"
    lines += ["", f"{said}: {len(wrong)} broken promises."]
    return "\n".join([*lines, *(f"* {fault}" for fault in wrong)])


def _line(results: Sequence[Result]) -> str:
    continued = sum(result.run_ended is not None for result in results)
    gone = sorted(result.gone_s for result in results if result.gone_s is not None)
    took = f"{gone[len(gone) // 2]:.1f}, {gone[-1]:.1f}" if gone else ""
    words, went_on = results[0].fault.words, len(results) - continued
    return f"| {words} | {len(results)} | {went_on} | {continued} | {took} |"
