"""Kernels: built, compiled, unsupported, faulty, or checking themselves."""

from tuner.failures.rules.exits import ILLEGAL_INSTRUCTION
from tuner.failures.rules.rule import BEFORE_READY, Rule, Tier, rule

_STICKY = (
    r"illegal memory access|illegal instruction|misaligned address|unspecified launch failure"
    r"|invalid program counter|CUDA_ERROR_ILLEGAL\w+|cudaErrorIllegal\w+|TMA [Dd]escriptor"
    r"|invalid address space|hardware stack error|CUDA error: unknown error"
    r"|device-side assert triggered"
)
_STICKY_WORDS = (
    "illegal memory access",
    "illegal instruction",
    "misaligned address",
    "unspecified launch failure",
    "invalid program counter",
    "ERROR_ILLEGAL",
    "ErrorIllegal",
    "TMA Desc",
    "TMA desc",
    "invalid address space",
    "stack error",
    "CUDA error: unknown error",
    "device-side assert",
)
_CRASHES = (
    "Segmentation fault",
    "Segfault encountered",
    "SIGSEGV",
    "Fatal Python error",
    "xit code",
    "exitcode",
    "proc(s)",
    "SIGABRT",
    "SIGILL",
)
_CRASH = (
    r"Segmentation fault|Segfault encountered|SIGSEGV|\bSIGABRT\b|\bSIGILL\b"
    r"|Fatal Python error: (?:Aborted|Illegal)"
    r"|(?:[Ss]ubprocess|[Pp]rocess|scheduler|[Ww]orker|proc|Rank)\b.*\bexit ?code:? -(?:11|6|4|8)\b"
    r"|Failed \w+ proc\(s\): \{[^}]*: -(?:11|6|4|8)\b"
)
_ILLEGAL_WORDS = ("Illegal instruction", "SIGILL", "xit code", "exitcode", "proc(s)")
_ILLEGAL = (
    r"^(?:Fatal Python error: )?Illegal instruction|\bSIGILL\b"
    r"|(?:[Ss]ubprocess|[Pp]rocess|scheduler|[Ww]orker|proc|Rank)\b.*\bexit ?code:? -4\b"
    r"|Failed \w+ proc\(s\): \{[^}]*: -4\b"
)

_COMPILER_WORDS = (
    "fatal error: ",
    "nvcc: not found",
    "ptxas fatal",
    "nvcc: No such",
    "'nvcc'",
    "C compiler",
    "C++ compiler",
    "CxxCompiler",
    "CUDA_HOME environment",
    "gcc: not found",
    "g++: not found",
    "ninja: not found",
    "inja is required",
    "ld: cannot find",
)
_COMPILER = (
    r"fatal error: \S+: No such file|\S*nvcc: (?:not found|No such file)|ptxas fatal"
    r"|directory: '?\S*nvcc'?|C(?:\+\+)? compiler|InvalidCxxCompiler"
    r"|CUDA_HOME environment variable is not set|(?:gcc|g\+\+|ninja): not found"
    r"|[Nn]inja is required|ld: cannot find"
)

