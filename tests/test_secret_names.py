import pytest

from tuner.secret_names import hides, is_secret


@pytest.mark.parametrize("name", ["HF_TOKEN", "hf_token", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD"])
def test_variables_with_secrets_are_known_by_name(name):
    assert is_secret(name)


@pytest.mark.parametrize("name", ["NCCL_DEBUG", "SGLANG_MSCCLPP_MAX_BYTES", "CUDA_HOME"])
def test_other_variables_are_shown(name):
    assert not is_secret(name)


@pytest.mark.parametrize(
    ("place", "hidden"),
    [
        (("fixed", "env", "HF_TOKEN"), True),
        (("fixed", "env", "MAX_TOKENS"), True),
        (("fixed", "env", "HF_TOKEN", 0), True),
        (("fixed", "flags", "api-key"), True),
        (("fixed", "flags", "max-num-batched-tokens"), False),
        (("parameters", "keyframes", "low"), False),
        ((), False),
    ],
)
def test_a_place_is_hidden_by_any_name_on_the_way(place, hidden):
    assert hides(place) == hidden
