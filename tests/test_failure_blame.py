import pytest

from tuner.definitions.models import Value
from tuner.failures import blame
from tuner.failures.classifier import classify

FRAMES = """Traceback (most recent call last):
  File "a.py", line 1, in start
    pages = args.page_size * args.tp_size
  File "b.py", line 2, in check
    assert args.chunked_prefill_size % pages == 0
AssertionError
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("page-size", "unknown argument --page-size 3"),
        ("page-size", "server_args.page_size must be positive"),
        ("tp-size", "129280 is not divisible by TP 24"),
        ("moe-runner-backend", "this MoE runner does not know the layout"),
        ("quantization", "Quantization is not supported here"),
        ("seed", "`seed` must be positive"),
        ("NCCL_P2P_LEVEL", "NCCL_P2P_LEVEL is not a level"),
        ("pp-size", "Pipeline parallelism only supports one of them"),
        ("data-parallel-rank", "launch them without --data-parallel-* arguments"),
    ],
)
def test_a_message_names_a_flag_in_many_forms(name: str, text: str) -> None:
    assert blame.named_in(text, {name: 3, "watchdog-timeout": 300}) == [name]


@pytest.mark.parametrize(
    "text", ["--page-size-limit", "seed the garden", "[TP rank 3] died", "MY_NCCL_P2P_LEVEL"]
)
def test_a_part_of_another_word_and_a_flag_that_is_not_launched_name_nothing(text: str) -> None:
    flags: dict[str, Value] = {"page-size": 3, "seed": 1, "tp-size": 8, "NCCL_P2P_LEVEL": "x"}
    assert blame.named_in(text, flags) == []
    assert blame.named_in("--page-size is wrong", {"page-size": None}) == []


def test_a_quoted_value_points_at_its_flag_only_if_it_is_telling() -> None:
    flags: dict[str, Value] = {"moe-a2a-backend": "deepep", "dtype": "auto", "model": "/models/x"}
    assert blame.named_in("DeepEP needs auto and /models/x", flags) == ["moe-a2a-backend"]
    assert blame.named_in("/opt/deepep/x.py", flags) == []


def test_the_innermost_source_line_that_names_a_flag_is_the_telling_one() -> None:
    flags: dict[str, Value] = {"page-size": 64, "tp-size": 8, "chunked-prefill-size": 100}
    assert blame.traced_in(FRAMES, flags) == ["chunked-prefill-size"]
    del flags["chunked-prefill-size"]
    assert blame.traced_in(FRAMES, flags) == ["page-size", "tp-size"]
    assert blame.traced_in("no frames: page_size", flags) == []


def test_the_innermost_source_line_tells_its_attributes() -> None:
    assert blame.attributes_in(FRAMES) == ["chunked-prefill-size"]
    assert blame.attributes_in("AssertionError") == []


def test_flags_written_with_dashes_are_read_once_and_in_one_spelling() -> None:
    text = "give --page-size or --mem_fraction_static/--other, not --page-size a/--b"
    assert blame.written_in(text) == ["page-size", "mem-fraction-static"]


def test_kin_share_a_telling_word_not_a_common_one() -> None:
    flags: dict[str, Value] = {"hicache-ratio": 2, "page-size": 64}
    assert blame.kin_of(["hicache-size"], flags) == ["hicache-ratio"]


def test_launched_variables_come_before_those_that_are_only_mentioned() -> None:
    text = "SOME_SWITCH and NCCL_ALGO disagree"
    assert blame.variables_in(text, {"NCCL_ALGO": "Ring"}) == ["NCCL_ALGO"]
    assert blame.variables_in("SOME_SWITCH or ring", {"NCCL_ALGO": "Ring"}) == ["NCCL_ALGO"]
    assert blame.variables_in("SOME_SWITCH and OTHER_SWITCH", {}) == ["SOME_SWITCH"]


def test_a_log_says_what_its_server_was_launched_with() -> None:
    log = (
        "x\nserver_args=ServerArgs(tp_size=2, fraction=0.88, dtype='auto', seed=None, lora=False)\n"
    )
    expected = {"tp-size": 2, "fraction": 0.88, "dtype": "auto", "seed": None, "lora": False}
    assert blame.said(log) == expected
    assert blame.said("non-default args: {'block_size': 16}") == {"block-size": 16}
    assert blame.said("nothing") == {}


def test_what_changed_is_what_was_added_dropped_or_set_otherwise() -> None:
    flags: dict[str, Value] = {"tp_size": 8, "page-size": 64, "seed": 1, "unset": None}
    nearest: dict[str, Value] = {"tp-size": 8, "page-size": 32, "old": 1}
    assert blame.changed(flags, nearest) == ["page-size", "seed", "old"]


def test_a_number_points_at_the_parallel_sizes_that_have_it() -> None:
    flags: dict[str, Value] = {"tp-size": 8, "ep-size": 8, "dp-size": 1, "page-size": 8}
    assert blame.sized(8, flags) == ["tp-size", "ep-size"]
    assert blame.sized(1, flags) == []
    assert blame.sized(None, flags) == []


def test_usual_suspects_are_the_first_group_that_the_launch_has_switched_on() -> None:
    groups = (("speculative",), ("memory", "tp"))
    flags: dict[str, Value] = {"speculative-algorithm": "none", "tp-size": 8}
    assert blame.usual(groups, flags, "sglang") == ["tp-size"]
    assert blame.usual(groups[:1], flags, "sglang") == []
    assert blame.usual(groups[1:], {}, "vllm") == ["gpu-memory-utilization", "tensor-parallel-size"]
    assert blame.usual(groups[1:], {}, "sglang") == ["mem-fraction-static", "tp-size"]


def test_what_the_launch_has_not_is_not_to_blame() -> None:
    resolved = "server_args=ServerArgs(max_loras_per_batch=8, lora_backend='csgmv', ep_size=1)\n"
    log = resolved + "CUTLASS: group_gemm.initialize failed: Error Internal\n"
    flags: dict[str, Value] = {"page-size": 64}
    failure = classify(log, engine="sglang", exit_code=1, flags=flags)
    assert failure is not None
    assert (failure.kind, failure.blame) == ("arch_unsupported", [])


def test_what_is_switched_off_is_not_to_blame_for_its_defaults() -> None:
    said: dict[str, Value] = {"enable-lora": False, "max-loras-per-batch": 8, "lora-backend": "c"}
    assert blame.usual((("lora",), ("tp",)), {**said, "tp-size": 8}, "sglang") == ["tp-size"]
    on: dict[str, Value] = {**said, "enable-lora": True}
    assert blame.usual((("lora",),), on, "sglang") == list(on)


def test_suspects_narrow_to_the_new_ones_unless_none_is() -> None:
    assert blame.narrow(["a", "b"], ["b", "c"]) == ["b"]
    assert blame.narrow(["a", "b"], ["c"]) == ["a", "b"]


BUILDING = """\
Traceback (most recent call last):
  File "/opt/env/vllm/model_executor/models/glm.py", line 214, in __init__
    self.gate = get_gate(config.gate_type)
