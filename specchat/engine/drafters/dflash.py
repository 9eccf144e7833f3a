"""DFlash (z-lab 2026, arXiv:2602.06036): a head predicts all tokens of a block in one pass."""

from collections.abc import Sequence
from typing import Protocol

from specchat.engine.decoding.cached import CachedModel, Decoder
from specchat.engine.decoding.draft import Block, Proposal
from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.drafters.draft_model import DraftModelDrafter
from specchat.engine.strategy import HeadFamily, Strategy, headed


class Guessing(Decoder, Protocol):
    """A head that predicts `places` tokens in a pass."""

    places: int


class BlockDrafter(DraftModelDrafter):
    """Drafter of a block by a head, as a draft model whose first token costs as much as all of them."""

    def __init__(self, family: HeadFamily, head: CachedModel[Guessing]) -> None:
        super().__init__(family.name, family.name, head)
        self._head = head.model

    def _proposal(self, limit: int) -> Proposal:
        return Block(self.name, self.role, min(limit, self._head.places))

    def _held(self, token_ids: Sequence[int], outcome: StepOutcome) -> int:
        # The head wrote a KV entry for the token before the pending one, without the target's hidden states.
        return self._proposed - 1


def block_strategy(title: str, summary: str, draft_length: int, notes: str, head: HeadFamily) -> Strategy:
    """Build the strategy that drafts blocks by a head, named after its family."""
    return headed(head, title, summary, draft_length, notes, lambda parts: BlockDrafter(head, parts.heads[head.name]))


STRATEGY = block_strategy(
    "DFlash",
    "A head drafts a block in one pass; its tokens do not depend on each other.",
    8,
    """A few layers fill in a block of masked tokens. They attend to the target's hidden states (DFlash, 2026):
[heads.md](heads.md). *Parameters*: `[pair.heads] dflash`. *Pays* where verifying many tokens costs little more than
verifying one.""",
    HeadFamily("dflash", "specchat.engine.heads.dflash:DFlashHead", "specchat.engine.heads.block_settings:block"),
)
