import pytest

from tuner.flags.sglang import FLAGS, parse


def test_what_is_not_said_is_at_the_engines_default():
    values = parse(["--model-path", "m"])
    assert values["tp-size"] == 1
    assert values["moe-a2a-backend"] == "none"
    assert values["schedule-conservativeness"] == 1.0
    assert values["chunked-prefill-size"] is None
    assert values["enable-mscclpp"] is False


@pytest.mark.parametrize(
    "argv",
    [["--tp-size", "8"], ["--tensor-parallel-size", "8"], ["--tp", "8"], ["--tp-size=8"]],
)
def test_every_spelling_sets_the_one_flag(argv):
    assert parse(["--model-path", "m", *argv])["tp-size"] == 8


def test_several_values_become_one_text():
    values = parse(["--model-path", "m", "--cuda-graph-bs", "1", "2", "4"])
    assert values["cuda-graph-bs"] == "1 2 4"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--enable-msclpp"], "error: unrecognized arguments: --enable-msclpp"),
        (["--moe-a2a-backend", "flash"], "argument --moe-a2a-backend: invalid choice: 'flash'"),
        (["--chunked-prefill-size", "8k"], "invalid int value: '8k'"),
        (["--tp-size"], "expected one argument"),
    ],
)
def test_what_it_does_not_understand_ends_with_two_and_a_word(argv, said, capsys):
    with pytest.raises(SystemExit) as caught:
        parse(["--model-path", "m", *argv])
    assert caught.value.code == 2
    assert f"{said}" in capsys.readouterr().err


def test_the_model_is_required(capsys):
    with pytest.raises(SystemExit):
        parse([])
    assert "the following arguments are required: --model-path" in capsys.readouterr().err


def test_the_table_is_the_whole_command_line_of_its_version():
    assert len(FLAGS) > 300
    known = {
        *("enable-piecewise-cuda-graph", "enable-single-batch-overlap", "disable-cuda-graph"),
        *("num-continuous-decode-steps", "mem-fraction-static", "enable-dp-attention"),
        *("speculative-algorithm", "kv-cache-dtype", "max-running-requests", "random-seed"),
    }
    assert known <= FLAGS.keys()


def test_defaults_are_among_the_choices():
    for flag in FLAGS.values():
        assert not flag.choices or flag.default in (None, *flag.choices)
