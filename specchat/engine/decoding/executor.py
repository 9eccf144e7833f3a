"""What runs the parts of a step: the host's processor eagerly, a GPU by captured graphs."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from specchat.engine.api import Acceptance, Sampling
from specchat.engine.decoding.draft import Drafts


@dataclass(frozen=True)
class Stepped:
    """One verify step: `tokens` were added, the first `accepted` of them drafted. Times in milliseconds.

    `drafts` are the tokens that were proposed, in the order of their nodes, the first of which is node 1; `parents` the
    nodes that they follow, empty for a chain. `path` are the nodes that stayed, `tested` counts the places that were
    judged. `confidence` is the probability of each token, empty where the family has none to tell: it is shown, nothing
    depends on it.
    """

    tokens: tuple[int, ...]
    drafts: tuple[int, ...]
    confidence: tuple[float, ...]
    tested: int
    path: tuple[int, ...]
    draft_ms: float
    verify_ms: float
    parents: tuple[int, ...] = ()

    @property
    def accepted(self) -> int:
        return len(self.path)

    @property
    def drafted(self) -> int:
        return len(self.drafts)


class Executor(Drafts, Protocol):
    """Runs a pair's models, draws from their logits and judges drafts, all with one set of options and one noise."""

    ahead: bool
    """Whether a step runs while the host does something else: then the next one is started early."""

    def begin(self, sampling: Sampling, prompt: list[int], eos: Collection[int]) -> None:
        """A reply to `prompt` starts; nothing is added after a token of `eos`."""
        ...

    def start(self, acceptance: Acceptance) -> None:
        """A step starts: what is drafted from now on is judged so."""
        ...

    def verify(self) -> None:
        """Let the target check the pending token and the drafted ones, as soon as these are there."""
        ...

    def verdict(self) -> Stepped:
        """Wait for the outcome; the tokens added are now part of the executor's text."""
        ...

    def place(self, text: list[int]) -> None:
        """Drop what a step added that is not wanted: `text` is what there is."""
        ...
