"""Root mean square norm (Zhang and Sennrich 2019), and the cap on logits (Gemma team 2024)."""

import torch
from torch import Tensor
from torch.nn.functional import rms_norm

from specchat.engine.recipe import Norm


class RMSNorm:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension; any number of rows, any leading dimensions.

    A few whole-tensor calls on a CPU, where torch's own rms_norm takes twice their time; that one on a GPU.
    """

    def __init__(self, weight: Tensor, eps: float, centred: bool = False, bias: Tensor | None = None) -> None:
        """Initialise; `weight` and `bias` float32 [size], `centred` as in `recipe.Norm`."""
        size, self._bias = weight.shape[0], bias
        self._given, self._centred = (weight, eps), centred
        self.weight = weight * size**0.5
        self.eps = weight.new_full((1,), (size * eps) ** 0.5)

    @classmethod
    def of(cls, norm: Norm, weights: Tensor) -> "RMSNorm":
        """The norm of a recipe, with `weights` float32 [values] of `weights.matrices.read_norm`."""
        weight, *bias = weights.split(norm.size)
        return cls(weight, norm.eps, norm.centred, *bias)

    def __call__(self, x: Tensor) -> Tensor:
        if self._centred:
            x = x - x.mean(-1, keepdim=True)
        if x.device.type != "cpu":
            weight, eps = self._given
            normed = rms_norm(x, weight.shape, weight, eps)
        else:
            # sqrt(size) * sqrt(mean(x^2) + eps) is the length of x with one more component.
            normed = x.div(torch.hypot(torch.linalg.vector_norm(x, 2.0, [-1], True), self.eps)).mul_(self.weight)
        return normed if self._bias is None else normed + self._bias


def unscaled(x: Tensor, eps: float | None) -> Tensor:
    """The norm without a weight of each row of x [..., values]; x itself without an eps."""
    return x if eps is None else RMSNorm(x.new_ones(x.shape[-1]), eps)(x)


def capped(x: Tensor, cap: float) -> Tensor:
    """cap * tanh(x / cap); x itself where the cap is 0."""
    return cap * torch.tanh(x / cap) if cap else x
