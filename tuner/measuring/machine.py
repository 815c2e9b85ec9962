"""What the machine under a server did while a window was open: values alone, whoever looked."""

from typing import Literal

from tuner.frozen import Frozen

Throttle = Literal["power_cap", "sw_thermal", "hw_thermal", "power_brake", "hw_slowdown"]
"""Why a driver holds a GPU's clocks down. `power_cap` is the ordinary state of a GPU at work."""

BRAKES: tuple[Throttle, ...] = ("sw_thermal", "hw_thermal", "power_brake", "hw_slowdown")
"""Reasons that speak of the machine's cooling and supply, and not of what is launched on it."""


class MachineUse(Frozen):
    """One window of one host; a number is None where nobody could be asked for it.

    Of GPUs only those of the launch count: `power_w` (mean), `energy_j` and `memory_mb` (highest)
    are sums over them, `clocks_mhz` and `utilisation` (0 to 1) means, `temperature_c` is the
    hottest. `throttled` is the share of the looks at which a GPU gave that reason. `foreign_pids`
    are processes of nobody's launch that computed on them, by the host's own numbers.

    `host_cpu_share` is of all cores together (0 to 1), `available_memory_mb` the least that was
    free for anyone, of `host_memory_mb`; `swapped_bytes_s` went to and came from swap;
    `memory_stall_share` is the share of the window in which some task waited for memory (the
    kernel's own pressure count). Tokens are output tokens. `unobserved` says in words what could
    not be seen.
    """

    power_w: float | None = None
    energy_j: float | None = None
    joules_per_token: float | None = None
    tok_per_joule: float | None = None
    clocks_mhz: float | None = None
    throttled: dict[Throttle, float] = {}
    temperature_c: float | None = None
    memory_mb: float | None = None
    utilisation: float | None = None
    foreign_pids: list[int] = []
    host_cpu_share: float | None = None
    host_memory_mb: float | None = None
    available_memory_mb: float | None = None
    swapped_bytes_s: float | None = None
    memory_stall_share: float | None = None
    unobserved: list[str] = []

    def per_token(self, output_tokens: float) -> "MachineUse":
        """The same with its energy held against the window's output tokens."""
        if not self.energy_j or not output_tokens:
            return self
        tok_per_joule = output_tokens / self.energy_j
        return self.model_copy(
            update={"tok_per_joule": tok_per_joule, "joules_per_token": 1 / tok_per_joule}
        )
