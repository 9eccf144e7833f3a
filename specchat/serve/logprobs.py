"""Log-probabilities of a reply's tokens as OpenAI has them, for chats and for completions."""

import codecs
from abc import ABC, abstractmethod
from collections.abc import Iterable
from itertools import accumulate
from typing import Any

from specchat.engine.protocol.events import Started, Step, TokenLogprob

MAX_TOP = 20
"""Tokens of a place that a request may ask for, as with OpenAI and vLLM."""


class LogprobList(ABC):
    """Collects the tokens of steps; `take` gives those since it was last called."""

    def __init__(self) -> None:
        self._tokens: list[TokenLogprob] = []
        self._taken = 0

    def add(self, event: Started | Step) -> None:
        """Append the tokens of a prompt or of a step."""
        self._tokens += event.logprobs

    def take(self) -> dict[str, Any] | None:
        """The tokens since the last call; None if there are none."""
        first, self._taken = self._taken, len(self._tokens)
        return self._listed(first) if self._tokens[first:] else None

    def whole(self) -> dict[str, Any] | None:
        """All tokens; None if there are none."""
        return self._listed(0) if self._tokens else None

    @abstractmethod
    def _listed(self, first: int) -> dict[str, Any]:
        """The tokens from the number `first` on, in the API's words."""


class ChatLogprobs(LogprobList):
    """Tokens as `/v1/chat/completions` lists them."""

    def _listed(self, first: int) -> dict[str, Any]:
        return {"content": [_entry(token) for token in self._tokens[first:]], "refusal": None}


class TextLogprobs(LogprobList):
    """Tokens as `/v1/completions` lists them: a list for each figure."""

    def __init__(self, prompt: str) -> None:
        """List the tokens of a reply to `prompt`, or those of both."""
        super().__init__()
        self._prompt = len(prompt)
        self._offsets: list[int] = []
        """For each token the characters before it, or before the character that it is a part of."""
        self._written = codecs.getincrementaldecoder("utf-8")("replace")
        self._end = len(prompt)

    def add(self, event: Started | Step) -> None:
        super().add(event)
        if isinstance(event, Started):
            self._offsets = _ends_at(self._prompt, event.logprobs)
            return
        for token in event.logprobs:
            self._offsets.append(self._end)
            self._end += len(self._written.decode(token.utf8)) if token.shown else 0

    def _listed(self, first: int) -> dict[str, Any]:
        tokens = self._tokens[first:]
        return {
            "tokens": [_name(token.utf8) for token in tokens],
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": [None if token.logprob is None else _by_name(token.top) for token in tokens],
            "text_offset": self._offsets[first:],
        }


def _ends_at(end: int, tokens: Iterable[TokenLogprob]) -> list[int]:
    """Characters before each of `tokens` of a prompt of `end` characters.

    The text of a first token, and a space before it, may not be in the prompt.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    ends = [0, *accumulate(len(decoder.decode(token.utf8)) for token in tokens)]
    return [max(0, at - ends[-1] + end) for at in ends[:-1]]


def _name(utf8: bytes) -> str:
    """The text of a token; of a part of a character its bytes, as OpenAI has them."""
    try:
        return utf8.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in utf8)


def _by_name(top: Iterable[tuple[bytes, float]]) -> dict[str, float]:
    """Log-probabilities by text; of tokens with one text the likeliest counts."""
    found: dict[str, float] = {}
    for utf8, logprob in top:
        found.setdefault(_name(utf8), logprob)
    return found


def _entry(token: TokenLogprob) -> dict[str, Any]:
    return {**_one(token.utf8, token.logprob), "top_logprobs": [_one(utf8, value) for utf8, value in token.top]}


def _one(utf8: bytes, logprob: float | None) -> dict[str, Any]:
    return {"token": utf8.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(utf8)}
