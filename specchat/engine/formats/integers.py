"""Matrices of 4-bit integers, as compressed-tensors, GPTQ, AWQ and AutoRound store them: (q - zero) * scale.

compressed-tensors packs "weight_packed" int32 [outputs, inputs / 8] along the inputs, with "weight_scale" [outputs,
groups], "weight_zero_point" int32 [outputs / 8, groups], packed along the outputs, and the group of each input in
"weight_g_idx". GPTQ has "qweight" int32 [inputs / 8, outputs], "scales" [groups, outputs], "qzeros" int32 [groups,
outputs / 8], and "g_idx". The lowest bits are the first. AWQ has "qweight" int32 [inputs, outputs / 8], and the outputs
of a word, there and in "qzeros", in an order of its own. AutoRound has either.
"""

from collections.abc import Callable, Container
from typing import NamedTuple

import torch
from torch import Tensor

from specchat.engine.errors import ModelError
from specchat.engine.formats.blocks import IntegerFormat
from specchat.engine.formats.layout import FourBit
from specchat.engine.formats.quantise import code_table, dequantised

PACKED, QWEIGHT = "weight_packed", "qweight"
EIGHTS = (0x77777777, -0x77777778)
"""Words of eight zero points that are 8: as they are (0x88888888), or less one."""
ONES = 0x11111111
AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
"""The nibble of each output of a word, from the lowest."""
MIDDLE = 8
"""The number that the table of codes takes from each."""


def has_integers(name: str, names: Container[str]) -> bool:
    """True where matrix `name` (without its ending) is stored so."""
    return f"{name}.{PACKED}" in names or f"{name}.{QWEIGHT}" in names


def integers(
    name: str,
    names: Container[str],
    read: Callable[[str], Tensor],
    shape: tuple[int, int],
    stored: IntegerFormat,
    where: str,
) -> FourBit | Tensor:
    """Return matrix `name` of a shape [outputs, inputs]; dense where no kernel has blocks that fit its groups.

    Raises:
        ModelError: a part is missing, or does not fit the others or config.json.
    """
    return _Matrix(name, names, read, shape, stored, where).read_all()


