"""Inputs of the drafters."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.decoding.draft import Drafter
from specchat.engine.drafters.earlier import Earlier
from specchat.engine.drafters.fences import Fences
from specchat.engine.drafters.occurrences import Occurrences
from specchat.engine.strategy import SkippedLayers, Strategy

if TYPE_CHECKING:
    from torch import Tensor

    from specchat.engine.decoding.costs import StepCosts


@dataclass
class Parts:
    """Models of a loaded pair, and further inputs of its drafters.

    Attributes:
        layers: number of the target's layers.
        joins: as `Executor.joins`.
        costs: costs of the steps.
        earlier: cross-chat n-gram cache.
        fences: tracker of code in the reply.
        draft: the draft model.
        heads: trained heads by family.
        head_layers: cost of the target's output head, in layers.
        exit_layer: number of layers that draft by early exit; None to search for it.
        exit_adapter: what the head reads of hidden states at the early exit.
        skip: sub-layers that drafting leaves out; None to search for them.
        here: index of this chat, shared by all drafters.
        strategies: descriptors, including those of the drafters in `made`.
        made: drafters so far, by strategy: those that delegate come last.
    """

    target: CachedModel[Any]
    layers: int
    joins: bool
    costs: "StepCosts"
    earlier: Earlier = field(default_factory=Earlier)
    fences: Fences = field(default_factory=Fences)
    draft: CachedModel[Any] | None = None
    heads: Mapping[str, CachedModel[Any]] = field(default_factory=dict)
    head_layers: float = 0.0
    exit_layer: int | None = None
    exit_adapter: "Callable[[Tensor], Tensor] | None" = None
    skip: SkippedLayers | None = None
    here: Occurrences = field(default_factory=Occurrences)
    strategies: Mapping[str, Strategy] = field(default_factory=dict)
    made: dict[str, Drafter] = field(default_factory=dict)
