"""Reads the tokens in a GGUF file's metadata, checked.

Keys: "Tokenizer" in github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import Any

from specchat.engine.errors import ModelError
from specchat.engine.foreign import shown
from specchat.engine.gguf.header import Header
from specchat.engine.gguf.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer

Metadata = Mapping[str, object]
"""Values by key, lists whole. Bytes that are not UTF-8 stand in texts as surrogates."""
NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4
"""Types of tokens; 5 are unused ones, and 6 bytes."""
IDS = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "sep_token": "seperator_token_id",
    "pad_token": "padding_token_id",
    "cls_token": "cls_token_id",
    "mask_token": "mask_token_id",
}
"""Keys of special tokens by the names that templates use; GGUF misspells one."""
PIECES_IDS = ("unknown_token_id", "bos_token_id", "eos_token_id")
"""Keys of the first special tokens of SentencePiece, where the file lacks them."""
NO_TOKEN = (-1, (1 << 32) - 1)
END_IDS = ("eos_token_id", "eot_token_id", "eom_token_id")
END_TEXTS = (
    *("<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|return|>", "<|call|>"),
    *("<end_of_turn>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[EOS]", "[EOT]", "<EOT>", "[e~["),
)
"""Texts of tokens that end a reply, as generation_config.json has them by number, which GGUF files lack."""
PIECES_WITH_MERGES = ("gemma4", "sarvam-moe")
"""Names of pre-tokenizers that stand for SentencePiece's pieces, with merges instead of scores."""
MAX_TOKEN_CHARS = 1024
"""The longest tokens of published vocabularies have 256."""
SPACE = "▁"
RUNS = f"{SPACE}\n\t"
"""Gemma has tokens of up to 31 of one of these; its tokenizer.json joins them first, to the longest."""
ELSEWHERE = 'Run it by llama.cpp (backend = "gguf"), or take the model as a folder of safetensors.'


class _HeaderMetadata(Mapping[str, object]):
    """The metadata of a header, whose lists are read where they are asked for."""

    def __init__(self, header: Header) -> None:
        self._header = header

    def __getitem__(self, key: str) -> object:
        return self._header.entries(key) if key in self._header.lengths else self._header.values[key]

    def __iter__(self) -> Iterator[str]:
        return chain(self._header.values, self._header.lengths)

    def __len__(self) -> int:
        return len(self._header.values) + len(self._header.lengths)


def metadata_of(header: Header) -> Metadata:
    """The metadata of a header; a ModelError where a list is damaged comes when it is asked for."""
    return _HeaderMetadata(header)


class TokenKeys:
    """The keys of `metadata` that begin with "tokenizer.ggml."; ModelErrors name `file` and the key."""

    def __init__(self, metadata: Metadata, file: Path) -> None:
        self._metadata = metadata
        self.file = file

    @property
    def architecture(self) -> str:
        return str(self._metadata.get("general.architecture"))

    def wrong(self, key: str, words: str) -> ModelError:
        return ModelError(f"{self.file}: tokenizer.ggml.{key} {words}. Download it again.")

    def text(self, key: str) -> str:
        """A text; empty where the key is missing."""
        value = self._get(key)
        if value is not None and not isinstance(value, str):
            raise self.wrong(key, f"is {shown(value)}, not a text")
        return value or ""

    def texts(self, key: str) -> list[str]:
        value = self._get(key)
        if not value:
            raise self.wrong(key, "is missing or empty")
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise self.wrong(key, "is no list of texts")
        try:
            "".join(value).encode()
        except UnicodeEncodeError:
            raise self.wrong(key, "has a text that is not UTF-8") from None
        return list(value)

    def numbers(self, key: str, count: int) -> list[Any]:
        """A list of `count` finite numbers."""
        value = self._get(key)
        if not isinstance(value, list):
            raise self.wrong(key, "is missing" if value is None else "is no list of numbers")
        if not all(isinstance(one, int | float) and isfinite(one) for one in value):
            raise self.wrong(key, "is no list of numbers")
        if len(value) != count:
            raise self.wrong(key, f"has {len(value):,} numbers for {count:,} tokens")
        return list(value)

    def switch(self, key: str, otherwise: bool) -> bool:
        value = self._get(key)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(key, f"is {shown(value)}, not true or false")
        return otherwise if value is None else value

    def token(self, key: str, count: int, otherwise: int | None) -> int | None:
        """The id of a special token, of `count` tokens; None: there is none."""
        value = self._get(key)
        if value is None:
            return otherwise
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(key, f"is {shown(value)}, not the number of a token")
        if value in NO_TOKEN:
            return None
        if not 0 <= value < count:
            raise self.wrong(key, f"is {shown(value)}, of {count:,} tokens")
        return value

    def _get(self, key: str) -> object:
        return self._metadata.get(f"tokenizer.ggml.{key}")


