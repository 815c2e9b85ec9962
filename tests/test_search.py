import ast
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from tuner.definitions.models import Forbid, SpaceDefinition
from tuner.definitions.space import Configuration, Space
from tuner.errors import StudyError, TunerError
from tuner.records import TrialKind
from tuner.search.searcher import (
    Completed,
    Crashed,
    Duplicate,
    Observation,
    Ours,
    Pruned,
    Result,
    Searcher,
)

NEEDS = {"GPSampler": "torch", "CmaEsSampler": "cmaes"}
SAMPLERS = [
    name
    for name in optuna.samplers.__all__
    if name.endswith("Sampler") and name not in ("BaseSampler", "BaseGASampler")
]
READY = [
    name
    for name in SAMPLERS
    if name != "PartialFixedSampler"
    and (name not in NEEDS or importlib.util.find_spec(NEEDS[name]))
    and name != "GPSampler"  # seconds for each proposal
]


def space(parameters: dict[str, Any], **more: Any) -> Space:
    return Space(SpaceDefinition.model_validate({"parameters": parameters, **more}))


GRID = space(
    {
        "cuda-graph": {"type": "bool"},
        "backend": {"type": "choice", "choices": ["fa3", "flashinfer", "triton"], "default": "fa3"},
        "max-running": {"type": "int", "low": 16, "high": 128, "log": True, "default": 64},
        "MSCCLPP": {"type": "bool", "env": "MSCCLPP"},
    }
)
"""48 configurations."""

MIXED = space(
    {
        "build": {
            "type": "choice",
            "choices": ["release", "nightly"],
            "default": "release",
            "build": True,
        },
        "mem": {"type": "float", "low": 0.7, "high": 0.95, "default": 0.9},
        "rate": {"type": "float", "low": 1e-4, "high": 1.0, "log": True, "default": 0.01},
        "chunk": {"type": "int", "low": 256, "high": 8192, "log": True},
        "steps": {
            "type": "int",
            "low": 1,
            "high": 10,
            "step": 3,
            "default": 4,
            "when": {"spec": True},
        },
        "spec": {"type": "bool"},
        "odd": {"type": "choice", "choices": [True, 1, "1", None, 1.5], "default": 1},
    },
    forbid=[{"if": {"spec": True, "odd": "1"}, "reason": "cannot be built"}],
)


def searcher(over: Space = GRID, **options: Any) -> Searcher:
    return Searcher(
        over, **{"sampler": "TPESampler", "seed": 1, "journal": None, "name": "study", **options}
    )


def seen(
    number: int, configuration: Configuration, result: Result, label: TrialKind = "search"
) -> Observation:
    return Observation(number=number, configuration=configuration, label=label, result=result)


def judge(configuration: Configuration) -> Result:
    """A server that dies with graphs on triton, and likes many requests."""
    values = configuration.as_dict()
    if values["cuda-graph"] and values["backend"] == "triton":
        return Crashed("capture")
    score = 1.0 + 0.1 * bool(values["MSCCLPP"]) + float(values["max-running"] or 0) / 1000
    return Completed(score, {1: 1.0, 16: score}) if score > 1.03 else Pruned({1: 0.9}, "too slow")


def night(
    search: Searcher,
    launches: int,
    first: int = 0,
    judged: Callable[[Configuration], Result] = judge,
) -> list[Observation]:
    """Ask and tell until the launches are made or nothing is left."""
    made: list[Observation] = []
    for number in range(first, first + launches):
        configuration = search.ask()
        if configuration is None:
            break
        made.append(seen(number, configuration, judged(configuration)))
        search.tell(made[-1])
    return made


def keys(observations: Sequence[Observation]) -> list[str]:
    return [observation.configuration.key for observation in observations]


