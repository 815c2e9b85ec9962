"""The quickstart as a newcomer runs it: real Ray, real processes, real HTTP, a rehearsed engine."""

import json
import subprocess

import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from tests.conftest import tuner

pytestmark = pytest.mark.timeout(1500)


@pytest.fixture(scope="module")
def shown(quickstart):
    return json.loads(tuner(quickstart, "show", "studies/quickstart", "--json").stdout)


@pytest.fixture(scope="module")
def ledger(shown):
    return {row["id"]: row for row in shown["hypotheses"]}


def test_it_is_labelled_a_rehearsal_everywhere(quickstart, shown):
    assert shown["rehearsal"]
    for verb in (["show"], ["pareto"], ["plan"], ["export"]):
        assert "REHEARSAL" in tuner(quickstart, *verb, "studies/quickstart").stdout


def test_piecewise_graphs_are_blocked_with_the_fullgraph_cause(ledger):
    row = ledger["piecewise-graphs"]
    assert row["verdict"] == "blocked"
    assert "fullgraph" in row["cause"]


def test_expert_parallelism_regresses_at_low_concurrency_and_dies_at_256(ledger, shown):
    row = ledger["expert-parallel"]
    assert row["verdict"] == "crashes"
    assert row["dies_at"] == 256
    assert {r["level"]: r["judgement"] for r in row["rungs"]} == {
        1: "regresses",
        10: "regresses",
    }
    assert "grouped gemm" in row["cause"]
    dead = next(d for d in shown["never_again"] if "grouped gemm" in d["cause"])
    assert set(dead["blame"]) & {"ep-size", "moe-a2a-backend"}


def test_a_hypothesis_of_a_dead_flag_is_answered_without_a_launch(ledger):
    row = ledger["one-decode-step"]
    assert (row["verdict"], row["trials"]) == ("no effect", [])
    assert "--num-continuous-decode-steps: declared, read by nothing in" in row["words"]


@pytest.mark.parametrize("hypothesis", ["mscclpp", "single-batch-overlap"])
def test_what_has_no_effect_is_never_said_to_help(ledger, hypothesis):
    row = ledger[hypothesis]
    assert row["verdict"] in ("no effect", "inconclusive")
    low, high = row["effect"]["low_percent"], row["effect"]["high_percent"]
    assert low < 0 < high or row["verdict"] == "no effect"


def test_the_fast_and_wrong_backend_never_wins(shown):
    fast = [
        t for t in shown["trials"] if t["changes"].get("moe-runner-backend") == "flashinfer_trtllm"
    ]
    assert all(t["outcome"] == "failed" and "wrong_output" in t["words"] for t in fast)
    assert (shown["winner_changes"] or {}).get("moe-runner-backend") != "flashinfer_trtllm"


def test_the_pair_that_helps_is_found_or_it_is_said_that_nothing_is(shown):
    winner, sentence = shown["winner_changes"], shown["conclusion"]["sentence"]
    if winner is None:
        assert sentence.startswith("No configuration")
        return
    assert winner["chunked-prefill-size"] >= 16384
    assert winner["schedule-conservativeness"] <= 0.7
    effect = shown["conclusion"]["effect"]
    assert effect["low_percent"] > 0
    assert effect["low_percent"] < 8.0 < effect["high_percent"] + 3


def test_nothing_but_the_baseline_and_finalists_is_launched_twice(shown):
    once = [json.dumps(t["changes"]) for t in shown["trials"] if t["kind"] == "search"]
    assert len(once) == len(set(once))


def test_the_export_is_shell_and_holds_nothing_that_the_tuner_added(quickstart):
    text = tuner(quickstart, "export", "studies/quickstart").stdout
    assert subprocess.run(["sh", "-n"], input=text, text=True, check=False).returncode == 0
    for injected in ("--port", "--host", "--random-seed", "--enable-metrics"):
        assert injected not in text
    document = json.loads(
        tuner(quickstart, "export", "studies/quickstart", "--format", "json").stdout
    )
    assert document["command"] in text


def test_a_trial_is_shown_in_full_and_an_absent_one_is_named(quickstart):
    assert "runs with" in tuner(quickstart, "show", "studies/quickstart", "0").stdout
    absent = tuner(quickstart, "show", "studies/quickstart", "999", check=False)
    assert absent.returncode == 1
    assert "there is no trial 999" in absent.stderr


def test_the_front_holds_no_point_that_another_beats(quickstart):
    front = json.loads(tuner(quickstart, "pareto", "studies/quickstart", "--json").stdout)
    points = [(p["x"], p["y"]) for p in front["points"]]
    assert points
    assert not any(a != b and a[0] <= b[0] and a[1] <= b[1] for a in points for b in points)


def test_optuna_dashboard_opens_the_storage(quickstart):
    from optuna_dashboard import wsgi

    journal = quickstart / "studies" / "quickstart" / "optuna.journal"
    app = wsgi(JournalStorage(JournalFileBackend(str(journal))))
    answer: list[str] = []

    def start(status, headers, exc_info=None):
        answer.append(status)

    environ = {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": "/api/studies",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "wsgi.input": None,
        "wsgi.url_scheme": "http",
    }
    body = b"".join(app(environ, start))
    assert answer == ["200 OK"]
    assert json.loads(body)["study_summaries"][0]["study_name"] == "quickstart"


def test_running_again_with_the_budget_used_up_launches_nothing(quickstart, shown):
    before = (quickstart / "studies" / "quickstart" / "trials.jsonl").read_bytes()
    again = json.loads(tuner(quickstart, "run", "studies/quickstart", "--json").stdout)
    assert again["ended"] in (
        "the budget is used up: its 34 launches are made", "nothing is left to try or to settle"
    )  # fmt: skip
    assert (quickstart / "studies" / "quickstart" / "trials.jsonl").read_bytes() == before


def test_a_changed_space_refuses_and_says_what_differs(quickstart, tmp_path):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(quickstart, copy)
    space = copy / "search_spaces" / "campaign.yaml"
    text = space.read_text()
    changed = text.replace("choices: [1, 4, 8, 16]", "choices: [1, 4, 8, 16, 32]")
    assert changed != text
    space.write_text(changed)
    refused = tuner(copy, "run", "studies/quickstart", check=False)
    assert refused.returncode == 1
    assert (
        "space.parameters.num-continuous-decode-steps.choices was [1, 4, 8, 16]" in refused.stderr
    )
    assert "is [1, 4, 8, 16, 32] now" in refused.stderr
