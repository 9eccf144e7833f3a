"""Makes the bandit from a pair's drafters: which of them are arms, copiers and trees."""

from typing import cast

from specchat.engine.bandit.drafter import AutoDrafter
from specchat.engine.decoding.draft import Copier, ModelDrafter
from specchat.engine.drafters.parts import Parts


def make(parts: Parts) -> AutoDrafter:
    """Create the bandit over the drafters of a pair."""
    arms = {name: drafter for name, drafter in parts.made.items() if parts.strategies[name].arm == "yes"}
    copiers = [cast(Copier, arms.pop(name)) for name in list(arms) if parts.strategies[name].group == "copied"]
    alone = (name for name in parts.made if parts.strategies[name].arm == "alone")
    models = {name: drafter for name, drafter in arms.items() if not parts.strategies[name].tree_of}
    models = models or {name: parts.made[name] for name in alone}  # the target drafts for itself
    trees = {parts.strategies[name].tree_of: drafter for name, drafter in arms.items() if name not in models}
    after = next(((copier.name, copier.after) for copier in copiers if hasattr(copier, "after")), None)
    drafters = cast(list[ModelDrafter], list(models.values())), cast(dict[str, ModelDrafter], trees)
    return AutoDrafter(copiers, after if parts.joins else None, *drafters, parts.costs, parts.fences)
