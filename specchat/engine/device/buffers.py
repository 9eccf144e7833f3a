"""All outputs of a forward pass but those of MLPs, allocated once: captured graphs use fixed addresses."""

from collections.abc import Sequence
from math import prod
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from specchat.engine.device.weights import ModelWeights
from specchat.engine.kernels.gpu_shapes import PASS_ROWS, VERIFY_ROWS
from specchat.engine.kernels.products import splits
from specchat.engine.kernels.workspace import workspace
from specchat.engine.recipe import Attention, Layer, Matrix, Recipe

T = TypeVar("T")


class Between(NamedTuple, Generic[T]):
    """Values between the kernels of a mixer, as shapes or tensors T.

    Products write partial sums, float32 [splits, PASS_ROWS, outputs], `qkv` those of the first one; `query` [PASS_ROWS,
    heads, head_dim], empty in a recurrent layer, and `mixed` [PASS_ROWS, inputs of the last one] are in the compute
    dtype.
    """

    qkv: T
    query: T
    mixed: T
    out: T


def sums_shape(weights: ModelWeights, matrix: Matrix) -> tuple[int, int, int]:
    """Shape of the partial sums of a product: [splits, PASS_ROWS, outputs]."""
    weight = weights.products[matrix].weight
    return splits(weight), PASS_ROWS, weight.shape[0]


def views(
    shapes: Sequence[tuple[tuple[int, ...], ...]], dtypes: Sequence[torch.dtype], device: torch.device
) -> tuple[list[Tensor], list[list[Tensor]]]:
    """Allocate zeros for the largest of `shapes` in each place, and views of them in each layer's own shapes.

    Args:
        shapes: by layer, then by place.
        dtypes: by place.
    """
    whole = [
        torch.zeros(max(map(prod, alike)), device=device, dtype=dtype)
        for dtype, *alike in zip(dtypes, *shapes, strict=True)
    ]
    return whole, [[one[: prod(shape)].view(shape) for one, shape in zip(whole, own, strict=True)] for own in shapes]


class Buffers:
    """Activations of one model. Layers share memory through views in their own shapes."""

    def __init__(
        self, recipe: Recipe, weights: ModelWeights, capacity: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        def shapes(layer: Layer) -> Between[tuple[int, ...]]:
            mixer = layer.mixer
            return Between(
                qkv=sums_shape(weights, mixer.products[0]),
                query=(PASS_ROWS, mixer.heads, mixer.head_dim) if isinstance(mixer, Attention) else (0,),
                mixed=(PASS_ROWS, mixer.out.inputs),
                out=sums_shape(weights, mixer.out),
            )

        dtypes = torch.float32, dtype, dtype, torch.float32
        self._shared, made = views([shapes(layer) for layer in recipe.layers], dtypes, device)
        self.layers: list[Between[Tensor]] = [Between(*own) for own in made]
        self.residual = torch.zeros(PASS_ROWS, recipe.hidden, device=device, dtype=torch.float32)
        self.x = torch.zeros(PASS_ROWS, recipe.hidden, device=device, dtype=dtype)
        head = weights.head
        self.logits = torch.zeros(splits(head), VERIFY_ROWS, head.shape[0], device=device, dtype=torch.float32)
        self.whole = None
        """With a draft vocabulary: logits of all tokens, float32 [VERIFY_ROWS, vocab], -inf for those outside it."""
        if weights.tokens is not None:
            self.whole = torch.full((VERIFY_ROWS, recipe.vocab), float("-inf"), device=device)
        self.offsets = torch.arange(PASS_ROWS, device=device, dtype=torch.int32)
        heads = max((mixer.heads for mixer in recipe.attentions), default=0)
        self.attention = workspace(PASS_ROWS, heads, recipe.deepest, capacity, device)

    def memory(self) -> int:
        """Bytes held."""
        held = (*vars(self).values(), *self._shared, *vars(self.attention).values())
        return sum(t.numel() * t.element_size() for t in held if isinstance(t, Tensor))
