"""What the user's side got wrong before any kernel ran: arguments, variables, model files."""

from tuner.failures.log_phases import Stage
from tuner.failures.rules.rule import BEFORE_READY, Rule, Tier, rule

_STARTING = frozenset({Stage.STARTING})
_VARIABLE = (
    r"\b(?:(?:VLLM|SGLANG|SGL|NCCL|GLOO|OMP|CUDA|TORCH|PYTORCH|HF|TORCHINDUCTOR|TRITON|TRANSFORMERS"
    r"|FLASHINFER|KMP|MKL|RAY|LMCACHE)_[A-Z0-9_]+|PYTHON[A-Z]+)\b"
)
_INNERMOST = r"[^\n]*(?:\n(?!\s*File )[^\n]*)*\Z"
"""What follows the file's name in the last frame of a traceback."""
_OUTER = r"[^\n]*(?:\n(?!\s*File \S+/(?:vllm|sglang|transformers|huggingface_hub|json)/)[^\n]*)*\Z"
"""The same where frames of other libraries may be further in."""

_NOT_DIVISIBLE = (
    r"(?P<cause>.*(?:\bassert [^=]+ % [^=]+ == 0|not divisible by"
    r"|(?:must|should|need\w*(?: to)?|has to) be (?:evenly )?(?:divisible by|a multiple of))"
    r"(?:.*?(?P<number>\d+)\D*$)?.*)"
)

_NOT_FOUND_WORDS = (
    "snapshot folder",
    "valid model identifier",
    "Repo id must",
    "repository ID",
    "have a file named",
    "valid JSON file",
    "couldn't connect to",
    "Cannot find any",
    "no file named",
    "RepositoryNotFound",
    "GatedRepo",
    "LocalEntryNotFound",
    "an't load",
    "Tokenizer class",
    "huggingface.co",
    "Invalid repository",
)
_NOT_FOUND = (
    r"cached snapshot folder|valid model identifier|Repo id must|Invalid repository ID"
    r"|have a file named|is not a valid JSON file|couldn't connect to|no file named"
    r"|Cannot find any \w* ?model weights"
    r"|RepositoryNotFound|GatedRepo|LocalEntryNotFound|[Cc]an't load \w+ for"
    r"|Tokenizer class \S+ does not exist"
)

