"""The drafters of a loaded pair, with reasons for unsupported strategies."""

from collections.abc import Mapping
from dataclasses import replace

from specchat.engine.decoding.draft import Drafter
from specchat.engine.drafters.parts import Parts
from specchat.engine.protocol.pair import StrategyStatus
from specchat.engine.strategies import STRATEGIES
from specchat.engine.strategy import Facts, Feature, highest


def drafters_for(
    parts: Parts, unsupported: Mapping[Feature, str], heads: Mapping[str, str]
) -> tuple[dict[str, Drafter], tuple[StrategyStatus, ...]]:
    """Drafters by strategy, and the status of every strategy; those that delegate are made from the others.

    `unsupported` and `heads` are as in `Facts`.
    """
    layers, parts = parts.layers, replace(parts, strategies=STRATEGIES, made={})
    facts = Facts(unsupported, heads, layers.count, layers.exit, highest(layers.skip))
    reasons = {name: one.unsupported(facts) for name, one in STRATEGIES.items()}
    for one in sorted(STRATEGIES.values(), key=lambda one: one.group == "auto"):
        if not reasons[one.name]:
            parts.made[one.name] = one.make(parts)
    return parts.made, tuple(StrategyStatus(name, not reason, reason) for name, reason in reasons.items())
