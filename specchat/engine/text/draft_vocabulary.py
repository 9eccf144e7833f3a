"""A draft vocabulary: the tokens that a draft model may propose, in a file (FR-Spec, Zhao et al. 2025).

The head is a large part of a small model with a large vocabulary, and most of its rows are of rare tokens. A draft
that keeps only the rows of frequent tokens is faster, at a slightly lower acceptance.
"""

import json
from collections.abc import Collection, Sequence
from hashlib import sha256
from pathlib import Path

from specchat.engine.errors import ModelError
from specchat.engine.files import LONGEST_TEXT
from specchat.engine.foreign import Foreign, checked, parsed
from specchat.engine.text.tokenizer import Tokenizer

FORMAT = 1


class _Version(Foreign):
    format: int


class _File(_Version):
    vocabulary: int
    tokenizer: str
    tokens: list[int]


class Unusable(Exception):
    """A file cannot be the draft vocabulary of a pair; the reason follows the file's name in messages."""


def write(path: Path, tokenizer: Tokenizer, tokens: Sequence[int]) -> None:
    """Write `tokens` of `tokenizer`, the most frequent first.

    Raises:
        OSError: the file cannot be written.
    """
    data = {
        "format": FORMAT,
        "vocabulary": tokenizer.size,
        "tokenizer": fingerprint(tokenizer),
        "tokens": list(tokens),
    }
    path.write_text(json.dumps(data) + "\n", encoding="utf-8")


def read(path: Path, tokenizer: Tokenizer, eos: Collection[int]) -> tuple[int, ...]:
    """The tokens of a file, ascending; `eos` are those that end a reply.

    Raises:
        Unusable: the file is missing or damaged, or belongs to another tokenizer or version.
    """
    text = _text(path)
    try:
        raw = parsed(text, str(path))
        if (version := checked(_Version, raw, str(path)).format) > FORMAT:
            raise Unusable(f"is of format {version}, which this version of specchat does not know")
        data = checked(_File, raw, str(path))
    except ModelError:
        raise Unusable("is damaged, or no draft vocabulary") from None
    tokens = data.tokens
    if data.vocabulary != tokenizer.size or data.tokenizer != fingerprint(tokenizer):
        raise Unusable("was counted with another tokenizer")
    ascending = tuple(sorted(set(tokens)))
    if not tokens or len(ascending) < len(tokens) or ascending[0] < 0 or ascending[-1] >= tokenizer.size:
        raise Unusable("is damaged: it names no tokens, one of them twice, or one that does not exist")
    if eos and not set(eos) & set(ascending):
        raise Unusable("is damaged: it has no token that ends a reply")
    return ascending


def fingerprint(tokenizer: Tokenizer) -> str:
    """A digest of the vocabulary, equal for tokenizers with equal ids."""
    meanings = sorted(tokenizer.backend.get_vocab().items(), key=lambda item: item[1])
    return sha256(json.dumps(meanings).encode()).hexdigest()


def _text(path: Path) -> bytes:
    """The bytes of a regular file: a pipe could block the load for ever."""
    try:
        if not path.exists():
            raise Unusable("is missing")
        if not path.is_file():
            raise Unusable("is not a file")
        with open(path, "rb") as file:
            data = file.read(LONGEST_TEXT + 1)
    except OSError as error:
        raise Unusable(f"cannot be read ({error.strerror})") from None
    if len(data) > LONGEST_TEXT:
        raise Unusable("is too large to be a draft vocabulary")
    return data
