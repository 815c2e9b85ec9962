"""Makes two tiny language models with random weights, for the study beside this file.

usage: make_model.py FOLDER     (run by the engine's own interpreter, which has torch)

FOLDER/dense is a Llama of 4 million parameters, FOLDER/moe a Qwen3 mixture of 8 experts. They
speak nonsense at a speed that depends on the engine's flags, which is all that a study needs.
Nothing is downloaded, and the same weights come out every time.
"""

import os
import pydoc_data.topics
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationConfig,
    PreTrainedTokenizerFast,
)

END, BEGIN, PADDING = "<end>", "<begin>", "<pad>"
SPECIAL = {"eos_token_id": 0, "bos_token_id": 1, "pad_token_id": 2}
CONTEXT_TOKENS = 2048
SHAPE = {
    "vocab_size": 2048,
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": CONTEXT_TOKENS,
    "tie_word_embeddings": False,
    **SPECIAL,
}
EXPERTS = {
    "moe_intermediate_size": 256,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
}
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}> {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant> {% endif %}"
)


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE, trained on the language reference that comes with Python."""
    bpe = Tokenizer(BPE())
    bpe.pre_tokenizer = ByteLevel(add_prefix_space=False)
    bpe.decoder = ByteDecoder()
    trainer = BpeTrainer(
        vocab_size=SHAPE["vocab_size"],
        special_tokens=[END, BEGIN, PADDING],
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    topics = pydoc_data.topics.topics
    bpe.train_from_iterator((topics[name] for name in sorted(topics)), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=END,
        bos_token=BEGIN,
        pad_token=PADDING,
        model_max_length=CONTEXT_TOKENS,
        chat_template=CHAT_TEMPLATE,
    )


def make_model(folder: Path, kind: str, **shape: object) -> None:
    """Random weights of one seed, saved with their tokenizer."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **SHAPE, **shape)
    model = AutoModelForCausalLM.from_config(config).to(torch.bfloat16).eval()
    model.generation_config = GenerationConfig(**SPECIAL)
    model.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    millions = sum(weights.numel() for weights in model.parameters()) / 1e6
    print(f"{folder}: {millions:.1f} million parameters")


def main() -> None:
    """Both models; one that is there already stays."""
    if len(sys.argv) != 2:
        sys.exit("usage: make_model.py FOLDER")
    target = Path(sys.argv[1])
    kinds: dict[str, tuple[str, dict[str, object]]] = {
        "dense": ("llama", {}),
        "moe": ("qwen3_moe", dict(EXPERTS)),
    }
    for name, (kind, shape) in kinds.items():
        if not (target / name / "tokenizer.json").exists():
            make_model(target / name, kind, **shape)


if __name__ == "__main__":
    main()
