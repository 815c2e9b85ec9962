import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.hosts import slots
from tuner.hosts.executor import Slot
from tuner.hosts.slots import Gpu, SlotTable


def table(*nodes: int | None) -> SlotTable:
    return SlotTable(tuple(Gpu(id=str(index), numa=node) for index, node in enumerate(nodes)))


def ids(gpus: tuple[Gpu, ...] | None) -> str:
    return "".join(gpu.id for gpu in gpus or ())


def test_gpus_of_one_job_share_a_numa_node_where_one_has_room() -> None:
    host = table(0, 0, 0, 0, 1, 1, 1, 1)
    assert ids(host.take("a", 1)) == "0"
    assert ids(host.take("b", 4)) == "4567"
    assert ids(host.take("c", 2)) == "12"


def test_the_fullest_node_that_fits_is_used_so_that_whole_nodes_stay_whole() -> None:
    host = table(0, 0, 0, 0, 1, 1, 1, 1)
    host.take("a", 2)
    assert ids(host.take("b", 2)) == "23"
    assert ids(host.take("c", 4)) == "4567"


def test_a_job_larger_than_a_node_takes_whole_nodes_in_order() -> None:
    assert ids(table(0, 0, 1, 1).take("a", 4)) == "0123"


def test_nothing_is_handed_out_twice_and_what_is_given_back_is_free() -> None:
    host = table(None, None)
    assert host.take("a", 2)
    assert host.take("b", 1) is None
    host.give_back("a")
    assert ids(host.take("b", 1)) == "0"


def test_giving_back_what_was_never_taken_is_harmless() -> None:
    table(None).give_back("a")


def test_gpus_in_quarantine_are_handed_out_no_more() -> None:
    host = table(0, 0)
    host.take("a", 1)
    host.quarantine({"0": "still holds 40 GB"})
    host.give_back("a")
    assert ids(host.take("b", 1)) == "1"
    assert host.take("c", 1) is None


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 4)), max_size=30))
def test_any_sequence_of_takes_keeps_jobs_apart(steps: list[tuple[bool, int]]) -> None:
    host = table(0, 0, 0, 1, 1, 1)
    for number, (taking, count) in enumerate(steps):
        free = 6 - sum(map(len, host.taken.values()))
        if taking:
            chosen = host.take(str(number), count)
            assert (chosen is not None) == (count <= free)
        elif host.taken:
            host.give_back(next(iter(host.taken)))
        held = [gpu.id for gpus in host.taken.values() for gpu in gpus]
        assert len(held) == len(set(held))


@pytest.mark.parametrize(
    ("cores", "server", "client"),
    [
        ([0], (0,), (0,)),
        ([0, 1], (0,), (1,)),
        ([1, 0, 3, 2], (0, 1, 2), (3,)),
        (range(16), tuple(range(14)), (14, 15)),
    ],
)
def test_the_last_eighth_of_the_cores_is_the_clients(
    cores: list[int], server: tuple[int, ...], client: tuple[int, ...]
) -> None:
    assert slots.split_cores(cores) == (server, client)


def test_gpus_of_a_node_divide_its_server_cores() -> None:
    shares = slots.share_cores([0, 0, 1, 1], {0: range(8), 1: range(8, 16)}, range(14))
    assert shares == ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10), (11, 12, 13))


def test_gpus_of_an_unknown_node_divide_all_server_cores() -> None:
    assert slots.share_cores([None, None], {}, (0, 1, 2)) == ((0,), (1, 2))


def test_a_node_whose_cores_are_all_the_clients_borrows_from_the_others() -> None:
    assert slots.share_cores([0, 1], {0: (0, 1), 1: (2,)}, (0, 1)) == ((0, 1), (0, 1))


def test_with_fewer_cores_than_gpus_neighbours_share_a_core() -> None:
    shares = slots.share_cores([None] * 4, {}, (0, 1))
    assert shares == ((0,), (0,), (1,), (1,))


def test_blocks_do_not_overlap_and_those_outside_the_ephemeral_range_come_first() -> None:
    blocks = list(slots.port_blocks((32768, 60999), start=5))
    ports = [port for block in blocks for port in block]
    assert len(ports) == len(set(ports))
    assert all(1024 < port < 65536 for port in ports)
    outside = [all(not 32768 <= port <= 60999 for port in block) for block in blocks]
    assert outside == sorted(outside, reverse=True)
    assert outside.count(True) > 1000
    assert {len(block) for block in blocks} == {slots.PORTS_A_GPU}


def test_the_next_number_begins_with_the_next_block() -> None:
    first, second, *_ = slots.port_blocks((32768, 60999), start=0)
    assert next(slots.port_blocks((32768, 60999), start=1)) == second
    assert next(slots.port_blocks((32768, 60999), start=0)) == first


@pytest.mark.parametrize("ephemeral", [(1024, 65535), (1, 65535), (20000, 65535)])
def test_a_host_without_room_outside_the_ephemeral_range_has_blocks_inside(
    ephemeral: tuple[int, int],
) -> None:
    blocks = list(slots.port_blocks(ephemeral, start=3))
    assert len(blocks) > 2000
    assert len(set(blocks)) == len(blocks)
    assert min(blocks)[0] == 20000
    assert max(blocks)[-1] < 65535


@pytest.mark.parametrize("ephemeral", [(32768, 60999), (1024, 65535), (1024, 15000)])
def test_reserved_ports_are_in_no_block(ephemeral: tuple[int, int]) -> None:
    free = set(slots.port_blocks(ephemeral, start=7))
    left = set(slots.port_blocks(ephemeral, start=7, reserved=(20003, 20040)))
    assert {block[0] for block in free - left} == {20000, 20032}
    assert left < free


def test_lists_of_the_kernel_are_read() -> None:
    assert slots.parse_list("0-2,8,10-11\n") == (0, 1, 2, 8, 10, 11)
    assert slots.parse_list("\n") == ()


@pytest.mark.parametrize(
    ("numbers", "text"), [([3], "3"), ([0, 1], "0-1"), ([5, 0, 2, 1], "0-2,5"), ([], "")]
)
def test_numbers_are_written_as_the_kernel_lists_them(numbers: list[int], text: str) -> None:
    assert slots.list_of(numbers) == text
    assert slots.parse_list(text) == tuple(sorted(numbers))


def test_a_slot_splits_by_the_order_of_its_gpus_with_cores_and_ports_of_their_own() -> None:
    whole = Slot(
        host="here",
        gpus=("a", "b", "c", "d"),
        real_gpus=True,
        server_cores=(0, 1, 2, 3, 8, 9, 10, 11),
        client_cores=(15,),
        ports=tuple(range(100, 108)),
        gpu_cores=((0, 8), (1, 9), (2, 10), (3, 11)),
    )
    assert whole.split(1) == (whole,)
    first, second = whole.split(2)
    assert (first.gpus, second.gpus) == (("a", "b"), ("c", "d"))
    assert (first.server_cores, second.server_cores) == ((0, 1, 8, 9), (2, 3, 10, 11))
    assert (first.ports, second.ports) == ((100, 101, 102, 103), (104, 105, 106, 107))
    assert first.client_cores == second.client_cores == (15,)
    assert [slot.gpus for slot in whole.split(4)] == [("a",), ("b",), ("c",), ("d",)]


def test_servers_share_cores_that_are_nobodys() -> None:
    whole = Slot(
        host="here",
        gpus=("0", "1"),
        real_gpus=False,
        server_cores=(0,),
        client_cores=(1,),
        ports=(5, 6),
    )
    assert [slot.server_cores for slot in whole.split(2)] == [(0,), (0,)]
