"""What `auto` knows of a family that runs a model: what its drafts bring, and when it drafted."""

from specchat.engine.decoding.draft import ModelDrafter
from specchat.engine.decoding.pace import by_kind
from specchat.engine.drafters.text_kind import KINDS
from specchat.engine.strategies import MAX_DRAFT_LENGTH

ACCEPTED, DRAFTED = 4.0, 5.0
"""Tokens of a draft that stay, and all of them, before any was judged."""


class ModelRecord:
    """Of one family, by kind of text."""

    def __init__(self, drafter: ModelDrafter, chain: "ModelRecord | None" = None) -> None:
        """`chain` where it is a tree by the model of that one."""
        self.drafter = drafter
        self.chain = chain
        self.accepted = by_kind(ACCEPTED, KINDS)
        self.drafted = by_kind(DRAFTED if chain is None else float(MAX_DRAFT_LENGTH), KINDS)
        self.times: dict[int, float] = {}
        """Times plain's that it promises, by kind of text, until it is thought over."""
        self._stays: dict[int, float] = {}
        self.drafts = self.last = 0
        """Drafts in this chat, and the step in which it drafted last."""
        self.forget()

    def forget(self) -> None:
        self.rethink()
        for average in (*self.accepted, *self.drafted):
            average.forget()
        self.taken = [False] * KINDS
        """Whether it drafts, by kind of text."""
        self.drafts = self.last = 0
        self.again = False
        """Whether its last trial kept all it drafted: then a whole draft follows at once."""

    def rethink(self) -> None:
        """Work out anew what its drafts bring."""
        self.times.clear()
        self._stays.clear()

    def stays(self, of: int) -> float:
        """The chance that a further token of its drafts stays, in a text of kind `of`."""
        if of not in self._stays:
            # As if all places had that chance: the one in the middle keeps the share that is kept of all.
            accepted, drafted = self.accepted[of].value, self.drafted[of].value
            self._stays[of] = min(1.0, accepted / max(drafted, 1.0)) ** (2 / (1 + drafted))
        return self._stays[of]
