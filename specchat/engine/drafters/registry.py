"""Which drafters a loaded pair has, and in words why it lacks the others."""

from specchat.engine.api import StrategyStatus
from specchat.engine.decoding.draft import Drafter
from specchat.engine.drafters.draft_model import DraftModelDrafter
from specchat.engine.drafters.lookup import LookupDrafter
from specchat.engine.drafters.plain import PlainDrafter
from specchat.engine.drafters.swift import SwiftDrafter
from specchat.engine.model.decoder import Decoder
from specchat.engine.strategies import STRATEGIES

SWIFT_LAYERS = 4
"""Fewest layers with something between the first and the last to skip."""


def drafters_for(
    target: Decoder, draft: Decoder | None, no_draft: str
) -> tuple[dict[str, Drafter], tuple[StrategyStatus, ...]]:
    """Drafters by strategy name, and the status of every strategy.

    `no_draft` says why there is no draft model, where there is none.
    """
    drafters: dict[str, Drafter] = {"plain": PlainDrafter(), "lookup": LookupDrafter()}
    refused: dict[str, str] = {}
    if draft is not None:
        drafters["draft"] = DraftModelDrafter(draft, target.config.vocab)
    else:
        refused["draft"] = no_draft
    if target.config.layers >= SWIFT_LAYERS:
        drafters["swift"] = SwiftDrafter(target)
    else:
        refused["swift"] = f"the target has only {target.config.layers} layers: too few to skip some"
    return drafters, tuple(StrategyStatus(name, name in drafters, refused.get(name, "")) for name in STRATEGIES)
