"""All outputs of a forward pass, allocated once: captured graphs read and write fixed addresses."""

from math import prod
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from specchat.engine.device.weights import ModelWeights
from specchat.engine.gpu_shapes import PASS_ROWS, VERIFY_ROWS
from specchat.engine.kernels.products import activates, splits
from specchat.engine.kernels.workspace import workspace
from specchat.engine.recipe import Layer, Matrix, Recipe

T = TypeVar("T")


class Between(NamedTuple, Generic[T]):
    """Values between the kernels of a layer, as shapes or tensors T.

    Products write partial sums, float32 [splits, PASS_ROWS, outputs]; `query` [PASS_ROWS, heads, head_dim], `mixed`
    [PASS_ROWS, heads * head_dim] and `act` [PASS_ROWS, width] are in the compute dtype. `gate_up` is empty if the
    product applies the activation itself.
    """

    qkv: T
    query: T
    mixed: T
    out: T
    gate_up: T
    act: T
    down: T


class Buffers:
    """Activations of one model. Layers share memory through views in their own shapes."""

    def __init__(
        self, recipe: Recipe, weights: ModelWeights, capacity: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        def partials(matrix: Matrix) -> tuple[int, ...]:
            return splits(weights.products[matrix].weight), PASS_ROWS, sum(matrix.outputs)

        def shapes(layer: Layer) -> Between[tuple[int, ...]]:
            mixer, feed = layer.attention, layer.gated
            return Between(
                qkv=partials(mixer.qkv),
                query=(PASS_ROWS, mixer.heads, mixer.head_dim),
                mixed=(PASS_ROWS, mixer.heads * mixer.head_dim),
                out=partials(mixer.out),
                gate_up=(0,) if activates(weights.products[feed.gate_up].weight) else partials(feed.gate_up),
                act=(PASS_ROWS, feed.width),
                down=partials(feed.down),
            )

        dtypes = Between(torch.float32, dtype, dtype, torch.float32, torch.float32, dtype, torch.float32)
        wanted = [shapes(layer) for layer in recipe.layers]
        self._shared = Between(
            *(
                torch.zeros(max(prod(shape) for shape in alike), device=device, dtype=kind)
                for kind, *alike in zip(dtypes, *wanted, strict=True)
            )
        )
        self.layers: list[Between[Tensor]] = [
            Between(*(whole[: prod(shape)].view(shape) for whole, shape in zip(self._shared, own, strict=True)))
            for own in wanted
        ]
        self.residual = torch.zeros(PASS_ROWS, recipe.hidden, device=device, dtype=torch.float32)
        self.x = torch.zeros(PASS_ROWS, recipe.hidden, device=device, dtype=dtype)
        head = weights.head
        self.logits = torch.zeros(splits(head), VERIFY_ROWS, head.shape[0], device=device, dtype=torch.float32)
        self.whole = None
        """With a draft vocabulary: logits of all tokens, float32 [VERIFY_ROWS, vocab], -inf for those outside it."""
        if weights.tokens is not None:
            self.whole = torch.full((VERIFY_ROWS, recipe.vocab), float("-inf"), device=device)
        self.offsets = torch.arange(PASS_ROWS, device=device, dtype=torch.int32)
        heads = max(mixer.heads for mixer in recipe.attentions)
        self.attention = workspace(PASS_ROWS, heads, recipe.deepest, capacity, device)

    def memory(self) -> int:
        """Bytes held."""
        held = (*vars(self).values(), *self._shared, *vars(self.attention).values())
        return sum(t.numel() * t.element_size() for t in held if isinstance(t, Tensor))
