"""Bytes of a tokenizer's tokens, and encoding of fragments from the middle of a text."""

import re
from collections.abc import Callable, Mapping

from tokenizers.pre_tokenizers import ByteLevel

from specchat.engine.text.tokenizer import Tokenizer

SAMPLE_TOKENS = 64
"""Tokens on which a notation is recognised."""
BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
INVALID_UTF8 = re.compile("[\udc80-\udcff]+")
"""Bytes that "surrogateescape" preserved."""


def _alphabet() -> dict[str, int]:
    """GPT-2's characters for bytes: visible ones stand for themselves, the others follow in order."""
    known = sorted(ByteLevel.alphabet())
    direct = {char: ord(char) for char in known if ord(char) < 256}
    left = iter(sorted(set(range(256)) - set(direct.values())))
    return direct | {char: next(left) for char in known if char not in direct}


ALPHABET = _alphabet()


def byte_level_bytes(word: str) -> bytes | None:
    """Bytes of a token in the notation of byte-level tokenizers; None if it is not in that notation."""
    numbers = [ALPHABET.get(char) for char in word]
    return bytes(number for number in numbers if number is not None) if None not in numbers else None


def sentencepiece_bytes(word: str) -> bytes | None:
    """Bytes of a token in the notation of SentencePiece."""
    byte = BYTE_TOKEN.fullmatch(word)
    return bytes([int(byte[1], 16)]) if byte else word.replace("▁", " ").encode("utf-8", "replace")


def token_bytes(tokenizer: Tokenizer) -> dict[int, bytes]:
    """Bytes that each token adds in the middle of a text.

    Special tokens, and tokens that add nothing, are left out.
    """
    added = tokenizer.added
    words = {token: word for token, word in tokenizer.words.items() if token not in added}
    sample = [(token, words[token]) for token in sorted(words)[:: max(1, len(words) // SAMPLE_TOKENS)]]
    decode = next(
        (notation for notation in (byte_level_bytes, sentencepiece_bytes) if _agrees(notation, tokenizer, sample)), None
    )
    found: dict[int, bytes] = {}
    for token, word in words.items():
        text = decode(word) if decode is not None else _decoded(tokenizer, token, word)
        if text:
            found[token] = text
    return found | {token: one.content.encode() for token, one in added.items() if not one.special}


def bytes_of(tokenizer: Tokenizer, token: int) -> bytes:
    """Bytes of one token inside a text, which may be a part of a character; of a special token those of its name."""
    text = tokenizer.text_of(token)
    if "\ufffd" in text:
        for notation in (byte_level_bytes, sentencepiece_bytes):
            spelt = notation(tokenizer.words.get(token, ""))
            if spelt is not None and spelt.decode("utf-8", "replace") == text:
                return spelt
    return text.encode()


def _agrees(notation: Callable[[str], bytes | None], tokenizer: Tokenizer, sample: list[tuple[int, str]]) -> bool:
    """True if each token of whole characters decodes to its bytes in this notation."""
    for token, word in sample:
        spelt = notation(word)
        if spelt is None:
            return False
        text = spelt.decode("utf-8", "replace")
        if "\ufffd" not in text and text != tokenizer.text_of(token):
            return False
    return True


def _decoded(tokenizer: Tokenizer, token: int, word: str) -> bytes:
    text = tokenizer.text_of(token)
    byte = BYTE_TOKEN.fullmatch(word)
    if "\ufffd" in text:
        return bytes([int(byte[1], 16)]) if byte else b""
    return text.encode()


class FragmentEncoder:
    """Encodes fragments from the middle of a text."""

    def __init__(self, tokenizer: Tokenizer, spelt: Mapping[int, bytes]) -> None:
        """`spelt` are its `token_bytes`."""
        self._tokenizer = tokenizer
        self._tokens = {text: token for token, text in sorted(spelt.items(), reverse=True)}
        self._longest = max(map(len, self._tokens), default=0)
        written = b"".join(spelt.get(token, b"") for token in tokenizer.encode("x"))
        # Some tokenizers put a space before a text, but not after a line break.
        self._lead = "" if written == b"x" else "\n"
        self._before = tokenizer.encode(self._lead) if self._lead else []

    def encode(self, text: bytes) -> list[int]:
        """Tokens of a text; the longest matching tokens take bytes that are no whole characters."""
        whole = text.decode("utf-8", "surrogateescape")
        tokens: list[int] = []
        at = 0
        for broken in INVALID_UTF8.finditer(whole):
            tokens += self._encoded(whole[at : broken.start()])
            tokens += self._longest_match(broken[0].encode("utf-8", "surrogateescape"))
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

    def _longest_match(self, text: bytes) -> list[int]:
        """Tokens of bytes by longest match; a byte without a token is left out."""
        tokens: list[int] = []
        at = 0
        while at < len(text):
            ends = range(min(len(text), at + self._longest), at, -1)
            end = next((end for end in ends if text[at:end] in self._tokens), None)
            if end is not None:
                tokens.append(self._tokens[text[at:end]])
            at = end or at + 1
        return tokens
