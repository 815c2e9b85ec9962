"""Peers, watchdogs, supervisors and clients; and exceptions that no other rule knows."""

import re

from tuner.failures.log_phases import Stage
from tuner.failures.rules.host import RENDEZVOUS
from tuner.failures.rules.rule import BEFORE_READY, UP, Rule, Tier, rule

_EXCEPTION = r"^(?:\w+: )?[A-Za-z_][\w.]*(?:Error|Exception|Unsupported)(?:: .+|$)"
_WORDS = ("Error", "Exception", "Unsupported")
_BUILDING = r'"[^"\n]*/(?:model_executor|models|torch/nn|transformers)/'
"""Frames of layers, as long as the model is put together."""
_NO_ENGINE = r"[^\n]*(?:\n(?!\s*File [^\n]*/(?:vllm|sglang)/)[^\n]*)*\Z"
"""What follows in the last frame that is the engine's own; libraries may be further in."""

RULES: tuple[Rule, ...] = (
    rule(
        "leak check",
        "invariant_check",
        Tier.LOCAL,
        ("memory leak detected",),
        r"memory leak detected.*",
        "Tokens of the pool counted while idle: accounting, not memory.",
    ),
    rule(
        "detokenizer",
        "detokenizer",
        Tier.LOCAL,
        ("DetokenizerManager hit an exception",),
        r"(?P<cause>DetokenizerManager hit an exception)",
        "The GPUs are well; the exception below it says which token.",
        follow=r"^([A-Za-z_][\w.]*(?:Error|Exception): .*)",
    ),
    rule(
        "peers loading",
        "peer_lost_load",
        Tier.PEER,
        ("finish loading", "for faulty rank"),
        r"other ranks that didn't finish loading|check rank \d+ logs for faulty rank",
        "Said by the rank that is well.",
    ),
    rule(
        "dispatch timeout while compiling",
        "a2a_timeout",
        Tier.PEER,
        ("DeepEP",),
        r"(?P<cause>DeepEP (?:error|timeout)\b.*timeout.*)",
        "A peer compiled kernels for longer than DeepEP waits: warm caches mend it.",
        before=r"JIT|[Cc]ompil",
    ),
    rule(
        "dispatch timeout under load",
        "a2a_timeout",
        Tier.PEER,
        ("DeepEP",),
        r"(?P<cause>DeepEP (?:error|timeout)\b.*timeout.*)",
        "Nobody was compiling: this load is what the backend cannot carry.",
        stages=UP,
        action="never",
        advice="Lower the concurrency, or leave this all-to-all backend.",
    ),
    rule(
        "dispatch timeout",
        "a2a_timeout",
        Tier.PEER,
        ("DeepEP",),
        r"(?P<cause>DeepEP (?:error|timeout)\b.*timeout.*)",
        "At start the peers may have been compiling.",
    ),
    rule(
        "first collective",
        "collective_timeout_init",
        Tier.PEER,
        ("collective operation timeout",),
        r"(?P<cause>Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=1,.*)",
        "Nothing was ever completed between these GPUs.",
    ),
    rule(
        "collective",
        "collective_timeout_run",
        Tier.PEER,
        ("collective operation timeout",),
        r"(?P<cause>Watchdog caught collective operation timeout.*)",
        "Collectives worked before: a rank went silent.",
    ),
    rule(
        "optional transport",
        "comm_init",
        Tier.PEER,
        ("NVLS", "devBuffSize", "mscclpp"),
        r"NCCL WARN.*(?:NVLS|devBuffSize)|mscclpp\S*(?:Error|.*failed)",
        "Multicast and MSCCL++ are options; without them the ranks talk.",
        action="never",
        advice="Leave NVLS or MSCCL++ off on this host.",
        blame=(("enable-mscclpp", "enable-nccl-nvls", "NCCL_NVLS_ENABLE"),),
    ),
    rule(
        "rendezvous",
        "comm_init",
        Tier.PEER,
        (
            "waiting for clients",
            "connectFullMesh",
            "gloo device",
            "DistStoreError",
            "TCPStore",
            "Unable to resolve hostname",
            "DistNetworkError",
        ),
        r"Timed out after \d+ seconds waiting for clients.*|connectFullMesh failed.*"
        r"|unsupported gloo device.*|client socket has (?:timed out|failed)"
        r"|DistNetworkError: .*",
        "The ranks never met: address, interface or name resolution.",
        stages=BEFORE_READY,
        blame=RENDEZVOUS,
    ),
    rule(
        "nccl in serving",
        "collective_timeout_run",
        Tier.PEER,
        (
            "NCCL error",
            "ncclSystemError",
            "ncclRemoteError",
            "ncclInternalError",
            "ncclUnhandledCudaError",
        ),
        r"NCCL error.*|nccl(?:System|Remote|Internal|UnhandledCuda)Error.*",
        "The ranks had talked; one of them is gone.",
        stages=UP,
    ),
    rule(
        "nccl at start",
        "comm_init",
        Tier.PEER,
        (
            "NCCL error",
            "ncclSystemError",
            "ncclRemoteError",
            "ncclInternalError",
            "ncclUnhandledCudaError",
        ),
        r"NCCL error.*|nccl(?:System|Remote|Internal|UnhandledCuda)Error.*",
        "NCCL keeps its reason for itself unless asked.",
        action="once",
        advice="Try once more with NCCL_DEBUG=INFO and read its first WARN line.",
    ),
    rule(
        "watchdog in pipeline",
        "watchdog_timeout",
        Tier.WATCHDOG,
        ("atchdog timeout (self",),
        r"(?P<cause>(?:Scheduler )?[Ww]atchdog timeout \(self\.watchdog_timeout.*)",
        "The stacks dumped above wait in the pipeline's own receive: it hangs again.",
        before=r"_pp_\w+ \(|event_loop_pp",
        action="never",
        blame=(("pp",),),
        advice="Leave pipeline parallelism: its stages wait for each other.",
    ),
    rule(
        "watchdog",
        "watchdog_timeout",
        Tier.WATCHDOG,
        ("atchdog timeout (self",),
        r"(?P<cause>(?:Scheduler )?[Ww]atchdog timeout \(self\.watchdog_timeout.*)",
        "It began a whole timeout earlier.",
    ),
    rule(
        "no response",
        "engine_stall",
        Tier.WATCHDOG,
        ("get a response from detokenizer",),
        r"(?P<cause>(?:Health check failed\. )?Server couldn't get a response from detokenizer.*)",
        "Any silence of the engine says so; a long prefill too, but then it recovers.",
        recovers=True,
    ),
    rule(
        "rpc timeout",
        "engine_stall",
        Tier.WATCHDOG,
        ("RPC call to",),
        r"(?P<cause>.*RPC call to \S+ timed out.*)",
        "The engine core waits for a worker that is alive and silent.",
        unless=r"^\s",
    ),
    rule(
        "engine's own wait",
        "never_ready",
        Tier.WATCHDOG,
        ("Timed out waiting for",),
        r".*Timed out waiting for (?:new )?engine core.*",
        "The front end gave up on an engine that was alive.",
        stages=BEFORE_READY,
        blame=(("VLLM_ENGINE_READY_TIMEOUT_S",),),
    ),
    rule(
        "client gone in streaming",
        "client_transport",
        Tier.CLIENT,
        ("Request is disconnected from the client side",),
        r"(?P<cause>Request is disconnected from the client side)",
        "Requests fail that the client gave up; nothing of the server died.",
        before=r"Task exception was never retrieved[^\n]*\n?[^\n]*\Z",
    ),
    rule(
        "client connection",
        "client_transport",
        Tier.CLIENT,
        (
            "RemoteDisconnected",
            "Connection reset by peer",
            "ClientPayloadError",
            "Max retries exceeded",
            "Connection aborted",
            "ServerDisconnected",
            "ConnectionRefused",
        ),
        r"RemoteDisconnected|Connection reset by peer|ClientPayloadError|Max retries exceeded"
        r"|Connection aborted|ServerDisconnected|ConnectionRefused",
        "The client's side of a death; with a server's log it is never the cause.",
    ),
    rule(
        "child vanished in serving",
        "kernel_fault",
        Tier.SUPERVISOR,
        ("died unexpectedly", "exited unexpectedly"),
        r".*(?:died|exited) unexpectedly.*",
        "Nobody raised anything: native code crashed, or somebody killed it.",
        stages=UP,
        advice="A child died without a Python error: look for a segfault or oom-kill in the kernel"
        " log, then try once more.",
    ),
    rule(
        "child vanished",
        "host_oom",
        Tier.SUPERVISOR,
        (
            "Engine core initialization failed",
            "scheduler is dead",
            "died unexpectedly",
            "exited unexpectedly",
            "WorkerProc initialization failed",
        ),
        r"Engine core initialization failed.*|Rank \d+ scheduler is dead.*"
        r"|.*(?:died|exited) unexpectedly.*|.*WorkerProc initialization failed.*",
        "Nobody raised anything: while weights come in, the kernel's oom-kill is the usual reason.",
        stages=BEFORE_READY,
        advice="A child vanished without a word: look for oom-kill or a segfault in the kernel log,"
        " and free host memory.",
    ),
    rule(
        "quoted value",
        "arg_validation",
        Tier.EXCEPTION,
        ("Error: ",),
        r"^[A-Za-z_][\w.]*(?:Error|Exception|Exit): .+",
        "Checked late: what it stumbles over is what a flag gave it.",
        quotes_flag=True,
        stages=BEFORE_READY,
    ),
    rule(
        "unusable path",
        "disk_full",
        Tier.EXCEPTION,
        ("Errno", "os error"),
        r"\[Errno (?:1|5|13|17|20|21|40|116)\] .*|.*\(os error (?:1|5|13|20|30|116)\).*",
        "No flag and no file of the model: a folder that the engine keeps things in.",
        raised=True,
        stages=BEFORE_READY,
        advice="Let the server's user write there, or point the cache that the path belongs to"
        " (VLLM_CACHE_ROOT, TORCHINDUCTOR_CACHE_DIR, HF_HOME, XDG_CACHE_HOME, TMPDIR) elsewhere.",
    ),
    rule(
        "named flag at start",
        "arg_validation",
        Tier.EXCEPTION,
        _WORDS,
        _EXCEPTION,
        "No child runs yet: whatever stumbles over an argument was given a wrong one.",
        names_flag=True,
        stages=frozenset({Stage.STARTING}),
    ),
    rule(
        "model in building",
        "model_files",
        Tier.EXCEPTION,
        ("Error",),
        r"^[\w.]*(?:ValueError|NotImplementedError|KeyError|TypeError|AttributeError|AssertionError"
        r"|RuntimeError|IndexError|ZeroDivisionError)\b.*",
        "What the engine's model asks of its parts comes from the model's own config.",
        around=r'/models/\w+\.py", line \d+, in __init__\n(?:(?!\s*File )[^\n]*\n)*'
        rf"(?:\s*File {_BUILDING}[^\n]*\n(?:(?!\s*File )[^\n]*\n)*){{0,12}}"
        r"[\w.]*(?:Error|Exception)\b[^\n]*\Z",
        unless=r"out of memory|CUDA|NCCL",
        stages=BEFORE_READY,
    ),
    rule(
        "files in loading",
        "model_files",
        Tier.EXCEPTION,
        ("Error",),
        r"^[\w.]*(?:ValueError|RuntimeError|KeyError|IndexError|TypeError|AttributeError"
        r"|AssertionError|FileNotFoundError|UnicodeDecodeError|EOFError)\b.*",
        "The innermost code of the engine was reading the weights.",
        around=rf'File "[^"\n]*/model_loader/[^"\n]*\.py"{_NO_ENGINE}',
        unless=r"out of memory|CUDA|NCCL",
        stages=BEFORE_READY,
    ),
    rule(
        "front end",
        "arg_validation",
        Tier.EXCEPTION,
        _WORDS,
        _EXCEPTION,
        "The engine behind it is well: what the API server stumbles over was given by a flag.",
        around=rf'File "[^"\n]*/entrypoints/[^"\n]*\.py"{_NO_ENGINE}',
        unless=r"out of memory|CUDA|NCCL|TimeoutError",
        stages=frozenset({Stage.LOADED, Stage.CAPTURING, Stage.CAPTURED}),
    ),
    rule(
        "refused value",
        "arg_validation",
        Tier.EXCEPTION,
        _WORDS,
        r"^(?:\w+: )?[\w.]*(?:ValueError|AssertionError|NotImplementedError): .+",
        "Nothing was loaded: what raises now has looked at arguments only.",
        stages=frozenset({Stage.STARTING}),
    ),
    rule(
        "exception",
        "engine_exception",
        Tier.EXCEPTION,
        _WORDS,
        _EXCEPTION,
        "An exception that no other rule explains; the first one is the cause.",
    ),
)

