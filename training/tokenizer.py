"""The demo pair's tokenizer: byte-level BPE with single digits, and the chat template."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from training.corpus.base import Message
from training.corpus.mixture import dialogues

VOCABULARY = 3072
BOS, END, SYSTEM, USER, ASSISTANT, PAD = SPECIAL = (
    "<|bos|>",
    "<|end|>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|pad|>",
)
TEMPLATE = (
    "<|bos|>{% for message in messages %}{% if message['role'] == 'system' %}<|system|>{% elif message['role'] =="
    " 'user' %}<|user|>{% else %}<|assistant|>{% endif %}{{ message['content'] }}<|end|>{% endfor %}{% if"
    " add_generation_prompt %}<|assistant|>{% endif %}"
)


def _texts(seed: int, count: int) -> Iterator[str]:
    """Texts of the training mixture's turns."""
    for dialogue in dialogues(seed, count):
        for message in dialogue.messages:
            yield message["content"]


def train(seed: int = 1, count: int = 20_000) -> Tokenizer:
    """Train a tokenizer on the mixture."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(seed, count), trainer)
    return tokenizer


def token_id(tokenizer: Tokenizer, name: str) -> int:
    """Id of a special token."""
    found = tokenizer.token_to_id(name)
    if found is None:
        raise ValueError(f"The tokenizer has no {name}.")
    return found


def load(path: Path) -> Tokenizer:
    """Load the tokenizer from `path`."""
    return Tokenizer.from_file(str(path))


def encode_text(tokenizer: Tokenizer, text: str) -> list[int]:
    """Tokens of plain text, in which names of special tokens are ordinary characters."""
    parts = [text]
    for special in SPECIAL:
        parts = [piece for part in parts for piece in _around(part, special)]
    return [token for part in parts for token in tokenizer.encode(part, add_special_tokens=False).ids]


def _around(text: str, special: str) -> list[str]:
    """Cut the text inside each name of a special token, so that the name is not recognised."""
    pieces = text.split(special)
    found = [pieces[0]]
    for piece in pieces[1:]:
        found[-1] += special[:2]
        found.append(special[2:] + piece)
    return found


def encode(tokenizer: Tokenizer, messages: list[Message], *, reply: bool = False) -> tuple[list[int], list[bool]]:
    """Tokens of a dialogue and the mask of reply tokens; with ``reply``, they end where the next reply starts."""
    role = {name: token_id(tokenizer, f"<|{name}|>") for name in ("system", "user", "assistant")}
    end = token_id(tokenizer, END)
    tokens, wanted = [token_id(tokenizer, BOS)], [False]
    for message in messages:
        content = [*encode_text(tokenizer, message["content"]), end]
        tokens += [role[message["role"]], *content]
        wanted += [False, *([message["role"] == "assistant"] * len(content))]
    if reply:
        tokens.append(role["assistant"])
        wanted.append(False)
    return tokens, wanted
