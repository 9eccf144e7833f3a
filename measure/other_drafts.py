"""Draft models with other tokenizers than the embedded target's, for `measure.tokenizers` and tests."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from shutil import copytree

from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from specchat.config.paths import demo_model
from training.corpus.mixture import dialogues
from training.data import pack
from training.export import export
from training.heads import DRAFT_GUIDE, guided_loss
from training.model import DRAFT, Shape
from training.tokenizer import PAD, SPECIAL, token_id
from training.train import Lessons, Recipe, train

SHIFT = 7
"""Shift of the ordinary token ids of a permuted draft."""
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
DIALOGUES = 20_000
ROW = 512


def permuted(folder: Path, base: Path) -> Path:
    """Copy the model of `base` with permuted ids of ordinary tokens, in embeddings and tokenizer."""
    words, special = _words(base)
    ordinary = sorted(set(words.values()) - special)
    moved = dict(zip(ordinary, ordinary[SHIFT:] + ordinary[:SHIFT], strict=True))
    rows = list(range(len(load_file(base / "model.safetensors")[EMBEDDING])))
    for token, place in moved.items():
        rows[place] = token
    return _changed(folder, base, {word: moved.get(token, token) for word, token in words.items()}, rows)


def cut(folder: Path, base: Path, entries: int) -> Path:
    """Copy the model of `base` with only the first `entries` of its tokens, which spell longer words in several."""
    words, _ = _words(base)
    return _changed(folder, base, {word: token for word, token in words.items() if token < entries}, range(entries))


def _words(base: Path) -> tuple[dict[str, int], set[int]]:
    """Ids by word, and those of special tokens."""
    tokenizer = json.loads((base / "tokenizer.json").read_text("utf-8"))
    return tokenizer["model"]["vocab"], {token["id"] for token in tokenizer["added_tokens"]}


def _changed(folder: Path, base: Path, words: dict[str, int], rows: Sequence[int]) -> Path:
    """Copy `base` with these words and these rows of its embeddings."""
    copytree(base, folder, dirs_exist_ok=True)
    tokenizer = json.loads((base / "tokenizer.json").read_text("utf-8"))
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in tokenizer["model"]["merges"]]
    tokenizer["model"] |= {"vocab": words, "merges": [pair for pair in pairs if "".join(pair) in words]}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")
    config = json.loads((base / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": len(rows)}), "utf-8")
    weights = load_file(base / "model.safetensors")
    for name in (EMBEDDING, HEAD):
        if name in weights:
            weights[name] = weights[name][list(rows)].contiguous()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def trained(folder: Path, vocabulary: int | None, steps: int) -> Path:
    """Train a draft on the corpus, with a byte-level tokenizer of `vocabulary` entries and GPT-2's pre-tokenizer.

    None keeps the target's tokenizer, as the baseline.
    """
    own = demo_model("target") / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(own)) if vocabulary is None else _tokenizer(vocabulary)
    short = pack(tokenizer, 1, DIALOGUES, ROW)
    held_out = pack(tokenizer, 3, 100, ROW, evaluation=True)
    lessons = Lessons(short, short, held_out, guided_loss(DRAFT_GUIDE), guided_loss(DRAFT_GUIDE))
    shape = Shape(**{**DRAFT.as_dict(), "vocab_size": tokenizer.get_vocab_size()})
    model = train(shape, Recipe(steps), lessons, folder / "training", "cpu", token_id(tokenizer, PAD))
    export(model.eval(), tokenizer, folder)
    return folder


def _tokenizer(vocabulary: int) -> Tokenizer:
    def texts() -> Iterator[str]:
        for dialogue in dialogues(1, DIALOGUES):
            yield from (message["content"] for message in dialogue.messages)

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts(), trainer)
    return tokenizer
