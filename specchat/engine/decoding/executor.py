"""Interface of what runs a step: the host's processor eagerly, a GPU by captured graphs."""

from collections.abc import Collection
from typing import Protocol

from specchat.engine.decoding.costs import StepCosts
from specchat.engine.decoding.draft import Proposal
from specchat.engine.decoding.length_policy import LengthPolicies
from specchat.engine.decoding.stepped import Stepped
from specchat.engine.options import Acceptance, Sampling


class Executor(Protocol):
    """Runs a pair's models, draws from their logits and judges drafts, all with one set of options and one noise.

    It owns the loops over what is proposed: a chain token by token or in one go, a block, a tree level by level.
    """

    ahead: bool
    """Whether a step runs while the host does something else: then the next one is started early."""
    joins: bool
    """Whether one step may hold drafts of two strategies: a chain after a copy, or a copy after a chain."""
    costs: StepCosts
    policies: LengthPolicies

    def begin(self, sampling: Sampling, prompt: list[int], eos: Collection[int]) -> None:
        """A reply to `prompt` starts; nothing is added after a token of `eos`."""
        ...

    def start(self, acceptance: Acceptance) -> None:
        """A step starts, whose draft is judged so; proposing is part of its time."""
        ...

    def verify(self, proposal: Proposal) -> None:
        """Draft as proposed, and let the target verify the pending token and the drafted ones."""
        ...

    def verdict(self, follow: bool = False) -> Stepped:
        """Wait for the outcome; the tokens added are now part of the executor's text.

        With `follow` a step that drafts nothing is wanted next; an executor that is `ahead` starts it first.
        """
        ...

    def place(self, text: list[int]) -> None:
        """Drop tokens that a step added and that are not wanted: `text` is what there is."""
        ...
