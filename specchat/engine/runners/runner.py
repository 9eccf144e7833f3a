"""A loaded pair, with the same interface on every device, and its drafters."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from specchat.engine.decoding.cached import CachedModel, Decoder
from specchat.engine.decoding.draft import Drafter, Role
from specchat.engine.decoding.executor import Executor
from specchat.engine.decoding.reply_rules import Constraint, ReplyRules
from specchat.engine.decoding.step import Decoding
from specchat.engine.decoding.together import CommonPasses
from specchat.engine.drafters.earlier import Earlier
from specchat.engine.drafters.parts import Fences, Parts, TargetLayers
from specchat.engine.memory.need import Place
from specchat.engine.model.rope import long_factors
from specchat.engine.protocol.options import Sampling
from specchat.engine.protocol.pair_info import DraftFacts, StrategyStatus, TargetFacts
from specchat.engine.strategies import STRATEGIES
from specchat.engine.strategy import Facts, Feature, SkippedLayers, highest
from specchat.engine.weights.config import ModelConfig
from specchat.engine.weights.exit_adapter import read_adapter


@dataclass(frozen=True)
class Runner:
    """A target with its drafters.

    Attributes:
        earlier: earlier replies, from which some drafters copy.
        fences: tokens of code fences; the session sets them, since it has the tokenizer.
        vocab: columns of the target's logits.
        eos: end-of-text tokens that the checkpoint names.
        free_cores: those left while the target reads a prompt.
        device: in words.
        gpu: as in `PairInfo`.
        exactness: reason why the text equals that of plain decoding, in words.
        memory: bytes held on the device: weights, cache, buffers.
        caches: all models that have one, by role.
        second_memory: bytes on a second GPU.
        stepwise: the executor of replies under a constraint, and of those with log-probabilities; None where `executor`
            runs them too.
        passes: over several replies; None where these take turns.
        prepare: does in advance the work that would delay the first reply, and reports each part in words.
    """

    target: CachedModel[Decoder]
    draft: CachedModel[Decoder] | None
    executor: Executor
    drafters: Mapping[str, Drafter]
    statuses: tuple[StrategyStatus, ...]
    earlier: Earlier
    fences: Fences
    vocab: int
    eos: frozenset[int]
    place: Place
    free_cores: int
    device: str
    gpu: str
    exactness: str
    memory: Callable[[], int]
    prepare: Callable[[Callable[[str], None]], None]
    caches: Mapping[Role, CachedModel[Any]]
    stepwise: Executor | None = None
    passes: CommonPasses | None = None
    second_memory: int = 0

    @property
    def context(self) -> int:
        """Limit of a chat with its reply, in tokens."""
        return self.target.model.context

    @property
    def long_factors(self) -> str:
        """All that the context determines of the models' KV entries."""
        models = [one.model for one in (self.target, self.draft) if one is not None]
        found = [(getattr(model, "config", None), model.context) for model in models]
        return str([long_factors(of.recipe, context) for of, context in found if isinstance(of, ModelConfig)])

    @property
    def target_facts(self) -> TargetFacts:
        return TargetFacts(self.target.model.parameters(), _tables(self.target.model), self.vocab)

    @property
    def draft_facts(self) -> DraftFacts:
        if self.draft is None:
            return DraftFacts()
        model = self.draft.model
        context = model.context if model.context < self.context else None
        return DraftFacts(model.parameters(), _tables(model), context=context)

    def executor_of(self, constraint: Constraint | None, top: int | None) -> Executor:
        """The executor of a reply."""
        held = constraint is not None or top is not None
        return self.stepwise if held and self.stepwise is not None else self.executor

    def reply(
        self,
        sampling: Sampling,
        prompt: list[int],
        eos: Collection[int],
        probe: Callable[[], bool] = lambda: False,
        constraint: Constraint | None = None,
        top: int | None = None,
        begun: int = 0,
    ) -> Decoding:
        """Start a reply to `prompt`, whose tokens except the last are in the target's cache.

        `probe`: see `Decoding`; the others: see `ReplyRules`.
        """
        executor = self.executor_of(constraint, top)
        return Decoding(executor, self.target, ReplyRules(sampling, eos, constraint, top, begun), prompt, probe)


class DraftingLayers(NamedTuple):
    """Layers of the target that a pair drafts with: those before an early `exit`, and all but sub-layers to `skip`.

    An adapter in the folder `adapter` knows its exit.
    """

    exit: int | None = None
    adapter: str | None = None
    skip: SkippedLayers | None = None

    def of(self, config: ModelConfig, device: torch.device | str = "cpu") -> tuple[TargetLayers, dict[Feature, str]]:
        """The layers of a target, and the reason why its adapter is unsupported, if it is."""
        adapter, unfit = read_adapter(self.adapter, config, device)
        exit_layer = self.exit if adapter is None else adapter.layer
        layers = TargetLayers(config.layers, config.head_layers, exit_layer, adapter, self.skip)
        return layers, {"exits": unfit} if unfit else {}


SEARCHED = DraftingLayers()
"""Layers that strategies search for."""


def _tables(model: Decoder) -> int:
    """Weights of the embeddings and the head of a model of our own; 0 of others."""
    config = getattr(model, "config", None)
    return config.recipe.tables if isinstance(config, ModelConfig) else 0


def drafters_for(
    parts: Parts, unsupported: Mapping[Feature, str], heads: Mapping[str, str]
) -> tuple[dict[str, Drafter], tuple[StrategyStatus, ...]]:
    """Drafters by strategy, and the status of every strategy; those that delegate are made from the others.

    `unsupported` and `heads` are as in `Facts`.
    """
    layers, parts = parts.layers, replace(parts, strategies=STRATEGIES, drafters={})
    facts = Facts(unsupported, heads, layers.count, layers.exit, highest(layers.skip))
    reasons = {name: one.unsupported(facts) for name, one in STRATEGIES.items()}
    for one in sorted(STRATEGIES.values(), key=lambda one: one.group == "auto"):
        if not reasons[one.name]:
            parts.drafters[one.name] = one.make(parts)
    return parts.drafters, tuple(StrategyStatus(name, not reason, reason) for name, reason in reasons.items())
