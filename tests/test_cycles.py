from tuner.definitions.cycles import find_cycle


def test_a_cycle_is_found_wherever_it_is_reached_from():
    assert find_cycle({"a": ["b"], "b": ["c"], "c": ["b"], "d": []}) == ["b", "c", "b"]


def test_two_ways_to_one_node_are_no_cycle_and_unknown_nodes_lead_nowhere():
    assert find_cycle({"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": ["unknown"]}) is None
