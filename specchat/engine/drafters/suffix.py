"""Suffix decoding (Oliaro et al. 2024): what followed the end of the text before, weighed by how often it did.

Two places are searched: the text itself, and the replies it had a part in since the pair was loaded. Where the end of
the text occurs several times, the draft follows the token that followed most often, and a draft ends where its
probability, the product of these shares, falls below `LEAST`. Longer matches are surer and rarer: each length that
occurs makes a draft of its own, and the one with the largest sum of probabilities is taken, the longer match among
equals.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from specchat.engine.decoding.draft import Drafts

KEY = 2
"""Shortest match in tokens."""
LONGEST = 64
"""Matches longer than this count as equal."""
CANDIDATES = 32
"""Latest occurrences of the key that are compared."""
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


class Occurrences:
    """A growing text and where each pair of tokens ends in it."""

    def __init__(self) -> None:
        self.text: list[int] = []
        self._ends: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)

    def extend(self, tokens: Sequence[int]) -> None:
        """Append `tokens`; the pair that ends the text is entered when the next one comes: it must not match itself."""
        for token in tokens:
            if len(self.text) >= KEY:
                self._ends[tuple(self.text[-KEY:])].append(len(self.text))
            self.text.append(token)

    def guess(self, end: Sequence[int], limit: int) -> Guess:
        """The best draft of at most `limit` tokens after a text that ends with `end`."""
        matches = [(self._length(at, end), at) for at in reversed(self._ends.get(tuple(end[-KEY:]), [])[-CANDIDATES:])]
        best = Guess()
        for length in sorted({length for length, _ in matches}, reverse=True)[:LENGTHS]:
            places = [at for matched, at in matches if matched >= length]
            guess = self._follow(places, min(limit, SPREAD * length))
            if guess.score > best.score:
                best = guess
        return best

    def _length(self, at: int, end: Sequence[int]) -> int:
        """How many tokens before `at` are those of `end`."""
        length, most = KEY, min(LONGEST, at, len(end))
        while length < most and self.text[at - 1 - length] == end[-1 - length]:
            length += 1
        return length

    def _follow(self, places: list[int], limit: int) -> Guess:
        """Go on from all `places` at once, with what most of them go on with."""
        guess, probability = Guess(), 1.0
        for i in range(limit):
            followed = Counter(self._token(at + i, guess) for at in places)
            if not followed:
                break
            token, times = followed.most_common(1)[0]
            share = times / len(places)
            probability *= share
            if token == END or probability < LEAST:
                break
            places = [at for at in places if self._token(at + i, guess) == token]
            guess.tokens.append(token)
            guess.shares.append(share)
            guess.score += probability
        return guess

    def _token(self, at: int, guess: Guess) -> int:
        """A token of the text; beyond its end the draft itself: repetition repeats."""
        past = at - len(self.text)
        return self.text[at] if past < 0 else guess.tokens[past]


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
        self._here.extend(text[len(self._here.text) :])
        end = text[-LONGEST:]
        here, before = self._here.guess(end, limit), self._before.guess(end, limit)
        return here if here.score >= before.score else before

    def observe(self, text: Sequence[int], drafted: int) -> None:
        self._here.extend(text[len(self._here.text) :])

    def _remember(self, reply: Sequence[int]) -> None:
        if not reply:
            return
        if len(self._before.text) > REMEMBERED:
            kept, self._before = self._before.text[-REMEMBERED // 2 :], Occurrences()
            self._before.extend(kept)
        self._before.extend([*reply, END])