@pytest.mark.parametrize("sampler", READY)
def test_every_configuration_is_proposed_once_and_then_none(sampler):
    search = searcher(sampler=sampler)

    made = night(search, 60, judged=lambda _: Completed(1.0))

    assert sorted(keys(made)) == sorted(c.key for c in GRID.configurations())
    assert search.ask() is None


def test_what_is_in_flight_is_not_proposed_again():
    search = searcher()

    proposals = [search.ask() for _ in range(48)]

    assert len({c.key for c in proposals if c}) == 48
    assert search.ask() is None


def test_what_was_told_without_having_been_asked_is_not_proposed():
    search = searcher()
    told = list(GRID.configurations())[:40]

    search.replay(seen(i, c, Completed(1.0), "hypothesis") for i, c in enumerate(told))

    assert {c.key for c in told}.isdisjoint(keys(night(search, 60)))


@pytest.mark.parametrize("sampler", ["TPESampler", "RandomSampler", "QMCSampler"])
def test_the_same_seed_and_history_give_the_same_night(sampler):
    first, second = (night(searcher(sampler=sampler), 20) for _ in range(2))

    assert keys(first) == keys(second)
    assert keys(first) != keys(night(searcher(sampler=sampler, seed=2), 20))


def test_a_night_that_was_interrupted_goes_on_as_if_it_had_not_been():
    whole = night(searcher(MIXED), 30, judged=lambda c: Completed(float(c.as_dict()["mem"] or 0)))
    resumed = searcher(MIXED)

    resumed.replay(whole[:17])
    rest = night(resumed, 13, 17, judged=lambda c: Completed(float(c.as_dict()["mem"] or 0)))

    assert keys(rest) == keys(whole[17:])


def test_fewer_crashes_than_without_what_crashes_teach(monkeypatch):
    def crashes(seed: int) -> int:
        made = night(searcher(seed=seed, sampler="RandomSampler", local_share=0.0), 30)
        return sum(isinstance(observation.result, Crashed) for observation in made)

    learned = sum(crashes(seed) for seed in range(4))
    monkeypatch.setattr("tuner.search.searcher.LIKELY_CRASH", 2.0)
    blind = sum(crashes(seed) for seed in range(4))

    assert learned < blind / 2


def test_a_suspicion_is_tested_now_and_then(monkeypatch):
    monkeypatch.setattr("tuner.search.searcher.DARING_SHARE", 1.0)

    made = night(searcher(), 60)

    assert len(made) == 48


def test_suspects_are_named_with_their_evidence():
    search = searcher()
    base = GRID.configuration({})
    search.tell(seen(0, base, Completed(1.0), "baseline"))
    for number, backend in enumerate(["fa3", "triton"], start=1):
        crash = GRID.configuration({"cuda-graph": True, "backend": backend})
        search.tell(seen(number, crash, Crashed("capture"), "hypothesis"))

    assert str(search.suspects()[0]) == "cuda-graph=true in 2 of 2 crashes, never survived"
    assert search.p_crash(GRID.configuration({"cuda-graph": True, "MSCCLPP": True})) > 0.5
    assert search.p_crash(base) == 0.0


def test_faults_of_ours_teach_nothing_and_are_left_to_the_caller_to_repeat():
    search = searcher()
    made = night(search, 10, judged=lambda _: Ours("the port was taken"))

    assert search.suspects() == []
    assert set(keys(made)).isdisjoint(keys(night(search, 60, 10)))


def test_neighbours_of_the_best_are_proposed_and_a_duplicate_is_never_the_best():
    search = searcher(seed=3, local_share=1.0)
    best = GRID.configuration({"max-running": 128})
    search.tell(seen(0, GRID.configuration({}), Completed(1.0), "baseline"))
    search.tell(seen(1, best, Completed(1.2), "hypothesis"))
    search.tell(seen(2, GRID.configuration({"MSCCLPP": True}), Duplicate(1), "hypothesis"))

    proposals = [search.ask() for _ in range(4)]

    neighbours = {neighbour.key for neighbour in GRID.neighbours(best)}
    assert {proposal.key for proposal in proposals if proposal} <= neighbours


