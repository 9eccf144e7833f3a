"""Log-probabilities of a reply's tokens as OpenAI has them, for chats and for completions."""

from collections.abc import Iterable
from typing import Any

from specchat.engine.protocol.events import Step, TokenLogprob

MAX_TOP = 20
"""Tokens of a place that a request may ask for, as with OpenAI and vLLM."""


class ChatLogprobs:
    """Collects the tokens of steps until a chunk takes them."""

    def __init__(self) -> None:
        self._tokens: list[dict[str, Any]] = []

    def add(self, step: Step) -> None:
        """Keep the tokens of a step."""
        self._tokens += [_entry(token) for token in step.logprobs]

    def take(self) -> dict[str, Any] | None:
        """The tokens since the last call; None if there are none."""
        tokens, self._tokens = self._tokens, []
        return {"content": tokens, "refusal": None} if tokens else None


class TextLogprobs:
    """The same for `/v1/completions`, which has lists by place and counts characters."""

    def __init__(self) -> None:
        self._tokens: list[TokenLogprob] = []
        self._offset = 0

    def add(self, step: Step) -> None:
        """Keep the tokens of a step."""
        self._tokens += step.logprobs

    def take(self) -> dict[str, Any] | None:
        """The tokens since the last call; None if there are none."""
        tokens, self._tokens = self._tokens, []
        if not tokens:
            return None
        offsets = []
        for token in tokens:
            offsets.append(self._offset)
            self._offset += len(token.text)
        return {
            "tokens": [token.text for token in tokens],
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": [_by_text(token.top) for token in tokens],
            "text_offset": offsets,
        }


def _by_text(top: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Log-probabilities by text; of tokens with one text, such as parts of characters, the likeliest counts."""
    found: dict[str, float] = {}
    for text, logprob in top:
        found.setdefault(text, logprob)
    return found


def _entry(token: TokenLogprob) -> dict[str, Any]:
    return {**_one(token.text, token.logprob), "top_logprobs": [_one(text, value) for text, value in token.top]}


def _one(text: str, logprob: float) -> dict[str, Any]:
    """`bytes` are unknown for a part of a character."""
    return {"token": text, "logprob": logprob, "bytes": None if "\ufffd" in text else list(text.encode())}
