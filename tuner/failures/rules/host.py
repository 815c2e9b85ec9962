"""Hardware, host and environment: nothing that a configuration could change."""

from tuner.failures.rules.rule import BEFORE_READY, Rule, Tier, rule

RENDEZVOUS = (
    ("data-parallel-address", "dist-init-addr", "master-addr", "VLLM_HOST_IP", "HOST_IP"),
    ("MASTER_ADDR", "VLLM_DP_MASTER_IP", "SGLANG_HOST_IP"),
)
"""Where a launch says at which address its ranks meet."""
_INNERMOST = r"[^\n]*(?:\n(?!\s*File )[^\n]*)*\Z"
_BIND = rf"(?:in (?:\w*bind\w*|create_server\w*)\b|\.bind\(|getaddrinfo\(){_INNERMOST}"
"""The innermost frame was taking an address."""
_HOST_MEMORY = "Lower MAX_JOBS (build jobs in parallel) or free host memory."

RULES: tuple[Rule, ...] = (
    rule(
        "xid",
        "gpu_hw",
        Tier.HARDWARE,
        ("Xid",),
        r"(?P<cause>NVRM: Xid [^:]*(?::[^:]*)*?\): (?:48|62|63|64|74|79|92|94|95|119|120|140)\b.*)",
        "Xids of memory, link, bus or firmware; 13, 31, 43 and 45 come from bad kernels.",
    ),
    rule(
        "off the bus",
        "gpu_hw",
        Tier.HARDWARE,
        ("fallen off the bus",),
        r"fallen off the bus",
        "Has a form without an Xid number.",
    ),
    rule(
        "ecc",
        "gpu_hw",
        Tier.HARDWARE,
        ("ncorrectable", "ECC error"),
        r"[Uu]ncorrectable (?:ECC|NVLink) error|double.bit ECC error",
        "Memory or link broke; a new run may pass, an unattended study must not bet on it.",
    ),
    rule(
        "gpu lost",
        "gpu_hw",
        Tier.HARDWARE,
        ("GPU is lost", "GPU requires reset", "ERR!", "device handle for GPU", "Unknown Error"),
        r"GPU is lost|GPU requires reset|\|.*\bERR!|nable to determine the device handle for GPU"
        r"|NVML: Unknown Error",
        "What nvidia-smi and NVML say of a GPU that no longer answers.",
    ),
    rule(
        "fabric",
        "gpu_hw",
        Tier.HARDWARE,
        ("system not yet initialized",),
        r"system not yet initialized",
        "Error 802: the fabric manager of an NVSwitch host does not run.",
        advice="Start the fabric manager in the version of the driver, then the study again.",
    ),
    rule(
        "no gpu",
        "gpu_hw",
        Tier.HARDWARE,
        (
            "No CUDA GPUs are available",
            "no CUDA-capable device",
            "invalid device ordinal",
            "No accelerator",
        ),
        r"No CUDA GPUs are available|no CUDA-capable device|invalid device ordinal"
        r"|No accelerator \(.* available",
        "The GPUs that were handed out are not there.",
        advice="Check nvidia-smi and CUDA_VISIBLE_DEVICES: the server sees fewer GPUs than the"
        " study gives it.",
    ),
    rule(
        "driver",
        "package_env",
        Tier.HARDWARE,
        ("driver", "_cuda_", "not compiled with CUDA"),
        r"has no attribute '_cuda_|Torch not compiled with CUDA"
        r"|Found no NVIDIA driver|CUDA driver version is insufficient|driver/library version mism"
        r"|NVIDIA driver on your system is too old",
        "Driver, CUDA runtime and torch do not fit: no launch can work.",
        advice="Install a driver that fits the engine's CUDA version, and a torch built for it.",
    ),
    rule(
        "shared memory",
        "comm_init",
        Tier.HOST,
        ("shm", "shared memory", "posix_fallocate", "Bus error", "/psm_", "ncclShm", "/torch_"),
        r"posix_fallocate failed|rror while creating shared memory segment|ncclShmOpen"
        r"|[Ii]nsufficient (?:shared memory|space in /dev/shm)"
        r"|unable to (?:open|allocate|mmap|resize) shared memory"
        r"|unable to allocate shared memory|\bBus error\b"
        r"|\[Errno (?:1|12|13|28)\] [\w ]+: '/(?:dev/shm|psm_|nccl|torch_)"
        r"|write to file </torch_",
        "A full /dev/shm says 'No space left on device' too, and is no full disk.",
        advice="Give the host (or container: --shm-size) more /dev/shm, and clear what dead"
        " servers left there.",
    ),
    rule(
        "disk",
        "disk_full",
        Tier.HOST,
        (
            "No space left on device",
            "quota exceeded",
            "Errno 28",
            "Errno 122",
            "Errno 27",
            "File too large",
            "disk is full",
        ),
        r"No space left on device|[Qq]uota exceeded|\[Errno (?:27|28|122)\]"
        r"|File too large \(os error|disk is full",
        "Not of shared memory (above): a file system.",
        unless=r"shm|NCCL|/psm_",
    ),
    rule(
        "read-only disk",
        "disk_full",
        Tier.HOST,
        ("Read-only file system", "Errno 30"),
        r"Read-only file system|\[Errno 30\]",
        "A disk that takes nothing, whatever room it has.",
        advice="Mount it for writing, or point the cache that the path belongs to (VLLM_CACHE_ROOT,"
        " TORCHINDUCTOR_CACHE_DIR, HF_HOME, TMPDIR) elsewhere.",
    ),
    rule(
        "no folder for temporary files",
        "disk_full",
        Tier.HOST,
        ("usable temporary directory",),
        r".*[Nn]o usable temporary directory.*",
        "None of TMPDIR, /tmp, /var/tmp and the current folder takes a file.",
        advice="Point TMPDIR at a folder that can be written to.",
    ),
    rule(
        "open files",
        "fd_limit",
        Tier.HOST,
        ("Too many open files",),
        r"Too many open files",
        "Errno 24; sockets count as files.",
    ),
    rule(
        "port",
        "port_conflict",
        Tier.HOST,
        ("EADDRINUSE", "ddress already in use", "Errno 98", "failed to listen", "is already in u"),
        r"EADDRINUSE|[Aa]ddress already in use|\[Errno 98\]|server socket has failed to listen"
        r"|[Pp]ort \d+ is already in use",
        "Uvicorn, torch's store and NCCL say it in different words; the port may be an inner one.",
    ),
    rule(
        "address of another host",
        "arg_validation",
        Tier.LOCAL,
        ("annot assign requested address", "Errno 99", "Errno 13", "Error: ", "rror: [Errno -"),
        r".*(?:[Cc]annot assign requested address|\[Errno 99\]).*"
        r"|^(?:PermissionError|OverflowError|FileNotFoundError|OSError|socket\.gaierror): .+"
        r"|error while attempting to bind on address .*",
        "The address or port to listen on is not for this user, or on no interface of this host.",
        around=rf"{_BIND}|bind on address",
        blame=(("host", "port", "uds", "dist-init-addr"),),
        advice="Listen on an address of this host (ip -brief address) and a port that this user may"
        " take.",
    ),
    rule(
        "certificate",
        "arg_validation",
        Tier.LOCAL,
        ("Error: ",),
        r"^(?:FileNotFoundError|PermissionError|IsADirectoryError|OSError|ssl\.SSLError): .+",
        "Python names no file there: what the TLS flags give is missing or no certificate.",
        around=rf"load_cert_chain|load_verify_locations|create_ssl_context{_INNERMOST}",
        blame=(("ssl-certfile", "ssl-keyfile", "ssl-ca-certs"),),
        advice="Correct the paths of certificate and key; both must be PEM files.",
    ),
    rule(
        "address of a peer",
        "comm_init",
        Tier.PEER,
        ("annot assign requested address", "Errno 99"),
        r".*(?:[Cc]annot assign requested address|\[Errno 99\]).*",
        "A rank was told to use an address that its host does not have.",
        stages=BEFORE_READY,
        blame=RENDEZVOUS,
    ),
    rule(
        "kernel oom",
        "host_oom",
        Tier.HOST,
        ("Out of memory: Kill", "oom-kill", "oom_kill", "cgroup out of memory"),
        r"Out of memory: Kill(?:ed)? process|oom-kill:|oom_kill|cgroup out of memory",
        "The kernel log names the victim.",
    ),
    rule(
        "foreign memory",
        "gpu_occupied",
        Tier.HOST,
        ("GiB memory in use",),
        r"(?P<cause>Process \d+ has [\d.]+ GiB memory in use(?!\. Of the allocated).*)",
        "Own memory is called 'this process', or its total is followed by what torch allocated.",
    ),
    rule(
        "free memory at start",
        "gpu_occupied",
        Tier.HOST,
        ("Free memory on device",),
        r"Free memory on device .*?\((?P<free>[\d.]+)/(?P<total>[\d.]+) \w+\) on startup",
        "Much less is free than the GPU has: a process that is not ours holds the rest.",
        unless=r"utilization \((?:0\.9[5-9]|1)",
    ),
    rule(
        "fraction too high at start",
        "arg_validation",
        Tier.LOCAL,
        ("less than desired GPU memory utilization",),
        r"less than desired GPU memory utilization",
        "Nearly everything is free, and still less than the fraction asks for.",
        blame=(("memory",),),
        advice="Lower {memory}: the driver and the context need a part of the GPU themselves.",
    ),
    rule(
        "unbalanced after load",
        "invariant_check",
        Tier.LOCAL,
        ("memory capacity is unbalanced",),
        r"memory capacity is unbalanced",
        "Checked again for a draft model, when the server itself has filled the GPUs.",
        before=r"Load weight end|KV Cache is allocated|Captur\w+ (?:cuda graph|batches)",
        blame=(("speculative",),),
    ),
    rule(
        "unbalanced",
        "gpu_occupied",
        Tier.HOST,
        ("memory capacity is unbalanced",),
        r"memory capacity is unbalanced",
        "At the first initialisation nothing of ours is on the GPUs yet.",
    ),
    rule(
        "compiler killed",
        "host_oom",
        Tier.LOCAL,
        ("Killed signal",),
        r"Killed signal terminated program|Killed \(signal 9\)",
        "The kernel killed a compiler: too many ran at once.",
        advice=_HOST_MEMORY,
        blame=(("MAX_JOBS",),),
    ),
    rule(
        "host cache",
        "host_oom",
        Tier.LOCAL,
        ("Not enough host memory",),
        r"Not enough host memory",
        "The engine asked before it took: the polite form.",
        advice="Lower --hicache-size or --hicache-ratio.",
        blame=(("hicache",),),
    ),
    rule(
        "host allocation",
        "host_oom",
        Tier.LOCAL,
        (
            "bad_alloc",
            "MemoryError",
            "an't allocate memory",
            "annot allocate memory",
            "DefaultCPUAllocator",
            "CPU memory utilization",
            "requested memory for kv",
            "failed to map segment",
            "Errno 12",
            "able to mmap",
            "nable to allocate",
            "not enough memory",
        ),
        r"std::bad_alloc|\bMemoryError\b|DefaultCPUAllocator: (?:can't|not enough)"
        r"|[Cc]annot allocate memory(?! in static TLS)|\[Errno 12\]|failed to map segment from"
        r"|[Uu]nable to mmap|Unable to allocate [\d.]+ [KMGT]iB for|err == 0.*not enough memory"
        r"|less than desired CPU memory utilization"
        r"|less than requested memory for kv",
        "An allocation on the host was refused.",
        blame=(("VLLM_CPU_KVCACHE_SPACE", "gpu-memory-utilization", "hicache", "cpu-offload-gb"),),
    ),
    rule(
        "no more threads",
        "host_oom",
        Tier.LOCAL,
        (
            "can't start new thread",
            "pthread_create",
            "Thread creation failed",
            "unable to create t",
            "BlockingIOError",
            "ork: ",
        ),
        r"can't start new thread|BlockingIOError: \[Errno 11\]|[Ff]ork: (?:retry|Resource)"
        r"|pthread_create (?:failed|returned)|Thread creation failed"
        r"|unable to create thread|Resource temporarily unavailable",
        "Threads and processes want memory for their stacks and a place in the limit on processes.",
        advice="Raise the limits on memory and processes (ulimit -v, ulimit -u, the container's"
        " pids and memory), or free memory.",
        blame=(),
    ),
    rule(
        "child on a bus error",
        "comm_init",
        Tier.FAULT,
        ("xit code", "exitcode", "proc(s)"),
        r"(?:[Ss]ubprocess|[Pp]rocess|scheduler|[Ww]orker|proc|Rank)\b.*\bexit ?code:? -7\b"
        r"|Failed \w+ proc\(s\): \{[^}]*: -7\b",
        "A mapped page that could not be had: shared memory is full, or a file was cut meanwhile.",
        advice="Give the host (or container: --shm-size) more /dev/shm; if it has enough, check"
        " that nobody writes to the model's files.",
    ),
    rule(
        "child killed",
        "host_oom",
        Tier.FAULT,
        ("xit code", "exitcode", "Failed core proc"),
        r"(?:scheduler|[Ss]ubprocess|[Pp]rocess|[Ww]orker|Rank \d+|proc)\b.*\bexit ?code:? -9\b"
        r"|^Exit code: -9\b|Failed \w+ proc\(s\): \{[^}]*: -9",
        "SIGKILL of a child without a word is the kernel's doing; the launcher's own -9 is not"
        " evidence, it kills itself.",
    ),
)
