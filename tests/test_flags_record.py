"""Recorded command lines: what moved between versions, what died, and what is surely alive."""

import pytest

from tests.test_flags_probe import engine, fresh
from tuner.definitions.flag_judgement import judge_name, judge_value, judge_variable
from tuner.flags import record
from tuner.flags.catalogue import Catalogue
from tuner.flags.record import recorded, recorded_versions

__all__ = ["engine", "fresh"]

VERSIONS = ("0.5.9", "0.5.17", "0.5.23")

LIVE = """
    tp-size pp-size dp-size ep-size enable-dp-attention chunked-prefill-size mem-fraction-static
    schedule-conservativeness schedule-policy max-running-requests max-prefill-tokens
    max-total-tokens attention-backend sampling-backend grammar-backend kv-cache-dtype quantization
    dtype context-length page-size enable-torch-compile torch-compile-max-bs enable-mscclpp
    disable-custom-all-reduce disable-cuda-graph disable-overlap-schedule disable-radix-cache
    moe-a2a-backend moe-runner-backend enable-two-batch-overlap enable-single-batch-overlap
    enable-mixed-chunk disable-cuda-graph-padding speculative-algorithm speculative-num-steps
    speculative-num-draft-tokens speculative-eagle-topk enable-flashinfer-allreduce-fusion
    scheduler-recv-interval stream-interval load-format trust-remote-code model-path port
    random-seed enable-metrics triton-attention-num-kv-splits ep-num-redundant-experts enable-eplb
    deepep-mode swa-full-tokens-ratio enable-hierarchical-cache hicache-ratio
"""
"""Flags that each of the versions reads, by its source."""


def version(number: str) -> Catalogue:
    found = recorded("sglang", number)
    assert found is not None
    return found


def test_these_versions_are_recorded_and_no_other():
    assert set(recorded_versions("sglang")) == set(VERSIONS)
    assert recorded("sglang", "0.5.8") is None
    assert recorded("vllm", "0.5.9") is None
    assert recorded("sglang", "0.5.17+cu130") == version("0.5.17")
    assert recorded("sglang", "0.5.17.post1") is None
    assert {version(number).how for number in VERSIONS} == {"recorded"}


@pytest.mark.parametrize("number", VERSIONS)
def test_no_flag_that_is_known_to_live_is_called_dead(number):
    assert len(LIVE.split()) > 50
    made = version(number)
    assert [name for name in LIVE.split() if made.find(name) is None] == []
    assert [name for name in LIVE.split() if made.is_dead(name)] == []


@pytest.mark.parametrize(
    ("number", "place"),
    [
        ("0.5.9", "sglang/srt/server_args.py:4669"),
        ("0.5.17", "sglang/srt/server_args.py:957"),
        ("0.5.23", "sglang/srt/arg_groups/fields/schedule.py:200"),
    ],
)
def test_continuous_decode_steps_are_declared_and_read_by_nothing(number, place):
    assert version(number).dead["num-continuous-decode-steps"] == place


@pytest.mark.parametrize(
    ("number", "dead"),
    [
        (
            "0.5.9",
            {"debug-tensor-dump-inject", "file-storage-path", "hybrid-kvcache-ratio",
             "num-continuous-decode-steps", "prefill-round-robin-balance",
             "speculative-ngram-match-type"},
        ),
        (
            "0.5.17",
            {"collect-tokens-histogram", "file-storage-path", "num-continuous-decode-steps",
             "prefill-round-robin-balance", "rl-quant-profile", "spec-trace-dir"},
        ),
        ("0.5.23", {"num-continuous-decode-steps", "spec-trace-dir"}),
    ],
)  # fmt: skip
def test_the_dead_are_these_and_no_more(number, dead):
    assert set(version(number).dead) == dead


