"""Whether engines forgot their prefixes between rungs, in words, and where a reader finds it."""

import json

import pytest

from tests.evening import folder, keep, remember
from tests.nights import rung
from tests.pages import read
from tests.samples import record
from tuner.cli import cli
from tuner.definitions.validation import load_study
from tuner.night.workload import workload_of
from tuner.verbs.inspect import check, plan
from tuner.verbs.report import report
from tuner.views.asked import forgotten

DEV = "vLLM forgets prefixes only where VLLM_SERVER_DEV_MODE=1 is set"


def launched(*flushes, **changes):
    rungs = [rung(1, 40.0, flush=said) for said in flushes]
    return record(0, "baseline").model_copy(update={"rungs": rungs, **changes})


@pytest.mark.parametrize(
    ("flushes", "said"),
    [
        ((), ""),
        ((None, None), ""),
        ((None, "done", "done"), "prefixes were forgotten before each of 2 rungs"),
        (("done", DEV), f"prefixes were forgotten before 1 of 2 rungs: {DEV}"),
        ((DEV, DEV), f"prefixes were forgotten before 0 of 2 rungs: {DEV}"),
    ],
)
def test_it_is_told_once_for_all_rungs(flushes, said):
    assert forgotten([launched(*flushes)]) == said


def test_what_servers_are_asked_is_said_before_a_night_and_after_it(tmp_path, capsys):
    night = folder(tmp_path)
    asked = workload_of(load_study(night))
    assert check(night).workload == plan(night).workload == asked
    remember(night)
    keep(night, launched("done", "done", workload=asked))
    text = read(report(night, None).read_text()).text
    for words in (*asked.sentences(), "prefixes were forgotten before each of 2 rungs"):
        assert words in text
    cli.main(["show", str(night), "--json"], standalone_mode=False)
    shown = json.loads(capsys.readouterr().out)
    assert shown["workload"]["api"] == "generate"
    cli.main(["show", str(night), "0"], standalone_mode=False)
    assert all(line in capsys.readouterr().out for line in asked.sentences()[:1])