@pytest.mark.parametrize(("launches", "all_near"), [(1, True), (20, False)])
def test_the_first_proposals_are_all_near_the_best(launches, all_near):
    base = MIXED.configuration({})
    near = {neighbour.key for neighbour in MIXED.neighbours(base)}
    search = searcher(MIXED)
    for number in range(launches):
        search.tell(seen(number, base, Completed(1.0), "baseline"))

    proposals = [search.ask() for _ in range(8)]

    assert {proposal.key in near for proposal in proposals if proposal} == {True, all_near}


def test_what_the_space_forbids_is_never_proposed():
    over = Space(
        GRID.definition.model_copy(
            update={"forbid": [Forbid.model_validate({"if": {"cuda-graph": True}, "reason": "no"})]}
        )
    )

    made = night(searcher(over, local_share=0.0), 60, judged=lambda _: Completed(1.0))

    assert len(made) == 24
    assert not any(o.configuration.as_dict()["cuda-graph"] for o in made)


def test_a_countable_space_is_searched_to_its_end_even_where_draws_miss(monkeypatch):
    monkeypatch.setattr("tuner.search.searcher.RANDOM_DRAWS", 0)
    monkeypatch.setattr("tuner.search.searcher.DRAWS", 1)

    made = night(searcher(local_share=0.0), 60, judged=lambda _: Crashed("oom"))
    assert 1 <= len(made) < 48

    made = night(searcher(local_share=0.0), 60, judged=lambda _: Pruned({}, "slow"))
    assert len(made) == 48


def test_where_a_sampler_draws_nothing_new_chance_does(monkeypatch):
    monkeypatch.setattr("tuner.search.searcher.DRAWS", 0)

    assert searcher(MIXED).ask() is not None


def test_inactive_parameters_are_left_out():
    search = searcher(MIXED, sampler="RandomSampler", local_share=0.0)

    made = night(search, 60, judged=lambda _: Completed(1.0))

    values = [observation.configuration.as_dict() for observation in made]
    assert all(("steps" in v) == v["spec"] for v in values)
    assert {v["steps"] for v in values if v["spec"]} == {1, 4, 7, 10}


def test_proposals_stay_on_the_grid_and_tell_true_from_one():
    search = searcher(MIXED, sampler="RandomSampler", local_share=0.0)

    made = night(search, 60, judged=lambda _: Completed(1.0))

    values = [observation.configuration.as_dict() for observation in made]
    chunks = {v["chunk"] for v in values}
    assert None in chunks
    assert chunks - {None} <= {2**i for i in range(8, 14)}
    assert {json.dumps(v["odd"]) for v in values} == {"true", "1", '"1"', "null", "1.5"}
    assert all(0.7 <= float(v["mem"] or 0) <= 0.95 for v in values)
    assert all(len(str(v["mem"])) <= len("0.1234") for v in values)
    assert {v["build"] for v in values} == {"release", "nightly"}


def test_a_continuous_space_never_ends_and_never_repeats():
    over = space({"mem": {"type": "float", "low": 0.0, "high": 1.0, "default": 0.5}})

    made = night(searcher(over), 100, judged=lambda c: Completed(float(c.as_dict()["mem"] or 0)))

    assert len(set(keys(made))) == 100
    assert max(float(o.configuration.as_dict()["mem"] or 0) for o in made) > 0.97


