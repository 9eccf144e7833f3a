"""Prompts without a chat template."""

from specchat.dataclass import dataclass


@dataclass(frozen=True)
class FillIn:
    """A place in a text that a reply fills in.

    Attributes:
        prefix, suffix: the text before and after it.
        files: names and texts of other files; the model reads them first, as far as the context has room.
    """

    prefix: str
    suffix: str = ""
    files: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.prefix or self.suffix or self.files)


RawPrompt = str | tuple[int, ...] | FillIn
"""A text, whose special tokens count, tokens, or a place to fill in; empty where there are messages instead."""


def text_of(raw: RawPrompt) -> str:
    """The text of a prompt, as far as it is known without a tokenizer."""
    return raw if isinstance(raw, str) else raw.prefix if isinstance(raw, FillIn) else ""
