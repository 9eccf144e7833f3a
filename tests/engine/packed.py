"""Checkpoints of compressed-tensors, GPTQ, AWQ, AutoRound and FP8, made of tiny ones, and what they hold."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import pad

from tests.engine.tiny import checkpoint

Parts = dict[str, Tensor]
Pack = Callable[[str, Tensor], tuple[Parts, Tensor]]
"""(name, matrix float32) -> its tensors as stored, and the matrix that they stand for."""


def words(nibbles: Tensor) -> Tensor:
    """int32 [rows, columns / 8] of nibbles [rows, columns], the first in the lowest bits."""
    shifted = nibbles.long().unflatten(-1, (-1, 8)) << (4 * torch.arange(8))
    whole = shifted.sum(-1)
    return torch.where(whole >= 2**31, whole - 2**32, whole).to(torch.int32)


def rounded(matrix: Tensor, group: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Nibbles, scales [outputs, groups], and the matrix of symmetric integers."""
    grouped = matrix.unflatten(-1, (-1, group))
    scales = (grouped.abs().amax(-1) / 7.5).to(dtype)
    values = (grouped / scales.float()[..., None]).round().clamp(-8, 7)
    return values.flatten(1) + 8, scales, (values * scales.float()[..., None]).flatten(1)


def shifted(matrix: Tensor, group: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Nibbles, zero points and scales [outputs, groups], and the matrix of integers from 0 to 15 less a zero point."""
    grouped = matrix.unflatten(-1, (-1, group))
    low, high = grouped.amin(-1).clamp(max=0), grouped.amax(-1).clamp(min=0)
    scales = ((high - low) / 15).to(dtype)
    zeros = (-low / scales.float()).round().clamp(0, 15)
    # All that there may be, as far as groups go.
    zeros.flatten()[:16] = torch.arange(16.0)
    nibbles = ((grouped / scales.float()[..., None]).round() + zeros[..., None]).clamp(0, 15)
    return nibbles.flatten(1), zeros, scales, ((nibbles - zeros[..., None]) * scales.float()[..., None]).flatten(1)


def named(name: str, parts: Parts) -> Parts:
    return {f"{name}.{part}": one.contiguous() for part, one in parts.items()}


def compressed_shifted(group: int) -> Pack:
    def pack(name: str, matrix: Tensor) -> tuple[Parts, Tensor]:
        nibbles, zeros, scales, truth = shifted(matrix, group, torch.bfloat16)
        parts = {"weight_packed": words(nibbles), "weight_scale": scales, "weight_shape": torch.tensor(matrix.shape)}
        return named(name, parts | {"weight_zero_point": words(zeros.t()).t()}), truth

    return pack


def gptq_shifted(group: int, less: int) -> Pack:
    """GPTQ, of whose zero points `less` is taken away from whole words."""

    def pack(name: str, matrix: Tensor) -> tuple[Parts, Tensor]:
        nibbles, zeros, scales, truth = shifted(matrix, group, torch.float16)
        stored = words(zeros.t()) - less * 0x11111111
        return named(name, {"qweight": words(nibbles).t(), "qzeros": stored, "scales": scales.t()}), truth

    return pack


def act_ordered(pack: Pack, group: int, part: str = "g_idx") -> Pack:
    """`pack` of matrices whose groups are of inputs in an order that matrices of the same inputs share."""

    def packed(name: str, matrix: Tensor) -> tuple[Parts, Tensor]:
        first = {"k_proj": "q_proj", "v_proj": "q_proj", "up_proj": "gate_proj"}
        first |= {"in_proj_b": "in_proj_a", "in_proj_z": "in_proj_qkv"}
        inputs = next((name.replace(one, of) for one, of in first.items() if name.endswith(one)), name)
        key = sum(map(ord, inputs))
        order = torch.randperm(matrix.shape[1], generator=torch.Generator().manual_seed(key))
        back = order.argsort()
        parts, truth = pack(name, matrix[:, order])
        along = parts[f"{name}.weight_packed" if part == "weight_g_idx" else f"{name}.qweight"]
        stored = unpacked(along if part == "weight_g_idx" else along.t())[:, back]
        whole = {"weight_packed": words(stored)} if part == "weight_g_idx" else {"qweight": words(stored).t()}
        groups = (torch.arange(len(order)) // group)[back].to(torch.int32)
        return parts | named(name, whole | {part: groups}), truth[:, back]

    return packed


def unpacked(packed: Tensor) -> Tensor:
    """The nibbles of `words`."""
    return (packed.long()[..., None] >> (4 * torch.arange(8)) & 15).flatten(1)


def awq(group: int) -> Pack:
    """AWQ: a word holds outputs 0, 2, 4, 6, 1, 3, 5, 7 of eight, from the lowest bits on."""

    def pack(name: str, matrix: Tensor) -> tuple[Parts, Tensor]:
        nibbles, zeros, scales, truth = shifted(matrix, group, torch.float16)
        order = torch.arange(len(matrix)).view(-1, 4, 2).transpose(1, 2).flatten()
        parts = {"qweight": words(nibbles.t()[:, order]), "qzeros": words(zeros.t()[:, order]), "scales": scales.t()}
        return named(name, parts), truth

    return pack


def awq_gemv(group: int) -> Pack:
    """AWQ's gemv: words along the inputs in their order, and groups filled up to AutoAWQ's `calculate_zeros_width`."""

    def pack(name: str, matrix: Tensor) -> tuple[Parts, Tensor]:
        nibbles, zeros, scales, truth = shifted(matrix, group, torch.float16)
        multiplier = {64: 2, 32: 4}.get(group, 1)
        width = (zeros.shape[1] + 7) // 8
        width = (width + multiplier - 1) // multiplier * multiplier
        zeros, scales = (pad(one, (0, 8 * width - one.shape[1])) for one in (zeros, scales))
        return named(name, {"qweight": words(nibbles), "qzeros": words(zeros), "scales": scales}), truth

    return pack


def compressed(group: int) -> Pack:
    def pack(name: str, matrix: Tensor) -> tuple[Parts, Tensor]:
        nibbles, scales, truth = rounded(matrix, group or matrix.shape[1], torch.bfloat16)
        parts = {"weight_packed": words(nibbles), "weight_scale": scales, "weight_shape": torch.tensor(matrix.shape)}
        return {f"{name}.{part}": one for part, one in parts.items()}, truth

    return pack


def microscaled(name: str, matrix: Tensor) -> tuple[Parts, Tensor]:
    """compressed-tensors' MXFP4."""
    code = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    code = torch.cat([code, -code])
    grouped = matrix.unflatten(-1, (-1, 32))
    exponents = (grouped.abs().amax(-1) / 6).log2().ceil().clamp(min=-100)
    scales = torch.exp2(exponents)[..., None]
    nibbles = (grouped[..., None] / scales[..., None] - code).abs().argmin(-1)
    pairs = nibbles.flatten(1).unflatten(-1, (-1, 2))
    packed = (pairs[..., 0] | pairs[..., 1] << 4).to(torch.uint8)
    parts = {"weight_packed": packed, "weight_scale": (exponents + 127).to(torch.uint8)}
    return named(name, parts), (code[nibbles] * scales).flatten(1)


def microscaled_twice(divided: bool) -> Pack:
    """NVFP4 of compressed-tensors, whose scales of blocks are `divided` by that of the matrix, or of ModelOpt."""

    def pack(name: str, matrix: Tensor) -> tuple[Parts, Tensor]:
        code = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
        code = torch.cat([code, -code])
        # One for matrices that are multiplied together, as quantisers have it.
        module, _, last = name.rpartition(".")
        together = next((names for names in ("q_proj k_proj v_proj", "gate_proj up_proj") if last in names), last)
        whole = torch.tensor([1000 + crc32(f"{module} {together}".encode()) % 997]).float()
        whole = whole if divided else 1 / whole

        def scaled(stored: Tensor) -> Tensor:
            return stored.float() / whole if divided else stored.float() * whole

        grouped = matrix.unflatten(-1, (-1, 16))
        scales = (grouped.abs().amax(-1) / 6 / scaled(torch.ones(1))).clamp(max=448).to(torch.float8_e4m3fn)
        nibbles = (grouped[..., None] / scaled(scales)[..., None, None].clamp(min=1e-9) - code).abs().argmin(-1)
        pairs = nibbles.flatten(1).unflatten(-1, (-1, 2))
        packed = (pairs[..., 0] | pairs[..., 1] << 4).to(torch.uint8)
        names = ("weight_packed", "weight_global_scale") if divided else ("weight", "weight_scale_2")
        parts = {names[0]: packed, "weight_scale": scales, names[1]: whole}
        return named(name, parts), (code[nibbles] * scaled(scales)[..., None]).flatten(1)

    return pack


def gptq(group: int, zero: int = 7, order: bool = True) -> Pack:
    def pack(name: str, matrix: Tensor) -> tuple[Parts, Tensor]:
        nibbles, scales, truth = rounded(matrix, group, torch.float16)
        outputs, inputs = matrix.shape
        zeros = words(torch.full((inputs // group, outputs), zero))
        parts = {"qweight": words(nibbles).t(), "qzeros": zeros, "scales": scales.t()}
        if order:
            parts["g_idx"] = (torch.arange(inputs) // group).to(torch.int32)
        return {f"{name}.{part}": one.contiguous() for part, one in parts.items()}, truth

    return pack


def floats(by: str, ending: str) -> Pack:
    """e4m3 with scales by "square", "row" or "whole"."""

    def pack(name: str, matrix: Tensor) -> tuple[Parts, Tensor]:
        outputs, inputs = matrix.shape
        rows, columns = {"square": (128, 128), "row": (1, inputs), "whole": (outputs, inputs)}[by]
        largest = torch.stack(
            [torch.stack([part.abs().max() for part in row.split(columns, 1)]) for row in matrix.split(rows)]
        )
        scales = largest / 448
        spread = scales.repeat_interleave(rows, 0)[:outputs].repeat_interleave(columns, 1)[:, :inputs]
        stored = (matrix / spread).to(torch.float8_e4m3fn)
        truth = (stored.float() * spread).to(torch.bfloat16).float()
        return {f"{name}.weight": stored, f"{name}.weight{ending}": scales.view(1) if by == "whole" else scales}, truth

    return pack


def packed(
    folder: Path, pack: Pack, settings: dict[str, Any], left: tuple[str, ...] = (), head: bool = False, **changes: Any
) -> tuple[Path, Path]:
    """A checkpoint whose layers' matrices, and the head, are packed but for those `left`, and one of what they mean."""
    return repacked(folder, partial(checkpoint, **changes), pack, settings, left, head)


def repacked(
    folder: Path,
    write: Callable[[Path], Path],
    pack: Pack,
    settings: dict[str, Any],
    left: tuple[str, ...] = (),
    head: bool = False,
) -> tuple[Path, Path]:
    """The same of the checkpoints that `write` makes."""
    truth, stored = write(folder / "truth"), write(folder / "stored")
    tensors = load_file(truth / "model.safetensors")
    kept, made = dict(tensors), dict(tensors)
    for key, matrix in tensors.items():
        dense = ("router", "mlp.gate.w", *left)
        packs = key.startswith("model.layers.") or (head and key == "lm_head.weight")
        if packs and matrix.dim() == 2 and not any(part in key for part in dense):
            del made[key]
            parts, kept[key] = pack(key.removesuffix(".weight"), matrix)
            made |= parts
    save_file(kept, truth / "model.safetensors")
    save_file(made, stored / "model.safetensors")
    path = stored / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": settings}))
    return stored, truth
