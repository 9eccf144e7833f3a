"""Checkpoints as bitsandbytes' own modules write them."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from specchat.engine.formats.layout import FourBit, Nested
from specchat.engine.protocol.pair import Quant
from tests.engine.tiny import checkpoint

# Else bitsandbytes imports a compiler for four seconds, for functions that tests run uncompiled.
torch.compile = lambda function, **_: function  # type: ignore[assignment]
from bitsandbytes import functional  # noqa: E402
from bitsandbytes.nn import Int8Params, Params4bit  # noqa: E402


def stored_tensors(
    name: str,
    matrix: Tensor,
    quant: Quant,
    nested: bool = True,
    block: int = 64,
    storage: torch.dtype = torch.uint8,
) -> dict[str, Tensor]:
    """The tensors that bitsandbytes writes for matrix `name` (without ".weight")."""
    if quant == "int8":
        eight = Int8Params(matrix, requires_grad=False).to("cpu")
        layout = torch.tensor(0, dtype=torch.uint8)
        return {f"{name}.weight": eight.data, f"{name}.SCB": eight.SCB, f"{name}.weight_format": layout}
    four = Params4bit(
        matrix,
        requires_grad=False,
        blocksize=block,
        compress_statistics=nested,
        quant_type=quant,
        quant_storage=storage,
    ).to("cpu")
    parts = four.quant_state.as_dict(packed=True)
    return {f"{name}.weight": four.data, **{f"{name}.weight.{key}": part for key, part in parts.items()}}


def four_bit(dense: Tensor, quant: Quant, nested: bool, block: int) -> tuple[FourBit, Tensor]:
    """A 4-bit weight read from bitsandbytes' own state, and what bitsandbytes unpacks it to."""
    packed, state = functional.quantize_4bit(dense, blocksize=block, compress_statistics=nested, quant_type=quant)
    outputs, inputs = dense.shape
    inner = Nested(state.state2.code, state.state2.absmax, state.offset.repeat(outputs)) if nested else None
    weight = FourBit(packed.view(outputs, inputs // 2), state.absmax.view(outputs, -1), state.code, block, inner)
    return weight, functional.dequantize_4bit(packed, state)


def bnb_checkpoint(folder: Path, quant: Quant, inner: int = 128, **options: Any) -> Path:
    """A tiny checkpoint whose layers bitsandbytes quantised; `options` go to `stored_tensors`."""
    checkpoint(folder, intermediate_size=inner, num_key_value_heads=2)
    return quantised_in_place(folder, quant, **options)


def quantised_in_place(folder: Path, quant: Quant, **options: Any) -> Path:
    """The checkpoint there, whose layers bitsandbytes quantises."""
    tensors: dict[str, Tensor] = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        if name.endswith("_proj.weight"):
            tensors |= stored_tensors(name.removesuffix(".weight"), tensor, quant, **options)
        else:
            tensors[name] = tensor
    save_file(tensors, folder / "model.safetensors")
    settings: dict[str, Any] = {"quant_method": "bitsandbytes", "load_in_8bit": quant == "int8"}
    if quant != "int8":
        settings |= {"load_in_4bit": True, "bnb_4bit_quant_type": quant}
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": settings}))
    return folder