RULES: tuple[Rule, ...] = (
    rule(
        "argparse",
        "arg_parse",
        Tier.LOCAL,
        (": error: ", "No such option"),
        r"^[\w./ -]+: error: (?P<cause>(?:unrecognized arguments|argument |the following arguments"
        r" are required|ambiguous option|invalid choice|expected ).*)"
        r"|^Error: (?P<cause2>No such option.*)",
        "The last line after pages of usage; anything before it is help text.",
        follow=r"^\s+(.+?) \[type=\w+, input_value=",
    ),
    rule(
        "variable format",
        "env_format",
        Tier.LOCAL,
        ("Unsupported unit", "Invalid value '"),
        r"Unsupported unit.*|Invalid value '.*' (?:for|in) [A-Z][A-Z0-9_]+\b.*",
        "Readers of variables that name neither flag nor argument.",
    ),
    rule(
        "variable number",
        "env_format",
        Tier.LOCAL,
        ("invalid literal for int", "could not convert string to float"),
        r"(?:invalid literal for int\(\)|could not convert string to float).*",
        "Only where the frame reads the environment: an argument of the wrong type is argparse's.",
        around=r"environ|getenv|\benvs?\.py|\bEnv[A-Z]\w+",
    ),
    rule(
        "variable in validator",
        "env_format",
        Tier.LOCAL,
        ("invalid literal for int", "could not convert string to float"),
        r"^\s*Value error, (?P<cause>(?:invalid literal|could not convert).*?)(?: \[type=.*)?$",
        "Arguments were numbers when argparse was through; a validator that still parses text reads"
        " the environment.",
    ),
    rule(
        "variable named",
        "env_format",
        Tier.LOCAL,
        ("must be", "nvalid", "should be", "not a valid", "appears to be"),
        rf"{_VARIABLE}[^.]*?(?:(?:must|should) be (?:an?\b|one of|in\b|either|[<>=\d])|nvalid"
        rf"|not a valid|appears to be)|[Ii]nvalid \w+\b[^.]*{_VARIABLE}",
        "The text names the variable: readers of variables have no other name for it.",
        raised=True,
        stages=_STARTING,
    ),
    rule(
        "variable of Python's",
        "env_format",
        Tier.LOCAL,
        ("Fatal Python error: ",),
        r"^Fatal Python error: (?P<cause>\w+: .*\bPYTHON[A-Z]+\b.*)",
        "The interpreter reads its own variables before it runs anything.",
    ),
    rule(
        "network interface",
        "comm_init",
        Tier.LOCAL,
        ("nable to find address for", "nable to find interface", "no socket interface found"),
        r".*(?:[Uu]nable to find (?:address for|interface)|no socket interface found).*",
        "The interface that was named is not on this host.",
        blame=(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME"),),
        advice="Name an interface that this host has (ip -brief address), or leave the variable"
        " out.",
    ),
    rule(
        "variable quoted",
        "env_format",
        Tier.LOCAL,
        ("Error: ",),
        r"^(?:[\w.]*(?:ValueError|AssertionError|KeyError|TypeError)): .+",
        "Nothing but a variable of this launch has that value, and nothing is loaded yet.",
        names_variable=True,
        stages=_STARTING,
    ),
    rule(
        "path of a variable",
        "env_format",
        Tier.LOCAL,
        ("Error: ",),
        r"^(?:[\w.]*(?:OSError|FileNotFoundError|NotADirectoryError|IsADirectoryError"
        r"|PermissionError|FileExistsError|ZMQError|JSONDecodeError)): .+",
        "The path that cannot be used is the value of a variable of this launch.",
        names_variable=True,
        stages=BEFORE_READY,
    ),
    rule(
        "sizes of the model",
        "model_files",
        Tier.LOCAL,
        ("divisible", "multiple of", "AssertionError"),
        _NOT_DIVISIBLE,
        "No parallel size is asked for: the model's own numbers do not go together.",
        raised=True,
        around=r'/models/\w+\.py", line \d+, in __init__\n',
        stages=BEFORE_READY,
        absent=("tp", "ep", "dp", "pp", "hf-overrides", "json-model-override-args", "quantization"),
    ),
    rule(
        "not divisible",
        "divisibility",
        Tier.LOCAL,
        ("divisible", "multiple of", "AssertionError"),
        _NOT_DIVISIBLE,
        "Bare numbers without a flag's name: the one that equals a parallel size is at fault.",
        raised=True,
    ),
    rule(
        "model's own config",
        "model_files",
        Tier.LOCAL,
        ("Error: ", "StrictDataclass"),
        r"^[\w.]*(?:Error|Exception): .+",
        "The innermost code is the model's configuration reading its file.",
        around=r"(?:/configuration_\w+\.py|/modeling_rope_utils\.py|huggingface_hub/dataclasses\.py"
        r"|transformers_utils/(?:config|configs/\w+|model_arch_config\w*)\.py"
        rf'|/model_arch_config_convertor\.py)"{_OUTER}|^[\w.]*StrictDataclass\w+Error',
        unless=r"No module named|cannot import|validation errors? for|trust_remote_code|out of mem",
        stages=_STARTING,
    ),
    rule(
        "key of the model's config",
        "model_files",
        Tier.LOCAL,
        ("in the model's",),
        r"[Cc]annot find .* in the model's (?:\w+ )?config.*",
        "What the model says of itself lacks something; no argument is looked at.",
        raised=True,
    ),
    rule(
        "custom code",
        "arg_validation",
        Tier.LOCAL,
        ("trust_remote_code", "trust-remote-code"),
        r"trust[_-]remote[_-]code",
        "The model brings code of its own, which runs only where that is allowed.",
        raised=True,
        blame=(("trust-remote-code",),),
        advice="Read the model's code, then set --trust-remote-code; or choose another model.",
    ),
    rule(
        "adapter",
        "arg_validation",
        Tier.LOCAL,
        ("adapter", "LoRA", "lora"),
        r"[Nn]o adapter found|[Ll]oading lora .*fail|adapter_config\.json"
        r"|(?:LoRA|[Aa]dapter)\b.* (?:not found|does not exist|cannot be (?:loaded|found))",
        "The adapter is a flag's value: the model itself was not looked at yet.",
        raised=True,
        blame=(("lora",),),
        advice="Correct the adapter's path, or leave LoRA out.",
    ),
    rule(
        "file of a flag",
        "model_files",
        Tier.LOCAL,
        _NOT_FOUND_WORDS,
        _NOT_FOUND,
        "A path that a flag gives is no model, tokenizer or draft; the model itself is another.",
        raised=True,
        quotes_flag=True,
        action="never",
        advice="Correct the path or the name that this flag gives.",
    ),
    rule(
        "weights header",
        "model_files",
        Tier.LOCAL,
        ("deserializing header", "SafetensorError", "HeaderTooLarge", "HeaderTooSmall"),
        r"[Ee]rror while deserializing header.*|SafetensorError.*|Header(?:TooLarge|TooSmall).*",
        "A truncated download, or a pointer file in its place.",
    ),
    rule(
        "unknown architecture",
        "model_files",
        Tier.LOCAL,
        ("recognize", "Model architectures", "Unrecognized model", "Unrecognized config"),
        r"(?:does|do) not recognize\b.*architecture|Model architectures? .*not supported"
        r"|Unrecognized model in|Unrecognized configuration class|does not recognize this",
        "This version of the engine or of transformers does not know the model.",
        raised=True,
    ),
    rule(
        "model not found",
        "model_files",
        Tier.LOCAL,
        _NOT_FOUND_WORDS,
        _NOT_FOUND,
        "A path that is no model, or one that is not on this disk while downloads are off.",
        raised=True,
    ),
    rule(
        "weights do not fit",
        "model_files",
        Tier.LOCAL,
        (
            "not initialized from checkpoint",
            "size mismatch for",
            "no module or parameter named",
            "Unexpected key",
            "o such file or directory",
            "ermission denied",
            "oad weight",
        ),
        r"not initialized from checkpoint|size mismatch for|no module or parameter named"
        r"|(?:No such file or directory|Permission denied): "
        r".*(?:safetensors|config\.json|tokenizer|\.bin\b|\.index\.)"
        r"|[Ll]oad weight \(?torch\.Size|[Uu]nable to load weight",
        "Files of another model, or some of them missing.",
        raised=True,
    ),
    rule(
        "architecture key",
        "model_files",
        Tier.LOCAL,
        ("KeyError",),
        r"^KeyError: .*",
        "A bare key: the frame in the model's configuration says what was looked up.",
        around=r"model_config\.py|configuration_\w+\.py|hf_transformers_utils|transformers_utils",
        stages=BEFORE_READY,
    ),
    rule(
        "weights in loading",
        "model_files",
        Tier.EXCEPTION,
        ("Error: ", "AssertionError"),
        r"^[\w.]*(?:AssertionError|KeyError|RuntimeError|ValueError|IndexError|AttributeError)\b.*",
        "The innermost code was putting tensors of the files where the model has room for them.",
        around=r"in (?:load_weights|load_state_dict|\w*weight_loader|_load_module|load_param\w*)\n"
        r"(?:(?!\s*File )[^\n]*\n)*(?:\s*File [^\n]*\n(?:(?!\s*File )[^\n]*\n)*){0,3}"
        r"[\w.]*(?:Error|Exception)\b[^\n]*\Z",
        unless=r"out of memory|CUDA error|NCCL",
        stages=BEFORE_READY,
    ),
    rule(
        "named flag",
        "arg_validation",
        Tier.LOCAL,
        ("Error: ",),
        r"^(?:[\w.]*(?:ValueError|AssertionError|NotImplementedError|JSONDecodeError)): .+",
        "Checked late, in a child, but the message still names what the user wrote.",
        names_flag=True,
        stages=BEFORE_READY,
    ),
    rule(
        "files in reading",
        "model_files",
        Tier.EXCEPTION,
        ("Error", "Exception: "),
        r"^[\w.]*(?:Error|Exception): .+",
        "Nothing was read by then but the files of the model and its tokenizer.",
        around=r"in (?:from_pretrained|_from_pretrained|from_file|get_config|get_tokenizer"
        r"|get_config_dict|cached_tokenizer_from_config|_load_tokenizer\w*)\n"
        r"(?:(?!\s*File )[^\n]*\n)*(?:\s*File [^\n]*\n(?:(?!\s*File )[^\n]*\n)*){0,4}"
        r"[\w.]*(?:Error|Exception)\b[^\n]*\Z",
        unless=r"No module named|cannot import|validation errors? for",
        stages=BEFORE_READY,
    ),
    rule(
        "module in importing",
        "package_env",
        Tier.EXCEPTION,
        ("Error: ", "Fatal Python error: init"),
        r"^(?:(?:Attribute|Name|Syntax|Type|Runtime|OS|Indentation|System)Error): .+"
        r"|^Fatal Python error: init\w+: .+",
        "The innermost code is a module's own: it is broken, or does not fit the others.",
        around=rf"in <module>{_INNERMOST}|^SyntaxError|Fatal Python error: init",
        stages=_STARTING,
    ),
    rule(
        "quantization of the model",
        "model_files",
        Tier.LOCAL,
        ("uantiz",),
        r"^\s*(?:[\w.]+: |Value error, )(?P<cause>.*[Qq]uantiz.*)",
        "No flag says how the weights are quantised: the model's own config does.",
        raised=True,
        stages=_STARTING,
        absent=("quantization", "hf-overrides", "json-model-override-args", "kv-dtype"),
    ),
    rule(
        "quantization config",
        "arg_validation",
        Tier.LOCAL,
        ("config file for", "quantization method"),
        r"Cannot find the config file for \w+|Unknown quantization method"
        r"|quantization method .* (?:does not match|not supported)",
        "The weights are not quantised the way the flag says: the files are whole.",
        raised=True,
        blame=(("quantization",),),
    ),
    rule(
        "invalid field",
        "arg_validation",
        Tier.LOCAL,
        ("[type=",),
        r"^\s*(?:Value error, |Assertion failed, )?(?P<cause>.+?) \[type=\w+, input_value=.*",
        "Pydantic's own form, one error a line, the field's name on the line above.",
    ),
    rule(
        "json argument",
        "arg_validation",
        Tier.LOCAL,
        ("JSONDecodeError",),
        r"^[\w.]*JSONDecodeError: .+",
        "Text that was given as an argument was read as JSON: no file is at fault.",
        around=r"json\.loads\([\w.]*(?:args|config|overrides?|kwargs)\)|arg_utils\.py"
        r"|argparse_utils\.py|arg_groups/|server_args\w*\.py|/cli/",
        unless=r"^yaml",
        stages=_STARTING,
        blame=(
            ("json-model-override-args", "speculative", "compile", "model-loader-extra-config"),
        ),
    ),
    rule(
        "yaml argument",
        "arg_validation",
        Tier.LOCAL,
        ("yaml.",),
        r"^yaml\.\w+\.\w*(?:Error|Exception)\b.*",
        "Models have no YAML: this is a file that a flag gives.",
        stages=_STARTING,
        blame=(("config",),),
    ),
    rule(
        "config check",
        "arg_validation",
        Tier.LOCAL,
        ("Error: ", "Exception: "),
        r"^(?:[\w.]*(?:ValueError|AssertionError|NotImplementedError|RuntimeError"
        r"|ValidationError|TypeError|Exception)): .+",
        "Raised where arguments are checked: no model has been touched.",
        around=r"server_args\.py|arg_groups/|arg_utils\.py|check_server_args|vllm/config/|/configs?/\w+\.py"
        r"|verify_and_update_config|check_and_update_config|_post_init__",
        unless=r"Capture cuda graph failed|validation errors? for",
        stages=_STARTING,
    ),
    rule(
        "argument in arithmetic",
        "arg_validation",
        Tier.LOCAL,
        ("ZeroDivisionError", "AttributeError", "IndexError", "OverflowError", "KeyError"),
        r"^(?:ZeroDivisionError|AttributeError|IndexError|OverflowError|KeyError): .+",
        "The check itself stumbled over what it was given: its frame is the innermost.",
        around=r'File "[^"\n]*(?:server_args|arg_groups/\w+|arg_utils|/config/\w+)\.py"'
        + _INNERMOST,
        stages=_STARTING,
    ),
)
