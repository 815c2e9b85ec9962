"""The bounded part of the suite: each target with each action once, at random moments."""

import pytest

from tests.chaos.__main__ import nights
from tests.chaos.night import Kind

SEED = 20

pytestmark = pytest.mark.timeout(1500)


@pytest.mark.parametrize(("kind", "faults"), [("bare", 29), ("contained", 5)])
def test_nights_survive_what_befalls_them(kind: Kind, faults: int) -> None:
    broken = []
    for result, ended in nights(kind, faults, SEED):
        broken += ended
        if result:
            broken += [f"{result.fault.words}: {said}" for said in result.broken]
    assert not broken, f"seed {SEED}: " + "\n".join(broken)
