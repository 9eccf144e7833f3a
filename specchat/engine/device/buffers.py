"""All outputs of a forward pass, allocated once: captured graphs use fixed addresses."""

from math import prod

import torch
from torch import Tensor

from specchat.engine.device.skips import FLAGS
from specchat.engine.device.weights import ModelWeights
from specchat.engine.kernels.gpu_shapes import VERIFY_ROWS
from specchat.engine.kernels.pairs import Pairs, allocated
from specchat.engine.kernels.processors import processors
from specchat.engine.kernels.products import splits
from specchat.engine.kernels.stored import bits_of
from specchat.engine.kernels.workspace import workspace
from specchat.engine.memory.gpu_buffers import Cuts, Shape, attention_sets, prompt_rows, shapes
from specchat.engine.program.ops import Half, Program
from specchat.engine.recipe import Recipe

Views = dict[str, Tensor]
"""Buffers of an operation by name, in its own shapes."""


class Buffers:
    """Activations of one model. Operations share memory through views in their own shapes.

    Attributes:
        residual: the residual stream, float32 [width, hidden]; the width is that of a prompt's pass.
        pictures: of a model that reads them, the rows that stand for their tokens in a pass, and those that are added
            after each of some first layers: float32 [sees, width, hidden].
        x: the stream after a norm, compute dtype [width, hidden].
        before: views of operations before the layers.
        layers: views of the operations of a layer, by its index and their half; a half sees those before it.
        pairs: of mixtures, by number of experts and of those that a row has.
    """

    def __init__(
        self,
        recipe: Recipe,
        program: Program,
        weights: ModelWeights,
        context: int,
        capacity: int,
        device: torch.device,
        dtype: torch.dtype,
        sees: int = 0,
    ) -> None:
        bits = {matrix: bits_of(product.weight) for matrix, product in weights.products.items()}
        self.cuts = cuts = Cuts(bits, weights.joined, processors(device), prompt_rows(recipe))
        before = dict(shapes(program.inputs, cuts)) if program.inputs else {}
        halves: list[dict[Half, dict[str, Shape]]] = [
            {half: dict(one for op in ops if op.half == half for one in shapes(op.kind, cuts)) for half in FLAGS}
            for ops in program.layers
        ]
        alike: dict[str, list[Shape]] = {}
        for own in (before, *(of_half for layer in halves for of_half in layer.values())):
            for name, shape in own.items():
                alike.setdefault(name, []).append(shape)
        self._shared: dict[str, Tensor] = {}
        for name, of_name in alike.items():
            kind = torch.float32 if of_name[0].single else dtype
            self._shared[name] = torch.zeros(max(prod(one.sizes) for one in of_name), device=device, dtype=kind)

        def views(own: dict[str, Shape]) -> Views:
            return {name: self._shared[name][: prod(sizes)].view(sizes) for name, (sizes, _) in own.items()}

        self.before = views(before)
        self.layers: list[dict[Half, Views]] = []
        for layer in halves:
            seen: Views = {}
            self.layers.append({half: (seen := seen | views(own)) for half, own in layer.items()})
        self.x = self._shared["inputs"].view(cuts.width, recipe.hidden)
        self.residual = torch.zeros(cuts.width, recipe.hidden, device=device, dtype=torch.float32)
        self.pictures = torch.zeros(sees, *self.residual.shape, device=device) if sees else None
        head = weights.head
        self.logits = torch.zeros(splits(head), VERIFY_ROWS, head.shape[0], device=device, dtype=torch.float32)
        self.whole = None
        """With a draft vocabulary: logits of all tokens, float32 [VERIFY_ROWS, vocab], -inf for those outside it."""
        if weights.tokens is not None:
            self.whole = torch.full((VERIFY_ROWS, recipe.vocab), float("-inf"), device=device)
        self.offsets = torch.arange(cuts.width, device=device, dtype=torch.int32)
        self.attention = workspace(*attention_sets(recipe, context, capacity), device)
        forms = {(of.count + more, of.top + more) for of in recipe.mixtures for more in [cuts.more(of)]}
        self.pairs: dict[tuple[int, int], Pairs] = {form: allocated(*form, device) for form in forms}

    def memory(self) -> int:
        """Bytes held."""
        own = self.residual, self.pictures, self.logits, self.whole, self.offsets
        of_pairs = (one for pairs in self.pairs.values() for one in vars(pairs).values())
        held = (*own, *self._shared.values(), *self.attention, *of_pairs)
        return sum(one.nbytes for one in held if isinstance(one, Tensor))
