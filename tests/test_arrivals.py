from itertools import islice, pairwise
from statistics import fmean, pstdev

import pytest

from tuner.load.arrivals import due_times

RATE = 2.5


def times(arrivals, number=4000, rate=RATE, **other):
    made = due_times(arrivals, rate, **{"seed": 3, "rung_index": 0} | other)
    return list(islice(made, number))


def gaps(found):
    return [after - before for before, after in pairwise(found)]


def test_constant_arrivals_are_evenly_apart_and_drift_nowhere():
    found = times("constant", 100_001)
    assert found[0] == 0
    assert found[100_000] == 100_000 / RATE


def test_poisson_gaps_are_exponential():
    """Mean and deviation of the gaps are both 1 / rate, and neighbours know nothing of each other:
    the bounds are six standard errors of 4000 gaps."""
    found = gaps(times("poisson"))
    error = 1 / RATE / len(found) ** 0.5
    assert fmean(found) == pytest.approx(1 / RATE, abs=6 * error)
    assert pstdev(found) == pytest.approx(1 / RATE, abs=6 * 2**0.5 * error)
    middle = fmean(found)
    products = [(a - middle) * (b - middle) for a, b in pairwise(found)]
    assert fmean(products) == pytest.approx(0, abs=6 * error / RATE)


def test_the_same_seed_gives_the_same_times_and_another_or_another_rung_does_not():
    assert times("poisson") == times("poisson")
    assert times("poisson") != times("poisson", seed=4)
    assert times("poisson") != times("poisson", rung_index=1)


def test_a_rate_scales_times_and_changes_nothing_else():
    slow, fast = times("poisson", 50), times("poisson", 50, rate=4 * RATE)
    assert fast == pytest.approx([at_s / 4 for at_s in slow])


def test_a_trace_keeps_its_bursts_at_the_rate_that_is_asked():
    found = times("trace", 9, rate=1.0, offsets_s=(100.0, 100.0, 130.0))
    assert found == pytest.approx([0, 0, 2, 3, 3, 5, 6, 6, 8])
    assert len(times("trace", 100, rate=10.0, offsets_s=(5.0, 6.0, 9.0))) == 100
    assert times("trace", 100, rate=10.0, offsets_s=(5.0, 6.0, 9.0))[99] == pytest.approx(9.9)


@pytest.mark.parametrize("offsets_s", [(7.0,), (7.0, 7.0)])
def test_a_trace_of_one_moment_comes_again_at_the_rate(offsets_s):
    found = times("trace", 6, rate=2.0, offsets_s=offsets_s)
    number = len(offsets_s)
    assert found == pytest.approx([n // number * number / 2.0 for n in range(6)])