ValueError: No gate of type golden
"""


def test_a_model_that_was_read_before_is_not_held_against_the_study() -> None:
    def action(text: str, flags: dict[str, Value]) -> tuple[str, list[str]]:
        near: dict[str, Value] = {"max-num-seqs": 4}
        failure = classify(text, engine="vllm", exit_code=1, flags={**near, **flags}, nearest=near)
        assert failure is not None
        assert failure.kind == "model_files"
        return failure.action, failure.blame

    lost = "RuntimeError: Cannot find any model weights with `/models/glm`\n"
    assert action(lost, {}) == ("stop-study", [])
    assert action(lost, {"block-size": 32}) == ("stop-study", [])
    assert action(lost, {"load-format": "pt"}) == ("never", ["load-format"])
    assert action(BUILDING, {}) == ("stop-study", [])
    assert action(BUILDING, {"block-size": 32}) == ("never", ["block-size"])


def test_what_a_file_of_flags_misspells_is_the_files_fault() -> None:
    refused = "api_server.py: error: unrecognized arguments: --max-num-seats\n"
    failure = classify(refused, engine="vllm", exit_code=2, flags={"config": "/etc/more.yaml"})
    assert failure is not None
    assert failure.blame == ["config"]
    without = classify(refused, engine="vllm", exit_code=2, flags={"max-model-len": 64})
    assert without is not None
    assert without.blame == ["max-num-seats"]


def test_a_variable_of_one_word_is_found_by_its_name() -> None:
    text = 'Fatal Python error: config_init_hash_seed: PYTHONHASHSEED must be "random"'
    flags: dict[str, Value] = {"PYTHONHASHSEED": "often", "seed": 3}
    assert blame.variables_in(text, flags) == ["PYTHONHASHSEED"]
