"""Lines that are dropped before anything is matched: each was seen in the log of a live server."""

import re

from tuner.failures.rules.rule import Noise


def _noise(name: str, pattern: str, reason: str, suspect: str | None = None) -> Noise:
    return Noise(name=name, pattern=re.compile(pattern), reason=reason, suspect=suspect)


NOISE: tuple[Noise, ...] = (
    _noise(
        "resolved arguments",
        r"server_args=|ServerArgs\(|non-default args:|with config:|^Namespace\(",
        "Names of flags such as watchdog_timeout and enable_nan_detection, not events.",
    ),
    _noise(
        "usage",
        r"^\s*(?:usage: |\[-{1,2}[\w-]+|\[model_tag\])",
        "argparse prints every flag and its choices before the one line that says what is wrong.",
    ),
    _noise(
        "model not imported",
        r"Ignore import error when loading ",
        "Every model's file is imported at each start; those that lack a package are left out.",
    ),
    _noise(
        "possible solutions",
        r"^Possible solutions:|^\d\. (?:set --|disable |Open an issue)",
        "The same four flags are named whatever the cause was.",
    ),
    _noise(
        "skipped tactic",
        r"\[Auto[Tt]uner\]: Skipping tactic",
        "The autotuner tries tactics that cannot run here, logs their assertion, and goes on.",
        suspect="grouped gemm",
    ),
    _noise(
        "backtrace frame",
        r"^\d+\s+(?:0x[0-9a-f]+|/\S+\.so)",
        "Frames of the C++ backtrace that follows a skipped tactic.",
    ),
    _noise(
        "retracted",
        r"out of memory happened\. #retracted",
        "The scheduler took requests back into its queue: slower, but alive.",
    ),
    _noise(
        "memory hint",
        r"If you are running out of memory, consider",
        "Printed at every graph capture.",
    ),
    _noise(
        "ulimit hint",
        r"Found ulimit of \d+ and failed to automatically increase",
        "Quotes the error of too many open files as a possibility, at every start.",
    ),
    _noise(
        "optional network plugin",
        r"libnccl-net\S*\.so|NET/IB : No device found|NET/Plugin",
        "NCCL looks for plugins and InfiniBand and does without.",
    ),
    _noise(
        "no peers",
        r"\[Gloo\] Rank \d+ is connected to 0 peer ranks",
        "A group of one has nobody to connect to.",
    ),
    _noise(
        "store teardown",
        r"Failed to check the \"should dump\" flag",
        "The watchdog of a rank that is being torn down.",
    ),
    _noise(
        "teardown warnings",
        r"resource_tracker|destroy_process_group\(\) was not called",
        "Said by whatever ends without cleaning up.",
    ),
    _noise(
        "client left",
        r"^(?:\[http_server\] )?(?:Error: )?Request is disconnected from the client side",
        "The client closed its connection; the request is dropped, the server is well.",
    ),
    _noise(
        "slow broadcast",
        r"No available shared memory broadcast block found",
        "A notice after each minute of waiting, long compilations included.",
    ),
    _noise(
        "faulthandler modules",
        r"^Extension modules: ",
        "A list of everything imported, after any fatal signal.",
    ),
    _noise(
        "recompile warning",
        r"^W\d{4} .*torch/_dynamo",
        "Dynamo falls back to eager unless the whole graph was demanded; then it raises.",
    ),
    _noise(
        "soft watchdog",
        r"watchdog timeout \(.*self\.soft=True",
        "A soft watchdog reports and lets the rank go on.",
    ),
    _noise(
        "deprecation",
        r"(?:Deprecation|Future|User|Syntax|Runtime|Resource)Warning: ",
        "A warning of Python's, whatever words it quotes.",
    ),
)
