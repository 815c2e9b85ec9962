from tuner.flags.names import canonical, is_variable


def test_a_flag_has_one_name_however_it_is_written():
    assert canonical("--tp_size") == canonical("tp-size") == "tp-size"
    assert canonical("--compilation_config.cudagraph_mode") == "compilation-config.cudagraph_mode"


def test_a_variable_keeps_its_name():
    assert canonical("NCCL_P2P_DISABLE") == "NCCL_P2P_DISABLE"


def test_a_shell_assigns_names_of_letters_digits_and_underscores():
    assert is_variable("A_1")
    assert not is_variable("1A")
    assert not is_variable("A-B")
