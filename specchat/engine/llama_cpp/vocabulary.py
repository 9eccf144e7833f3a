"""Writes a checkpoint's tokenizer and chat template as GGUF metadata, in llama.cpp's terms."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specchat.engine.errors import ModelError
from specchat.engine.files import found, read_json
from specchat.engine.gguf.pre_tokenizers import PRE_TOKENIZERS
from specchat.engine.text.template import template_source
from specchat.engine.weights.checkpoint import Checkpoint

SENTENCEPIECE = "sentencepiece"
"""SentencePiece has no pre-tokenizer."""
SPACE_NORMALIZERS = [
    {"type": "Prepend", "prepend": "▁"},
    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
]
"""SentencePiece's normalizers in tokenizer.json."""
BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")


@dataclass(frozen=True)
class Vocabulary:
    """Contents of tokenizer.json and tokenizer_config.json in llama.cpp's terms.

    Attributes:
        pre_tokenizer: llama.cpp's name, or SENTENCEPIECE.
        texts: token texts by id; there may be fewer than embeddings.
        added: ids of tokens outside the merges; True for special ones.
        special: ids by the keys bos_token, eos_token, pad_token and unk_token.
        adds_bos: True if a text without a template begins with bos_token.
        template: the chat template, or None.
    """

    pre_tokenizer: str
    texts: dict[int, str]
    added: dict[int, bool]
    merges: list[str]
    special: dict[str, int]
    adds_bos: bool
    template: str | None

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> "Vocabulary":
        """Read the tokenizer of a checkpoint.

        Raises:
            ModelError: it is missing, damaged, or of a kind that is not supported.
        """
        folder, tokenizer = checkpoint.folder, checkpoint.tokenizer()
        raw = read_json(folder / "tokenizer.json")
        found_config = found(folder / "tokenizer_config.json")
        added = tokenizer.added
        merges = raw["model"].get("merges", [])
        special = {key: tokenizer.backend.token_to_id(text) for key, text in tokenizer.special.items()}
        numbered = {key: token for key, token in special.items() if token is not None and token < tokenizer.rows}
        return cls(
            pre_tokenizer=_pre_tokenizer(folder, raw),
            texts={token: text for text, token in tokenizer.vocabulary.items()},
            added={token: one.special for token, one in added.items()},
            merges=[merge if isinstance(merge, str) else " ".join(merge) for merge in merges],
            special=numbered,
            adds_bos=tokenizer.backend.encode("", add_special_tokens=True).ids == [numbered.get("bos_token")],
            template=template_source(folder, read_json(folder / "tokenizer_config.json") if found_config else {}).text,
        )


def describe(writer: Any, gguf: Any, vocabulary: Vocabulary, size: int) -> None:
    """Add a vocabulary to the file of a model with `size` embeddings."""
    v, kinds = vocabulary, gguf.TokenType

    def kind(token: int) -> int:
        if token not in v.texts:
            return int(kinds.UNUSED)
        if token == v.special.get("unk_token") and v.pre_tokenizer == SENTENCEPIECE:
            return int(kinds.UNKNOWN)
        if token not in v.added:
            byte = v.pre_tokenizer == SENTENCEPIECE and BYTE_TOKEN.fullmatch(v.texts[token])
            return int(kinds.BYTE if byte else kinds.NORMAL)
        return int(kinds.CONTROL if v.added[token] else kinds.USER_DEFINED)

    writer.add_tokenizer_model("llama" if v.pre_tokenizer == SENTENCEPIECE else "gpt2")
    writer.add_tokenizer_pre("default" if v.pre_tokenizer == SENTENCEPIECE else v.pre_tokenizer)
    writer.add_token_list([v.texts.get(token, f"[PAD{token}]") for token in range(size)])
    writer.add_token_types([kind(token) for token in range(size)])
    if v.pre_tokenizer == SENTENCEPIECE:
        writer.add_token_scores(_scores(v, size))
        writer.add_add_space_prefix(True)
    else:
        writer.add_token_merges(v.merges)
    for key, add in (
        ("bos_token", writer.add_bos_token_id),
        ("eos_token", writer.add_eos_token_id),
        *([("unk_token", writer.add_unk_token_id)] if v.pre_tokenizer == SENTENCEPIECE else []),
        ("pad_token", writer.add_pad_token_id),
    ):
        if key in v.special:
            add(v.special[key])
    writer.add_add_bos_token(v.adds_bos)
    if v.template is not None:
        writer.add_chat_template(v.template)


def _scores(v: Vocabulary, size: int) -> list[float]:
    """Scores of SentencePiece tokens: llama.cpp merges by highest score, so earlier merges score higher."""
    ranks: dict[str, int] = {}
    for rank, merge in enumerate(v.merges):
        ranks.setdefault(merge.replace(" ", ""), rank)
    return [float(-ranks.get(v.texts.get(token, ""), len(v.merges))) for token in range(size)]


def _pre_tokenizer(folder: Path, raw: dict[str, Any]) -> str:
    """llama.cpp's name of the pre-tokenizer, or SENTENCEPIECE.

    Raises:
        ModelError: it is none of PRE_TOKENIZERS.
    """
    model, before, normalizer = raw.get("model"), raw.get("pre_tokenizer") or {}, raw.get("normalizer") or {}
    steps = [step | {"trim_offsets": True} for step in before.get("pretokenizers", [before])]
    if isinstance(model, dict) and model.get("type") == "BPE" and model.get("byte_fallback"):
        if normalizer.get("normalizers") == SPACE_NORMALIZERS and not raw.get("pre_tokenizer"):
            return SENTENCEPIECE
    elif isinstance(model, dict) and model.get("type") == "BPE":
        alike = [
            name
            for name, known in PRE_TOKENIZERS.items()
            if len(steps) == len(known.steps)
            and all(one.items() <= step.items() for one, step in zip(known.steps, steps, strict=True))
        ]
        nfc, whole = normalizer.get("type") == "NFC", bool(model.get("ignore_merges"))
        if alike:
            return max(alike, key=lambda name: ((one := PRE_TOKENIZERS[name]).nfc == nfc, one.whole == whole))
    raise ModelError(
        f"{folder / 'tokenizer.json'} is of a kind that is not written to GGUF here: not Llama 2's, and none whose "
        "pre-tokenizer llama.cpp has a name for. Convert the checkpoint with llama.cpp's own convert_hf_to_gguf.py."
    )
