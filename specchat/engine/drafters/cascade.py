"""Cascade: copies where they are sure and cost nothing, a draft model otherwise.

Where a copy ends before the limit, the model may continue it, after reading the copied tokens in one pass. Its tokens
are lost with the first rejected copied token. So it continues only copies of a match length that was nearly always
accepted whole.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence

from specchat.engine.decoding.draft import Chain, Copier, Copy, Drafter, Proposal, Then
from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.drafters.draft_model import DRAFT, DraftModelDrafter
from specchat.engine.drafters.ngram import STRATEGY as NGRAM
from specchat.engine.drafters.ngram import NgramDrafter
from specchat.engine.drafters.parts import Parts
from specchat.engine.strategy import Strategy

TRUSTED = 4
"""Least match in tokens: below it a draft model does better."""
WHOLE = 0.8
"""Least share of copies accepted whole for the model to continue them."""
NEWEST = 0.1
"""Weight of the newest copy in that share."""


class CascadeDrafter(Drafter):
    """Drafter that delegates to two others, which the registry begins and resets itself."""

    name = "cascade"

    def __init__(self, copier: Copier, model: DraftModelDrafter, joins: bool) -> None:
        """Initialise; `joins` is true if the model can continue a copy."""
        self._copier, self._model, self._joins = copier, model, joins
        self._ends: Collection[int] = ()
        self.forget()

    @property
    def instant(self) -> bool:
        return self._model.instant

    def begin(self, prompt: Sequence[int], ends: Collection[int] = ()) -> None:
        self._ends = ends

    def forget(self) -> None:
        self._whole: defaultdict[int, float] = defaultdict(float)
        """Share of copies accepted whole, by match length."""
        self._copy = Copy()
        self._by_model = False

    def propose(self, token_ids: Sequence[int], limit: int) -> Proposal:
        copy = self._copier.propose(token_ids, limit)
        self._copy = copy if copy.matched >= TRUSTED else Copy()
        copied = len(self._copy.tokens)
        if not copied:
            self._by_model = True
            return self._model.propose(token_ids, limit)
        room = min(limit, self._model.draft.model.context - len(token_ids))
        ended = copy.tokens[-1] in self._ends
        self._by_model = self._joins and copied < room and not ended and self._whole[copy.matched] >= WHOLE
        if self._by_model and isinstance(chain := self._model.propose(token_ids, limit), Chain):
            return Then(self.name, copy, chain)
        return copy

    def observe(self, token_ids: Sequence[int], outcome: StepOutcome) -> None:
        self._copier.observe(token_ids, outcome)
        if copied := len(self._copy.tokens):
            matched = self._copy.matched
            self._whole[matched] += NEWEST * ((outcome.accepted >= copied) - self._whole[matched])
        if self._by_model:
            self._model.observe(token_ids, outcome)


def _make(parts: Parts) -> CascadeDrafter:
    copier, model = parts.drafters[NGRAM.name], parts.drafters[DRAFT.name]
    assert isinstance(copier, NgramDrafter)
    assert isinstance(model, DraftModelDrafter)
    return CascadeDrafter(copier, model, parts.joins)


STRATEGY = Strategy(
    name="cascade",
    group="auto",
    title="Cascade",
    summary="Copies after a long match, and lets the draft model draft otherwise.",
    draft_length=8,
    notes="""Copies come from n-grams. It follows fixed rules; `auto` follows costs: [cascade.md](cascade.md). *Pays*
where a reply has both.""",
    make=_make,
    needs=("drafting", "draft"),
    drafts="a copy, or the draft",
)
