"""What is left where a log says nothing: the form of the exit, and the words that end a wait."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tuner.failures.rules.rule import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitForm:
    """What an exit code alone lets one believe."""

    kind: str
    action: Action
    advice: str


_SIGNAL = ExitForm(
    kind="kernel_fault",
    action="once",
    advice="Native code died of a signal: read the kernel log, then try once more.",
)
ILLEGAL_INSTRUCTION = (
    "Illegal instruction: the binary or a kernel uses instructions that this CPU, or the virtual"
    " machine on it, does not allow. Compare lscpu with what the build needs; on a CPU engine whose"
    " bfloat16 wants AMX, try --dtype float32."
)
_ILLEGAL = ExitForm(kind="kernel_fault", action="once", advice=ILLEGAL_INSTRUCTION)
_KILLED = ExitForm(
    kind="host_oom",
    action="never",
    advice="Somebody killed it: look for oom-kill in the kernel log and free host memory.",
)
_NOT_STARTED = ExitForm(
    kind="package_env",
    action="stop-study",
    advice="Run the launch command by hand: its interpreter or module was not found.",
)
EXITS: Mapping[int, ExitForm] = {
    0: ExitForm(
        kind="engine_exception",
        action="once",
        advice="Try once more and keep the whole log; the code alone proves nothing.",
    ),
    2: ExitForm(
        kind="arg_parse",
        action="never",
        advice="Run the launch command by hand: it was refused before it said why.",
    ),
    126: _NOT_STARTED,
    127: _NOT_STARTED,
    -9: _KILLED,
    137: _KILLED,
    -11: _SIGNAL,
    139: _SIGNAL,
    -6: _SIGNAL,
    134: _SIGNAL,
    -4: _ILLEGAL,
    132: _ILLEGAL,
    -7: ExitForm(
        kind="comm_init",
        action="stop-study",
        advice="A bus error is a full /dev/shm: give the host more of it.",
    ),
    135: ExitForm(
        kind="comm_init",
        action="stop-study",
        advice="A bus error is a full /dev/shm: give the host more of it.",
    ),
}
"""Exit code → what to believe; 0 stands for every code that is not listed."""

SILENT_CHILD = ExitForm(
    kind="kernel_fault",
    action="once",
    advice="A child died without a Python error: look for a segfault or oom-kill in the kernel"
    " log, then try once more.",
)
"""A server that was up and whose child is gone: native code crashed, or somebody killed it."""

KILLED_SERVING = (
    "Something outside killed it: a person, a supervisor, or the kernel's OOM killer. Look at"
    " dmesg -T for oom-kill, then try once more."
)
"""Of a server that was up, announced no death and ended by SIGKILL: its flags are no evidence."""

FATAL = re.compile(
    r"hit an exception: Traceback"
    r"|Received sigquit from a child"
    r"|SIGQUIT received\. signum"
    r"|Subprocess \S+ \(pid=\d+\) crashed with exit code"
    r"|scheduler died during initialization"
    r"|Rank \d+ scheduler is dead"
    r"|Initialization failed\. Please see the error messages above"
    r"|DataParallelController PID terminated with"
    r"|Engine core initialization failed"
    r"|EngineCore failed to start"
    r"|EngineCore encountered a fatal error"
    r"|WorkerProc failed to start"
    r"|Worker proc \S+ died unexpectedly"
    r"|engine core exited unexpectedly"
    r"|Application startup failed\. Exiting"
    r"|watchdog timeout \(self\.watchdog_timeout=[\d.]+(?:, self\.soft=False)?\)"
    r"|Watchdog timeout \(self\.watchdog_timeout"
    r"|^terminate called after throwing"
    r"|^Fatal Python error: "
    r"|^[\w./ -]+: error: (?:unrecognized arguments: |argument -|ambiguous option: )"
    r"|taking the entire process down"
    r"|Not enough memory\. Please try to increase --mem-fraction-static"
    r"|fallen off the bus",
    re.MULTILINE,
)
"""Words after which no server becomes ready or stays up."""
