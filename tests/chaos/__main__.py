"""The whole suite: `python -m tests.chaos --faults 200`."""

import argparse
import random
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path

from tests.chaos.faults import CELLS, Fault, deck, long_freezes
from tests.chaos.night import Kind
from tests.chaos.suite import Result, Suite, said
from tests.chaos.table import table

_SHARES: Mapping[Kind, float] = {"bare": 0.83, "contained": 0.14, "vllm": 0.03}
_LONG_FROM = 100
"""So many faults, and some of them are freezes that outlast a lease: 42 seconds each."""


def main() -> int:
    """Inflict the faults, print the table; 1 where something that must hold was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 16))
    parser.add_argument("--only", choices=sorted(CELLS), help="nights of one kind")
    parser.add_argument("--keep", type=Path, help="copy the records of broken nights there")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    said(f"seed {asked.seed}")
    begun_s = time.monotonic()
    results: list[Result] = []
    broken: list[str] = []
    try:
        for kind, share in _SHARES.items():
            share = share if asked.only is None else float(asked.only == kind)
            count = round(asked.faults * share)
            for result, ended in nights(kind, count, asked.seed, asked.keep):
                results += [result] if result else []
                broken += ended
    finally:  # cut short it still says what it saw
        print(table(results, broken, seed=asked.seed, took_s=time.monotonic() - begun_s))
    return 1 if broken or any(result.broken for result in results) else 0


def nights(
    kind: Kind, faults: int, seed: int, keep: Path | None = None
) -> Iterator[tuple[Result | None, list[str]]]:
    """So many faults, in as many nights as that takes: each of them, and what is wrong with the
    nights themselves."""
    rng = random.Random(f"{kind}/{seed}")
    waiting = drawn(kind, rng, long=faults >= _LONG_FROM)
    made = 0
    while made < faults:
        suite = Suite(kind, seed=rng.randrange(1 << 30))
        broken = False
        try:
            for result in suite.inflict(waiting):
                made += 1
                tell(made, result)
                broken |= bool(result.broken)
                yield result, []
                if made >= faults:
                    break
            ended = suite.finish()
            if keep and (ended or broken):
                suite.night.copy_to(keep)
        finally:
            suite.close()
        said(f"night over: {ended or 'as it should be'}")
        yield None, ended


def drawn(kind: Kind, rng: random.Random, *, long: bool) -> Iterator[Fault]:
    """Faults without end: all cells of the deck, dealt again and again."""
    if long:
        yield from long_freezes(rng)
    yield from chain.from_iterable(iter(lambda: deck(kind, rng), None))


def tell(number: int, result: Result) -> None:
    """One line for each fault."""
    gone = f", servers gone after {result.gone_s:.1f} s" if result.gone_s is not None else ""
    held = f" for {result.fault.hold_s:.1f} s" if result.fault.hold_s else ""
    became = f", trial {result.trial} {result.became}" if result.became else ""
    said(f"{number}: {result.fault.words}{held}: {result.survived}{became}{gone}")
    for fault in result.broken:
        said(f"   BROKEN: {fault}")


if __name__ == "__main__":
    sys.exit(main())
