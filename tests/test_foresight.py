"""What is foreseen is what the schedule does in the longest night, launch by launch."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.nightly import completed_as, study
from tests.nightly import space as space_of
from tests.samples import OBJECTIVE
from tuner.definitions.validation import LoadedStudy
from tuner.night.foresight import Use, foresee, to_run
from tuner.night.schedule import Job, Situation, next_job
from tuner.records import TrialRecord

WIDE = {
    "parameters": {
        "graphs": {"type": "bool"},
        "chunk": {"type": "int", "low": 1, "high": 64, "default": 1},
        "seats": {"type": "choice", "choices": [8, 16, 32], "default": 8},
    }
}
AROUND = {
    "baseline": (-0.02, 0.02, 0.0, 0.01, -0.01, 0.015),
    "hypothesis": (0.0, 0.05, -0.05, 0.04, -0.04, 0.05),
    "search": (0.0,),
    "confirm": (0.0, 0.02, 0.01, -0.02, -0.01, 0.02),
}
"""Where repeated launches of one configuration lie around their mean: nothing is decided."""


def loaded(**changes) -> LoadedStudy:
    made = study(Path("/nowhere"), {"trials": 1})
    space = space_of(**changes)
    return LoadedStudy(
        folder=made.folder,
        definition=made.definition,
        space=space,
        objective=OBJECTIVE,
        baseline=space.configuration({}),
        lengths=made.lengths,
    )


def longest_night(
    of: LoadedStudy, launches: int, before: Sequence[tuple[Use, TrialRecord]] = ()
) -> list[tuple[Use, TrialRecord]]:
    """What the schedule launches where nothing fails and nothing is decided: (use, record), up to
    so many, those of the night before included."""
    night = list(before)
    made: Counter[tuple[str, str]] = Counter()
    proposals = iter(of.space.configurations())
    exhausted, proposed = False, 0
    while len(night) < launches:
        records = [record for _, record in night]
        choice = next_job(
            Situation(
                space=of.space,
                objective=of.objective,
                baseline=of.baseline,
                records=records,
                pending=[],
                launches_left=launches - len(night),
                exhausted=exhausted,
            )
        )
        if not isinstance(choice, Job):
            break
        known = {record.key for record in records} | {of.baseline.key}
        known |= {
            of.space.hypothesis_configuration(h, of.baseline).key for h in of.space.hypotheses
        }
        configuration = choice.configuration or next(
            (c for c in proposals if c.key not in known), None
        )
        if configuration is None:
            exhausted = True
            continue
        proposed += choice.kind == "search"
        found = 1.09 if proposed <= 2 else 0.9
        gain = {"baseline": 1.0, "hypothesis": 1.02, "search": found, "confirm": 1.03}[choice.kind]
        around = AROUND[choice.kind]
        gain *= 1 + around[made[choice.kind, configuration.key] % len(around)]
        made[choice.kind, configuration.key] += 1
        record = completed_as(len(night), choice, configuration, gain)
        night.append(((choice.phase, choice.kind == "baseline"), record))
    return night


@pytest.mark.parametrize("launches", [1, 3, 4, 7, 11, 12, 18, 23, 24, 26, 34, 50])
def test_a_whole_night_is_foreseen_from_its_beginning(launches):
    of = loaded(**WIDE)
    used, _ = foresee(of, [], launches)
    assert used == Counter(use for use, _ in longest_night(of, launches))


@pytest.mark.parametrize("launches", [26, 40])
def test_the_rest_of_a_night_is_foreseen_from_wherever_it_stands(launches):
    of = loaded(**WIDE)
    night = longest_night(of, launches)
    for made in range(5, launches, 3):
        used, _ = foresee(of, [record for _, record in night[:made]], launches - made)
        assert used == Counter(use for use, _ in night[made:]), made


@pytest.mark.parametrize("launches", [40, 70])
def test_more_budget_for_a_night_that_was_over_is_foreseen(launches):
    of = loaded(**WIDE)
    before = longest_night(of, 26)
    used, _ = foresee(of, [record for _, record in before], launches - 26)
    after = longest_night(of, launches, before)[26:]
    assert used == Counter(use for use, _ in after)


def test_a_small_space_leaves_launches_to_tighten():
    of = loaded()  # 12 configurations, of which the baseline and three hypotheses are known
    used, owed = foresee(of, [], 60)
    assert used == Counter(use for use, _ in longest_night(of, 60))
    assert used["search", False] == 8
    assert used["tighten", False] > 0
    assert not owed


def test_the_longest_night_has_every_phase():
    phases = {use for use, _ in longest_night(loaded(), 60)}
    assert {phase for phase, _ in phases} == {
        "calibrate", "hypotheses", "search", "settle", "confirm", "tighten",
    }  # fmt: skip


def test_what_does_not_fit_is_owed():
    used, owed = foresee(loaded(), [], 4)
    assert used == {("calibrate", True): 3, ("hypotheses", False): 1}
    assert owed == {
        ("hypotheses", False): 2,
        ("settle", False): 3,
        ("confirm", False): 2,  # one finalist of a narrow budget, twice
        ("confirm", True): 1,
    }


def test_without_a_limit_all_of_a_small_space_is_foreseen_and_no_endless_search():
    used, owed = foresee(loaded(), [], None)
    assert used["search", False] == 8
    assert not owed
    continuous = {"parameters": {"a": {"type": "float", "low": 0, "high": 1}}, "hypotheses": []}
    assert foresee(loaded(**continuous), [], None)[0]["search", False] == 0


def test_what_was_tried_or_builds_on_the_dead_is_not_to_be_run():
    of = loaded()
    assert [h.id for h in to_run(of, [])] == ["graphs", "more-graphs", "slow"]
    night = [record for _, record in longest_night(of, 5)]
    assert [h.id for h in to_run(of, night)] == ["slow"]