@dataclass(frozen=True)
class TokenList:
    """Tokens of a file.

    Attributes:
        bytewise: the pre-tokenizer of a byte-level vocabulary; None: SentencePiece's, which has none.
        scored: pieces have scores instead of merges.
        gemma: pieces of Gemma, whose tokenizer.json ranks them by their ids, not their scores.
        texts: by id; empty where an id only pads.
        types: by id.
        named: ids of special tokens by the names of `IDS`.
        ends: ids that end a reply.
    """

    keys: TokenKeys
    bytewise: PreTokenizer | None
    scored: bool
    gemma: bool
    texts: list[str]
    types: list[int]
    named: dict[str, int]
    ends: frozenset[int]

    @classmethod
    def read(cls, metadata: Metadata, file: Path) -> "TokenList":
        """Read and check the tokens in `metadata` of `file`.

        Raises:
            ModelError: keys are missing or wrong, or the kind of tokenizer is not read here.
        """
        keys = TokenKeys(metadata, file)
        bytewise, scored = _bytewise(keys), _scored(keys)
        gemma = scored and keys.architecture.startswith("gemma")
        texts = keys.texts("tokens")
        types = keys.numbers("token_type", len(texts))
        for token, text in enumerate(texts):
            if len(text) > MAX_TOKEN_CHARS:
                raise keys.wrong("tokens", f"has a token of {len(text):,} characters")
            if text.startswith("[PAD") and text == f"[PAD{token}]":
                texts[token] = ""
            elif gemma and types[token] == USER_DEFINED and not text.strip(" "):
                texts[token] = SPACE * len(text)  # llama.cpp's converter writes spaces
        first = {key: token for token, key in enumerate(PIECES_IDS) if scored and token < len(texts)}
        defaults = {key: token for key, token in first.items() if types[token] in (UNKNOWN, CONTROL)}
        found = {key: keys.token(key, len(texts), defaults.get(key)) for key in (*IDS.values(), *END_IDS)}
        ids = {text: token for token, text in enumerate(texts)}
        ends = {ids[text] for text in END_TEXTS if text in ids and types[ids[text]] == CONTROL}
        ends |= {end for key in END_IDS if (end := found[key]) is not None}
        begins = found[IDS["bos_token"]]
        for special in ends if begins is None else ends | {begins}:
            types[special] = CONTROL
        named = {name: one for name, key in IDS.items() if (one := found[key]) is not None}
        added = {name: token for name, token in named.items() if types[token] in _ADDED}
        return cls(keys, bytewise, scored, gemma, texts, types, added, frozenset(ends))

    @cached_property
    def ids(self) -> dict[str, int]:
        """Ids by text.

        Raises:
            ModelError: two tokens have the same text.
        """
        ids = {text: token for token, text in enumerate(self.texts) if text}
        if len(ids) < len(self.texts) - self.texts.count(""):
            twice = next(text for token, text in enumerate(self.texts) if text and ids[text] != token)
            raise self.keys.wrong("tokens", f"has {shown(twice)} twice")
        return ids

    def merges(self) -> list[tuple[str, str]]:
        """Merges by rank: those listed, or those that make the pieces of the highest scores.

        Raises:
            ModelError: they are missing or wrong.
        """
        if not self.scored:
            merges = [(text[: (at := text.find(" ", 1))], text[at + 1 :]) for text in self.keys.texts("merges")]
            ids = self.ids
            if wrong := next((one for one in merges if one[0] + one[1] not in ids), None):
                raise self.keys.wrong("merges", f"has {shown(' '.join(wrong))}, which makes no token")
            return merges
        scores = self.keys.numbers("scores", len(self.texts))
        pieces = [token for token, kind in enumerate(self.types) if kind == NORMAL and len(self.texts[token]) > 1]
        if not self.gemma:
            pieces.sort(key=lambda token: -scores[token])
            return self._splits(pieces)
        runs = {token for token, text in enumerate(self.texts) if text[:1] in RUNS and not text.lstrip(text[:1])}
        longest_first = sorted(self._splits(runs), key=lambda one: (len(one[0]), len(one[1])), reverse=True)
        return longest_first + self._splits(token for token in pieces if token not in runs)

    def _splits(self, tokens: Iterable[int]) -> list[tuple[str, str]]:
        """The pairs of pieces that make each of `tokens`, the longest left one first, as transformers ranks them."""
        ids = self.ids
        return [
            (left, right)
            for text in map(self.texts.__getitem__, tokens)
            for at in range(len(text) - 1, 0, -1)
            if (left := text[:at]) in ids and (right := text[at:]) in ids
        ]


