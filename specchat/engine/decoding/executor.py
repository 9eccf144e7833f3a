"""What runs the parts of a step: the host's processor eagerly, a GPU by captured graphs."""

from collections.abc import Collection
from typing import Protocol

from specchat.engine.decoding.costs import StepCosts
from specchat.engine.decoding.draft import Drafts
from specchat.engine.decoding.stepped import Stepped
from specchat.engine.decoding.stop import Stops
from specchat.engine.options import Acceptance, Sampling


class Executor(Drafts, Protocol):
    """Runs a pair's models, draws from their logits and judges drafts, all with one set of options and one noise."""

    ahead: bool
    """Whether a step runs while the host does something else: then the next one is started early."""
    costs: StepCosts
    stops: Stops

    def begin(self, sampling: Sampling, prompt: list[int], eos: Collection[int]) -> None:
        """A reply to `prompt` starts; nothing is added after a token of `eos`."""
        ...

    def start(self, acceptance: Acceptance) -> None:
        """A step starts: what is drafted from now on is judged so."""
        ...

    def verify(self) -> None:
        """Let the target check the pending token and the drafted ones, as soon as these are there."""
        ...

    def verdict(self, follow: bool = False) -> Stepped:
        """Wait for the outcome; the tokens added are now part of the executor's text.

        With `follow` a step that drafts nothing is wanted next, and is started before: who is `ahead` has it under way.
        """
        ...

    def place(self, text: list[int]) -> None:
        """Drop what a step added that is not wanted: `text` is what there is."""
        ...
