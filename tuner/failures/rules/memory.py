"""GPU memory: one text, several classes with opposite remedies; the stage tells them apart."""

from tuner.failures.log_phases import Stage
from tuner.failures.rules.rule import BEFORE_READY, UP, Rule, Tier, rule

_OOM = (
    r"(?:CUDA|HIP) out of memory|CUDA error: out of memory|cudaErrorMemoryAllocation"
    r"|CUDA_ERROR_OUT_OF_MEMORY|CUBLAS_STATUS_ALLOC_FAILED|hipErrorOutOfMemory"
)
_WORDS = (
    "out of memory",
    "cudaErrorMemoryAllocation",
    "OUT_OF_MEMORY",
    "ALLOC_FAILED",
    "OutOfMemory",
)

RULES: tuple[Rule, ...] = (
    rule(
        "kv pool exhausted",
        "oom_kvpool",
        Tier.LOCAL,
        ("out of memory. Try to lower",),
        r"(?:Decode|Prefill|Extend) out of memory\. Try to lower.*",
        "The token allocator, not CUDA: pages are too coarse or too few for the batch.",
    ),
    rule(
        "attention workspace",
        "oom_workspace",
        Tier.LOCAL,
        ("tmp_v", "AlignedAllocator", "workspace buffer"),
        r"(?P<cause>(?:Buffer overflow when allocating|Failed to allocate) memory for .*)"
        r"|(?P<cause2>.*AlignedAllocator.*)|workspace buffer (?:is )?too small",
        "A buffer of fixed size: the memory fraction does not change it.",
    ),
    rule(
        "fraction below weights",
        "oom_kv",
        Tier.LOCAL,
        ("Not enough memory",),
        r"Not enough memory\b.*mem[-_]fraction[-_]static.*",
        "Weights and reserve exceed the static part: RAISE the fraction, unlike CUDA's own text.",
    ),
    rule(
        "no cache blocks",
        "oom_kv",
        Tier.LOCAL,
        ("No available memory for the cache blocks",),
        r"No available memory for the cache blocks",
        "After the weights nothing is left below the utilisation limit.",
    ),
    rule(
        "context above cache",
        "oom_kv",
        Tier.LOCAL,
        ("KV cache", "max seq len", "KV Cache"),
        r"larger than the available KV cache memory|larger than the maximum number of tokens that"
        r" can be stored in KV cache|is larger than the maximum number of tokens",
        "One request of full length would not fit.",
        blame=(("num-gpu-blocks-override", "kv-cache-memory-bytes"), ("context", "memory")),
        advice="Lower {context} or raise {memory}: one request of full length must fit.",
    ),
    rule(
        "executor component",
        "oom_kv",
        Tier.LOCAL,
        ("insufficient GPU memory",),
        r"insufficient GPU memory",
        "TensorRT-LLM's executor names the component on the next line: the KV cache.",
        blame=(("kv_cache_free_gpu_memory_fraction", "memory"), ("tp",)),
    ),
    rule(
        "oom in kv allocation",
        "oom_kv",
        Tier.LOCAL,
        _WORDS,
        _OOM,
        "CUDA's own text, while the pool itself was allocated: here the fraction is too HIGH.",
        around=r"in (?:init_memory_pool|initialize_kv_cache\w*|_create_buffers"
        r"|_?allocate_kv_cache\w*)\b",
        stages=BEFORE_READY,
        advice="Lower {memory}: the KV pool that it asks for is more than is free.",
        blame=(("memory",),),
    ),
    rule(
        "oom in capture",
        "oom_graph",
        Tier.LOCAL,
        _WORDS,
        _OOM,
        "From the begin of capture the pool is full already: LOWER the fraction.",
        stages=frozenset({Stage.CAPTURING}),
    ),
    rule(
        "oom in profiling",
        "oom_profile",
        Tier.LOCAL,
        _WORDS,
        _OOM,
        "Weights are in, the trial run of the largest batch is what does not fit.",
        stages=frozenset({Stage.LOADED}),
    ),
    rule(
        "oom in serving",
        "oom_runtime",
        Tier.LOCAL,
        _WORDS,
        _OOM,
        "The server was up: the load's own buffers do not fit.",
        stages=frozenset({Stage.CAPTURED}) | UP,
    ),
    rule(
        "oom in loading",
        "oom_load",
        Tier.LOCAL,
        _WORDS,
        _OOM,
        "Before the end of loading only weights are there.",
    ),
)
