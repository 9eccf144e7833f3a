"""What the tokens of a tokenizer stand for, in bytes; and text in the middle of a text to tokens."""

import re
from collections.abc import Callable, Mapping

from tokenizers.pre_tokenizers import ByteLevel

from specchat.engine.model.tokenizer import Tokenizer

SAMPLE = 64
"""Tokens by which a way to write tokens is recognised."""
BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
NO_TEXT = re.compile("[\udc80-\udcff]+")
"""Bytes that are no UTF-8, as "surrogateescape" writes them."""


def _alphabet() -> dict[str, int]:
    """The bytes that GPT-2's characters stand for: those of visible ones are their own, the others follow in order."""
    known = sorted(ByteLevel.alphabet())
    own = {char: ord(char) for char in known if ord(char) < 256}
    left = iter(sorted(set(range(256)) - set(own.values())))
    return own | {char: next(left) for char in known if char not in own}


ALPHABET = _alphabet()


def by_bytes(word: str) -> bytes | None:
    """A token as byte-level tokenizers write it."""
    numbers = [ALPHABET.get(char) for char in word]
    return bytes(number for number in numbers if number is not None) if None not in numbers else None


def by_pieces(word: str) -> bytes | None:
    """A token as SentencePiece writes it."""
    byte = BYTE.fullmatch(word)
    return bytes([int(byte[1], 16)]) if byte else word.replace("▁", " ").encode("utf-8", "replace")


def spellings(tokenizer: Tokenizer) -> dict[int, bytes]:
    """What each token adds in the middle of a text; special tokens, and those that add nothing, are left out."""
    added = tokenizer.added
    words = {token: word for word, token in tokenizer.vocabulary.items() if token not in added}
    sample = [(token, words[token]) for token in sorted(words)[:: max(1, len(words) // SAMPLE)]]
    spell = next((way for way in (by_bytes, by_pieces) if _agrees(way, tokenizer, sample)), None)
    found: dict[int, bytes] = {}
    for token, word in words.items():
        text = spell(word) if spell is not None else _decoded(tokenizer, token, word)
        if text:
            found[token] = text
    return found | {token: one.content.encode() for token, one in added.items() if not one.special}


def _agrees(spell: Callable[[str], bytes | None], tokenizer: Tokenizer, sample: list[tuple[int, str]]) -> bool:
    """Whether tokens that are whole characters decode to what they are spelt."""
    for token, word in sample:
        spelt = spell(word)
        if spelt is None:
            return False
        text = spelt.decode("utf-8", "replace")
        if "\ufffd" not in text and text != tokenizer.text_of(token):
            return False
    return True


def _decoded(tokenizer: Tokenizer, token: int, word: str) -> bytes:
    text = tokenizer.text_of(token)
    byte = BYTE.fullmatch(word)
    if "\ufffd" in text:
        return bytes([int(byte[1], 16)]) if byte else b""
    return text.encode()


class Splitter:
    """Splits what stands in the middle of a text."""

    def __init__(self, tokenizer: Tokenizer, spelt: Mapping[int, bytes]) -> None:
        """`spelt` are its `spellings`."""
        self._tokenizer = tokenizer
        self._tokens = {text: token for token, text in sorted(spelt.items(), reverse=True)}
        self._longest = max(map(len, self._tokens), default=0)
        written = b"".join(spelt.get(token, b"") for token in tokenizer.encode("x"))
        # Some put a space before a text: not before what comes after a line break.
        self._lead = "" if written == b"x" else "\n"
        self._before = tokenizer.encode(self._lead) if self._lead else []

    def split(self, text: bytes) -> list[int]:
        """The tokens of a text; bytes that are no characters, as those of an unfinished one, by the longest tokens."""
        whole = text.decode("utf-8", "surrogateescape")
        tokens: list[int] = []
        at = 0
        for broken in NO_TEXT.finditer(whole):
            tokens += self._encoded(whole[at : broken.start()])
            tokens += self._longest_first(broken[0].encode("utf-8", "surrogateescape"))
            at = broken.end()
        return tokens + self._encoded(whole[at:])

    def _encoded(self, text: str) -> list[int]:
        if not text:
            return []
        tokens = self._tokenizer.encode(self._lead + text)
        before = len(self._before)
        if tokens[:before] == self._before:
            return tokens[before:]
        return self._tokenizer.encode(text)

    def _longest_first(self, text: bytes) -> list[int]:
        """Tokens of bytes; what no token stands for is left out."""
        tokens: list[int] = []
        at = 0
        while at < len(text):
            ends = range(min(len(text), at + self._longest), at, -1)
            end = next((end for end in ends if text[at:end] in self._tokens), None)
            if end is not None:
                tokens.append(self._tokens[text[at:end]])
            at = end or at + 1
        return tokens