_ADDED = (UNKNOWN, CONTROL, USER_DEFINED)


def check_kind(header: Header) -> None:
    """Check by keys alone that the tokenizer of a file is of a kind that is read here, and has its lists.

    Raises:
        ModelError: it is not, or a list is missing.
    """
    keys = TokenKeys(metadata_of(header), header.path)
    _bytewise(keys)
    ranks = "scores" if _scored(keys) else "merges"
    for key in ("tokens", "token_type", ranks):
        if not header.lengths.get(f"tokenizer.ggml.{key}"):
            raise keys.wrong(key, "is missing or empty")


def _scored(keys: TokenKeys) -> bool:
    """True where pieces have scores instead of merges; Ollama names Gemma 4's kind as that of Gemma 3."""
    return keys.text("model") == "llama" and keys.text("pre") not in PIECES_WITH_MERGES


def _bytewise(keys: TokenKeys) -> PreTokenizer | None:
    """The pre-tokenizer of a byte-level vocabulary; None for SentencePiece's.

    Raises:
        ModelError: the kind of vocabulary, or the pre-tokenizer, is not read here.
    """
    model, name = keys.text("model"), keys.text("pre")
    if model in ("", "none", "no_vocab"):
        raise ModelError(f"{keys.file} holds no tokenizer. Convert the model again, with its vocabulary.")
    if model in ("llama", "gemma4") or (model == "gpt2" and name in PIECES_WITH_MERGES):
        return None
    if keys.architecture == "mistral3" and name in ("", "default"):
        name = "tekken"  # which Ollama does not know
    if model == "gpt2" and name in ("", "default"):
        raise ModelError(
            f"{keys.file} does not name its pre-tokenizer (tokenizer.ggml.pre), without which texts would be split "
            f"wrongly: an old converter wrote it. Download a newer file of the model. {ELSEWHERE}"
        )
    key, value = ("pre", name) if model == "gpt2" else ("model", model)
    if model != "gpt2" or name not in PRE_TOKENIZERS:
        raise ModelError(f"{keys.file}: tokenizer.ggml.{key} is {shown(value)}, which is not read here. {ELSEWHERE}")
    return PRE_TOKENIZERS[name]
