"""Which drafters a loaded pair has, and in words why it lacks the others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from specchat.engine.decoding.cached import CachedModel, Model
from specchat.engine.decoding.costs import StepCosts
from specchat.engine.decoding.draft import Drafter, Drafts, ModelDrafter
from specchat.engine.drafters.auto import AutoDrafter
from specchat.engine.drafters.cascade import CascadeDrafter
from specchat.engine.drafters.draft_model import DraftModelDrafter
from specchat.engine.drafters.draft_tree import DraftTreeDrafter
from specchat.engine.drafters.earlier import Earlier
from specchat.engine.drafters.early_exit import EarlyExitDrafter, Exits
from specchat.engine.drafters.fences import Fences
from specchat.engine.drafters.lookahead import LookaheadDrafter
from specchat.engine.drafters.lookup import LookupDrafter
from specchat.engine.drafters.ngram import NgramDrafter
from specchat.engine.drafters.occurrences import Occurrences
from specchat.engine.drafters.plain import PlainDrafter
from specchat.engine.drafters.suffix import SuffixDrafter
from specchat.engine.drafters.swift import SwiftDrafter
from specchat.engine.pair import StrategyStatus
from specchat.engine.strategies import HEADED, STRATEGIES, SWIFT_LAYERS


@dataclass(frozen=True)
class DraftModel:
    """A pair's draft model and what runs it; `ahead` where that is a device that works by itself."""

    cached: CachedModel[Model]
    drafts: Drafts
    ahead: bool


def drafters_for(
    target: CachedModel[Model],
    layers: int,
    drafts: Drafts,
    draft: DraftModel | None,
    earlier: Earlier,
    costs: StepCosts,
    fences: Fences,
    unfit: Mapping[str, str] = MappingProxyType({}),
    exits: Exits | None = None,
    headed: Sequence[ModelDrafter] = (),
) -> tuple[dict[str, Drafter], tuple[StrategyStatus, ...]]:
    """Drafters by strategy name, and the status of every strategy, for a target of so many layers.

    `drafts` makes what the target drafts for itself; `earlier` is what may be copied from other chats; `costs` are told
    of each step; `fences` tell code from prose; `unfit` says of strategies that what runs the target cannot have why;
    `exits` where it can be left between its layers; `headed` draft by trained heads, a head's chain before its tree.
    """
    here = Occurrences()
    lookup, suffix = LookupDrafter(drafts, here), SuffixDrafter(drafts, here, earlier)
    ngram = NgramDrafter(drafts, earlier)
    copiers = [drafter for drafter in (lookup, suffix, ngram) if drafter.name not in unfit]
    drafters: dict[str, Drafter] = {drafter.name: drafter for drafter in (PlainDrafter(), *copiers)}
    refused = dict(unfit)
    models: list[ModelDrafter] = []
    trees: dict[str, ModelDrafter] = {}
    if draft is not None:
        chain = DraftModelDrafter(draft.cached, draft.drafts, draft.ahead)
        tree = DraftTreeDrafter(draft.cached, draft.drafts, draft.ahead)
        # A device's captured passes begin at the end of the text: nothing can go on after a copy there.
        joint = drafts is draft.drafts and not draft.ahead
        cascade = CascadeDrafter(ngram, drafts, chain, joint)
        drafters |= {drafter.name: drafter for drafter in (chain, tree, cascade) if drafter.name not in unfit}
        models = [chain] if chain.name in drafters else []
        trees = {chain.name: tree} if tree.name in drafters else {}
    else:
        refused = {
            info.name: "this pair has no draft model" for info in STRATEGIES.values() if info.needs_draft
        } | refused
    if "lookahead" not in unfit:
        drafters["lookahead"] = LookaheadDrafter(drafts)
    if exits is not None and not exits.refused:
        drafters["early-exit"] = EarlyExitDrafter(target, exits)
    elif "early-exit" not in unfit:
        refused["early-exit"] = exits.refused if exits is not None else "on a GPU a pass runs from the first layer on"
    drafters |= {drafter.name: drafter for drafter in headed}
    chains: dict[str | None, ModelDrafter] = {}
    for drafter in headed:
        chain_of_head = chains.setdefault(STRATEGIES[drafter.name].needs_head, drafter)
        if drafter is not chain_of_head:
            trees[chain_of_head.name] = drafter
    models += chains.values()
    lacking = dict.fromkeys(
        set(HEADED) - drafters.keys(), "this pair has no such heads; [pair.heads] in models.toml names them"
    )
    refused = lacking | refused
    if layers >= SWIFT_LAYERS and "swift" not in unfit:
        drafters["swift"] = swift = SwiftDrafter(target, layers, drafts)
        models = models or [swift]  # where nothing else drafts for the target it does so itself
    elif "swift" not in unfit:
        refused["swift"] = f"the target has only {layers} layers: too few to skip some"
    asked = [drafter for drafter in (lookup, suffix) if drafter in copiers]
    drafters["auto"] = AutoDrafter(drafts, asked, lookup.after, models, trees, costs, fences)
    return drafters, tuple(StrategyStatus(name, name in drafters, refused.get(name, "")) for name in STRATEGIES)
