"""Suffix decoding (Oliaro et al. 2024): copies continuations of the text's end, weighted by frequency.

It searches the text itself and earlier replies (`earlier.py`). If the end of the text occurs several times, the draft
is a tree of the likeliest continuations. A path's probability is the product of its tokens' shares, and at least
`LEAST`. Longer matches are surer and rarer: each match length gives a draft, and the one with the largest sum of
probabilities is proposed, the longer match among equals.
"""

from collections.abc import Collection, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from specchat.engine.decoding.draft import Copier, Copy
from specchat.engine.drafters.earlier import END, Earlier
from specchat.engine.drafters.occurrences import Occurrences
from specchat.engine.protocol.picture_ids import FIRST
from specchat.engine.strategy import Strategy

SUFFIX = "suffix"
LONGEST = 64
"""Most tokens of a match that count."""
CANDIDATES = 32
"""Latest occurrences that are compared."""
LENGTHS = 6
"""Match lengths that give a draft of their own, from the longest down."""
SPREAD = 2
"""Most draft tokens for each token of the match: a short match predicts little beyond."""
LEAST = 0.1
"""Least probability of a path."""


class Branch(NamedTuple):
    """A candidate token, the last of `path`; `share` is the fraction of its parent's occurrences that continue at
    `places`."""

    path: tuple[int, ...]
    places: tuple[int, ...]
    share: float
    probability: float


def best_copy(source: Occurrences, end: Sequence[int], limit: int, ends: Collection[int] = ()) -> Copy:
    """Return the best draft of at most `limit` tokens from `source` for a text that ends with `end`.

    Paths stop at a token of `ends`.
    """
    best = Copy()
    matches = list(source.matches(end, LONGEST, CANDIDATES))
    for length in sorted({length for length, _ in matches}, reverse=True)[:LENGTHS]:
        if best.score >= min(limit, SPREAD * length):
            break  # no probability is more than 1
        places = tuple(at for matched, at in matches if matched >= length)
        copy = _follow(source.token_ids, places, min(limit, SPREAD * length), limit, ends)
        if copy.score > best.score:
            copy.matched = length
            best = copy
    return best


def _follow(token_ids: Sequence[int], places: tuple[int, ...], depth: int, limit: int, ends: Collection[int]) -> Copy:
    """Follow all `places` at once, along the `limit` likeliest paths of at most `depth` tokens."""
    alike = _after(token_ids, places[0], depth)
    if all(_after(token_ids, at, depth) == alike for at in places[1:]):
        ending = (i for i, token in enumerate(alike) if _never(token) or token in ends)
        stop = next((i + (not _never(alike[i])) for i in ending), depth)
        sure = alike[:stop]
        share = [1.0] * len(sure)
        return Copy(sure, list(range(len(sure))), confidence=share, strategy=SUFFIX, score=float(len(sure)))
    order = count()
    waiting: list[tuple[float, int, Branch]] = []
    chosen: dict[tuple[int, ...], list[Branch]] = {}
    branch = Branch((), places, 1.0, 1.0)
    for _ in range(limit):
        if len(branch.path) < depth and not (branch.path and branch.path[-1] in ends):
            for child in _branches(token_ids, branch):
                heappush(waiting, (-child.probability, next(order), child))
        if not waiting:
            break
        branch = heappop(waiting)[2]
        chosen.setdefault(branch.path[:-1], []).append(branch)
    copy = Copy(strategy=SUFFIX)

    def take(path: tuple[int, ...], parent: int) -> None:
        for child in chosen.get(path, []):
            copy.tokens.append(child.path[-1])
            copy.parents.append(parent)
            copy.confidence.append(child.share)
            copy.score += child.probability
            take(child.path, len(copy.tokens))

    take((), 0)
    return copy


def _never(token: int) -> bool:
    """True for what is never drafted: the end of an earlier reply, and pictures."""
    return token == END or token >= FIRST


def _after(token_ids: Sequence[int], at: int, depth: int) -> list[int]:
    """Return the `depth` tokens from position `at` on; beyond the text's end they repeat themselves."""
    tokens = list(token_ids[at : at + depth])
    while len(tokens) < depth:
        tokens.append(tokens[at + len(tokens) - len(token_ids)])
    return tokens


def _branches(token_ids: Sequence[int], branch: Branch) -> Iterator[Branch]:
    """Yield the continuations of a branch, the most frequent first, down to the probability LEAST."""
    path, i = branch.path, len(branch.path)

    def token_at(at: int) -> int:
        # Beyond the text's end the draft itself repeats.
        return token_ids[at + i] if at + i < len(token_ids) else path[at + i - len(token_ids)]

    following: dict[int, list[int]] = {}
    for at in branch.places:
        following.setdefault(token_at(at), []).append(at)
    for token, places in sorted(following.items(), key=lambda item: -len(item[1])):
        share = len(places) / len(branch.places)
        if _never(token) or branch.probability * share < LEAST:
            continue
        yield Branch((*path, token), tuple(places), share, branch.probability * share)


class SuffixDrafter(Copier):
    """Drafter that copies likely continuations from this chat and earlier replies; needs no draft model."""

    name = SUFFIX

    def __init__(self, here: Occurrences, earlier: Earlier) -> None:
        """Initialise; `here` is the index of this chat, which other strategies may share."""
        self._here, self._earlier = here, earlier
        self._ends: Collection[int] = ()

    def begin(self, prompt: Sequence[int], ends: Collection[int] = ()) -> None:
        self._ends = ends
        self._here.begin(prompt)

    def forget(self) -> None:
        self._here.clear()

    def propose(self, token_ids: Sequence[int], limit: int) -> Copy:
        """Propose the better draft from this text and earlier replies; this text wins among equals."""
        self._here.grow(token_ids)
        best = Copy(strategy=self.name)
        for of in (self._here, self._earlier.places):
            if of.has(token_ids):
                copy = best_copy(of, token_ids[-LONGEST:], limit, self._ends)
                best = copy if copy.score > best.score else best
        return best


STRATEGY = Strategy(
    name=SUFFIX,
    group="copied",
    title="Suffix",
    summary="Copies what most often followed the same words, also in earlier replies.",
    draft_length=8,
    notes="""Where continuations differ it drafts a tree, the most frequent first (SuffixDecoding, Oliaro et al. 2024):
[suffix.md](suffix.md). *Pays* where texts repeat themselves.""",
    make=lambda parts: SuffixDrafter(parts.here, parts.earlier),
    needs=("drafting",),
    arm="yes",
)
