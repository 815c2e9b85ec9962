"""Programs, packages and libraries that are missing, or do not fit each other."""

from tuner.failures.rules.rule import Rule, Tier, rule

_NEEDED_WORDS = (
    "No module named",
    "not installed",
    "annot import",
    "not available",
    "ailed to import",
    "lease install",
    "is required for",
    "ImportError: ",
    "ModuleNotFoundError: ",
)
_NEEDED = (
    r"No module named|not installed|[Cc]annot import|(?:is|are) not available"
    r"|[Ff]ailed to import|[Pp]lease install|Error: \S+ is required for"
    r"|^[\w.]*(?:Import|ModuleNotFound)Error: "
)

RULES: tuple[Rule, ...] = (
    rule(
        "missing program",
        "package_env",
        Tier.LOCAL,
        ("exit status 127", "command not found", "o such file or directory: '"),
        r"exit status 127|^(?:\S*sh: )?(?:line \d+: |\d+: )?\S+: (?:command )?not found$"
        r"|FileNotFoundError: \[Errno 2\] No such file or directory: '[\w.+-]+'$",
        "A program that the engine calls is not on the PATH; nvcc and compilers have their own"
        " class.",
        unless=r"nvcc|gcc|g\+\+|ninja|cc1plus",
        advice="Install the program that the message names, or mend the server's PATH.",
    ),
    rule(
        "program that may not run",
        "package_env",
        Tier.LOCAL,
        ("ermission denied", "Exec format error"),
        r"^(?:PermissionError: \[Errno 13\]|OSError: \[Errno 8\]) .+",
        "The innermost code was starting a program: its file is not for this user or machine.",
        around=r"in (?:_execute_child|_posix_spawn|spawnv_passfds|_spawn)\b[^\n]*"
        r"(?:\n(?!\s*File )[^\n]*)*\Z",
        advice="Let the server's user run the program that the message names.",
    ),
    rule(
        "missing package of a value",
        "package_env",
        Tier.LOCAL,
        _NEEDED_WORDS,
        _NEEDED,
        "The value of a flag asks for it: that value is dead, the study is not.",
        raised=True,
        quotes_flag=True,
        action="never",
        advice="Choose another value for this flag, or install the package that it needs.",
    ),
    rule(
        "missing package of a flag",
        "package_env",
        Tier.LOCAL,
        _NEEDED_WORDS,
        _NEEDED,
        "The message names the flag that asks for it: without the flag nothing is missing.",
        raised=True,
        names_flag=True,
        action="never",
        advice="Leave this flag out, or install the package that it needs.",
    ),
    rule(
        "missing library of an option",
        "package_env",
        Tier.LOCAL,
        (
            "cannot find",
            "cannot open shared",
            "No module named",
            "not installed",
            "annot import",
            "not available",
        ),
        r"(?i:(?P<cause>.*\b(?P<part>mscclpp|deep_?ep|nixl|mooncake|pplx\w*|lmcache|xgrammar|outlines"
        r"|tensorizer|runai\w*|flashmla|flash_mla|flash_attn\w*|aiter|fastsafetensors|bitsandbytes"
        r"|instanttensor)\b.*(?:cannot find|cannot open shared|No module named|not installed"
        r"|is not available)"
        r".*|.*(?:No module named|annot import)\D*(?P<part2>mscclpp|deep_?ep|nixl|mooncake|pplx\w*"
        r"|lmcache|xgrammar|outlines|tensorizer|runai\w*|flash_?mla|flash_attn\w*|aiter"
        r"|fastsafetensors|bitsandbytes|instanttensor)\b.*))",
        "Imported only where a flag asks for it: that flag is dead, the study is not.",
        action="never",
        advice="Leave the option off, or install the package that it needs.",
        blame=(
            ("enable-mscclpp", "a2a", "attention-backend", "load-format", "quantization"),
            ("kv-transfer-config",),
        ),
    ),
    rule(
        "missing package",
        "package_env",
        Tier.LOCAL,
        (
            "No module named",
            "cannot import name",
            "cannot open shared object",
            "undefined symbol",
            "No package metadata",
            "does not exist",
            "check_nccl_so",
            "GLIBC",
            "not installed",
            "lease install",
            "libcu",
            "libnccl",
            "CXXABI",
            "ELF",
            "file too short",
            "is required for a normal",
            "binary incompatib",
            "partially initialized module",
        ),
        r"No module named|cannot import name|cannot open shared object file|undefined symbol"
        r"|No package metadata was found|operator \S+::\S+ does not exist|check_nccl_so"
        r"|version `(?:GLIBC|CXXABI)\S*' not found|(?:invalid|wrong) ELF|: file too short"
        r"|is required for a normal functioning|binary incompatib"
        r"|partially initialized module|cannot find lib\S+\.so|DistributionNotFound"
        r"|(?:Import|Runtime)Error: .*(?:is not installed|[Pp]lease install)",
        "Said by every launch of this environment.",
    ),
)
