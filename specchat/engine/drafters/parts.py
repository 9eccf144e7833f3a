"""Inputs of the drafters."""

from collections.abc import Collection, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from specchat.dataclass import dataclass
from specchat.engine.decoding.cached import CachedModel
from specchat.engine.decoding.draft import Drafter
from specchat.engine.drafters.earlier import Earlier
from specchat.engine.drafters.occurrences import Occurrences
from specchat.engine.strategy import SkippedLayers, Strategy

if TYPE_CHECKING:
    from specchat.engine.decoding.costs import StepCosts
    from specchat.engine.weights.exit_adapter import ExitAdapter

FENCE = 3


def backquotes(vocabulary: Mapping[str, int]) -> dict[int, str]:
    """Return the tokens with backquotes by id: fences consist of these alone."""
    return {token: text for text, token in vocabulary.items() if "`" in text}


class Fences:
    """Code tracker of one reply."""

    def __init__(self) -> None:
        self._texts: Mapping[int, str] = {}
        self.begin()

    def know(self, tokens: Mapping[int, str]) -> None:
        """Set the tokens with backquotes, from `backquotes`; before, no text counts as code."""
        self._texts = tokens

    def begin(self) -> None:
        """Begin a reply, in prose."""
        self.code = False
        """True while the reply is in code."""
        self._run = 0

    def add(self, tokens: Collection[int]) -> None:
        """Add `tokens` of the reply."""
        if self._texts.keys().isdisjoint(tokens):
            self._run = 0
            return
        for token in tokens:
            text = self._texts.get(token)
            if text is None:
                self._run = 0
                continue
            for character in text:
                self._run = self._run + 1 if character == "`" else 0
                if self._run == FENCE:
                    self.code = not self.code


@dataclass(frozen=True)
class TargetLayers:
    """The target's layers, for strategies that draft with some of them.

    Attributes:
        count: 0 where they cannot be run apart.
        head: cost of the output head, in layers.
        exit: number of layers that draft by early exit; None to search for it.
        adapter: what the head reads of hidden states at the early exit.
        skip: sub-layers that drafting leaves out; None to search for them.
    """

    count: int = 0
    head: float = 0.0
    exit: int | None = None
    adapter: "ExitAdapter | None" = None
    skip: SkippedLayers | None = None


@dataclass
class Parts:
    """Models of a loaded pair, and further inputs of its drafters.

    Attributes:
        joins: as `Executor.joins`.
        costs: costs of the steps.
        earlier: cross-chat n-gram cache.
        fences: tracker of code in the reply.
        draft: the draft model.
        heads: trained heads by family.
        here: index of this chat, shared by all drafters.
        strategies: descriptors, including those of `drafters`.
        drafters: drafters so far, by strategy: those that delegate come last.
    """

    target: CachedModel[Any]
    layers: TargetLayers
    joins: bool
    costs: "StepCosts"
    earlier: Earlier = field(default_factory=Earlier)
    fences: Fences = field(default_factory=Fences)
    draft: CachedModel[Any] | None = None
    heads: Mapping[str, CachedModel[Any]] = field(default_factory=dict)
    here: Occurrences = field(default_factory=Occurrences)
    strategies: Mapping[str, Strategy] = field(default_factory=dict)
    drafters: dict[str, Drafter] = field(default_factory=dict)
