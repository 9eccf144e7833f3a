"""A checkpoint's tokenizer and chat template as the metadata of a GGUF file, in llama.cpp's terms."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specchat.engine.errors import ModelError
from specchat.engine.model.checkpoint import Checkpoint
from specchat.engine.model.files import found, read_json
from specchat.engine.model.template import template_source

DIGITS = {"type": "Digits", "individual_digits": True}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
BARE_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Llama 3 splits a text before its merges; Qwen 2 takes digits one by one."""
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
SPLITS: tuple[tuple[str, list[dict[str, Any]]], ...] = (
    ("gpt-2", [BYTES]),
    ("smollm", [DIGITS, BYTES]),
    (
        "llama-bpe",
        [{"type": "Split", "pattern": {"Regex": LLAMA3}, "behavior": "Isolated", "invert": False}, BARE_BYTES],
    ),
    ("qwen2", [{"type": "Split", "pattern": {"Regex": QWEN2}, "behavior": "Isolated", "invert": False}, BARE_BYTES]),
)
"""llama.cpp's names of ways to split a text, by what tokenizer.json says of them."""
PIECES = "sentencepiece"
"""How SentencePiece splits: not at all, before its merges."""
SPACES = [
    {"type": "Prepend", "prepend": "▁"},
    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
]
"""What tokenizer.json says of spaces there."""
BYTE = re.compile(r"<0x[0-9A-F]{2}>")


@dataclass(frozen=True)
class Vocabulary:
    """What tokenizer.json and tokenizer_config.json say, in llama.cpp's terms.

    Attributes:
        split: llama.cpp's name of how a text is split before the merges, or PIECES.
        texts: of the tokens by their ids; there may be fewer than the model has embeddings.
        added: ids of the tokens beside those of the merges, and whether each is special.
        special: ids by the keys bos_token, eos_token, pad_token and unk_token.
        begins: whether a text without a template begins with bos_token.
        template: the chat template, None where there is none.
    """

    split: str
    texts: dict[int, str]
    added: dict[int, bool]
    merges: list[str]
    special: dict[str, int]
    begins: bool
    template: str | None

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> "Vocabulary":
        """Read the tokenizer of a checkpoint.

        Raises:
            ModelError: it is of a kind that is not written to GGUF here, missing or damaged.
        """
        folder, tokenizer = checkpoint.folder, checkpoint.tokenizer()
        raw = read_json(folder / "tokenizer.json")
        found_config = found(folder / "tokenizer_config.json")
        added = tokenizer.added
        merges = raw["model"].get("merges", [])
        special = {key: tokenizer.backend.token_to_id(text) for key, text in tokenizer.special.items()}
        numbered = {key: token for key, token in special.items() if token is not None and token < tokenizer.rows}
        return cls(
            split=_split(folder, raw),
            texts={token: text for text, token in tokenizer.vocabulary.items()},
            added={token: one.special for token, one in added.items()},
            merges=[merge if isinstance(merge, str) else " ".join(merge) for merge in merges],
            special=numbered,
            begins=tokenizer.backend.encode("", add_special_tokens=True).ids == [numbered.get("bos_token")],
            template=template_source(folder, read_json(folder / "tokenizer_config.json") if found_config else {}).text,
        )


def describe(writer: Any, gguf: Any, vocabulary: Vocabulary, size: int) -> None:
    """Add a vocabulary to a file whose model has `size` embeddings."""
    v, kinds = vocabulary, gguf.TokenType

    def kind(token: int) -> int:
        if token not in v.texts:
            return int(kinds.UNUSED)
        if token == v.special.get("unk_token") and v.split == PIECES:
            return int(kinds.UNKNOWN)
        if token not in v.added:
            byte = v.split == PIECES and BYTE.fullmatch(v.texts[token])
            return int(kinds.BYTE if byte else kinds.NORMAL)
        return int(kinds.CONTROL if v.added[token] else kinds.USER_DEFINED)

    writer.add_tokenizer_model("llama" if v.split == PIECES else "gpt2")
    writer.add_tokenizer_pre("default" if v.split == PIECES else v.split)
    writer.add_token_list([v.texts.get(token, f"[PAD{token}]") for token in range(size)])
    writer.add_token_types([kind(token) for token in range(size)])
    if v.split == PIECES:
        writer.add_token_scores(_scores(v, size))
        writer.add_add_space_prefix(True)
    else:
        writer.add_token_merges(v.merges)
    for key, add in (
        ("bos_token", writer.add_bos_token_id),
        ("eos_token", writer.add_eos_token_id),
        *([("unk_token", writer.add_unk_token_id)] if v.split == PIECES else []),
        ("pad_token", writer.add_pad_token_id),
    ):
        if key in v.special:
            add(v.special[key])
    writer.add_add_bos_token(v.begins)
    if v.template is not None:
        writer.add_chat_template(v.template)


def _scores(v: Vocabulary, size: int) -> list[float]:
    """Of pieces: llama.cpp makes the one of two with the highest score first, as the merges do that come first."""
    ranks: dict[str, int] = {}
    for rank, merge in enumerate(v.merges):
        ranks.setdefault(merge.replace(" ", ""), rank)
    return [float(-ranks.get(v.texts.get(token, ""), len(v.merges))) for token in range(size)]


def _split(folder: Path, raw: dict[str, Any]) -> str:
    """llama.cpp's name of how the tokenizer splits a text.

    Raises:
        ModelError: it is none of SPLITS.
    """
    model, before = raw.get("model"), raw.get("pre_tokenizer") or {}
    steps = before.get("pretokenizers", [before])
    if isinstance(model, dict) and model.get("type") == "BPE" and model.get("byte_fallback"):
        if (raw.get("normalizer") or {}).get("normalizers") == SPACES and not raw.get("pre_tokenizer"):
            return PIECES
    elif isinstance(model, dict) and model.get("type") == "BPE":
        for name, wanted in SPLITS:
            if len(steps) == len(wanted) and all(
                one.items() <= step.items() for one, step in zip(wanted, steps, strict=True)
            ):
                return name
    raise ModelError(
        f"{folder / 'tokenizer.json'} is of a kind that is not written to GGUF here; those of GPT-2, SmolLM, Llama 2 "
        "and 3 and Qwen 2 are. Convert the checkpoint with llama.cpp's own convert_hf_to_gguf.py."
    )
