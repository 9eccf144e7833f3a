"""Writing models that were found into the user's models.toml, from their list."""

from collections.abc import Callable

from specchat.config.catalog import Catalog
from specchat.engine.errors import EngineError
from specchat.models.declare import DeclaredPair, Named
from specchat.models.offers import Offer

Add = Callable[[Named, Named | None], DeclaredPair]


class Adding:
    """`outcomes` are those of requests, by the ids of pairs; `added` is the id of the pair that was written last."""

    def __init__(self, add: Add | None) -> None:
        self._add = add
        self._busy = False
        self.outcomes: dict[str, str] = {}
        self.added = ""

    def possible(self, offer: Offer) -> bool:
        return not offer.declared and self._add is not None

    def begin(self, offer: Offer) -> bool:
        """True where `run` is to follow."""
        if self._busy or not self.possible(offer):
            return False
        self._busy = True
        self.outcomes[offer.pair.id] = "looking at the model"
        return True

    def run(self, offer: Offer) -> Catalog | None:
        """Write `offer` with its draft, or one that is here; gives all pairs there are then, None where it failed.

        In a thread of its own: vocabularies are compared.
        """
        assert self._add is not None
        target, own = offer.pair, offer.pair.spec.draft
        here = ((proposal.source, proposal.name) for proposal in offer.drafts.proposals if proposal.about is not None)
        draft = (own, own.label) if own is not None else next(here, None)
        name = target.name if own is None or offer.target is None else offer.target.name
        try:
            written = self._add((target.spec.target, name), draft)
        except EngineError as error:
            self.outcomes[target.id] = f"not written: {error.message}"
            return None
        finally:
            self._busy = False
        self.added = str(written.table["id"])
        self.outcomes[self.added] = f"written to {written.file}{f', with {draft[1]} to draft' if draft else ''}"
        return written.catalog
