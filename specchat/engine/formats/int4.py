"""Matrices of 4-bit integers, as compressed-tensors, GPTQ, AWQ and AutoRound store them: (q - zero) * scale.

compressed-tensors packs "weight_packed" int32 [outputs, inputs / 8] along the inputs, with "weight_scale" [outputs,
groups], "weight_zero_point" int32 [outputs / 8, groups], packed along the outputs, and the group of each input in
"weight_g_idx". GPTQ has "qweight" int32 [inputs / 8, outputs], "scales" [groups, outputs], "qzeros" int32 [groups,
outputs / 8], and "g_idx". The lowest bits are the first. AWQ has "qweight" int32 [inputs, outputs / 8], and the outputs
of a word, there and in "qzeros", in an order of its own; its version gemv has "qweight" int32 [outputs, inputs / 8],
and of each output a row of "scales" and of "qzeros", packed along the groups and filled up. AutoRound has either of the
first two.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specchat.engine.errors import ModelError
from specchat.engine.formats.format import Format, StorageLayout, StoredParts, block_of
from specchat.engine.formats.settings import Quantised

if TYPE_CHECKING:
    from torch import Tensor

    from specchat.engine.formats.layout import Weight

PACKED, QWEIGHT = "weight_packed", "qweight"
EIGHTS = (0x77777777, -0x77777778)
"""Words of eight zero points that are 8: as they are (0x88888888), or less one."""
ONES = 0x11111111
AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
"""The nibble of each output of a word, from the lowest."""
MIDDLE = 8
"""Code 0 is -MIDDLE."""
CODE = tuple(float(value) for value in range(-MIDDLE, MIDDLE))
LEAST_GROUP = 32
"""The smallest group that these methods have, where config.json states none."""
_GPTQ, _GPTQ_V2 = (True, False, False), (False, False, False)
_AWQ, _GEMV = (False, True, False), (False, False, True)
PACKINGS = {
    "gptq": {"gptq": _GPTQ, "gptq_v2": _GPTQ_V2},
    "awq": {"gemm": _AWQ, "gemv": _GEMV},
    "auto-round": {
        "auto_round:auto_gptq": _GPTQ,
        "auto_round:gptqmodel": _GPTQ_V2,
        "auto_round:auto_awq": _AWQ,
    },
}
"""Packings of a method that are read: `less_one`, `awq` and `gemv` of `Int4`."""
ACTORDERS = (True, "group", "dynamic")
"""Words of compressed-tensors for groups of any inputs."""


@dataclass(frozen=True)
class Int4(Format):
    """Storage of 4-bit integers in a checkpoint, by its config.json.

    Attributes:
        group: inputs that share a scale; 0: all of a row have one.
        zeros: True where each group has a zero point; False: it is 8 for all.
        less_one: True where the files hold zero points less one, as GPTQ's first version has them.
        awq: True for words of eight outputs in AWQ's order; False: of eight inputs.
        gemv: True for AWQ's rows of words along the inputs, whose groups are filled up.
        ordered: True where the inputs of a group may be any of a row.
    """

    group: int = LEAST_GROUP
    zeros: bool = False
    less_one: bool = False
    awq: bool = False
    gemv: bool = False
    ordered: bool = False

    quant = "int4"
    code = CODE
    renames = True
    int8_rows = True

    def stated(self, settings: Quantised) -> "Int4 | None":
        # Static groups are of inputs in their order, whatever order they were quantised in.
        ordered = bool(settings.desc_act) and not settings.static_groups
        group = LEAST_GROUP if settings.dynamic or settings.extra_config else _group(settings.group_size)
        schemes = settings.schemes
        match settings.quant_method:
            case "gptq":
                packing, zeros = settings.checkpoint_format or settings.format or "gptq", not settings.sym
            case "awq":
                packing, zeros = settings.version or settings.format or "gemm", bool(settings.zero_point)
            case "auto-round":
                packing, zeros = settings.packing_format, not settings.sym
            case "compressed-tensors" if {(one.type, one.num_bits) for one in schemes} == {("int", 4)}:
                groups = {0 if one.strategy == "channel" else _group(one.group_size) for one in schemes}
                zeros = not all(one.symmetric for one in schemes)
                group = groups.pop() if len(groups) == 1 else LEAST_GROUP
                ordered = any(one.actorder in ACTORDERS for one in schemes)
                return Int4(group, zeros, ordered=ordered) if settings.format == "pack-quantized" else None
            case _:
                return None
        found = PACKINGS[settings.quant_method].get(str(packing).lower())
        return Int4(group, zeros, *found, ordered) if found and settings.bits == 4 else None

    def layout(self, inputs: int, name: str = "") -> StorageLayout | None:
        block = block_of(self.group or inputs, inputs)
        return StorageLayout(4, block, "float", self.zeros, self.ordered) if block else None

    def holds(self, source: StoredParts, name: str) -> bool:
        return f"{name}.{PACKED}" in source or f"{name}.{QWEIGHT}" in source

    def read(self, source: StoredParts, name: str, shape: tuple[int, int]) -> "Weight":
        import torch

        from specchat.engine.formats.layout import FourBit
        from specchat.engine.formats.quantise import dequantised, from_octets, in_order

        outputs, inputs = shape
        compressed = f"{name}.{PACKED}" in source
        gemv = self.gemv and not compressed
        by_row = compressed or gemv
        words = source.part(f"{name}.{PACKED if compressed else QWEIGHT}")
        scales = source.part(f"{name}.{'weight_scale' if compressed else 'scales'}")
        scales = scales if by_row else scales.t()
        groups = scales.shape[-1] if scales.dim() == 2 else 0
        if gemv:
            whole_groups, left = divmod(inputs, self.group or inputs)
            groups = 0 if left or groups != 8 * _width(inputs, self.group) else whole_groups
        awq = self.awq and not by_row
        sizes = (outputs, inputs // 8) if by_row else (inputs, outputs // 8) if awq else (inputs // 8, outputs)
        fits = words.dtype == torch.int32 and words.shape == sizes and inputs % 8 == 0 and not (awq and outputs % 8)
        if not fits or not groups or scales.shape[0] != outputs or inputs % groups or not scales.is_floating_point():
            raise ModelError(
                f"{source.folder}: {name} has 4-bit words {list(words.shape)} and scales {list(scales.shape)}, "
                f"which do not make {outputs} outputs of {inputs} inputs."
            )
        group = inputs // groups
        order = self._order(source, name, "weight_g_idx" if compressed else "g_idx", inputs, group)
        zeros = self._zeros(source, name, compressed, group, (outputs, inputs))
        if awq:
            packed = _from_awq(words)
        else:
            packed = from_octets((words if by_row else words.t()).contiguous().view(torch.uint8))
        packed = packed if order is None else in_order(packed, order)
        whole = FourBit(
            packed, scales[:, :groups].float().contiguous(), torch.tensor(self.code), group, None, zeros, order
        )
        if not (block := block_of(group, inputs)):
            return dequantised(whole, torch.bfloat16)
        scales = whole.scales.repeat_interleave(group // block, 1)
        zeros = None if zeros is None else zeros.repeat_interleave(group // block, 1)
        return FourBit(packed, scales, whole.code, block, None, zeros, order)

    def _zeros(
        self, source: StoredParts, name: str, compressed: bool, group: int, shape: tuple[int, int]
    ) -> "Tensor | None":
        """Zero points int8 [outputs, groups], less MIDDLE; None where config.json states none."""
        import torch

        from specchat.engine.formats.quantise import nibbles

        (outputs, inputs), groups, gemv = shape, shape[1] // group, self.gemv and not compressed
        part = "weight_zero_point" if compressed else "qzeros"
        whole = f"{name}.{part}"
        if not self.zeros:
            if whole in source and (compressed or not _symmetric(source.part(whole))):
                raise _unfit(source, name, f"zero points in {part}, and by config.json there are none")
            return None
        words = source.part(whole)
        words = words.t() if compressed and words.dim() == 2 else words
        sizes = (outputs, _width(inputs, group)) if gemv else (groups, -(-outputs // 8))
        if words.dtype != torch.int32 or words.shape != sizes:
            shown = f"zero points {words.dtype} {list(words.shape)} in {part}"
            raise _unfit(source, name, f"{shown}, which are not those of {groups} groups of {outputs} outputs")
        if self.less_one:
            # Of whole words, as they were taken away: a zero point of 0 has borrowed from the next.
            words = words + ONES
        found = nibbles(words.contiguous())
        if gemv:
            return (found.flatten(1)[:, :groups].to(torch.int8) - MIDDLE).contiguous()
        found = found[..., AWQ_ORDER] if self.awq and not compressed else found
        return (found.flatten(1)[:, :outputs].t().to(torch.int8) - MIDDLE).contiguous()

    def _order(self, source: StoredParts, name: str, part: str, inputs: int, group: int) -> "Tensor | None":
        """The inputs int32 [inputs], a group after the other; None: they are so."""
        import torch

        if f"{name}.{part}" not in source:
            return None
        groups = source.part(f"{name}.{part}").long()
        expected = torch.arange(inputs) // group
        # compressed-tensors fills one that it does not use with -1.
        if torch.equal(groups, expected) or bool((groups == -1).all()):
            return None
        order = groups.argsort(stable=True)
        if not torch.equal(groups[order], expected):
            of_each = f"{inputs // group} of {group} each"
            raise _unfit(source, name, f"groups of its inputs in {part} that are not {of_each}")
        if not self.ordered:
            raise _unfit(source, name, f"another order of its inputs in {part}, of which config.json does not tell")
        return order.to(torch.int32)


def _group(size: object) -> int:
    """Inputs that share a scale, by a key of config.json; 0: all of a row; the fewest there are where it is missing."""
    whole = size if isinstance(size, int) and not isinstance(size, bool) else LEAST_GROUP
    return max(0, whole)


def _width(inputs: int, group: int) -> int:
    """Words of zero points of an output in AWQ's gemv, which loads those of 128 inputs by 8 at a time."""
    step = max(1, 128 // (group or inputs))
    return -(-inputs // (group or inputs) // (8 * step)) * step


def _unfit(source: StoredParts, name: str, reason: str) -> ModelError:
    return ModelError(f"{source.folder}: {name} has {reason}.")


def _symmetric(words: "Tensor") -> bool:
    return any(bool((words == word).all()) for word in EIGHTS)


def _from_awq(words: "Tensor") -> "Tensor":
    """Pack AWQ's int32 [inputs, outputs / 8] as `FourBit`."""
    import torch

    octets = words.contiguous()[..., None].view(torch.uint8)
    even, odd = octets[0::2], octets[1::2]
    # Bytes of the lower nibbles of two inputs, and of the higher ones.
    pairs = torch.stack(((even << 4) | (odd & 15), (even & 240) | (odd >> 4)), -1).flatten(-2)
    return pairs[..., AWQ_ORDER].flatten(1).t().contiguous()


FORMATS = (Int4(),)
