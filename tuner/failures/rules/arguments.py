"""What the user's side got wrong before any kernel ran: arguments, variables, model files."""

from tuner.failures.log_phases import Stage
from tuner.failures.rules.rule import BEFORE_READY, Rule, Tier, rule

_STARTING = frozenset({Stage.STARTING})

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
    ),
    rule(
        "variable format",
        "env_format",
        Tier.LOCAL,
        ("Unsupported unit", "Invalid value '"),
        r"Unsupported unit.*|Invalid value '.*' for [A-Z][A-Z0-9_]+\b.*",
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
        "not divisible",
        "divisibility",
        Tier.LOCAL,
        ("divisible", "multiple of", "AssertionError"),
        r"(?P<cause>.*(?:\bassert [^=]+ % [^=]+ == 0|not divisible by"
        r"|(?:must|should|need\w*(?: to)?|has to) be (?:evenly )?(?:divisible by|a multiple of))"
        r"(?:.*?(?P<number>\d+)\D*$)?.*)",
        "Bare numbers without a flag's name: the one that equals a parallel size is at fault.",
        raised=True,
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
        (
            "snapshot folder",
            "valid model identifier",
            "Repo id must",
            "repository ID",
            "have a file named",
            "valid JSON file",
            "couldn't connect to",
            "Cannot find any model weights",
            "no file named",
            "RepositoryNotFound",
            "GatedRepo",
            "LocalEntryNotFound",
            "an't load",
            "Tokenizer class",
            "huggingface.co",
            "Invalid repository",
        ),
        r"cached snapshot folder|valid model identifier|Repo id must|Invalid repository ID"
        r"|have a file named|is not a valid JSON file|couldn't connect to|no file named"
        r"|Cannot find any model weights"
        r"|RepositoryNotFound|GatedRepo|LocalEntryNotFound|[Cc]an't load \w+ for"
        r"|Tokenizer class \S+ does not exist",
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
        ),
        r"not initialized from checkpoint|size mismatch for|no module or parameter named"
        r"|No such file or directory: .*(?:safetensors|config\.json|tokenizer|\.bin\b|\.index\.)",
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
        around=r"json\.loads\([\w.]*(?:args|config|overrides?|kwargs)\)",
        stages=_STARTING,
        blame=(
            ("json-model-override-args", "speculative", "compile", "model-loader-extra-config"),
        ),
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
)
