"""Text of a reply's tokens, token by token."""

from copy import copy

from specchat.engine.text.tokenizer import Tokenizer

MOST_HELD = 16
"""Limit of tokens held back: a character takes four, but a token may end inside the next one."""


class TextStream:
    """An incremental decoder that holds back incomplete characters."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._held: list[int] = []

    def push(self, token: int) -> str:
        """The text that `token` completes; empty while a character is incomplete; invalid bytes show as U+FFFD."""
        self._held.append(token)
        text = self._tokenizer.text_after(self._held)
        if text.endswith("\ufffd") and len(self._held) < MOST_HELD:
            return ""
        self._held.clear()
        return text

    def copied(self) -> "TextStream":
        """A copy that goes on by itself."""
        made = copy(self)
        made._held = list(self._held)
        return made

    def flush(self) -> str:
        """The rest at the end, without the bytes of an incomplete character."""
        text = self._tokenizer.text_after(self._held) if self._held else ""
        self._held.clear()
        return text.rstrip("\ufffd")
