"""What was done and what survived it, as a table in Markdown."""

from collections import Counter
from collections.abc import Sequence

from tests.chaos.suite import Result


def table(results: Sequence[Result], broken: Sequence[str], *, seed: int, took_s: float) -> str:
    """One line for each kind of fault, and below it what did not hold."""
    lines = [
        "| fault | times | the launch that it struck was | run ended with "
        "| servers gone after, s (median, longest) |",
        "|---|---|---|---|---|",
    ]
    kinds = sorted({_kind(each) for each in results})
    lines += [_line([each for each in results if _kind(each) == kind]) for kind in kinds]
    wrong = [fault for result in results for fault in result.broken] + list(broken)
    said = f"{len(results)} faults in {took_s / 60:.0f} minutes, seed {seed}"
    lines += ["", f"{said}: {len(wrong)} broken promises."]
    return "\n".join([*lines, *(f"* {fault}" for fault in wrong)])


def _kind(result: Result) -> tuple[str, str, str]:
    fault = result.fault
    return result.night, fault.target, f"{fault.action}{', beyond the lease' if fault.long else ''}"


def _line(results: Sequence[Result]) -> str:
    night, target, action = _kind(results[0])
    where = "" if night == "bare" else f" ({night})"
    became = Counter(result.became.partition(" (")[0] for result in results)
    ended = Counter(result.run_ended for result in results if result.run_ended is not None)
    gone = sorted(result.gone_s for result in results if result.gone_s is not None)
    took = f"{gone[len(gone) // 2]:.1f}, {gone[-1]:.1f}" if gone else ""
    cells = [
        f"{action}: {target}{where}",
        str(len(results)),
        _counted(became),
        _counted(ended),
        took,
    ]
    return f"| {' | '.join(cells)} |"


def _counted(found: Counter[str] | Counter[int]) -> str:
    return ", ".join(f"{what} {times}" for what, times in sorted(found.items(), key=str))
