"""Log-probabilities of a reply's tokens as OpenAI has them, for chats and for completions."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

from specchat.engine.protocol.events import Started, Step, TokenLogprob

MAX_TOP = 20
"""Tokens of a place that a request may ask for, as with OpenAI and vLLM."""


class LogprobList(ABC):
    """Collects the tokens of steps; `take` gives those since it was last called."""

    def __init__(self) -> None:
        self._tokens: list[TokenLogprob] = []
        self._taken = self._offset = 0

    def add(self, event: Started | Step) -> None:
        """Append the tokens of a prompt or of a step."""
        self._tokens += event.logprobs

    def take(self) -> dict[str, Any] | None:
        """The tokens since the last call; None if there are none."""
        new, offset = self._tokens[self._taken :], self._offset
        self._taken += len(new)
        self._offset += sum(len(token.text) for token in new)
        return self._listed(new, offset) if new else None

    def whole(self) -> dict[str, Any] | None:
        """All tokens; None if there are none."""
        return self._listed(self._tokens, 0) if self._tokens else None

    @staticmethod
    @abstractmethod
    def _listed(tokens: Sequence[TokenLogprob], offset: int) -> dict[str, Any]:
        """`tokens`, which follow `offset` characters, in the API's words."""


class ChatLogprobs(LogprobList):
    """Tokens as `/v1/chat/completions` lists them."""

    @staticmethod
    def _listed(tokens: Sequence[TokenLogprob], offset: int) -> dict[str, Any]:
        del offset
        return {"content": [_entry(token) for token in tokens], "refusal": None}


class TextLogprobs(LogprobList):
    """Tokens as `/v1/completions` lists them: a list for each figure."""

    @staticmethod
    def _listed(tokens: Sequence[TokenLogprob], offset: int) -> dict[str, Any]:
        return {
            "tokens": [token.text for token in tokens],
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": [None if token.logprob is None else _by_text(token.top) for token in tokens],
            "text_offset": list(accumulate((len(token.text) for token in tokens[:-1]), initial=offset)),
        }


def _by_text(top: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Log-probabilities by text; of tokens with one text, such as parts of characters, the likeliest counts."""
    found: dict[str, float] = {}
    for text, logprob in top:
        found.setdefault(text, logprob)
    return found


def _entry(token: TokenLogprob) -> dict[str, Any]:
    return {**_one(token.text, token.logprob), "top_logprobs": [_one(text, value) for text, value in token.top]}


def _one(text: str, logprob: float | None) -> dict[str, Any]:
    """`bytes` are unknown for a part of a character."""
    return {"token": text, "logprob": logprob, "bytes": None if "\ufffd" in text else list(text.encode())}
