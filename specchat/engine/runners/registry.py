"""Makes the drafters of a loaded pair, and says in words why it lacks the others."""

from dataclasses import replace

from specchat.engine.decoding.draft import Drafter
from specchat.engine.drafters.parts import Parts
from specchat.engine.pair import StrategyStatus
from specchat.engine.strategies import STRATEGIES
from specchat.engine.strategy import Facts


def drafters_for(parts: Parts, facts: Facts) -> tuple[dict[str, Drafter], tuple[StrategyStatus, ...]]:
    """Drafters by strategy, and the status of every strategy; those that delegate are made of the others."""
    parts = replace(parts, strategies=STRATEGIES, made={})
    reasons = {name: one.unsupported(facts) for name, one in STRATEGIES.items()}
    for one in sorted(STRATEGIES.values(), key=lambda one: one.group == "auto"):
        if not reasons[one.name]:
            parts.made[one.name] = one.make(parts)
    return parts.made, tuple(StrategyStatus(name, not reason, reason) for name, reason in reasons.items())