@pytest.mark.parametrize(
    ("number", "name", "kind", "new"),
    [
        ("0.5.9", "cuda-graph-max-bs", None, None),
        ("0.5.17", "cuda-graph-max-bs", "deprecated", "--cuda-graph-max-bs-decode"),
        ("0.5.23", "cuda-graph-max-bs", "renamed", "'cuda-graph-max-bs-decode'"),
        ("0.5.9", "cuda-graph-max-bs-decode", "renamed", "'cuda-graph-max-bs'"),
        ("0.5.9", "enable-piecewise-cuda-graph", None, None),
        ("0.5.17", "enable-piecewise-cuda-graph", "renamed", "cuda-graph-backend-prefill=tc_pi"),
        ("0.5.23", "enable-piecewise-cuda-graph", "renamed", "cuda-graph-backend-prefill=tc_pi"),
        ("0.5.9", "cuda-graph-backend-prefill", "renamed", "'enable-piecewise-cuda-graph'"),
        ("0.5.9", "flashinfer-allreduce-fusion-backend", "renamed", "'enable-flashinfer-allred"),
        ("0.5.17", "enable-flashinfer-allreduce-fusion", "deprecated", "-fusion-backend=auto"),
        ("0.5.23", "enable-dp-attention", "deprecated", "--attn-dp-size"),
        ("0.5.17", "attn-dp-size", "renamed", "'enable-dp-attention'"),
        ("0.5.9", "enable-ep-moe", "renamed", "'ep-size'"),
        ("0.5.17", "enable-deepep-moe", "renamed", "'moe-a2a-backend=deepep'"),
        ("0.5.17", "disable-cuda-graph", "deprecated", "cuda-graph-backend-{decode,prefill}"),
    ],
)
def test_what_moved_between_versions_is_named_with_what_took_its_place(number, name, kind, new):
    said = judge_name(version(number), name)
    assert (said.kind if said else None) == kind
    assert new is None or (said is not None and new in said.message)


@pytest.mark.parametrize(
    ("number", "name", "value", "taken"),
    [
        ("0.5.9", "moe-a2a-backend", "megamoe", False),
        ("0.5.17", "moe-a2a-backend", "megamoe", True),
        ("0.5.9", "moe-a2a-backend", "deepep", True),
        ("0.5.17", "moe-runner-backend", "flashinfer_cutedsl", True),
        ("0.5.17", "moe-runner-backend", "flashinfer_cutdsl", False),
        ("0.5.9", "attention-backend", "hpc_ops", False),
        ("0.5.23", "attention-backend", "cutlass_mla", False),
        ("0.5.17", "attention-backend", "cutlass_mla", True),
        ("0.5.23", "reasoning-parser", "what only the running engine knows", True),
        ("0.5.17", "reasoning-parser", "qwen3", True),
        ("0.5.17", "reasoning-parser", "qwen33", False),
        ("0.5.17", "cuda-graph-backend-prefill", "tc_piecewise", True),
        ("0.5.17", "cuda-graph-backend-prefill", "piecewise", False),
        ("0.5.17", "enable-mscclpp", True, True),
        ("0.5.17", "enable-mscclpp", 1, False),
    ],
)
def test_choices_move_with_the_version(number, name, value, taken):
    assert (judge_value(version(number), name, value) is None) == taken


@pytest.mark.parametrize(("number", "known"), [("0.5.9", True), ("0.5.17", False)])
def test_a_variable_that_a_version_no_longer_reads_is_named(number, known):
    said = judge_variable(version(number), "SGLANG_MSCCLPP_MAX_BYTES")
    assert (said is None) == known


def test_recording_writes_what_the_package_declares(engine, tmp_path, monkeypatch):
    monkeypatch.setattr(record, "_FOLDER", tmp_path / "recorded")
    path = record.record("sglang", engine)
    assert path == tmp_path / "recorded" / "sglang-9.9.json"
    recorded.cache_clear()
    written = recorded("sglang", "9.9")
    recorded.cache_clear()
    assert written is not None
    assert written.is_dead("steps")
    assert path.read_text().count("\n{") == len(written.flags)


def test_recording_says_what_it_expects(tmp_path):
    with pytest.raises(ValueError, match=r"expected a folder with sglang and its dist-info"):
        record.record("sglang", tmp_path)
