"""Interface of executors of a step: the host's CPU eagerly, a GPU by captured graphs."""

from typing import Protocol

from specchat.engine.decoding.costs import StepCosts
from specchat.engine.decoding.draft import Proposal
from specchat.engine.decoding.length_policy import LengthPolicies
from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.decoding.reply_rules import ReplyRules
from specchat.engine.protocol.options import Acceptance


class Executor(Protocol):
    """Runner of a pair's models: drafts, samples and verifies, all with one set of options and one noise.

    It owns the drafting loops: a chain token by token or in one call, a block, a tree level by level.
    """

    asynchronous: bool
    """True if steps run asynchronously to the host, so that the next one is started early."""
    joins: bool
    """True if one step may hold drafts of two strategies: a chain after a copy, or a copy after a chain."""

    @property
    def costs(self) -> StepCosts: ...

    policies: LengthPolicies

    def begin(self, rules: ReplyRules, prompt: list[int]) -> None:
        """Begin a reply to `prompt`.

        Raises:
            ModelError: more end-of-text tokens than the executor allows.
        """
        ...

    def supports(self, proposal: Proposal) -> bool:
        """Return False for a proposal that cannot be run in this reply."""
        ...

    def start(self, acceptance: Acceptance) -> None:
        """Start a step with this acceptance test; proposing is part of its time."""
        ...

    def verify(self, proposal: Proposal) -> None:
        """Draft as proposed, and verify the pending token and the draft."""
        ...

    def outcome(self, follow: bool = False) -> StepOutcome:
        """Wait for the outcome; the executor's text now includes the added tokens.

        With `follow` the same comes next, a plain step or a model's chain; an asynchronous executor starts it first.
        """
        ...

    def rewind(self, token_ids: list[int]) -> None:
        """Set the executor's text back to `token_ids`, dropping unwanted tokens of a step."""
        ...