def test_a_continuous_space_that_crashes_everywhere_ends():
    over = space({"mem": {"type": "float", "low": 0.0, "high": 1.0, "default": 0.5}})
    search = searcher(over)
    search.tell(seen(0, over.configuration({"mem": 0.0}), Crashed("oom")))
    search.tell(seen(1, over.configuration({"mem": 1.0}), Crashed("oom")))

    made = night(search, 60, 2)

    assert len(made) < 60


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_sampler_constructs_or_says_what_it_lacks(sampler):
    needed = NEEDS.get(sampler)
    if sampler in READY or (needed and importlib.util.find_spec(needed)):
        assert searcher(sampler=sampler).ask() is not None
        return
    with pytest.raises(TunerError) as error:
        searcher(sampler=sampler)
    expected = f"pip install {NEEDS[sampler]}" if sampler in NEEDS else "one of BruteForce"
    assert expected in error.value.hint


def test_a_misspelt_sampler_gets_a_suggestion():
    with pytest.raises(
        TunerError, match=r"unknown sampler 'TPESamplr' \(did you mean 'TPESampler'"
    ):
        searcher(sampler="TPESamplr")


@pytest.mark.parametrize("sampler", ["BruteForceSampler", "GridSampler"])
def test_a_sampler_that_cannot_search_the_space_is_refused_at_once(sampler):
    with pytest.raises(TunerError, match=f"{sampler} cannot search this space"):
        searcher(MIXED, sampler=sampler)


def journal_trials(path: Path) -> list[optuna.trial.FrozenTrial]:
    storage = JournalStorage(JournalFileBackend(str(path)))
    return optuna.load_study(study_name="study", storage=storage).trials


def facts(path: Path) -> list[tuple[Any, ...]]:
    return [
        (t.number, t.state, t.value, t.params, t.user_attrs, t.constraints, t.intermediate_values)
        for t in journal_trials(path)
    ]


def test_the_journal_shows_each_launch_as_it_was(tmp_path):
    path = tmp_path / "optuna.journal"
    search = searcher(MIXED, journal=path)
    base, spec = MIXED.configuration({}), MIXED.configuration({"spec": True})
    results: list[Result] = [
        Completed(1.0, {1: 1.0, 16: 1.0}),
        Completed(1.1, {1: 1.2}, breaches=2),
        Pruned({1: 0.8}, "too slow"),
        Crashed("oom"),
        Ours("port"),
        Duplicate(0),
    ]
    for number, result in enumerate(results):
        search.tell(seen(number, base if number == 0 else spec, result))

    shown = journal_trials(path)
    states = [trial.state.name for trial in shown]
    assert states == ["COMPLETE", "COMPLETE", "PRUNED", "PRUNED", "FAIL", "COMPLETE"]
    assert [t.value for t in shown] == [1.0, 1.1, None, None, None, 1.0]
    assert [t.constraints["crash"] for t in shown] == [-1, -1, -1, 1, -1, -1]
    assert [t.constraints["slo"] for t in shown] == [-1, 2, -1, -1, -1, -1]
    assert shown[0].intermediate_values == {0: 1.0, 1: 1.0}
    assert shown[2].intermediate_values == {0: 0.8}
    assert "steps" not in shown[0].params
    assert shown[1].params["steps"] == 4
    assert shown[3].user_attrs["crash"] == "oom"
    assert shown[5].user_attrs["duplicate of record"] == 0
    assert all("imputed" not in trial.user_attrs for trial in shown)


def test_the_journal_shows_when_a_launch_was(tmp_path):
    path = tmp_path / "optuna.journal"
    at = datetime.fromisoformat("2026-11-30T22:00:00+02:00")
    launch = seen(0, GRID.configuration({}), Completed(1.0))

    searcher(journal=path).tell(replace(launch, started_at=at, duration_s=1200.0))

    [trial] = journal_trials(path)
    assert trial.datetime_start is not None
    assert trial.datetime_start.astimezone(UTC) == at
    assert trial.duration == timedelta(minutes=20)


def test_a_journal_is_rebuilt_from_what_is_replayed(tmp_path):
    path = tmp_path / "optuna.journal"
    made = night(searcher(journal=path), 20)
    before = facts(path)

    path.write_text("damaged")
    (tmp_path / "optuna.journal.lock").symlink_to("left by a killed run")
    searcher(journal=path).replay(made)

    assert facts(path) == before


