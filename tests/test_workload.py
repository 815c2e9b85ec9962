"""What servers are asked, in words and in records."""

import json

import pytest

from tests.evening import edit, folder
from tuner.definitions.models import Objective, Rung, SharedPrefix
from tuner.definitions.trace import Trace
from tuner.definitions.validation import load_study
from tuner.definitions.workload import TokenRange, workload
from tuner.night.workload import contradictions, workload_of

HALF = SharedPrefix(shared=0.5)
TALK = Trace(lengths=((10, 2), (1, 3)), texts=("x" * 40, "Hi"), left_out=2)


def said(lengths=((64, 32),), trace=None, own="completions", **other):
    values = {"ladder": [Rung(concurrency=1)], "trace": trace and "t.jsonl"}
    objective = Objective.model_validate(values | other)
    return workload(objective, lengths, trace, own).sentences()


@pytest.mark.parametrize(
    ("other", "sentences"),
    [
        (
            {},
            [
                "load: /v1/completions, 64 tokens in, 32 tokens out",
                "prompts: random token ids; no two start alike",
            ],
        ),
        (
            {"own": "generate", "prefix": HALF},
            [
                "load: /generate, 64 tokens in, 32 tokens out",
                "prompts: random token ids; 50% of each is a start that all have",
            ],
        ),
        (
            {"api": "chat", "prefix": "warm", "lengths": ((1000, 1), (3000, 5)) * 32},
            [
                "load: /v1/chat/completions, 64 draws, 1,000 to 3,000 tokens (mean 2,000) in, "
                "1 to 5 tokens (mean 3) out",
                "prompts: random words; the same 64 over and over, 128,000 tokens for the engine's "
                "cache to hold",
            ],
        ),
        (
            {"api": "chat", "trace": TALK, "lengths": TALK.lengths},
            [
                "load: /v1/chat/completions, 2 requests of t.jsonl, 1 to 10 tokens (mean 6) in, "
                "2 to 3 tokens (mean 2) out",
                "prompts: the trace's own questions, each after a line of random words; no two "
                "start alike",
                "lengths are an estimate: 4 characters a token",
                "left out of the trace: 2 conversations in which nothing is answered",
            ],
        ),
        (
            {"trace": TALK.model_copy(update={"left_out": 0}), "lengths": TALK.lengths},
            [
                "load: /v1/completions, 2 requests of t.jsonl, 1 to 10 tokens (mean 6) in, "
                "2 to 3 tokens (mean 2) out",
                "prompts: random token ids; no two start alike",
                "lengths are an estimate: 4 characters a token",
            ],
        ),
    ],
)
def test_what_is_asked_is_said_in_words(other, sentences):
    assert said(**other) == sentences


@pytest.mark.parametrize(
    ("prefix", "known"),
    [
        ("cold", "prompts never seen before"),
        ("warm", "the same 1 prompts over and over"),
        (HALF, "50% of each prompt a start that all have"),
    ],
)
def test_what_the_server_knows_is_said_in_few_words(prefix, known):
    objective = Objective(ladder=[Rung(concurrency=1)], prefix=prefix)
    assert workload(objective, ((2, 3),), None, "generate").known == known


def test_a_range_has_its_ends_its_middle_and_its_mean():
    assert TokenRange.of([5, 1, 3, 100]) == TokenRange(low=1, median=4, mean=27.2, high=100)


def test_a_study_is_asked_as_its_engine_does_unless_its_objective_says(tmp_path):
    night = folder(tmp_path)
    assert workload_of(load_study(night)).api == "generate"
    edit(night, "objective.yaml", "ladder:", "api: chat\nladder:")
    asked = workload_of(load_study(night))
    assert asked.api == "chat"
    assert json.loads(asked.model_dump_json())["prefix"] == "cold"


def test_a_cache_that_is_off_contradicts_prompts_that_share(tmp_path):
    night = folder(tmp_path)
    fixed = "model: small\nfixed: {flags: {disable-radix-cache: true}}\n"
    edit(night, "study.yaml", "model: small\n", fixed)
    assert contradictions(load_study(night)) == []
    edit(night, "objective.yaml", "ladder:", "prefix: warm\nladder:")
    assert contradictions(load_study(night)) == [
        "prompts share a start, and --disable-radix-cache keeps the engine from using it"
    ]
