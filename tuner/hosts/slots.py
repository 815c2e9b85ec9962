"""Which GPUs, cores and ports a job may have of its host. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

PORTS_A_GPU = 16
"""A server's own, and what it opens for NCCL, initialisation, metrics and data parallelism; each
GPU of a slot brings as many, since each may have a server for itself."""

_LOWEST_PORT = 20000
_HIGHEST_PORT = 65535
_CORES_A_CLIENT_CORE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU (or a declared number) and the cores near it that servers may use."""

    id: str
    numa: int | None = None
    cores: tuple[int, ...] = ()


@dataclass(slots=True)
class SlotTable:
    """Who has which GPUs of one host; those in quarantine are nobody's any more."""

    gpus: tuple[Gpu, ...]
    taken: dict[str, tuple[Gpu, ...]] = field(default_factory=dict)
    quarantined: dict[str, str] = field(default_factory=dict)

    def take(self, job: str, count: int) -> tuple[Gpu, ...] | None:
        """GPUs for a job, on as few NUMA nodes as possible; None while too few are free.

        The fullest node that still fits is used first, so that whole nodes stay whole.
        """
        busy = {gpu.id for gpus in self.taken.values() for gpu in gpus} | set(self.quarantined)
        nodes: dict[int | None, list[Gpu]] = {}
        for gpu in self.gpus:
            if gpu.id not in busy:
                nodes.setdefault(gpu.numa, []).append(gpu)
        by_room = sorted(nodes.values(), key=len)
        fitting = [node for node in by_room if len(node) >= count]
        pool = fitting[0] if fitting else [gpu for node in reversed(by_room) for gpu in node]
        if len(pool) < count:
            return None
        chosen = set(pool[:count])
        self.taken[job] = tuple(gpu for gpu in self.gpus if gpu in chosen)
        return self.taken[job]

    def give_back(self, job: str) -> None:
        """Free what the job had, except what is in quarantine."""
        self.taken.pop(job, None)

    def quarantine(self, reasons: Mapping[str, str]) -> None:
        """Hand out these GPUs no more; each comes with the reason."""
        self.quarantined.update(reasons)


def split_cores(cores: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(server cores, client cores): the last eighth, at least one, is the load generator's.

    They share the core of a machine that has only one.
    """
    ordered = tuple(sorted(cores))
    clients = max(1, len(ordered) // _CORES_A_CLIENT_CORE)
    return ordered[:-clients] or ordered, ordered[-clients:]


def share_cores(
    nodes: Sequence[int | None],
    cores_of_node: Mapping[int, Sequence[int]],
    server_cores: Sequence[int],
) -> tuple[tuple[int, ...], ...]:
    """The server cores of each GPU, given the NUMA node of each.

    GPUs of one node divide its cores evenly; where the node is unknown, or none of its cores is
    a server's, all server cores count as near. With fewer cores than GPUs, neighbours share.
    """
    shares: list[tuple[int, ...]] = []
    for index, node in enumerate(nodes):
        near = set(cores_of_node.get(node, ())) if node is not None else set()
        pool = [core for core in server_cores if core in near] or list(server_cores)
        rank, peers = nodes[:index].count(node), nodes.count(node)
        first = rank * len(pool) // peers
        last = max(first + 1, (rank + 1) * len(pool) // peers)
        shares.append(tuple(pool[first:last]))
    return tuple(shares)


def port_blocks(
    ephemeral: tuple[int, int], start: int, reserved: Collection[int] = ()
) -> Iterator[tuple[int, ...]]:
    """Every block of ports without a reserved one once, beginning with number `start`.

    A port of the ephemeral range could be given to any outgoing connection at any moment: such
    blocks come last.
    """
    first, stop = (
        max(_LOWEST_PORT, min(port, _HIGHEST_PORT)) for port in (ephemeral[0], ephemeral[1] + 1)
    )
    outside = [*_blocks(_LOWEST_PORT, first), *_blocks(stop, _HIGHEST_PORT)]
    for blocks in (outside, _blocks(first, stop)):
        for index in range(len(blocks)):
            ports = blocks[(start + index) % len(blocks)]
            if not any(port in reserved for port in ports):
                yield tuple(ports)


def _blocks(first: int, stop: int) -> list[range]:
    last = stop - PORTS_A_GPU
    return [range(port, port + PORTS_A_GPU) for port in range(first, last + 1, PORTS_A_GPU)]


def parse_list(text: str) -> tuple[int, ...]:
    """The numbers of a kernel list of cores or ports such as `0-3,8`."""
    numbers: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return tuple(numbers)


def list_of(numbers: Iterable[int]) -> str:
    """The numbers as the kernel and taskset write them."""
    places = enumerate(sorted(numbers))
    runs = [[n for _, n in run] for _, run in groupby(places, key=lambda at: at[1] - at[0])]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
