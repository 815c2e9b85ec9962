"""Passages continued under load, and scored by the baseline: honest launches and wrong ones."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.rehearsed import READY, TABLE, launched
from tests.samples import record
from tests.spoken import order_of, spoken
from tuner.definitions.models import EngineDefinition
from tuner.engines.base import LaunchSpec
from tuner.measuring.fidelity import Continuation
from tuner.measuring.passages import OUTPUT_TOKENS, TEXTS, unwritten
from tuner.records import TrialKind, TrialRecord
from tuner.verdicts.outputs import Outputs

HONEST_LAUNCHES = 48
BATCHES = (2, 5, 16, 64)


class Launches:
    """Rehearsed launches of one study, without its night: each is one process under real load."""

    def __init__(self, folder: Path) -> None:
        self.records: list[TrialRecord] = []
        self._folder = folder

    def launch(self, kind: TrialKind, *argv: str, levels: tuple[int, ...] = (0, 2), **surface: Any):
        """One launch; one of the baseline scores all that was said since the last."""
        entries = {"time_scale": 400, "table": TABLE, **surface}
        with launched(self._folder, *argv, **entries) as engine:
            engine.wait_for(READY)
            definition = EngineDefinition(name="rehearsal", surface="surface.yaml")
            launch = LaunchSpec(engine=definition, model="m", folder=self._folder)
            order = order_of(launch, self.records, kind)
            course = asyncio.run(spoken(order, engine.port, levels))
        self.records.append(
            record(
                len(self.records),
                kind,
                key=kind,
                continuations=course.continuations,
                rescored=course.rescored,
                not_compared=course.not_compared,
            )
        )
        return self.records[-1]


@pytest.fixture
def launches(tmp_path) -> Launches:
    return Launches(tmp_path)


def test_passages_are_continued_at_the_lightest_and_the_heaviest_rung(launches):
    found = launches.launch("search", levels=(0, 1, 2))
    assert [c.level for c in found.continuations] == [1] * len(TEXTS) + [16] * len(TEXTS)
    assert {len(c.output) for c in found.continuations} == {OUTPUT_TOKENS}
    assert len({c.prompt for c in found.continuations}) == len(TEXTS)
    assert found.not_compared == ""


def test_no_more_passages_are_asked_at_once_than_the_rung_asks(launches):
    """The load of one user and a passage are two; all eight passages would be nine."""
    crash = {"when": {}, "running": 3, "log": "bye\n"}
    found = launches.launch("search", levels=(0,), crashes=[crash])
    assert (len(found.continuations), found.not_compared) == (len(TEXTS), "")


def test_a_rung_that_is_played_again_is_asked_again(launches):
    found = launches.launch("search", levels=(0, 2, 2))
    assert [c.level for c in found.continuations] == [1] * len(TEXTS) + [16] * len(TEXTS)


@pytest.mark.parametrize("kind", ["decoding", "drifting", "repeated", "short"])
def test_wrong_output_is_far_from_the_baseline_and_honest_output_is_not(launches, kind):
    wrong = [{"when": {"attention-backend": "fa3"}, "kind": kind}]
    launches.launch("baseline")
    launches.launch("search", "--attention-backend", "fa3", wrong_output=wrong)
    launches.launch("search", "--attention-backend", "triton", wrong_output=wrong)
    launches.launch("baseline")
    launches.launch("baseline")
    outputs = Outputs(launches.records)
    assert outputs.differs(1), outputs.distances[1]
    assert outputs.differs(2) == "", outputs.distances[2]


def test_output_that_is_wrong_in_a_third_of_the_requests_is_far_too(launches):
    launches.launch("baseline")
    launches.launch("search", wrong_output=[{"when": {}, "kind": "decoding", "share": 0.3}])
    launches.launch("baseline")
    launches.launch("baseline")
    assert Outputs(launches.records).differs(1)


def test_of_many_honest_launches_at_other_batch_sizes_none_differs(launches):
    launches.launch("baseline")
    launches.launch("baseline")
    for number in range(HONEST_LAUNCHES):
        launches.launch("search", "--max-running-requests", str(BATCHES[number % len(BATCHES)]))
    launches.launch("baseline")
    outputs = Outputs(launches.records)
    assert len(outputs.distances) == HONEST_LAUNCHES + 3
    assert not [said for r in launches.records if (said := outputs.differs(r.number))]
    gaps = [each.gap_nat for found in outputs.distances.values() for each in found]
    assert max(gaps) > 0, "rounding never decided anything: this shows nothing"


def test_a_server_without_a_tokenizer_is_asked_for_token_ids(launches, monkeypatch):
    async def none(self, http, text):
        return None

    monkeypatch.setattr("tuner.engines.common.CommonEngine.tokens", none)
    found = launches.launch("search", levels=(0,))
    assert [list(c.prompt) for c in found.continuations] == unwritten()


def test_an_output_that_no_one_can_score_is_said_and_the_rest_goes_on(launches):
    launches.launch("baseline")
    broken = Continuation(level=1, prompt=(), output=())
    launches.records.append(record(1, "search", key="other", continuations=[broken]))
    found = launches.launch("baseline")
    assert set(found.rescored) == {1, 2}
