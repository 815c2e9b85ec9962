"""What is said of every JSON document holds for what is printed."""

import json
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tests.evening import MARKUP, died, folder, keep, launch, won
from tuner import cli
from tuner.definitions.validation import load_study
from tuner.measuring.measurement import EngineLoad
from tuner.verbs.schema import DOCUMENTS, schema

LOG = """INFO loading
Traceback (most recent call last):
RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.
"""


@pytest.fixture
def night(tmp_path, monkeypatch):
    made = folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "server.log").write_text(LOG)
    return made


@pytest.fixture
def printed(monkeypatch, capsys):
    """The document that a command prints."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)

    def run(*words: str):
        monkeypatch.setattr(sys, "argv", ["tuner", *words])
        with pytest.raises(SystemExit):
            cli.main()
        return json.loads(capsys.readouterr().out)

    return run


def takes_json(verb: str) -> bool:
    options = {o for parameter in cli.cli.commands[verb].params for o in parameter.opts}
    return "--json" in options or verb == "export"


def test_every_verb_that_answers_has_a_schema():
    assert set(DOCUMENTS) == {verb for verb in cli.cli.commands if takes_json(verb)}


@pytest.mark.parametrize("verb", DOCUMENTS)
def test_a_schema_is_one_and_is_printed_without_anything_else_said(printed, verb):
    made = schema(verb)
    Draft202012Validator.check_schema(made)
    assert printed(verb, "--json-schema") == made
    parts = [made["$defs"][ref["$ref"].rpartition("/")[2]] for ref in made.get("anyOf", [])]
    for part in parts or [made]:
        assert "schema_number" in part["properties"]
        assert part["description"]


DOCUMENTS_OF_A_NIGHT = (
    ("check", "night"),
    ("plan", "night"),
    ("show", "night"),
    *(("show", "night", str(trial)) for trial in (0, 3, 4, 5, 11, 12)),
    ("pareto", "night"),
    ("pareto", "night", "--x", "ttft_ms.p99@8", "--y", "score"),
    ("compare", "night", "baseline", "winner"),
    ("compare", "night", "4", "5"),
    ("export", "night", "--format"),
    ("explain", "server.log", "--engine", "sglang"),
    ("init", "new", "--from", "sglang serve --model-path some/model --chunked-prefill-size 4096",
     "--space", "night/space.yaml", "--objective", "night/objective.yaml"),
    ("doctor", "night"),
)  # fmt: skip


@pytest.mark.parametrize("words", DOCUMENTS_OF_A_NIGHT, ids=" ".join)
def test_what_is_printed_is_as_its_schema_says(night, printed, words):
    study = won(night)
    made = launch(study, 12, effective={"a": 1, "b": None, "c": True}, host="n1")
    load = EngineLoad(running_mean=2.0, running_max=2, queued_mean=6.0, queued_max=6, samples=9)
    rungs = [rung.model_copy(update={"engine_load": load, "tpot_ms": None}) for rung in made.rungs]
    keep(night, died(study, 11, {"attention-backend": "fa3"}, MARKUP),
         made.model_copy(update={"rungs": rungs}))  # fmt: skip
    document = printed(*words, "json" if words[-1] == "--format" else "--json")
    Draft202012Validator(schema(words[0])).validate(document)


@pytest.mark.parametrize("verb", ["check", "plan", "show", "pareto"])
def test_an_empty_study_s_documents_are_too(night, printed, verb):
    Draft202012Validator(schema(verb)).validate(printed(verb, "night", "--json"))


def test_a_document_that_is_not_as_it_says_is_told_from_one_that_is(night, printed):
    keep(night, launch(load_study(night), 0))
    document = printed("show", "night", "--json")
    validator = Draft202012Validator(schema("show"))
    assert validator.is_valid(document)
    assert not validator.is_valid({**document, "trials": "none"})
    assert not validator.is_valid({**document, "more": 1})
    assert not validator.is_valid({name: v for name, v in document.items() if name != "noise"})
    assert Path("night").is_dir()