RULES: tuple[Rule, ...] = (
    rule(
        "compiler of a variable",
        "jit_build",
        Tier.LOCAL,
        _COMPILER_WORDS,
        _COMPILER,
        "The compiler that is missing is what a variable of this launch names.",
        unless=r"^\s+raise ",
        names_variable=True,
        action="never",
        advice="Correct the variable, or leave it out: other launches find a compiler.",
    ),
    rule(
        "compiler or header",
        "jit_build",
        Tier.LOCAL,
        _COMPILER_WORDS,
        _COMPILER,
        "The first compiler error is the cause; what ninja and the loader say repeats it.",
        unless=r"^\s+raise ",
    ),
    rule(
        "compiler of one backend",
        "jit_build",
        Tier.LOCAL,
        ("Could not find nvcc",),
        r"Could not find nvcc.*",
        "Asked for only when a backend compiles on the fly: others run without a toolkit.",
        action="never",
        advice="Choose a backend that ships compiled, or install nvcc.",
        blame=(
            ("VLLM_USE_FLASHINFER_SAMPLER", "attention-backend", "sampling-backend", "moe-runner"),
        ),
    ),
    rule(
        "build stopped",
        "jit_build",
        Tier.EXCEPTION,
        ("inja build failed", "ninja: build stopped", "Error building extension", "['ninja'"),
        r"[Nn]inja build failed|ninja: build stopped|Error building extension|Command '\['ninja'",
        "The wrapper of a compiler error that did not reach this log.",
    ),
    rule(
        "grouped gemm",
        "arch_unsupported",
        Tier.LOCAL,
        ("grouped gemm", "group_gemm", "initialize", "Error Internal"),
        r"(?P<cause>Failed to initialize cutlass.*?(?:Error Internal|$))"
        r"|(?P<cause2>.*(?:gemm|GEMM)\S* ?\.?initialize failed.*)|cutlass\b.*Error Internal",
        "CUTLASS refuses at initialisation: the tile wants more shared memory than this GPU has.",
        blame=(("ep", "a2a", "lora"), ("moe-runner",)),
        advice="Take back expert parallelism (or LoRA), or choose a MoE runner whose tiles fit"
        " this GPU's shared memory.",
    ),
    rule(
        "no kernel image",
        "arch_unsupported",
        Tier.LOCAL,
        ("no kernel image",),
        r"no kernel image is available.*",
        "From torch itself every launch fails: the wheel was built for other GPUs.",
        action="stop-study",
        blame=(),
        advice="Install an engine built for this GPU; if the baseline runs, only the backend of"
        " this launch is at fault.",
    ),
    rule(
        "architecture",
        "arch_unsupported",
        Tier.LOCAL,
        (
            "Unsupported architecture",
            "nly supported",
            "ot supported",
            "compute capability",
            "oes not support",
            "nsupported",
            "attention backend",
            "not valid for this configuration",
            "kernel",
        ),
        r"Unsupported architecture|only (?:be )?(?:supported|available|works?) (?:on|for|with)\b.*"
        r"(?:GPU|CUDA|SM|sm_?\d|Hopper|Blackwell|Ampere|compute capability|platform|device|CPU)"
        r"|not (?:yet )?supported (?:on|by|for|in) (?:\w+ ){0,4}(?i:GPUs?|CPUs?|CUDA|ROCm|XPU"
        r"|device|platform|SM\d+|arch|architecture|hardware|backend)\b"
        r"|does(?: not|n't) support .{0,60}\b(?i:GPUs?|CPUs?|device|platform|compute capability"
        r"|hardware)\b|No valid [\w ]*attention backend|is not valid for this configuration"
        r"|(?:requires?|with|has) compute capability"
        r"|[Ff]ailed to find a kernel|[Nn]o (?:\w+ )?kernel (?:can|could|supports|implements|found)"
        r"|GPU arch(?:itecture)? .*not supported|[Uu]nsupported (?:GPU|device|platform|sm_?\d)"
        r"|[Uu]nsupported (?:\w+ ){0,2}(?:attention|kernel|head)\b",
        "The phrase, not the exception's type or line: both change from version to version.",
        raised=True,
    ),
    rule(
        "custom all-reduce",
        "custom_allreduce",
        Tier.LOCAL,
        ("custom_all_reduce.cuh",),
        r"(?P<cause>.*custom_all_reduce\.cuh?:\d+ '.*)",
        "A line of C++ and exit(1): no traceback follows.",
    ),
    rule(
        "graph buffers",
        "custom_allreduce",
        Tier.LOCAL,
        ("invalid argument",),
        r"CUDA error: invalid argument",
        "Handles of expandable segments cannot be shared between ranks.",
        around=r"register_graph_buffers|custom_all_reduce",
    ),
    rule(
        "nan",
        "nan",
        Tier.LOCAL,
        ("NaN detected", "probability tensor contains"),
        r"(?P<cause>NaN detected!?.*?)(?:\"\)|$)|(?P<cause2>probability tensor contains.*)",
        "Stands in the echoed source or the device's printf; the exception itself is a bare"
        " device-side assert.",
    ),
    rule(
        "dispatch limit",
        "a2a_limit",
        Tier.LOCAL,
        ("num_max_dispatch_tokens_per_rank",),
        r"(?P<cause>.*num_max_dispatch_tokens_per_rank.*)",
        "DeepEP's own check, under load only.",
        unless=r"^[\w']*num_max_dispatch_tokens_per_rank ?[=:]",
    ),
    rule(
        "kernel assertion",
        "kernel_assert",
        Tier.LOCAL,
        ("Assertion failed", "TLLM_CHECK"),
        r"\[TensorRT-LLM\]\[ERROR\] (?P<cause>Assertion failed.*)|(?P<cause2>.*TLLM_CHECK.*)"
        r"|(?P<cause3>Assertion failed: .*)",
        "A check inside the kernel's host code, with its own text.",
        unless=r"deep_ep",
    ),
    rule(
        "device assertion",
        "kernel_fault",
        Tier.LOCAL,
        ("Assertion `",),
        r"(?P<cause>Assertion `.*` failed.*)",
        "What the device printed before the assert that everybody else reports.",
    ),
    rule(
        "dynamo",
        "compile_fail",
        Tier.LOCAL,
        (
            "torch._dynamo.exc",
            "torch._inductor.exc",
            "RecompileLimitHit",
            "BackendCompilerFailed",
            "fullgraph=True",
            "graph break",
        ),
        r"(?P<cause>(?:\w+: )?(?:torch\._dynamo\.exc|torch\._inductor\.exc)\.\w+.*)"
        r"|FailOnRecompileLimitHit.*|BackendCompilerFailed.*"
        r"|(?P<cause2>.*graph break.*fullgraph.*|.*fullgraph.*graph break.*)",
        "Stands above 'direct cause of'; what follows is only who asked for the graph.",
        follow=r"^\s*Explanation: (.*)",
        advice="Switch the piecewise or compiled graphs off, or choose a backend that builds no"
        " kernels while it runs: with fullgraph every call must be traceable.",
    ),
    rule(
        "fault at start",
        "kernel_fault",
        Tier.FAULT,
        _STICKY_WORDS,
        rf"(?P<cause>(?:\S*Error: )?(?:CUDA error: )?[^:]*?(?:{_STICKY}).*)",
        "Start-up runs fixed dummy inputs: it comes again with the same flags.",
        stages=BEFORE_READY,
        action="never",
        advice="Change the backend, graph or autotune flag that is new in this launch; the same"
        " flags will fail again.",
        blame=(("autotune", "speculative"), ("moe-runner", "attention-backend", "quantization")),
    ),
    rule(
        "fault in a replayed graph",
        "kernel_fault",
        Tier.FAULT,
        _STICKY_WORDS,
        rf"(?P<cause>(?:\S*Error: )?(?:CUDA error: )?[^:]*?(?:{_STICKY}).*)",
        "A graph replays the same addresses for the same batch size: it comes again.",
        before=r"cuda graph: True[^\n]*\n(?:(?!Decode batch|Prefill batch)[^\n]*\n){0,40}\Z",
        action="never",
        advice="Switch CUDA graphs off for these batch sizes, or drop speculation; the same batch"
        " sizes will fail again.",
        blame=(("speculative", "graph-size"),),
    ),
    rule(
        "fault",
        "kernel_fault",
        Tier.FAULT,
        _STICKY_WORDS,
        rf"(?P<cause>(?:\S*Error: )?(?:CUDA error: )?[^:]*?(?:{_STICKY}).*)",
        "Asynchronous: the frame it surfaces in is not the kernel at fault.",
    ),
    rule(
        "illegal instruction at start",
        "kernel_fault",
        Tier.FAULT,
        _ILLEGAL_WORDS,
        _ILLEGAL,
        "The CPU's own refusal, not a GPU's: what was compiled does not fit this machine.",
        stages=BEFORE_READY,
        action="never",
        advice=ILLEGAL_INSTRUCTION,
        blame=(),
    ),
    rule(
        "illegal instruction",
        "kernel_fault",
        Tier.FAULT,
        _ILLEGAL_WORDS,
        _ILLEGAL,
        "Some kernels are only chosen when a request comes.",
        advice=ILLEGAL_INSTRUCTION,
        blame=(),
    ),
    rule(
        "crash at start",
        "kernel_fault",
        Tier.FAULT,
        _CRASHES,
        _CRASH,
        "A signal in native code, before any request.",
        stages=BEFORE_READY,
        action="never",
        advice="Native code died of a signal before any request: read the kernel log (dmesg -T) and"
        " bisect the backend flags; the same flags will fail again.",
    ),
    rule(
        "crash",
        "kernel_fault",
        Tier.FAULT,
        _CRASHES,
        _CRASH,
        "A signal in native code: no Python line explains it.",
        advice="Native code died of a signal: read the kernel log (dmesg -T), then try once more;"
        " if it comes again, bisect the backend flags.",
    ),
)
