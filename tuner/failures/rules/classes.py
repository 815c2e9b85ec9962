"""The classes of failure: what may be tried again, what is to blame, what to do."""

from collections.abc import Mapping

from tuner.failures.rules.rule import Action, FailureClass


def _class(summary: str, action: Action, advice: str, *blame: tuple[str, ...]) -> FailureClass:
    return FailureClass(summary=summary, action=action, advice=advice, blame=blame)


CLASSES: Mapping[str, FailureClass] = {
    "oom_load": _class(
        "GPU memory ran out while weights were loaded",
        "never",
        "Raise {tp} or quantise the weights, so that a GPU's share of them fits.",
        ("tp", "pp", "quantization", "dtype"),
    ),
    "oom_profile": _class(
        "GPU memory ran out in the trial run after loading",
        "never",
        "Lower {context} or {chunk}: the largest batch must fit beside the weights.",
        ("context", "chunk", "running"),
    ),
    "oom_kv": _class(
        "No memory was left for the KV cache",
        "never",
        "Raise {memory}, or lower {context}; if neither fits, drop LoRA or the draft model, or"
        " raise {tp}.",
        ("memory", "lora", "speculative", "context"),
        ("tp",),
    ),
    "oom_graph": _class(
        "GPU memory ran out while CUDA graphs were captured",
        "never",
        "Lower {memory} so that capture has room, or lower {graph-size}.",
        ("memory", "graph-size", "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK"),
    ),
    "oom_runtime": _class(
        "GPU memory ran out under load",
        "never",
        "Lower {chunk}, {running} or {memory}: this load needs the room.",
        ("chunk", "running", "memory", "speculative", "enable-hierarchical-cache"),
    ),
    "oom_kvpool": _class(
        "The KV pool had no whole pages left for the batch",
        "never",
        "Lower {running} or {page}; the memory fraction does not help here.",
        ("page", "running", "disable-overlap-schedule"),
    ),
    "oom_workspace": _class(
        "A fixed workspace of the attention backend is too small",
        "never",
        "Lower {running}, choose another attention backend, or enlarge its workspace variable.",
        ("running", "attention-backend", "SGLANG_FLASHINFER_WORKSPACE_SIZE"),
    ),
    "host_oom": _class(
        "The host ran out of memory",
        "never",
        "Free host memory or ask for less of it: host cache, offload, build jobs; look in the"
        " kernel log for oom-kill.",
        ("hicache", "cpu-offload-gb", "swap-space", "VLLM_CPU_KVCACHE_SPACE", "MAX_JOBS"),
    ),
    "arg_parse": _class(
        "The engine does not know the command line",
        "never",
        "Correct the flag: compare its name and value with the --help of the installed version.",
    ),
    "arg_validation": _class(
        "The engine refuses this combination of arguments",
        "never",
        "Change the flags that the message names; add the rule to the space as forbid or require.",
    ),
    "divisibility": _class(
        "A size of the model cannot be split that way",
        "never",
        "Choose a parallel size that divides it; add that rule to the space.",
        ("tp", "ep", "dp"),
        ("quantization",),
    ),
    "arch_unsupported": _class(
        "The kernel does not run on this hardware",
        "never",
        "Choose another backend for this GPU.",
        ("attention-backend", "moe-runner", "sampling-backend", "kv-dtype", "quantization"),
    ),
    "env_format": _class(
        "An environment variable has a value that this version cannot read",
        "never",
        "Write the variable in the form that this version reads; the form differs by version.",
    ),
    "package_env": _class(
        "A package or library of the engine's environment is missing or does not fit",
        "stop-study",
        "Mend the engine's environment: install or align the package that the message names.",
    ),
    "jit_build": _class(
        "A kernel could not be compiled on this host",
        "stop-study",
        "Install the compiler or header that the message names, or point CUDA_HOME at a whole"
        " toolkit.",
        ("CUDA_HOME",),
    ),
    "model_files": _class(
        "The model cannot be read",
        "stop-study",
        "Check the model's path and files; this engine version must know its architecture.",
        ("tokenizer", "load-format", "revision"),
    ),
    "compile_fail": _class(
        "torch.compile gave up",
        "never",
        "Switch off the compiled or piecewise graphs, or the backend that cannot be traced.",
        ("piecewise", "compile"),
    ),
    "kernel_fault": _class(
        "A GPU kernel did something illegal",
        "once",
        "Look at nvidia-smi and the kernel log, then try once more; if it comes again, bisect"
        " the backend flags.",
        ("speculative", "moe-runner", "attention-backend", "graph-size"),
        ("quantization",),
    ),
    "kernel_assert": _class(
        "A kernel's own check failed",
        "never",
        "Give up this combination: change one of the backend or overlap flags.",
        ("moe-runner", "enable-two-batch-overlap", "enable-dp-attention", "a2a"),
    ),
    "custom_allreduce": _class(
        "The custom all-reduce cannot share its buffers",
        "never",
        "Unset expandable_segments in PYTORCH_CUDA_ALLOC_CONF, or set --disable-custom-all-reduce.",
        ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"),
        ("disable-custom-all-reduce",),
    ),
    "engine_exception": _class(
        "The engine's own code raised",
        "never",
        "Bisect against the nearest configuration that works; look for a newer engine version.",
    ),
    "invariant_check": _class(
        "The engine's own accounting does not add up",
        "once",
        "Try once more; if it comes again, take back page size, speculation or mixed chunks.",
        ("page", "speculative", "enable-mixed-chunk"),
    ),
    "nan": _class(
        "The model computed NaN",
        "never",
        "Discard the score; change the quantised backend or switch DP attention or speculation"
        " off.",
        ("enable-dp-attention", "fp8-gemm-backend", "fp4-gemm-backend", "speculative"),
        ("quantization", "kv-dtype", "moe-runner"),
    ),
    "wrong_output": _class(
        "The answers are not the baseline's",
        "never",
        "Discard the score: fast and wrong is not a result.",
        ("ep", "enable-single-batch-overlap", "moe-runner", "kv-dtype"),
    ),
    "a2a_limit": _class(
        "A rank dispatches more tokens than the all-to-all buffers hold",
        "never",
        "Raise SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK or lower {chunk}; low-latency mode"
        " is not for prefill.",
        ("deepep-mode", "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK", "chunk"),
    ),
    "a2a_timeout": _class(
        "A rank waited in vain for its peers' tokens",
        "once",
        "Try once more with the kernel caches kept: a peer was still compiling.",
        ("a2a", "deepep-mode"),
    ),
    "comm_init": _class(
        "The ranks could not set up communication",
        "stop-study",
        "Give the host more /dev/shm and check its network; then start the baseline alone.",
        ("enable-mscclpp", "enable-nccl-nvls"),
    ),
    "collective_timeout_init": _class(
        "The first collective never ended",
        "stop-study",
        "Check peer-to-peer access (IOMMU, ACS, topology) or set NCCL_P2P_DISABLE=1; nothing with"
        " more than one GPU will run.",
        ("disable-custom-all-reduce", "NCCL_P2P_DISABLE"),
    ),
    "collective_timeout_run": _class(
        "A collective never ended",
        "once",
        "Try once more; look for the rank that went silent before the timeout began.",
    ),
    "never_ready": _class(
        "The server never became ready",
        "once",
        "Try once more with a longer deadline; look at what the last phase mark says.",
        ("tp", "disable-custom-all-reduce"),
    ),
    "masked_hang": _class(
        "The capture of CUDA graphs hangs on an error that was never printed",
        "never",
        "Lower {memory} or {graph-size}; launch once with --disable-custom-all-reduce to see the"
        " error.",
        ("memory", "graph-size"),
    ),
    "peer_lost_load": _class(
        "Another rank did not finish loading",
        "once",
        "Read the other rank's log; if it says nothing the disk was slow: try once more.",
        ("dist-timeout",),
    ),
    "watchdog_timeout": _class(
        "The scheduler made no progress until its watchdog fired",
        "once",
        "Try once more; read the stacks dumped above the watchdog's line.",
    ),
    "engine_stall": _class(
        "The server answers and generates nothing",
        "once",
        "Try once more after a drain; take a stack dump before killing it.",
        ("speculative", "enable-hierarchical-cache"),
    ),
    "stall_after_restart": _class(
        "The port accepts connections and no token comes",
        "once",
        "Clear what the last server left on the port, then try once more on a fresh port.",
    ),
    "detokenizer": _class(
        "The detokeniser cannot turn the model's tokens into text",
        "stop-study",
        "Check that tokeniser and model belong together.",
        ("tokenizer", "tokenizer-path"),
    ),
    "port_conflict": _class(
        "A port was taken",
        "once",
        "Try once more on fresh ports; look for a server left behind.",
    ),
    "fd_limit": _class(
        "The limit on open files was hit",
        "stop-study",
        "Raise the limit on open files (ulimit -n 65536) for server and client.",
    ),
    "gpu_occupied": _class(
        "Somebody else holds memory on the GPU",
        "stop-study",
        "Find the process with nvidia-smi and end it; then start the study again.",
    ),
    "gpu_hw": _class(
        "The GPU or its driver failed",
        "stop-study",
        "Take the GPU out of the study; read the kernel log, reset or replace it.",
    ),
    "disk_full": _class(
        "A disk is full",
        "stop-study",
        "Free space on the file system of the path that failed, then continue the study.",
    ),
    "client_transport": _class(
        "The client lost its connection to a server that lives",
        "once",
        "Measure once more; look at the load generator's timeouts and its host.",
    ),
}
