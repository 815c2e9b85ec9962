"""Whether a row of numbers moves in one direction, and by how much. Pure.

Kendall's S (Mann, Econometrica 13, 1945) asks only which of two values is larger, so that a single
stall among steady values is no trend; Sen's slope (JASA 63, 1968) is the median over all pairs.
"""

from collections.abc import Sequence
from itertools import combinations
from statistics import fmean, median


def kendall_s(values: Sequence[float]) -> int:
    """How many pairs rise less how many fall."""
    return sum((later > earlier) - (later < earlier) for earlier, later in combinations(values, 2))


def change_share(values: Sequence[float]) -> float:
    """What Sen's slope amounts to from the first to the last value, as a share of the mean."""
    level = fmean(values)
    pairs = combinations(range(len(values)), 2)
    slope = median((values[j] - values[i]) / (j - i) for i, j in pairs)
    return slope * (len(values) - 1) / level if level else 0.0
