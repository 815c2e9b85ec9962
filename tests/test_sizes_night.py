"""TP4 against TP8 on a host of eight GPUs, by hand and by the tuner: score, label, confirmation.

The figures are those of "Configurations of different size" in the README.
"""

import random
import shutil
from pathlib import Path

import pytest

from tests.evening import edit
from tests.nightly import Heard, SimulatedExecutor
from tests.rehearsed import free_port
from tests.samples import record, rung
from tuner.definitions.validation import LoadedStudy, load_study
from tuner.hosts import processes
from tuner.hosts.executor import Slot
from tuner.night.course import TrialOrder
from tuner.night.orders import order
from tuner.night.schedule import Job
from tuner.night.study import StudyRun
from tuner.night.trial import run_trial
from tuner.records import Records, TrialRecord
from tuner.verbs.inspect import searcher_of
from tuner.verdicts.decision import conclusion, finalists
from tuner.verdicts.score import score
from tuner.views.results import study_view

NIGHT = Path(__file__).parent / "sizes_night"
README = (Path(__file__).parent.parent / "README.md").read_text()

TP8 = {1: 20.0, 8: 100.0, 16: 160.0}
"""The table of the surface at the ladder's concurrencies."""
TP4_SERVER = {1: 0.9 * 20.0, 4: 60.0, 8: 100.0}
"""One server on half of the GPUs, by the concurrency that it sees itself."""
TP4_HOST = {1: 18.0, 8: 2 * 60.0, 16: 2 * 100.0}
"""Two of them: a single user has one to itself, the others are dealt out."""
RATIOS = {1: 0.90, 8: 1.20, 16: 1.25}
SCORE = 1.35 ** (1 / 3)
LONG_PREFILL, CROWDED = 1.04, 0.75
PAIR = {"tp-size": 4}
LONE = {"tp-size": 4, "chunked-prefill-size": 8192}
"""Looks better still while one runs alone, and is worse as a pair."""


@pytest.fixture
def study(tmp_path) -> LoadedStudy:
    return load_study(shutil.copytree(NIGHT, tmp_path / "night"))


@pytest.fixture
def slow(study) -> LoadedStudy:
    """The same at a pace that a busy machine keeps up with."""
    edit(study.folder, "surface.yaml", "time_scale: 50", "time_scale: 15")
    edit(study.folder, "objective.yaml", "window_s: 40", "window_s: 20")
    return load_study(study.folder)


def configuration(study: LoadedStudy, values):
    return study.space.configuration({**study.baseline.as_dict(), **values})


def ordered(study: LoadedStudy, kind, values, records=()) -> TrialOrder:
    job = Job(phase="confirm", kind=kind)
    return order(study, list(records), len(records), job, configuration(study, values))


def true_rate(order: TrialOrder, streams: int) -> float:
    """What one server of the surface gives at so many streams, by hand."""
    rate = TP8[streams] if order.values["tp-size"] == 8 else TP4_SERVER[streams]
    if order.values["chunked-prefill-size"] == 8192:
        rate *= LONG_PREFILL
        rate *= CROWDED if order.replicas.launched == 2 else 1.0
    return rate


def simulated(order: TrialOrder, noise: float = 0.0) -> TrialRecord:
    """That order's launch as the surface would have it: the users dealt over its servers."""
    replicas, rungs = order.replicas, []
    for concurrency in TP8:
        streams = replicas.streams(concurrency)
        even, rest = divmod(streams, replicas.launched)
        dealt = [even + (place < rest) for place in range(replicas.launched)]
        seen = sum(true_rate(order, each) for each in dealt if each)
        host = seen * replicas.factor(concurrency) * (1 + noise)
        rungs.append(
            rung(
                concurrency,
                host,
                tok_s_per_gpu=host / (order.host_gpus or 1),
                streams=streams,
                factor=replicas.factor(concurrency),
            )
        )
    made = record(order.number, order.kind, key=order.key, values=order.values, rehearsal=True)
    return made.model_copy(update={"rungs": rungs, "replicas": replicas})


