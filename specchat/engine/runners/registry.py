"""The drafters of a loaded pair, with reasons for unsupported strategies."""

from dataclasses import replace

from specchat.engine.decoding.draft import Drafter
from specchat.engine.drafters.parts import Parts
from specchat.engine.protocol.pair import StrategyStatus
from specchat.engine.strategies import STRATEGIES
from specchat.engine.strategy import Facts


def drafters_for(parts: Parts, facts: Facts) -> tuple[dict[str, Drafter], tuple[StrategyStatus, ...]]:
    """Drafters by strategy, and the status of every strategy; those that delegate are made from the others."""
    parts = replace(parts, strategies=STRATEGIES, made={})
    reasons = {name: one.unsupported(facts) for name, one in STRATEGIES.items()}
    for one in sorted(STRATEGIES.values(), key=lambda one: one.group == "auto"):
        if not reasons[one.name]:
            parts.made[one.name] = one.make(parts)
    return parts.made, tuple(StrategyStatus(name, not reason, reason) for name, reason in reasons.items())
