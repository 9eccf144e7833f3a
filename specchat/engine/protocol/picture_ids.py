"""Token ids of pictures: beyond every vocabulary, so that a text with pictures is a list of ids like others."""

from collections.abc import Iterable

FIRST = 1 << 24
"""The least of them; published vocabularies have fewer than 300,000 tokens."""


def of_text(tokens: Iterable[int]) -> list[int]:
    """`tokens` without those of pictures."""
    return [token for token in tokens if token < FIRST]
