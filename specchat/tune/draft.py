"""A draft model under training: distilled from the target's distribution over the target's own replies.

Divergences as in DistillSpec (Zhou et al. 2023): forward KL, reverse KL and total variation. A draft's expected
acceptance is one less its total variation from the target (Leviathan et al. 2023, section 3.2).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint

from specchat.engine.recipe import Attention, Recipe
from specchat.engine.reference.layer import hidden_states, layer, logits
from specchat.engine.reference.tensors import Dense
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.matrices import read_named
from specchat.tune.learner import SCORES, Learner, Rates, in_blocks
from specchat.tune.parts import put
from specchat.tune.rows import Batch, TrainingText
from specchat.tune.target import FrozenTarget

Divergence = Literal["forward", "reverse", "variation"]
"""KL of the draft from the target, KL of the target from the draft, or total variation."""
DIVERGENCES: tuple[Divergence, ...] = ("forward", "reverse", "variation")
PART = 128 << 20
"""Estimated bytes that are held for the gradients of the texts of a part of a step, unless a single one takes more."""
ACTIVATIONS = 1 << 30
"""The same for a text, of which one layer is held at a time where it takes more."""
RANK = 16
"""Rank of adapters (LoRA, Hu et al. 2021)."""
WHOLE, ADAPTED = Rates(muon=0.004, adam=5e-4), Rates(muon=0.0, adam=2e-3)


def _forward(target: Tensor, draft: Tensor) -> Tensor:
    p, q = target.log_softmax(-1), draft.log_softmax(-1)
    return (p.exp() * (p - q)).sum(-1)


def _reverse(target: Tensor, draft: Tensor) -> Tensor:
    return _forward(draft, target)


def _variation(target: Tensor, draft: Tensor) -> Tensor:
    return 0.5 * (target.softmax(-1) - draft.softmax(-1)).abs().sum(-1)


LOSSES: Mapping[Divergence, Callable[[Tensor, Tensor], Tensor]] = {
    "forward": _forward,
    "reverse": _reverse,
    "variation": _variation,
}
"""Divergences float32 [rows] of draft logits from target logits, float32 [rows, vocab]."""


def untrainable(draft: Checkpoint) -> str:
    """Reason why a draft cannot be trained, for the end of a sentence; empty if it can."""
    if draft.format is not None and draft.format.stays:
        return "its files are quantised; name the unquantised model, which can be quantised as it loads"
    if draft.config.recipe.mixtures or draft.config.recipe.per_layer:
        return "only models without experts and without inputs of layers can be trained"
    return ""


class Adapted(Dense):
    """Tensors whose products have adapters beside them: merged ones would take as much room as all weights."""

    def linear(self, x: Tensor, name: str, bias: Tensor | None) -> Tensor:
        product = super().linear(x, name, bias)
        down = self._tensors.get(f"{name}.down")
        return product if down is None else product + linear(linear(x, down), self._tensors[f"{name}.up"])


class DraftLearner(Learner):
    """A draft's weights as parameters, under their names in the checkpoint; or adapters of its layers' matrices."""

    scoring = ("embed_tokens.weight", "lm_head.weight", ".up", ".down")

    def __init__(self, target: FrozenTarget, draft: Checkpoint, divergence: Divergence, adapted: bool) -> None:
        """Read the draft's weights; with `adapted` train adapters and leave the weights as they are.

        Raises:
            ModelError: weights missing, damaged or of other shapes.
        """
        super().__init__()
        self._target, self._recipe, self._adapted = target, draft.config.recipe, adapted
        self._loss = LOSSES[divergence]
        recipe = self._recipe
        for name, tensor in read_named(draft, recipe.embed, recipe.head, recipe.norm, *recipe.layers):
            put(self, name, nn.Parameter(tensor, requires_grad=not adapted))
        for matrix in self._recipe.matrices if adapted else ():
            for name, outputs in matrix.parts:
                put(self, f"{name}.up", nn.Parameter(torch.zeros(outputs, RANK)))
                put(self, f"{name}.down", nn.Parameter(torch.randn(RANK, matrix.inputs) / matrix.inputs**0.5))

    @property
    def rates(self) -> Rates:
        return ADAPTED if self._adapted else WHOLE

    def parts(self, batch: Batch) -> list[Batch]:
        most = max(1, PART // activations(self._recipe, batch.tokens.shape[1]))
        return [batch] if len(batch.tokens) <= most else batch.parts(most)

    def loss(self, batch: Batch, seed: int) -> Tensor:
        """The mean divergence over the tokens of the replies."""
        del seed
        row, at = batch.replied()
        states = batch.states[self._target.config.layers]
        tensors = self._tensors()

        def apart(theirs: Tensor, ours: Tensor) -> Tensor:
            wanted, predicted = self._target.logits(theirs), logits(self._recipe, ours, tensors)
            # Models of one family differ in padding behind the tokenizer's tokens.
            both = min(wanted.shape[-1], predicted.shape[-1])
            return self._loss(wanted[:, :both], predicted[:, :both]).sum()

        last = self._last(batch.tokens[:, :-1], tensors)
        return in_blocks(apart, self._recipe.vocab, states[row, at - 1], last[row, at - 1]) / len(row)

    @torch.no_grad()
    def right(self, row: TrainingText) -> Tensor:
        """True where the likeliest token is the text's own: bool [reply tokens]."""
        tokens = row.tokens.to(self.device)
        at = torch.arange(row.start, len(tokens), device=self.device)
        tensors = self._tensors()
        last = self._last(tokens[None, :-1], tensors)[0, at - 1]
        blocks = last.split(max(1, SCORES // self._recipe.vocab))
        guesses = torch.cat([logits(self._recipe, block, tensors).argmax(-1) for block in blocks])
        return (guesses == tokens[at]).cpu()

    def weights(self) -> Mapping[str, Tensor]:
        """The weights float32 by name, adapters merged."""
        every = dict(self.named_parameters())
        merged: dict[str, Tensor] = {name: one for name, one in every.items() if not name.endswith((".up", ".down"))}
        for name, up in every.items():
            if name.endswith(".up"):
                stem = name.removesuffix(".up")
                merged[f"{stem}.weight"] = every[f"{stem}.weight"] + up @ every[f"{stem}.down"]
        return merged

    def _tensors(self) -> Dense:
        every = dict(self.named_parameters())
        return Adapted(every) if self._adapted else Dense(every)

    def _last(self, tokens: Tensor, tensors: Dense) -> Tensor:
        """Hidden states float32 [texts, N, hidden] after the last layer, of texts int64 [texts, N]."""
        # A target may choose a padding token without an embedding in the draft.
        inside = tokens.clamp_max(self._recipe.vocab - 1)
        most = len(tokens) * activations(self._recipe, tokens.shape[1])
        run = layer if most <= ACTIVATIONS or not torch.is_grad_enabled() else _recomputed
        return hidden_states(self._recipe, inside, tensors, run)[-1]


def _recomputed(*arguments: Any) -> Tensor:
    """A layer that is computed again when gradients pass, so that memory holds one layer of a text at a time."""
    hidden: Tensor = checkpoint(layer, *arguments, use_reentrant=False)
    return hidden


def activations(recipe: Recipe, tokens: int) -> int:
    """Estimated bytes that the layers of a draft hold for the gradients of a text."""
    found = 0
    for each in recipe.layers:
        heads = each.mixer.heads if isinstance(each.mixer, Attention) else 0
        found += 2 * tokens * sum(sum(matrix.outputs) for matrix in each.products) + 4 * heads * tokens**2
    return 4 * found


@dataclass(frozen=True)
class HeldOut:
    """Acceptance of greedy drafts of one length over held-out replies."""

    accepted: int
    drafted: int
    steps: int
    tokens: int

    @property
    def rate(self) -> float:
        """Accepted share of the draft tokens."""
        return self.accepted / max(1, self.drafted)

    @property
    def length(self) -> float:
        """Tokens per verify step."""
        return self.tokens / max(1, self.steps)


def held_out(learner: DraftLearner, rows: Sequence[TrainingText], length: int) -> HeldOut:
    """Draft `rows` greedily, `length` tokens a step.

    Exact for replies that were written greedily: up to its first error a draft reads what the target wrote.
    """
    return total(stepped(learner.right(row).tolist(), length) for row in rows)


def stepped(right: Sequence[bool], length: int) -> HeldOut:
    """The steps of a reply whose tokens the draft gets right or not."""
    at = accepted = drafted = steps = 0
    while at < len(right):
        draft = right[at : at + min(length, len(right) - at)]
        good = next((i for i, one in enumerate(draft) if not one), len(draft))
        accepted, drafted, steps = accepted + good, drafted + len(draft), steps + 1
        at += good + 1
    return HeldOut(accepted, drafted, steps, len(right))


def total(parts: Iterator[HeldOut]) -> HeldOut:
    """The sum over replies."""
    every = list(parts)
    return HeldOut(
        sum(one.accepted for one in every),
        sum(one.drafted for one in every),
        sum(one.steps for one in every),
        sum(one.tokens for one in every),
    )
