"""What can be copied first, a draft model otherwise: copies cost nothing where they are sure.

Where a copy ends before the limit the model may go on after it: it takes the copied tokens into its cache in one pass.
What it adds is lost with the first copied token that is refused, so that it does so only after matches of a length
whose copies were nearly always kept whole.
"""

from collections import defaultdict
from collections.abc import Sequence

from specchat.engine.decoding.draft import Drafts
from specchat.engine.decoding.stepped import Stepped
from specchat.engine.drafters.draft_model import DraftModelDrafter
from specchat.engine.drafters.guess import Copier, Guess

TRUSTED = 4
"""Tokens that must match: after fewer a draft model knows better."""
WHOLE = 0.8
"""Share of copies kept whole from which the model goes on."""
NEWEST = 0.1
"""Weight of the newest copy in that share."""


class CascadeDrafter:
    """Drafts by two others, each of which is begun and told to forget by whoever has them all."""

    name = "cascade"

    def __init__(self, copier: Copier, drafts: Drafts, model: DraftModelDrafter, joint: bool) -> None:
        """`joint` where the model can go on after a copy: it drafts by `drafts` too, on the host."""
        self._copier = copier
        self._drafts = drafts
        self._model = model
        self._joint = joint
        self.forget()

    @property
    def ahead(self) -> bool:
        return self._model.ahead

    def begin(self, prompt: Sequence[int]) -> None:
        pass

    def forget(self) -> None:
        self._whole: defaultdict[int, float] = defaultdict(float)
        """The share of copies kept whole, by the length of what matched."""
        self._copy = Guess()
        self._by_model = False

    def propose(self, text: Sequence[int], limit: int) -> str:
        guess = self._copier.guess(text, limit)
        self._copy = guess if guess.matched >= TRUSTED else Guess()
        copied = len(self._copy.tokens)
        room = min(limit, self._model.draft.model.context - len(text))
        ended = copied > 0 and self._copy.tokens[-1] in self._drafts.ends
        goes_on = self._joint and copied < room and not ended and self._whole[guess.matched] >= WHOLE
        self._by_model = not copied or goes_on
        if not copied:
            return self._model.propose(text, limit)
        self._copy.fill(self._drafts, limit)
        if goes_on:
            self._model.propose(text, limit)
            return self.name
        return self._copier.name

    def observe(self, text: Sequence[int], stepped: Stepped) -> None:
        self._copier.observe(text, stepped)
        if copied := len(self._copy.tokens):
            matched = self._copy.matched
            self._whole[matched] += NEWEST * ((stepped.accepted >= copied) - self._whole[matched])
        if self._by_model:
            self._model.observe(text, stepped)
