"""A checkpoint of ours as a GGUF file: the same weights, without a tokenizer, for llama.cpp to run on token ids."""

import math
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specchat.engine.api import Quant
from specchat.engine.errors import EngineError, ModelError
from specchat.engine.model.checkpoint import Checkpoint
from specchat.engine.model.config import ModelConfig, Rope
from specchat.engine.model.parts import EMBEDDING, HEAD, LAST_NORM, Block, Matrix, Norm, block
from specchat.engine.model.quantise import dequantised, quantise
from specchat.engine.model.weights import Weights

Width = Literal["f32", "f16"]
"""The type that matrices are stored in; vectors are always float32."""

ARCHITECTURES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
"""Our families by llama.cpp's names."""

NAMES = {
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "o_proj": "attn_output",
    "gate_proj": "ffn_gate",
    "up_proj": "ffn_up",
    "down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
}
"""llama.cpp's names of a layer's parts by the last word of ours."""


def export(checkpoint: Checkpoint, file: Path, width: Width, quant: Quant | None = None) -> None:
    """Write `checkpoint` to `file`, layers first quantised as `quant` says.

    Quantised matrices are written as what they dequantise to: llama.cpp has no such formats.

    Raises:
        EngineError: "config": the package gguf is not installed.
        ModelError: the weights cannot be read, or the model scales its positions in a way that is not written here.
    """
    try:
        import gguf
    except ImportError:
        raise EngineError(
            "config", 'llama.cpp needs the package gguf, which is not installed: pip install "specchat[gguf]".'
        ) from None
    config = checkpoint.config
    writer = gguf.GGUFWriter(file, ARCHITECTURES[config.family])
    _describe(writer, config, gguf)
    with Weights(checkpoint) as weights:
        _Tensors(writer, weights, config, width, quant).add()
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    writer.close()


def _describe(writer: Any, c: ModelConfig, gguf: Any) -> None:
    writer.add_context_length(c.context)
    writer.add_embedding_length(c.hidden)
    writer.add_block_count(c.layers)
    writer.add_feed_forward_length(c.intermediate)
    writer.add_head_count(c.heads)
    writer.add_head_count_kv(c.kv_heads)
    writer.add_key_length(c.head_dim)
    writer.add_value_length(c.head_dim)
    writer.add_layer_norm_rms_eps(c.norm_eps)
    writer.add_rope_dimension_count(c.head_dim)
    writer.add_rope_freq_base(c.rope.theta)
    writer.add_vocab_size(c.vocab)
    writer.add_tokenizer_model("no_vocab")
    if c.rope.kind == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(float(c.rope.options["factor"]))
    elif c.rope.kind == "yarn":
        raise ModelError('rope scaling "yarn" is not written to GGUF: llama.cpp cannot be compared on this model.')


class _Tensors:
    """Adds the tensors of one checkpoint in llama.cpp's names and layouts."""

    def __init__(self, writer: Any, weights: Weights, config: ModelConfig, width: Width, quant: Quant | None) -> None:
        self._writer = writer
        self._weights = weights
        self._config = config
        self._quant: Quant | None = quant
        self._type = torch.float16 if width == "f16" else torch.float32

    def add(self) -> None:
        c = self._config
        self._put("token_embd.weight", self._weights.get(f"{EMBEDDING}.weight", c.vocab, c.hidden))
        self._put("output_norm.weight", self._weights.get(f"{LAST_NORM}.weight", c.hidden))
        if not c.tied:
            self._put("output.weight", self._weights.get(f"{HEAD}.weight", c.vocab, c.hidden))
        if c.rope.kind == "llama3":
            self._put("rope_freqs.weight", llama3_factors(c.rope, c.head_dim))
        for index in range(c.layers):
            self._layer(block(c, index), f"blk.{index}.")

    def _layer(self, layer: Block[Matrix, Norm], theirs: str) -> None:
        c = self._config
        heads = {"attn_q": c.heads, "attn_k": c.kv_heads} if ARCHITECTURES[c.family] == "llama" else {}
        for matrix in layer.products:
            for name, outputs in matrix.parts:
                written = NAMES[_last(name)]
                weight = self._matrix(name, outputs, matrix.inputs)
                self._put(f"{theirs}{written}.weight", pairwise(weight, heads.get(written)))
                if matrix.bias:
                    bias = self._weights.get(f"{name}.bias", outputs)
                    self._put(f"{theirs}{written}.bias", pairwise(bias, heads.get(written)))
        for norm in layer.norms:
            self._put(f"{theirs}{NAMES[_last(norm.name)]}.weight", self._weights.get(f"{norm.name}.weight", norm.size))

    def _matrix(self, name: str, outputs: int, inputs: int) -> Tensor:
        weight = self._weights.linear(name, outputs, inputs)
        if self._quant is not None and self._weights.quant is None and isinstance(weight, Tensor):
            weight = quantise(weight, self._quant)
        return dequantised(weight, torch.float32)

    def _put(self, name: str, tensor: Tensor) -> None:
        stored = tensor.to(self._type) if tensor.dim() == 2 else tensor.to(torch.float32)
        array: NDArray[np.generic] = stored.contiguous().numpy()
        self._writer.add_tensor(name, array)


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def pairwise(rows: Tensor, heads: int | None) -> Tensor:
    """Rows of each head in the order of llama.cpp's "normal" rotation, which turns neighbours, not halves.

    Row i of the first half and row i of the second are rotated together: they become rows 2i and 2i + 1. With `heads`
    None the architecture rotates halves (NeoX) and nothing moves.
    """
    if heads is None:
        return rows
    turned: Tensor = rows.unflatten(0, (heads, 2, -1)).transpose(1, 2).reshape(rows.shape)
    return turned


def llama3_factors(rope: Rope, dim: int) -> Tensor:
    """By what Llama 3.1 divides each frequency: float32 [dim / 2] (transformers' rope_type "llama3")."""
    low, high = float(rope.options["low_freq_factor"]), float(rope.options["high_freq_factor"])
    factor, original = float(rope.options["factor"]), float(rope.options["original_max_position_embeddings"])
    wavelength = 2 * math.pi * rope.theta ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    smooth = (original / wavelength - low) / (high - low)
    between = 1 / ((1 - smooth) / factor + smooth)
    factors = torch.where(wavelength > original / low, factor, torch.where(wavelength < original / high, 1.0, between))
    return factors.float()
