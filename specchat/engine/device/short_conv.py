"""Short convolutions of a model's layers on a GPU: the launches between two norms."""

from torch import Tensor

from specchat.engine.device.attention import Placed
from specchat.engine.device.buffers import Between, Buffers
from specchat.engine.device.weights import ModelWeights
from specchat.engine.kernels.products import multiply
from specchat.engine.kernels.short_conv import short_conv
from specchat.engine.recipe import ShortConv


def mix(
    mixer: ShortConv,
    weights: ModelWeights,
    entries: tuple[Tensor, Tensor],
    capacity: int,
    buffers: Buffers,
    own: Between[Tensor],
    at: Placed,
    skip: Tensor | None,
) -> None:
    """Write the rows' entries, and the layer's output to `own.out`; the input is in `buffers.x`.

    `entries` are those of the layer, of a cache of `capacity` positions.
    """
    multiply(buffers.x, *weights.products[mixer.mix], own.qkv, at.rows, skip)
    short_conv(
        own.qkv, weights.vectors[mixer.convolution], at.start, at.length, at.path, *entries, own.mixed, at.rows, skip,
        capacity,
    )  # fmt: skip
    multiply(own.mixed, *weights.products[mixer.out], own.out, at.rows, skip)
