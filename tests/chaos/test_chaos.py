"""The bounded part of the suite: every target once or twice, at moments of a printed seed."""

import pytest

from tests.chaos.__main__ import nights
from tests.chaos.night import Kind

SEED = 20

pytestmark = pytest.mark.timeout(1500)


@pytest.mark.parametrize(("kind", "faults"), [("bare", 18), ("contained", 5)])
def test_nights_survive_what_befalls_them(kind: Kind, faults: int) -> None:
    results, broken = nights(kind, faults, SEED)
    broken += [f"{each.fault.words}: {said}" for each in results for said in each.broken]
    assert not broken, f"seed {SEED}: " + "\n".join(broken)
