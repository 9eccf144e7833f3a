"""Checks a server's promise: is its text with drafting the one that it writes without?

Greedy texts are compared token by token. Two tokens of nearly the same probability may change places where a server
computes in another order, as for another batch; that is told apart from wrong text. Sampled texts are compared where
drafting keeps them, else their distributions.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

from specchat.engine.errors import EngineError
from specchat.engine.protocol.options import Message, Sampling
from specchat.remote.sampled_texts import MIN_REPLIES, Z_LIMIT, deviation, most_unlike
from specchat.remote.written_replies import ReplyWriter, TokenOptions

NEAR_TIE = 0.25
"""Nats between two tokens that rounding may exchange: bfloat16 rounds logits of 16 to 32 to an eighth."""
TEMPERATURE = 0.8
SEEDED_CHATS = 6
"""Chats that are sampled twice to see whether a seed gives the same text again."""
SHOWN_BYTES = 60
_SPECIAL = re.compile(rb"(<[^<>\s]{1,40}>|\[[A-Z_/]{1,40}\])?")
"""The text of a token that ends a reply."""

TextOutcome = Literal["equal", "tie", "wrong", "unknown"]
"""`unknown`: the texts differ, and no server tells how near both tokens were."""
ChatsToAsk = Sequence[tuple[str, tuple[Message, ...]]]
"""Names and messages."""


@dataclass(frozen=True)
class TextComparison:
    """Two replies.

    Attributes:
        token: index of the first token that differs, if the server tells tokens.
        margin: nats between both tokens there; infinite if the second is not among the likeliest.
        one, other: how both go on from there.
    """

    outcome: TextOutcome
    token: int | None = None
    margin: float | None = None
    one: str = ""
    other: str = ""


@dataclass(frozen=True)
class GreedyResult:
    """A greedy reply compared with the server's own second one, and with that of the reference if there is one."""

    prompt: str
    repeat: TextComparison
    text: TextComparison | None = None

    @property
    def outcomes(self) -> tuple[TextOutcome, ...]:
        return (self.repeat.outcome, *([self.text.outcome] if self.text else []))


@dataclass(frozen=True)
class SampledResult:
    """Sampled replies.

    Attributes:
        seeded: names of the writers whose replies a seed repeats.
        same_text: replies with the same text on both sides of `replies`; None if their distribution was compared.
        deviation: standard errors beyond chance, of distributions.
        one, other: replies to the same prompt, of the tested server and the reference.
    """

    seeded: tuple[str, ...]
    replies: int
    same_text: int | None
    deviation: float = 0.0
    one: str = ""
    other: str = ""

    @property
    def holds(self) -> bool:
        return self.same_text == self.replies if self.same_text is not None else self.deviation <= Z_LIMIT


def greedy(
    tested: ReplyWriter, reference: ReplyWriter | None, chats: ChatsToAsk, tokens: int
) -> Iterator[GreedyResult]:
    """Compare greedy replies of at most so many `tokens`; chats that do not fit a context are left out.

    Raises:
        EngineError: a writer fails.
    """
    for name, chat in chats:
        try:
            reply, again = (tested.write(chat, Sampling(), tokens) for _ in range(2))
            plain = reference.write(chat, Sampling(), tokens) if reference is not None else None
        except EngineError as error:
            if error.kind == "context":
                continue
            raise
        repeat = compare((tested, reply), (tested, again), chat, tokens)
        if reference is None or plain is None:
            yield GreedyResult(name, repeat)
        else:
            yield GreedyResult(name, repeat, compare((tested, reply), (reference, plain), chat, tokens))


def sampled(
    tested: ReplyWriter,
    reference: ReplyWriter,
    chats: ChatsToAsk,
    tokens: int,
    draws: int,
    shown: Callable[[int], bool] = lambda _: True,
) -> SampledResult | None:
    """Compare sampled replies, `draws` of each writer to each chat; `shown` gets their number, and False stops.

    Raises:
        EngineError: a writer fails.
    """

    def drawn(writer: ReplyWriter, chat: Sequence[Message], seed: int) -> str:
        return writer.write(chat, Sampling(seed, temperature=TEMPERATURE), tokens)

    seeded = tuple(
        writer.name
        for writer in (tested, reference)
        if all(drawn(writer, chat, 1) == drawn(writer, chat, 1) for _, chat in chats[:SEEDED_CHATS])
    )
    coupled = len(seeded) == 2 and tested.keeps_text and tested.keeps_text == reference.keeps_text
    draws = 1 if coupled else max(draws, MIN_REPLIES)
    replies: tuple[list[list[str]], list[list[str]]] = ([], [])
    for number, (_, chat) in enumerate(chats):
        for side, (writer, texts) in enumerate(zip((tested, reference), replies, strict=True)):
            # Other seeds on each side, unless the same are to give the same.
            first = 1 if coupled else 2 + (2 * number + side) * draws
            texts.append([drawn(writer, chat, first + n) for n in range(draws)])
            if not shown((2 * number + side + 1) * draws):
                return None
    pairs = [(one[0], other[0]) for one, other in zip(*replies, strict=True)]
    if coupled:
        different = next(((a, b) for a, b in pairs if a != b), ("", ""))
        return SampledResult(seeded, len(pairs), sum(a == b for a, b in pairs), 0.0, *different)
    return SampledResult(seeded, len(pairs) * draws, None, deviation(*replies), *most_unlike(*replies))


def compare(
    tested: tuple[ReplyWriter, str], reference: tuple[ReplyWriter, str], chat: Sequence[Message], tokens: int
) -> TextComparison:
    """Compare greedy replies to `chat` by their writers."""
    (_, reply), (_, plain) = tested, reference
    one, other = (text.encode("utf-8", "replace") for text in (reply, plain))
    if one == other:
        return TextComparison("equal")
    at = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    for (writer, _), own, second in ((reference, other, one), (tested, one, other)):
        told = writer.options(chat, tokens, at)
        if told is not None and own[told.start :].startswith(told.options[0].text):
            margin = _margin(told, second)
            return TextComparison(
                "tie" if margin <= NEAR_TIE else "wrong",
                told.index,
                margin,
                _from(one, told.start),
                _from(other, told.start),
            )
    return TextComparison("unknown", None, None, _from(one, at), _from(other, at))


def _margin(told: TokenOptions, other: bytes) -> float:
    """Nats from the written token to the one with which `other` goes on; infinite if that is not among the options."""
    rest = other[told.start :]
    written, *options = told.options
    if rest:
        found = [option for option in options if option.text and rest.startswith(option.text)]
    else:
        found = [option for option in options if _SPECIAL.fullmatch(option.text)]
    return written.logprob - max(found, key=lambda option: len(option.text)).logprob if found else inf


def _from(text: bytes, at: int) -> str:
    while 0 < at < len(text) and text[at] & 0xC0 == 0x80:  # within a character
        at -= 1
    return text[at : at + SHOWN_BYTES].decode("utf-8", "replace")
