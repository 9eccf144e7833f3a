"""Which tokens a draft vocabulary is made of: the frequent ones of replies, and those that are never left out."""

from collections import Counter
from collections.abc import Collection, Sequence

from tokenizers.pre_tokenizers import ByteLevel

from specchat.engine.model.tokenizer import Tokenizer


def always(tokenizer: Tokenizer, eos: Collection[int]) -> set[int]:
    """Ends of replies, added tokens, and tokens of a single byte: digits, and what rare characters are spelt with."""
    spelling = [*ByteLevel.alphabet(), *(f"<0x{byte:02X}>" for byte in range(256))]
    vocabulary = tokenizer.vocabulary
    known = {token for text in spelling if (token := vocabulary.get(text)) is not None}
    return known | set(tokenizer.added) | {token for token in eos if token < tokenizer.rows}


def frequent(replies: Sequence[Sequence[int]], kept: Collection[int], size: int, vocabulary: int) -> list[int]:
    """The `size` tokens of a `vocabulary` that come most often, and all of `kept`, by falling count.

    Where fewer came at all, the lowest others follow: a tokenizer numbers its merges by how often they came.
    """
    counts = Counter(token for reply in replies for token in reply)
    others = sorted((token for token in range(vocabulary) if token not in kept), key=lambda token: -counts[token])
    chosen = [*kept, *others[: max(0, size - len(kept))]]
    return sorted(chosen, key=lambda token: (-counts[token], token))


def covered(replies: Sequence[Sequence[int]], kept: Collection[int], size: int, vocabulary: int) -> float | None:
    """The share of tokens that are among the frequent ones of other replies; None where there are too few to tell.

    Every second reply is judged by the others and the other way round: what was counted is always among what came.
    """
    halves = replies[::2], replies[1::2]
    inside = total = 0
    for counted, judged in (halves, halves[::-1]):
        known = set(frequent(counted, kept, size, vocabulary))
        inside += sum(token in known for reply in judged for token in reply)
        total += sum(map(len, judged))
    return inside / total if halves[1] and total else None
