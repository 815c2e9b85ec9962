"""vLLM's own flags, asked of vLLM: none of those that are known to live is called dead."""

from pathlib import Path

import pytest

from tuner import engines
from tuner.definitions.flag_judgement import judge_name, judge_value
from tuner.definitions.models import EngineDefinition
from tuner.engines.base import LaunchSpec

STUDY = Path(__file__).parent.parent / "studies" / "vllm-cpu"

LIVE = """
    tensor-parallel-size pipeline-parallel-size data-parallel-size enable-expert-parallel
    max-model-len max-num-seqs max-num-batched-tokens gpu-memory-utilization kv-cache-dtype
    kv-cache-memory-bytes block-size enforce-eager enable-prefix-caching enable-chunked-prefill
    dtype quantization load-format seed model served-model-name trust-remote-code revision
    cudagraph-capture-sizes compilation-config speculative-config scheduling-policy
    disable-custom-all-reduce async-scheduling attention-backend enable-lora max-loras
    max-lora-rank swap-space cpu-offload-gb tokenizer-mode reasoning-parser tool-call-parser
    distributed-executor-backend port host api-key enable-auto-tool-choice limit-mm-per-prompt
"""


@pytest.mark.engine
@pytest.mark.timeout(900)
def test_the_installed_vllm_declares_its_flags_and_reads_them():
    python = STUDY / "engine" / "bin" / "python"
    if not python.exists():
        pytest.skip("no vLLM on this machine: studies/vllm-cpu/setup.sh installs it")
    spec = LaunchSpec(
        engine=EngineDefinition(name="vllm", python=str(python)), model="m", folder=STUDY
    )
    found = engines.catalogue(spec)
    assert found is not None
    assert (found.engine, found.how) == ("vllm", "parser")
    assert found.version == engines.version(spec)
    assert len(found.flags) > 200
    declared = [name for name in LIVE.split() if found.find(name) is not None]
    assert len(declared) >= 35
    assert [name for name in declared if found.is_dead(name)] == []
    assert found.variables is not None
    assert "VLLM_CPU_KVCACHE_SPACE" in found.variables
    said = judge_name(found, "tp")
    assert said is not None
    assert said.message.endswith("has 'tensor-parallel-size' for it")
    assert judge_value(found, "dtype", "bfloat16") is None
    wrong = judge_value(found, "dtype", "bfloat61")
    assert wrong is not None
    assert wrong.message == "'dtype' cannot be 'bfloat61' (did you mean 'bfloat16'?)"
    assert judge_value(found, "enable-prefix-caching", False, "negation") is None
    assert judge_name(found, "compilation-config.mode") is None