def launched(order: TrialOrder, folder: Path, expected: dict[int, float]) -> TrialRecord:
    """That order's launch by real servers of the rehearsal.

    A busy machine slows single launches; a wrong number would be in each of three.
    """
    for attempt in range(3):
        made = launched_once(order, folder / str(attempt))
        if rates(made) == pytest.approx(expected, rel=0.1):
            return made
    return made


def launched_once(order: TrialOrder, folder: Path) -> TrialRecord:
    slot = Slot(
        host="here",
        gpus=tuple(str(number) for number in range(order.gpus)),
        real_gpus=False,
        server_cores=(),
        client_cores=(),
        ports=tuple(free_port() for _ in range(3 * order.replicas.launched)),
    )
    made = run_trial(order, slot, folder, lambda note: None)
    assert not processes.tree("TUNER_SERVER_TAG", f"trial-{order.number}")
    return made


def rates(record: TrialRecord) -> dict[float, float]:
    return {rung.level: rung.output_tok_s for rung in record.rungs}


def played(record: TrialRecord) -> dict[float, tuple[float, float]]:
    return {rung.level: (rung.played, rung.factor) for rung in record.rungs}


# --- by hand


def test_the_figures_of_the_readme_follow_from_the_surface(study):
    assert study.surface is not None
    table = {point.concurrency: point.output_tok_s for point in study.surface.table}
    assert {at: table[at] for at in TP8} == TP8
    assert {at: table[at] * (0.9 if at == 1 else 1.0) for at in TP4_SERVER} == TP4_SERVER
    assert {at: TP4_HOST[at] / TP8[at] for at in TP8} == pytest.approx(RATIOS)
    assert f"{SCORE:.3f}" == "1.105"
    assert f"{SCORE * LONG_PREFILL:.3f}" == "1.149"
    assert f"{SCORE * LONG_PREFILL * CROWDED:.3f}" == "0.862"
    section = README.partition("## Configurations of different size")[2].partition("\n## ")[0]
    for figure in (
        "1.105",
        "1.149",
        "0.862",
        "0.90",
        "1.20",
        "1.25",
        "20 tok/s/GPU",
        "25 tok/s/GPU",
    ):
        assert figure in section, figure


# --- one launch, on paper


def test_the_search_launches_one_server_and_everything_else_a_full_set(study):
    search = ordered(study, "search", PAIR)
    assert (search.gpus, search.host_gpus) == (4, 8)
    assert str(search.replicas) == "1 of 2, extrapolated"
    for kind in ("baseline", "hypothesis", "confirm"):
        whole = ordered(study, kind, PAIR)
        assert (whole.gpus, whole.host_gpus, str(whole.replicas)) == (8, 8, "2 of 2")
        assert str(ordered(study, kind, {}).replicas) == "1 of 1"


def test_what_was_extrapolated_is_no_bar_to_others(study):
    records = [simulated(ordered(study, "baseline", {}))]
    records.append(simulated(ordered(study, "search", LONE, records)))
    assert ordered(study, "search", PAIR, records).best == 1.0
    records.append(simulated(ordered(study, "confirm", PAIR, records)))
    assert ordered(study, "search", PAIR, records).best == pytest.approx(SCORE)


# --- one launch, in fact


