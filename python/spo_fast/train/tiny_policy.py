"""A policy that learns on a laptop and has the shape of the real thing: a Qwen3 model and a word-level tokenizer.

Both are written as an ordinary Hugging Face folder; nothing else in the project knows how they were made.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from spo_fast.train.config import PolicyConfig

PAD, USER, ASSISTANT, END, UNKNOWN = "<|pad|>", "<|user|>", "<|assistant|>", "<|end|>", "<|unknown|>"
SPECIAL = (PAD, USER, ASSISTANT, END, UNKNOWN)

_HEAD_DIM = 32

# A system message is left out: a policy trained from nothing has no use for instructions.
CHAT_TEMPLATE = (
    "{% for m in messages %}"
    "{% if m['role'] == 'user' %}" + USER + "{{ m['content'] }}"
    "{% elif m['role'] == 'assistant' %}" + ASSISTANT + "{{ m['content'] }}" + END + "{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}" + ASSISTANT + "{% endif %}"
)


def make_tokenizer(words: Iterable[str], *, names: Iterable[str] = (), filler: Iterable[str] = ()) -> Any:
    """A lower-casing word-level tokenizer that drops punctuation; decoding joins words with single spaces.

    Args:
        words: the vocabulary, besides the special tokens. Other words become ``<|unknown|>``.
        names: phrases such as "cabinet 2" that are one token each; a name that is not among them is read word by
            word. One token a thing lets two layers learn to copy it; a name of two needs several times the steps.
        filler: words to drop, as punctuation is.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    filler = sorted(filler)
    vocabulary = [*SPECIAL, *sorted(set(words) - set(SPECIAL) - set(filler))]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token=UNKNOWN))
    dropped = [Regex(r"[^\w\s]+")]
    if filler:
        dropped.append(Regex(rf"\b(?:{'|'.join(filler)})\b"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Lowercase(), *(normalizers.Replace(pattern, " ") for pattern in dropped)]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_tokens([AddedToken(name, single_word=True, normalized=True) for name in sorted(set(names))])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        additional_special_tokens=[USER, ASSISTANT],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def make_model(tokenizer: Any, config: PolicyConfig, seed: int, max_length: int = 4096) -> Any:
    """A Qwen3 causal LM with random weights, float32, of the size that ``config`` says."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    heads = config.hidden_size // _HEAD_DIM
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(
            Qwen3Config(
                vocab_size=len(tokenizer),
                hidden_size=config.hidden_size,
                intermediate_size=3 * config.hidden_size,
                num_hidden_layers=config.layers,
                num_attention_heads=heads,
                num_key_value_heads=heads,
                head_dim=_HEAD_DIM,
                max_position_embeddings=max_length,
                tie_word_embeddings=True,
                # the usual 0.02 suits wide models; at this width it would cost hundreds of steps
                initializer_range=config.hidden_size**-0.5,
                pad_token_id=tokenizer.pad_token_id,
                eos_token_id=tokenizer.eos_token_id,
                bos_token_id=None,
                dtype="float32",
            )
        )


def save_policy(model: Any, tokenizer: Any, folder: Path) -> None:
    """Writes a folder that AutoModelForCausalLM and AutoTokenizer load."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