def test_a_journal_that_cannot_be_written_says_so(tmp_path):
    with pytest.raises(StudyError, match="cannot be written"):
        searcher(journal=tmp_path / "missing" / "optuna.journal")


def get(app: Any, path: str) -> Any:
    status: list[str] = []
    environ = {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": path,
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "wsgi.input": BytesIO(),
        "wsgi.errors": sys.stderr,
        "wsgi.url_scheme": "http",
    }
    body = b"".join(app(environ, lambda line, *_: status.append(line)))
    assert status == ["200 OK"]
    return json.loads(body) if path.startswith("/api") else body.decode()


@pytest.mark.filterwarnings("ignore")
def test_optuna_dashboard_opens_the_journal(tmp_path):
    path = tmp_path / "optuna.journal"
    made = night(searcher(journal=path), 12)
    from optuna_dashboard import wsgi

    app = wsgi(JournalStorage(JournalFileBackend(str(path))))

    [study] = get(app, "/api/studies")["study_summaries"]
    detail = get(app, f"/api/studies/{study['study_id']}")
    assert study["study_name"] == "study"
    assert "<html" in get(app, f"/dashboard/studies/{study['study_id']}").lower()
    states = {Completed: "Complete", Pruned: "Pruned", Crashed: "Pruned"}
    assert [t["state"] for t in detail["trials"]] == [states[type(o.result)] for o in made]
    assert [t["values"] for t in detail["trials"] if t["state"] == "Complete"] == [
        [o.result.score] for o in made if isinstance(o.result, Completed)
    ]


def test_samplers_that_read_complete_alone_are_told_an_imputed_worst_score(monkeypatch):
    told: list[optuna.trial.FrozenTrial] = []
    add = optuna.Study.add_trial

    def spy(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
        told.append(trial)
        add(study, trial)

    search = searcher(sampler="NSGAIISampler", local_share=0.0)
    base, other = GRID.configuration({}), GRID.configuration({"MSCCLPP": True})
    crash = GRID.configuration({"cuda-graph": True})
    search.tell(seen(0, base, Completed(1.0)))
    search.tell(seen(1, other, Completed(0.7)))
    search.tell(seen(2, crash, Crashed("oom")))
    monkeypatch.setattr(optuna.Study, "add_trial", spy)

    search.ask()

    assert [(t.state, t.value) for t in told] == [
        (TrialState.COMPLETE, 1.0),
        (TrialState.COMPLETE, 0.7),
        (TrialState.COMPLETE, 0.7),
    ]
    assert told[2].user_attrs == {"imputed": True}
    assert told[2].constraints == {"crash": 1.0, "slo": -1.0}


def test_nothing_is_written_to_the_terminal(tmp_path):
    code = (
        "from pathlib import Path\n"
        "from tests.test_search import night, searcher\n"
        f"night(searcher(journal=Path({str(tmp_path / 'journal')!r})), 3)\n"
        "night(searcher(sampler='QMCSampler'), 3)\n"
    )
    root = Path(__file__).parents[1]

    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )

    assert (ran.stdout, ran.stderr) == ("", "")


def test_optuna_is_imported_here_and_nowhere_else():
    root = Path(__file__).parents[1] / "tuner"
    users = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        and any(name.startswith("optuna") for name in _imported(node))
    }

    assert users == {"search/searcher.py"}


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return [alias.name for alias in node.names]


def test_all_that_search_builds_on_is_free_of_optuna():
    code = (
        "import sys, tuner, tuner.search.history, tuner.search.encoding, tuner.search.telling\n"
        "assert 'optuna' not in sys.modules\n"
        "import tuner.search.searcher\n"
        "assert 'optuna' in sys.modules\n"
    )

    subprocess.run([sys.executable, "-c", code], check=True)