def test_one_server_is_played_its_share_and_counts_for_two(slow, tmp_path):
    baseline = launched(ordered(slow, "baseline", {}), tmp_path / "0", TP8)
    alone = launched(ordered(slow, "search", PAIR, [baseline]), tmp_path / "1", TP4_HOST)
    assert rates(baseline) == pytest.approx(TP8, rel=0.1)
    assert played(baseline) == {1: (1, 1.0), 8: (8, 1.0), 16: (16, 1.0)}
    assert rates(alone) == pytest.approx(TP4_HOST, rel=0.1)
    assert played(alone) == {1: (1, 1.0), 8: (4, 2.0), 16: (8, 2.0)}
    assert str(alone.replicas) == "1 of 2, extrapolated"
    assert score(alone.rungs, rates(baseline), slow.objective) == pytest.approx(SCORE, rel=0.06)
    # Per GPU of the host, whatever was launched; a user's pace and the latencies are the server's.
    assert [r.tok_s_per_gpu for r in (baseline.rungs[-1], alone.rungs[-1])] == pytest.approx(
        [20, 25], rel=0.1
    )
    assert alone.rungs[-1].tok_s_per_user == pytest.approx(100 / 8, rel=0.25)
    assert alone.rungs[-1].ttft_ms is not None
    assert alone.rungs[-1].ttft_ms.p50 == pytest.approx(200, rel=0.35)


@pytest.mark.parametrize(("values", "factor"), [(PAIR, 1.0), (LONE, LONG_PREFILL * CROWDED)])
def test_a_full_set_is_loaded_as_one_host(slow, tmp_path, values, factor):
    expected = {at: rate * factor for at, rate in TP4_HOST.items()}
    made = launched(ordered(slow, "confirm", values), tmp_path, expected)
    assert rates(made) == pytest.approx(expected, rel=0.1)
    assert played(made) == {1: (1, 1.0), 8: (8, 1.0), 16: (16, 1.0)}
    assert str(made.replicas) == "2 of 2"
    assert made.gpus == list("01234567")
    folder = max(tmp_path.glob("[0-2]"))
    assert "ready to roll" in (folder / "server.log").read_text()
    assert "ready to roll" in (folder / "replica-2" / "server.log").read_text()
    script = (folder / "command.sh").read_text()
    assert script.count("TUNER_REPLICAS=2") == script.count(" &\n") == 2
    assert script.endswith("\nwait\n")
    assert made.command in script.replace("TUNER_REPLICAS=2 ", "")


# --- the night


class Nightly:
    """The night with servers by hand, from nothing to its verdict."""

    def __init__(self, study: LoadedStudy) -> None:
        noise = random.Random(7)
        self.study = study
        self.records = Records(study.folder)
        self.executor = SimulatedExecutor(lambda order: simulated(order, noise.gauss(0, 0.004)))
        run = StudyRun(study, self.records, self.executor, searcher_of(study, None), Heard())
        run.run()
        self.found = conclusion(list(self.records), study.objective, study.baseline.key)

    def of(self, values, *kinds: str) -> list[TrialRecord]:
        key = configuration(self.study, values).key
        return [r for r in self.records if r.key == key and r.kind in kinds]


@pytest.fixture
def night(study):
    return Nightly(study)


def test_the_pair_that_is_better_wins_and_the_one_that_only_looks_so_does_not(night):
    assert night.found.winner_key == configuration(night.study, PAIR).key
    assert night.found.effect.gain_percent == pytest.approx(100 * (SCORE - 1), abs=1.5)
    (refused,) = [f for f in night.found.finalists if f.key == configuration(night.study, LONE).key]
    assert refused.judgement == "regresses"
    assert refused.effect.gain_percent == pytest.approx(
        100 * (SCORE * LONG_PREFILL * CROWDED - 1), abs=1.5
    )


def test_the_search_put_the_one_that_only_looks_better_first(night):
    searched = [r for r in night.records if r.kind != "confirm"]
    order = finalists(searched, night.study.objective, night.study.baseline.key)
    assert order[0] == configuration(night.study, LONE).key


def test_every_number_says_whether_a_server_stood_for_others(night):
    for values in (PAIR, LONE):
        (alone,) = night.of(values, "search")
        assert str(alone.replicas) == "1 of 2, extrapolated"
        fresh = night.of(values, "confirm")
        assert {str(r.replicas) for r in fresh} == {"2 of 2"}
    view = study_view(night.study, night.records)
    assert view.winner_replicas == 2
    alone = {r.number for values in (PAIR, LONE) for r in night.of(values, "search")}
    assert {row.number for row in view.trials if row.extrapolated} == alone
