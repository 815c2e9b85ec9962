import pytest

from tuner.flags.secrets import hides, is_secret_flag, is_secret_variable


@pytest.mark.parametrize(
    "name",
    [
        *("HF_TOKEN", "hf_token", "HF_TOKEN_READ", "TOKEN_HF", "NGC_TOKENS", "APITOKEN"),
        *("OPENAI_API_KEY", "WANDB_API_KEYS", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
        *("DB_PASSWORD", "GOOGLE_CREDENTIALS", "APIKEY"),
    ],
)
def test_variables_with_secrets_are_known_by_name(name):
    assert is_secret_variable(name)
    assert is_secret_variable(name, "x")


@pytest.mark.parametrize(
    "name", ["NCCL_DEBUG", "SGLANG_MSCCLPP_MAX_BYTES", "CUDA_HOME", "MONKEY",
             "TOKENIZERS_PARALLELISM"]
)  # fmt: skip
def test_other_variables_are_shown(name):
    assert not is_secret_variable(name, "x")


def test_a_number_of_tokens_is_no_secret_but_a_number_may_be_a_password():
    assert not is_secret_variable("SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION", "4096")
    assert is_secret_variable("SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION")
    assert is_secret_variable("HF_TOKEN", "1234567890123")
    assert is_secret_variable("DB_PASSWORD", "4096")


@pytest.mark.parametrize(
    "name", ["--api-key", "ssl-password", "hf-token", "x.password", "admin_api_key"]
)
def test_flags_with_secrets_are_known_by_name(name):
    assert is_secret_flag(name, "1")


@pytest.mark.parametrize(
    "name",
    ["max-num-batched-tokens", "tokenizer", "long-prefill-token-threshold", "keyframes"],
)
def test_flags_that_only_look_like_secrets_are_shown(name):
    assert not is_secret_flag(name, "x")


def test_a_password_in_an_address_is_a_secret_under_any_name():
    assert is_secret_variable("PROXY", "http://me:pw@host:1")
    assert is_secret_flag("proxy", "http://me:pw@host:1")
    assert not is_secret_variable("PROXY", "http://host:1/a@b")


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
