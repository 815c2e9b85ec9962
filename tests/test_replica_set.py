"""What people are told of a host that holds several servers: signs, legends, commands."""

import re
import shlex
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from tests.evening import edit, keep, launch
from tests.samples import rung
from tuner.console import front, show
from tuner.definitions.validation import LoadedStudy, load_study
from tuner.measuring.measurement import EngineLoad
from tuner.measuring.replicas import Replicas
from tuner.records import Records, TrialRecord
from tuner.verbs import inspect
from tuner.views.export import export
from tuner.views.forms import FORMATS, written
from tuner.views.replica_set import replica_commands
from tuner.views.results import log_path, study_view

NIGHT = Path(__file__).parent / "sizes_night"
PAIR = {"tp-size": 4}
LONE = Replicas()
ALONE, WHOLE = Replicas(launched=1, of=2), Replicas(launched=2, of=2)
RATES = {1: 20.0, 8: 100.0, 16: 160.0}


@pytest.fixture
def night(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    return shutil.copytree(NIGHT, tmp_path / "night")


def launched(
    study: LoadedStudy, number: int, kind: str, values=None, replicas=LONE, gain=1.0
) -> TrialRecord:
    made = launch(study, number, kind, values, replicas=replicas)
    rungs = [
        rung(
            at,
            gain * rate,
            streams=replicas.streams(at),
            factor=replicas.factor(at),
        )
        for at, rate in RATES.items()
    ]
    return made.model_copy(update={"rungs": rungs})


@pytest.fixture
def played(night) -> LoadedStudy:
    """A night that a pair won, which one of it had foretold."""
    study = load_study(night)
    keep(
        night,
        *(launched(study, n, "baseline", gain=1 + 0.001 * n) for n in range(3)),
        launched(study, 3, "search", PAIR, ALONE, gain=1.3),
        launched(study, 4, "search", {"chunked-prefill-size": 8192}, gain=1.01),
        launched(study, 5, "confirm", PAIR, WHOLE, gain=1.2),
        launched(study, 6, "baseline"),
        launched(study, 7, "confirm", PAIR, WHOLE, gain=1.201),
        launched(study, 8, "baseline"),
    )
    return study


def test_extrapolated_numbers_are_signed_and_the_sign_is_explained(played, capsys):
    show.show_study(inspect.show(played.folder))
    text = capsys.readouterr().out
    (row,) = (line for line in text.splitlines() if line.strip().startswith("3 "))
    assert row.count("~") == 4  # the score and three rates
    assert "1.2992~" in row
    others = [line for line in text.splitlines() if re.match(r" +[0-24-8] +\w", line)]
    assert len(others) >= 8
    assert not any("~" in line for line in others)
    assert "\n~ extrapolated: one server was launched and counts for all that the host" in text
    assert "Winner: tp-size=4, 2 servers on the host\n" in text


def test_nothing_is_explained_where_nothing_is_signed(night, capsys):
    study = load_study(night)
    keep(night, launched(study, 0, "baseline"), launched(study, 1, "confirm", PAIR, WHOLE))
    show.show_study(inspect.show(night))
    show.show_trial(inspect.show_trial(night, 1))
    text = capsys.readouterr().out
    assert "~" not in text
    assert "servers: 2 of 2\n" in text


def test_a_trial_says_what_was_played_and_what_it_counts(played, capsys):
    show.show_trial(inspect.show_trial(played.folder, 3))
    text = capsys.readouterr().out
    assert "servers: 1 of 2, extrapolated\n" in text
    assert re.search(r"^ ?1 +26~", text, re.M)
    assert re.search(r"^ ?16 \(8 played, x2\) +208~ +416~", text, re.M)
    assert "~ extrapolated:" in text


def test_a_lone_server_is_no_point_of_the_front_once_its_pair_was_launched(played, capsys):
    found = inspect.pareto(played.folder, "tok_s_per_user@16", "tok_s_per_gpu@16")
    assert [(p.trials, p.extrapolated) for p in found.points] == [((5, 7), False)]
    early = load_study(played.folder)
    records = [r for r in Records(early.folder) if r.kind != "confirm"]
    (early.folder / "trials.jsonl").unlink()
    keep(early.folder, *records)
    found = inspect.pareto(early.folder, "tok_s_per_user@16", "tok_s_per_gpu@16")
    assert [(p.trials, p.extrapolated) for p in found.points] == [((3,), True)]
    front.show_front(found)
    text = capsys.readouterr().out
    assert "208~" in text
    assert "~ extrapolated:" in text


def test_what_a_lone_server_ran_at_counts_as_its_throughput_does(night):
    study = load_study(night)
    half = EngineLoad(running_mean=4, running_max=4, queued_mean=4, queued_max=4, samples=9)
    full = half.model_copy(update={"running_mean": 8.0})
    made = launched(study, 0, "search", PAIR, ALONE)
    for load, ran_at in ((half, {16: 8.0}), (full, {})):
        rungs = [*made.rungs[:2], made.rungs[2].model_copy(update={"engine_load": load})]
        (night / "trials.jsonl").unlink(missing_ok=True)
        keep(night, made.model_copy(update={"rungs": rungs}))
        assert study_view(study, Records(night)).trials[0].ran_at == ran_at


def test_the_log_of_the_server_that_failed_is_named(night):
    study = load_study(night)
    made = launched(study, 4, "confirm", PAIR, WHOLE)
    assert log_path(study, made) == "night/trials/0004/server.log"
    lost = made.model_copy(update={"replicas": WHOLE.model_copy(update={"failed": 2})})
    assert log_path(study, lost) == "night/trials/0004/replica-2/server.log"


# --- export


def configuration(study: LoadedStudy, **values):
    return study.space.configuration({**study.baseline.as_dict(), **values})


def parsed(line: str) -> tuple[dict[str, str], list[str]]:
    words = shlex.split(line)
    env = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
    return env, [word for word in words if not re.match(r"[A-Z_]+=", word)]


def test_a_winner_that_is_a_set_is_exported_as_all_of_its_servers(played):
    chosen = export(played, list(Records(played.folder)))
    first, second = chosen.replicas
    for line, gpus, port in ((first, "0,1,2,3", "30000"), (second, "4,5,6,7", "30001")):
        env, argv = parsed(line)
        assert env["CUDA_VISIBLE_DEVICES"] == gpus
        assert argv[argv.index("--port") + 1] == port
        assert argv[: len(chosen.argv)] == chosen.argv
    text = written(chosen, "shell")
    assert text.endswith(f"\n{first} &\n{second} &\nwait\n")
    assert "load balancer" in text


@pytest.mark.parametrize("form", [form for form in FORMATS if form not in ("shell", "json", "k8s")])
def test_the_other_forms_say_that_they_hold_one_of_several(played, form):
    text = written(export(played, list(Records(played.folder))), form)
    assert "# One of 2 servers on the host; the shell form has the whole set.\n" in text


def test_one_that_has_the_host_for_itself_is_exported_alone(played):
    chosen = export(played, list(Records(played.folder)), 0)
    assert chosen.replicas == []
    text = written(chosen, "shell")
    assert text.endswith(f"\n{chosen.command}\n")
    assert "balancer" not in text
    assert "One of" not in written(chosen, "docker")


def test_gpus_and_ports_that_the_study_names_are_dealt_out(night):
    edit(
        night,
        "study.yaml",
        "model: small\n",
        "model: small\nfixed:\n"
        "  flags: {enable-dp-attention: true, dp-size: 2, nccl-port: 555}\n"
        "  env: {CUDA_VISIBLE_DEVICES: '7,6,5,4,3,2,1,0'}\n",
    )
    study = load_study(night)
    lines = replica_commands(study, configuration(study, **PAIR), 8123)
    told = [parsed(line) for line in lines]
    assert [env["CUDA_VISIBLE_DEVICES"] for env, _ in told] == ["7,6,5,4", "3,2,1,0"]
    ports = [argv[argv.index("--port") + 1] for _, argv in told]
    assert ports == ["8123", "8223"]  # DP attention counts ports of its own up from them
    assert all(argv.count("--port") == 1 for _, argv in told)
    assert not any("--nccl-port" in argv for _, argv in told)


def test_each_server_of_a_set_listens_beside_the_others_where_the_study_says(night):
    engine = "engine: {name: rehearsal, image: i, containers: {network: bridge}, "
    edit(night, "study.yaml", "engine: {name: rehearsal, ", engine)
    edit(
        night,
        "study.yaml",
        "model: small\n",
        "model: small\nserve: {host: '::', port: 9000, publish: ['10.0.0.1:80:9000', '7:8']}\n",
    )
    study = load_study(night)
    lines = replica_commands(study, configuration(study, **PAIR), 9000)
    told = [parsed(line)[1] for line in lines]
    assert [argv[-4:] for argv in told] == [["--host", "::", "--port", p] for p in ("9000", "9001")]
    published = [[after for w, after in pairwise(argv) if w == "-p"] for argv in told]
    assert published == [["10.0.0.1:80:9000", "7:8"], ["10.0.0.1:81:9001", "8:8"]]


def test_too_few_named_gpus_are_not_dealt_out(night):
    edit(
        night,
        "study.yaml",
        "model: small\n",
        "model: small\nfixed: {env: {CUDA_VISIBLE_DEVICES: '0,1,2,3'}}\n",
    )
    study = load_study(night)
    lines = replica_commands(study, configuration(study, **PAIR), 30000)
    assert [parsed(line)[0]["CUDA_VISIBLE_DEVICES"] for line in lines] == ["0,1,2,3", "4,5,6,7"]


# --- plan


def test_the_plan_says_how_many_servers_a_launch_starts(night):
    whats = [part.what for part in inspect.plan(night).parts]
    assert "baseline: noise floor" in whats
    assert (
        "proposals of the sampler; where the host holds several servers, one for all of them"
        in whats
    )
    edit(night, "study.yaml", "baseline: {tp-size: 8}", "baseline: {tp-size: 4}")
    space = (night / "space.yaml").read_text()
    (night / "space.yaml").write_text(
        f"{space}hypotheses:\n  - {{id: long, change: {{chunked-prefill-size: 8192}}, claim: c,"
        " gain_percent: [1, 2]}\n  - {id: whole, change: {tp-size: 8}, claim: w,"
        " gain_percent: [1, 2]}\n"
    )
    whats = [part.what for part in inspect.plan(night).parts]
    assert "baseline: noise floor (a set of 2 servers)" in whats
    assert "long: c (a set of 2 servers)" in whats
    assert "whole: w" in whats