SECONDARY = re.compile(
    r"Engine core initialization failed|EngineDeadError|EngineCore (?:failed to start|encountered)"
    r"|died unexpectedly|WorkerProc (?:failed to start|hit an exception)|WorkerProc initialization"
    r" failed|[Pp]rocess \S+ \(PID: \d+\) died"
    r"|Worker \d+ failed to initialize|exit code: -15|Initialization failed\. Please see"
    r"|BrokenPipeError|EOFError"
    r"|CancelledError|KeyboardInterrupt|SystemExit|EngineGenerateError|ChildFailedError"
    r"|failed to be inspected\. Please check the logs"
    r"|^(?:(?!: error: ).)*validation errors? for|Executor failed\.|cancelled|ConnectionResetError"
    r"|Capture cuda graph failed: *$|terminate called after"
)
"""What the others say when one has died: evidence of a death, never its cause."""

DEATH: tuple[str, ...] = (
    "hit an exception: ",
    "Received sigquit from a child",
    "SIGQUIT received",
    "crashed with exit code",
    "died during initialization",
    "scheduler is dead",
    "Initialization failed. Please see",
    "PID terminated with",
    "Engine core initialization failed",
    "EngineCore failed to start",
    "EngineCore encountered",
    "EngineDeadError",
    "WorkerProc failed to start",
    "died unexpectedly",
    "exited unexpectedly",
    "terminate called",
    "Fatal Python error",
    "Segmentation fault",
    "Application startup failed",
    "taking the entire process down",
    "\nKilled",
    "\nAborted",
)
"""Words that only a dying server writes."""
