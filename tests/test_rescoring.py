"""Passages continued under load, and scored by the baseline: honest launches and wrong ones."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.rehearsed import READY, TABLE, launched
from tests.samples import record, rung
from tests.spoken import order_of, spoken
from tuner.definitions.models import EngineDefinition
from tuner.engines.base import LaunchSpec
from tuner.errors import HttpError, HttpProtocolError, HttpUnreachable
from tuner.measuring.fidelity import Continuation, TokenScore
from tuner.measuring.observed import Doubt
from tuner.measuring.passages import OUTPUT_TOKENS, TEXTS, unwritten
from tuner.measuring.replicas import Replicas
from tuner.night.course import Course, TrialOrder
from tuner.night.rescoring import continuing, rescore
from tuner.night.silence import SILENCE
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


class Spoken:
    """An engine that answers in no time, in this process; to some prompts with an error."""

    def __init__(self, errors: Mapping[int, HttpError] | None = None) -> None:
        self.errors = errors or {}
        self.scored: list[int] = []
        self.asked = self.most = 0
        self.patience_s = 0.0

    async def tokens(self, http: object, text: str) -> list[int]:
        return [len(text)]

    async def continuation(
        self, http: object, prompt: list[int], tokens: int, patience_s: float
    ) -> list[int]:
        self.patience_s = patience_s
        self.asked += 1
        self.most = max(self.most, self.asked)
        for _turn in range(len(TEXTS)):
            await asyncio.sleep(0)
        self.asked -= 1
        return prompt

    async def scores(
        self, http: object, prompt: tuple[int, ...], output: tuple[int, ...]
    ) -> list[TokenScore]:
        self.scored.append(prompt[0])
        if prompt[0] in self.errors:
            raise self.errors[prompt[0]]
        return [TokenScore(said=-1.0, best=-1.0, second=-2.0) for _ in output]

    def serving(self) -> Any:
        return SimpleNamespace(engine=self, https=("http",))


def ordered(folder: Path, **changes: Any) -> TrialOrder:
    launch = LaunchSpec(
        engine=EngineDefinition(name="rehearsal", surface="s"), model="m", folder=folder
    )
    return order_of(launch, [], "baseline").model_copy(update=changes)


def words(number: int) -> list[Continuation]:
    """What a trial said: its prompt is its number."""
    return [Continuation(level=1, prompt=(number,), output=(1, 2))]


@pytest.mark.parametrize(
    ("error", "scored"),
    [(HttpProtocolError("no score"), {1, 2}), (HttpUnreachable("refused"), {2})],
)
def test_a_trial_that_cannot_be_scored_ends_no_others_comparison(tmp_path, caplog, error, scored):
    engine, course = Spoken({0: error}), Course(continuations=words(2))
    order = ordered(tmp_path, number=2, to_rescore={0: words(0), 1: words(1)})
    with caplog.at_level(logging.WARNING):
        assert asyncio.run(rescore(order, engine.serving(), course))
    assert engine.scored[:2] == [2, 0]
    assert set(course.rescored) == scored
    assert course.not_scored == {0: f"trial 0 could not be scored: {error.message}"}
    assert course.not_compared == ""
    assert "trial 2: trial 0 could not be scored" in caplog.text


def test_a_baseline_that_cannot_score_its_own_output_says_so_of_itself(tmp_path):
    engine = Spoken({2: HttpProtocolError("no score")})
    course = Course(continuations=words(2))
    order = ordered(tmp_path, number=2, to_rescore={0: words(0)})
    asyncio.run(rescore(order, engine.serving(), course))
    assert set(course.rescored) == {0}
    assert course.not_compared == "trial 2 could not be scored: no score"


@pytest.mark.parametrize(("launched", "most"), [(1, 2), (2, 4)])
def test_a_lone_server_is_asked_as_many_at_once_as_it_has_users(tmp_path, launched, most):
    order = ordered(tmp_path, replicas=Replicas(launched=launched, of=2))
    ladder = [rung for rung in order.objective.ladder if rung.concurrency == 4]
    order = order.model_copy(
        update={"objective": order.objective.model_copy(update={"ladder": ladder})}
    )
    engine, course = Spoken(), Course()
    ask = continuing(order, engine.serving(), course, 0)
    assert ask is not None

    async def asked() -> None:
        await ask()

    asyncio.run(asked())
    assert engine.most == most
    assert engine.patience_s == 2.5 * 120.0
    assert len(course.continuations) == len(TEXTS)


def test_a_server_that_was_silent_is_not_asked_for_words_again(tmp_path):
    order, serving = ordered(tmp_path), Spoken().serving()
    silence = Doubt.of(SILENCE, "1", 0.0, 1.0, "no token", "advice")
    late = Doubt.of("lateness", "16", 0.2, 0.1, "late", "advice")
    void = [
        rung(level, 1.0).model_copy(update={"doubts": [doubt]})
        for level, doubt in ((1, silence), (16, late))
    ]
    assert continuing(order, serving, Course(), 0) is not None
    assert continuing(order, serving, Course(invalid=void), 0) is None
    assert continuing(order, serving, Course(invalid=void), 2) is not None


def test_words_are_not_waited_for_longer_than_a_first_token(tmp_path):
    order, engine = ordered(tmp_path), Spoken()
    definition = order.launch.engine.model_copy(update={"stall_timeout_s": 4.0})
    order = order.model_copy(
        update={"launch": order.launch.model_copy(update={"engine": definition})}
    )
    ask = continuing(order, engine.serving(), Course(), 0)
    assert ask is not None

    async def asked() -> None:
        await ask()

    asyncio.run(asked())
    assert engine.patience_s == 10.0
