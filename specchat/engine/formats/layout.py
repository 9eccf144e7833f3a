"""Memory layouts of quantised weights: those of bitsandbytes, so that its checkpoints load unchanged."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Nested:
    """Double quantisation of the block scales (QLoRA, Dettmers et al. 2023): scale = code[u8] * absmax + offset.

    `code` float32 [256]; `absmax` float32 [outputs * blocks a row / 256], over the flattened scales; `offset` float32
    [outputs], one a row because each of the fused weights has its own.
    """

    code: Tensor
    absmax: Tensor
    offset: Tensor


@dataclass(frozen=True)
class FourBit:
    """4-bit weights: weight[n, k] = (code[nibble] - zero) * scale, both of its block of `block` consecutive inputs.

    `packed` uint8 [outputs, inputs / 2], the high nibble being the even input; `code` float32 [16]; `scales` float32
    [outputs, inputs / block], or uint8 of that shape, quantised by `nested`; `zeros` int8 of that shape, of codes of
    whole numbers, whose differences are exact; None: no block has one. `order` int32 [inputs]: weight k is that of
    input order[k] of a row; None: of input k. `packed`, `scales` and `zeros` start at multiples of 4 bytes.
    """

    packed: Tensor
    scales: Tensor
    code: Tensor
    block: int
    nested: Nested | None = None
    zeros: Tensor | None = None
    order: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(outputs, inputs)"""
        return self.packed.shape[0], 2 * self.packed.shape[1]


@dataclass(frozen=True)
class EightBit:
    """Row-wise int8 weights: weight[n, k] = values[n, k] * scales[n] (LLM.int8, Dettmers et al. 2022).

    `values` int8 [outputs, inputs]; `scales` float32 [outputs], the row's largest magnitude / 127.
    """

    values: Tensor
    scales: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """(outputs, inputs)"""
        return self.values.shape[0], self.values.shape[1]


Weight = Tensor | FourBit | EightBit
"""Matrix [outputs, inputs] in any of the formats; a plain tensor is dense."""


def values_of(weight: Weight) -> Tensor:
    """The values of a weight, without their scales."""
    return weight.packed if isinstance(weight, FourBit) else weight.values if isinstance(weight, EightBit) else weight


def mapped(weight: Weight, of: Callable[[Tensor], Tensor]) -> Weight:
    """A weight of what `of` makes of each tensor of `weight`."""
    made: Weight = _mapped(weight, of)
    return made


def _mapped(part: Any, of: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(part, Tensor):
        return of(part)
    return replace(
        part, **{name: _mapped(one, of) for name, one in vars(part).items() if isinstance(one, Tensor | Nested)}
    )


def tensors_of(weight: Weight) -> list[Tensor]:
    """All tensors of a weight."""
    found: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    mapped(weight, note)
    return found
