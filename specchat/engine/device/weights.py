"""A model's weights as the device decoder multiplies them: from a checkpoint, or random at published shapes."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from specchat.engine.api import Quant
from specchat.engine.kernels.formats import EightBit, FourBit, Nested, Weight
from specchat.engine.model.checkpoint import Checkpoint
from specchat.engine.model.config import ModelConfig
from specchat.engine.model.quantise import fused, quantise
from specchat.engine.model.weights import Weights


@dataclass(frozen=True)
class LayerWeights:
    """One transformer block; norms float32, biases in the compute dtype; q, k, v and gate, up are one matrix each."""

    attention_norm: Tensor
    qkv: Weight
    qkv_bias: Tensor | None
    query_norm: Tensor | None
    key_norm: Tensor | None
    out: Weight
    out_bias: Tensor | None
    mlp_norm: Tensor
    gate_up: Weight
    gate_up_bias: Tensor | None
    down: Weight
    down_bias: Tensor | None


@dataclass(frozen=True)
class ModelWeights:
    """All of a model: `embed` and `head` stay in the compute dtype, and are one tensor where they are tied."""

    embed: Tensor
    layers: list[LayerWeights]
    norm: Tensor
    head: Tensor


Read = Callable[[str, int, int], Weight]
"""(name without ".weight", outputs, inputs) -> the matrix as the checkpoint has it."""
ReadVector = Callable[[str, int], Tensor]


def load(checkpoint: Checkpoint, quant: Quant | None, device: torch.device, dtype: torch.dtype) -> ModelWeights:
    """Read a checkpoint layer by layer, so that no more than one unquantised layer is in main memory at once.

    Raises:
        ModelError: weights missing, damaged, of other shapes, or quantised in a way that is not known.
    """
    with Weights(checkpoint) as weights:

        def vector(name: str, size: int) -> Tensor:
            return weights.get(name, size)

        # What bitsandbytes left dense, or gives dense, stays so.
        asked = quant if checkpoint.quant is None else None
        return _assemble(checkpoint.config, asked, device, dtype, weights.linear, vector)


def random(
    config: ModelConfig, quant: Quant | None, device: torch.device, dtype: torch.dtype, seed: int = 0
) -> ModelWeights:
    """Weights of the right shapes and no meaning, scaled so that activations stay finite."""
    generator = torch.Generator(device).manual_seed(seed)

    def matrix(_: str, outputs: int, inputs: int) -> Tensor:
        drawn = torch.randn(outputs, inputs, generator=generator, device=device, dtype=torch.float32)
        return drawn.div_(inputs**0.5).to(dtype)

    def vector(name: str, size: int) -> Tensor:
        return torch.zeros(size) if name.endswith(".bias") else torch.ones(size)

    return _assemble(config, quant, device, dtype, matrix, vector)


def _assemble(
    c: ModelConfig, quant: Quant | None, device: torch.device, dtype: torch.dtype, read: Read, vector: ReadVector
) -> ModelWeights:
    query, key = c.heads * c.head_dim, c.kv_heads * c.head_dim

    def dense(name: str, outputs: int, inputs: int) -> Tensor:
        weight = read(name, outputs, inputs)
        if not isinstance(weight, Tensor):
            raise TypeError(f"{name} is quantised; embeddings and heads are not")
        return weight.to(device, dtype)

    def norm(name: str, size: int) -> Tensor:
        return vector(f"{name}.weight", size).to(device, torch.float32)

    def matrix(prefix: str, names: tuple[str, ...], outputs: tuple[int, ...], inputs: int) -> Weight:
        parts = [read(f"{prefix}{n}", o, inputs) for n, o in zip(names, outputs, strict=True)]
        ready = [p.to(device, dtype) if isinstance(p, Tensor) else moved(p, device) for p in parts]
        if quant is not None:
            ready = [quantise(p, quant) if isinstance(p, Tensor) else p for p in ready]
        return fused(ready)

    def bias(prefix: str, names: tuple[str, ...], outputs: tuple[int, ...], there: bool) -> Tensor | None:
        if not there:
            return None
        parts = [vector(f"{prefix}{n}.bias", o) for n, o in zip(names, outputs, strict=True)]
        return torch.cat(parts).to(device, torch.float32)

    def layer(index: int) -> LayerWeights:
        prefix = f"model.layers.{index}."
        qkv, qkv_sizes = tuple(f"self_attn.{n}_proj" for n in "qkv"), (query, key, key)
        gate_up, gate_up_sizes = ("mlp.gate_proj", "mlp.up_proj"), (c.intermediate, c.intermediate)
        return LayerWeights(
            attention_norm=norm(f"{prefix}input_layernorm", c.hidden),
            qkv=matrix(prefix, qkv, qkv_sizes, c.hidden),
            qkv_bias=bias(prefix, qkv, qkv_sizes, c.qkv_bias),
            query_norm=norm(f"{prefix}self_attn.q_norm", c.head_dim) if c.qk_norm else None,
            key_norm=norm(f"{prefix}self_attn.k_norm", c.head_dim) if c.qk_norm else None,
            out=matrix(prefix, ("self_attn.o_proj",), (c.hidden,), query),
            out_bias=bias(prefix, ("self_attn.o_proj",), (c.hidden,), c.out_bias),
            mlp_norm=norm(f"{prefix}post_attention_layernorm", c.hidden),
            gate_up=matrix(prefix, gate_up, gate_up_sizes, c.hidden),
            gate_up_bias=bias(prefix, gate_up, gate_up_sizes, c.mlp_bias),
            down=matrix(prefix, ("mlp.down_proj",), (c.hidden,), c.intermediate),
            down_bias=bias(prefix, ("mlp.down_proj",), (c.hidden,), c.mlp_bias),
        )

    embed = dense("model.embed_tokens", c.vocab, c.hidden)
    return ModelWeights(
        embed=embed,
        layers=[layer(i) for i in range(c.layers)],
        norm=norm("model.norm", c.hidden),
        head=embed if c.tied else dense("lm_head", c.vocab, c.hidden),
    )


def moved(weight: FourBit | EightBit, device: torch.device) -> FourBit | EightBit:
    """The same weight on `device`."""
    match weight:
        case FourBit(packed, scales, code, block, nested):
            inner = nested and Nested(nested.code.to(device), nested.absmax.to(device), nested.offset.to(device))
            return FourBit(packed.to(device), scales.to(device), code.to(device), block, inner)
        case EightBit(values, scales):
            return EightBit(values.to(device), scales.to(device))


def held_bytes(weights: ModelWeights) -> int:
    """Bytes on the device, a tied table counted once."""
    tensors: list[Tensor | None] = [weights.embed, weights.norm]
    if weights.head is not weights.embed:
        tensors.append(weights.head)
    for layer in weights.layers:
        for part in vars(layer).values():
            tensors += _tensors(part)
    return sum(t.numel() * t.element_size() for t in tensors if t is not None)


def _tensors(part: Weight | None) -> list[Tensor | None]:
    match part:
        case FourBit(packed, scales, code, _, nested):
            inner = [nested.code, nested.absmax, nested.offset] if nested else []
            return [packed, scales, code, *inner]
        case EightBit(values, scales):
            return [values, scales]
        case _:
            return [part]
