"""Suffix decoding (Oliaro et al. 2024): what followed the end of the text before, weighed by how often it did.

Two places are searched: the text itself, and the replies it had a part in since the pair was loaded. Where the end of
the text occurs several times, the draft follows the token that followed most often, and a draft ends where its
probability, the product of these shares, falls below `LEAST`. Longer matches are surer and rarer: each length that
occurs makes a draft of its own, and the one with the largest sum of probabilities is taken, the longer match among
equals.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from specchat.engine.decoding.draft import Drafts
from specchat.engine.drafters.occurrences import Occurrences

LONGEST = 64
"""Matches longer than this count as equal."""
CANDIDATES = 32
"""Latest occurrences that are compared."""
LENGTHS = 6
"""Match lengths that make a draft of their own, from the longest down."""
SPREAD = 2
"""Drafted tokens for each token of the match, at most: a short match says little about what is far."""
LEAST = 0.1
"""Probability of a path below which it is not followed."""
REMEMBERED = 200_000
"""Tokens of earlier replies that are kept; half of them go when there are more."""
END = -1
"""Stands between two replies: nothing is copied across it."""


@dataclass
class Guess:
    """A draft with the share of each token among what followed, and the sum of its paths' probabilities."""

    tokens: list[int] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    score: float = 0.0


def best_guess(source: Occurrences, end: Sequence[int], limit: int) -> Guess:
    """The best draft of at most `limit` tokens that `source` has for a text that ends with `end`."""
    matches = list(source.matches(end, LONGEST, CANDIDATES))
    best = Guess()
    for length in sorted({length for length, _ in matches}, reverse=True)[:LENGTHS]:
        places = [at for matched, at in matches if matched >= length]
        guess = _follow(source.text, places, min(limit, SPREAD * length))
        if guess.score > best.score:
            best = guess
    return best


def _follow(text: Sequence[int], places: list[int], limit: int) -> Guess:
    """Go on from all `places` at once, with what most of them go on with."""
    guess, probability = Guess(), 1.0

    def token_at(at: int) -> int:
        # Beyond the text's end the draft itself: repetition repeats.
        return text[at] if at < len(text) else guess.tokens[at - len(text)]

    for i in range(limit):
        token, times = Counter(token_at(at + i) for at in places).most_common(1)[0]
        share = times / len(places)
        probability *= share
        if token == END or probability < LEAST:
            break
        places = [at for at in places if token_at(at + i) == token]
        guess.tokens.append(token)
        guess.shares.append(share)
        guess.score += probability
    return guess


class SuffixDrafter:
    """Copies what is likely to come from this chat and from replies before it; needs no draft model."""

    name = "suffix"
    ahead = True

    def __init__(self, drafts: Drafts) -> None:
        self._drafts = drafts
        self._here, self._before = Occurrences(), Occurrences()
        self._prompt = 0

    def begin(self, prompt: Sequence[int]) -> None:
        self._remember(self._here.text[self._prompt :])
        self._here = Occurrences()
        self._prompt = len(prompt)

    def forget(self) -> None:
        self._here, self._before = Occurrences(), Occurrences()
        self._prompt = 0

    def propose(self, text: Sequence[int], limit: int) -> None:
        guess = self.guess(text, limit)
        self._drafts.fill(guess.tokens, guess.shares)

    def guess(self, text: Sequence[int], limit: int) -> Guess:
        """The better of what this text and what earlier replies suggest; this text's among equals."""
        self._here.grow(text)
        end = text[-LONGEST:]
        here, before = best_guess(self._here, end, limit), best_guess(self._before, end, limit)
        return here if here.score >= before.score else before

    def observe(self, text: Sequence[int], drafted: int) -> None:
        self._here.grow(text)

    def _remember(self, reply: Sequence[int]) -> None:
        if not reply:
            return
        if len(self._before.text) > REMEMBERED:
            kept, self._before = self._before.text[-REMEMBERED // 2 :], Occurrences()
            self._before.extend(kept)
        self._before.extend([*reply, END])
