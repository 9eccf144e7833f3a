"""What drafters are made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.decoding.draft import Drafter
from specchat.engine.drafters.earlier import Earlier
from specchat.engine.drafters.fences import Fences
from specchat.engine.drafters.occurrences import Occurrences
from specchat.engine.strategy import Strategy

if TYPE_CHECKING:
    from specchat.engine.decoding.costs import StepCosts


@dataclass
class Parts:
    """The models of a loaded pair, and what is known beside them.

    Attributes:
        layers: how many the target has.
        joins: as `Executor.joins`.
        costs: of each step.
        earlier: what may be copied from other chats.
        fences: tell code from prose.
        draft: the draft model.
        draft_ahead: whether it runs on a device that works by itself.
        heads: trained heads by family.
        head_layers: what the target's output head weighs, in layers.
        exit_layer: the number of layers that draft by early exit; None to find it out.
        here: the index of this chat, which all share.
        strategies: the descriptors of those that are made, and of others.
        made: the drafters so far, by strategy: those that delegate come last.
    """

    target: CachedModel[Any]
    layers: int
    joins: bool
    costs: "StepCosts"
    earlier: Earlier = field(default_factory=Earlier)
    fences: Fences = field(default_factory=Fences)
    draft: CachedModel[Any] | None = None
    draft_ahead: bool = False
    heads: Mapping[str, CachedModel[Any]] = field(default_factory=dict)
    head_layers: float = 0.0
    exit_layer: int | None = None
    here: Occurrences = field(default_factory=Occurrences)
    strategies: Mapping[str, Strategy] = field(default_factory=dict)
    made: dict[str, Drafter] = field(default_factory=dict)