class _Matrix(NamedTuple):
    """A matrix in a checkpoint; `where` begins every message."""

    name: str
    names: Container[str]
    read: Callable[[str], Tensor]
    shape: tuple[int, int]
    stored: IntegerFormat
    where: str

    def read_all(self) -> FourBit | Tensor:
        outputs, inputs = self.shape
        by_row = f"{self.name}.{PACKED}" in self.names
        words = self._part(PACKED if by_row else QWEIGHT)
        scales = self._part("weight_scale") if by_row else self._part("scales").t()
        groups = scales.shape[-1] if scales.dim() == 2 else 0
        awq = self.stored.awq and not by_row
        sizes = (outputs, inputs // 8) if by_row else (inputs, outputs // 8) if awq else (inputs // 8, outputs)
        fits = words.dtype == torch.int32 and words.shape == sizes and inputs % 8 == 0 and not (awq and outputs % 8)
        if not fits or not groups or scales.shape[0] != outputs or inputs % groups or not scales.is_floating_point():
            raise ModelError(
                f"{self.where}: {self.name} has 4-bit words {list(words.shape)} and scales {list(scales.shape)}, "
                f"which do not make {outputs} outputs of {inputs} inputs."
            )
        group = inputs // groups
        order = self._order("weight_g_idx" if by_row else "g_idx", group)
        zeros = self._zeros("weight_zero_point" if by_row else "qzeros", groups, by_row, awq)
        if awq:
            packed = _from_awq(words)
        else:
            octets = (words if by_row else words.t()).contiguous().view(torch.uint8)
            packed = (octets << 4) | (octets >> 4)
        packed = packed if order is None else _in_order(packed, order)
        block = IntegerFormat(group).block(inputs)
        whole = FourBit(packed, scales.float().contiguous(), code_table("int4"), group, None, zeros, order)
        if not block:
            return dequantised(whole, torch.bfloat16)
        scales = whole.scales.repeat_interleave(group // block, 1)
        zeros = None if zeros is None else zeros.repeat_interleave(group // block, 1)
        return FourBit(packed, scales, whole.code, block, None, zeros, order)

    def _zeros(self, part: str, groups: int, by_row: bool, awq: bool) -> Tensor | None:
        """Zero points int8 [outputs, groups], less MIDDLE; None where config.json states none."""
        outputs, whole = self.shape[0], f"{self.name}.{part}"
        if not self.stored.zeros:
            if whole in self.names and (by_row or not _symmetric(self.read(whole))):
                raise self._refused(f"zero points in {part}, and by config.json there are none")
            return None
        words = self._part(part)
        words = words.t() if by_row and words.dim() == 2 else words
        if words.dtype != torch.int32 or words.shape != (groups, -(-outputs // 8)):
            raise self._refused(
                f"zero points {words.dtype} {list(words.shape)} in {part}, which are not those of {groups} groups of "
                f"{outputs} outputs"
            )
        if self.stored.less_one:
            # Of whole words, as they were taken away: a zero point of 0 has borrowed from the next.
            words = words + ONES
        nibbles = _nibbles(words.contiguous())
        nibbles = nibbles[..., AWQ_ORDER] if awq else nibbles
        return (nibbles.flatten(1)[:, :outputs].t().to(torch.int8) - MIDDLE).contiguous()

    def _order(self, part: str, group: int) -> Tensor | None:
        """The inputs int32 [inputs], a group after the other; None: they are so."""
        inputs = self.shape[1]
        if f"{self.name}.{part}" not in self.names:
            return None
        groups = self._part(part).long()
        expected = torch.arange(inputs) // group
        # compressed-tensors fills one that it does not use with -1.
        if torch.equal(groups, expected) or bool((groups == -1).all()):
            return None
        order = groups.argsort(stable=True)
        if not torch.equal(groups[order], expected):
            raise self._refused(f"groups of its inputs in {part} that are not {inputs // group} of {group} each")
        if not self.stored.ordered:
            raise self._refused(f"another order of its inputs in {part}, of which config.json does not tell")
        return order.to(torch.int32)

    def _part(self, ending: str) -> Tensor:
        if f"{self.name}.{ending}" not in self.names:
            raise ModelError(f"{self.where}: {self.name}.{ending} is missing. Download the checkpoint again.")
        return self.read(f"{self.name}.{ending}")

    def _refused(self, reason: str) -> ModelError:
        return ModelError(f"{self.where}: {self.name} has {reason}.")


def _symmetric(words: Tensor) -> bool:
    return any(bool((words == word).all()) for word in EIGHTS)


def _nibbles(words: Tensor) -> Tensor:
    """The nibbles uint8 [..., 8] of int32 [...], the lowest first."""
    octets = words[..., None].view(torch.uint8)
    return torch.stack((octets & 15, octets >> 4), -1).flatten(-2)


def _in_order(packed: Tensor, order: Tensor) -> Tensor:
    """Columns of `FourBit.packed` in an order of the inputs."""
    nibbles = torch.stack((packed >> 4, packed & 15), -1).flatten(1)[:, order]
    return (nibbles[:, 0::2] << 4) | nibbles[:, 1::2]


def _from_awq(words: Tensor) -> Tensor:
    """Pack AWQ's int32 [inputs, outputs / 8] as `FourBit`."""
    octets = words.contiguous()[..., None].view(torch.uint8)
    even, odd = octets[0::2], octets[1::2]
    # Bytes of the lower nibbles of two inputs, and of the higher ones.
    pairs = torch.stack(((even << 4) | (odd & 15), (even & 240) | (odd >> 4)), -1).flatten(-2)
    return pairs[..., AWQ_ORDER].flatten(1).t().contiguous()
