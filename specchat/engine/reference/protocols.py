"""The tensors that layers name, wherever they come from."""

from typing import Protocol

from torch import Tensor

from specchat.engine.model.norm import RMSNorm
from specchat.engine.recipe import Matrix, Norm


class Tensors(Protocol):
    """The tensors that layers name."""

    def norm(self, of: Norm) -> RMSNorm:
        """A norm with its weight."""
        ...

    def product(self, x: Tensor, of: Matrix) -> Tensor:
        """x W^T + b: float32 [..., inputs] -> float32 [..., outputs]."""
        ...

    def vector(self, name: str) -> Tensor:
        """A tensor that is neither a matrix nor the weight of a norm, float32."""
        ...


class ModelTensors(Tensors, Protocol):
    """The tensors that a recipe names."""

    def rows(self, of: Matrix, tokens: Tensor) -> Tensor:
        """Rows of a table: int64 [...] -> float32 [..., hidden]."""
        ...
