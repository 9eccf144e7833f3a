"""Selects a draft vocabulary: frequent tokens of replies, and tokens that are always included."""

from collections import Counter
from collections.abc import Collection, Sequence

from tokenizers.pre_tokenizers import ByteLevel

from specchat.engine.text.tokenizer import Tokenizer


def always(tokenizer: Tokenizer, eos: Collection[int]) -> set[int]:
    """Tokens that are always included: ends of replies, added tokens, and tokens of a single byte."""
    spelling = [*ByteLevel.alphabet(), *(f"<0x{byte:02X}>" for byte in range(256))]
    vocabulary = tokenizer.vocabulary
    known = {token for text in spelling if (token := vocabulary.get(text)) is not None}
    return known | set(tokenizer.added) | {token for token in eos if token < tokenizer.rows}


def frequent(replies: Sequence[Sequence[int]], required: Collection[int], size: int, vocabulary: int) -> list[int]:
    """The `size` most frequent tokens of a `vocabulary`, with all of `required`, by falling count.

    The lowest ids fill up unseen ones, because a tokenizer numbers its merges by frequency.
    """
    counts = Counter(token for reply in replies for token in reply)
    others = sorted((token for token in range(vocabulary) if token not in required), key=lambda token: -counts[token])
    chosen = [*required, *others[: max(0, size - len(required))]]
    return sorted(chosen, key=lambda token: (-counts[token], token))


def covered(replies: Sequence[Sequence[int]], required: Collection[int], size: int, vocabulary: int) -> float | None:
    """Share of tokens that are frequent in other replies; None with too few replies.

    The halves of every second reply evaluate each other, because counted tokens always cover themselves.
    """
    halves = replies[::2], replies[1::2]
    inside = total = 0
    for counted, tested in (halves, halves[::-1]):
        known = set(frequent(counted, required, size, vocabulary))
        inside += sum(token in known for reply in tested for token in reply)
        total += sum(map(len, tested))
    return inside / total if halves[1] and total else None
