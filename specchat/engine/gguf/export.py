"""Exports a checkpoint as a self-contained GGUF file: weights, tokenizer and chat template."""

import math
import os
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from specchat.engine.errors import EngineError, ModelError
from specchat.engine.gguf.library import INSTALL
from specchat.engine.gguf.vocabulary import Vocabulary, describe
from specchat.engine.model.checkpoint import Checkpoint
from specchat.engine.model.config import ModelConfig
from specchat.engine.model.parts import EMBEDDING, HEAD, LAST_NORM, Block, block
from specchat.engine.model.quantise import dequantised, quantise
from specchat.engine.model.weights import Weights
from specchat.engine.pair import Quant
from specchat.engine.recipe import Matrix, Norm, Rope

Kind = Literal["f32", "f16", "q8_0", "q4_0"]
"""Type of matrices; vectors are always float32. With q4_0 the embeddings and the head are q8_0."""
KINDS: tuple[Kind, ...] = get_args(Kind)
BLOCK_WEIGHTS = 32
"""Weights of a row that share a scale in q8_0 and q4_0; a matrix whose rows are no multiple is stored as f16."""

ARCHITECTURES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "mimo": "qwen2"}
"""Our families by llama.cpp's names."""

OUTER_MATRICES = ("token_embd.weight", "output.weight")
"""Embeddings and head."""
FILE_TYPES: dict[Kind, int] = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 7}
"""llama.cpp's numbers for the type of most tensors in a file."""
TENSOR_NAMES = {
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


def export(checkpoint: Checkpoint, file: Path, kind: Kind, quant: Quant | None = None, tokenizer: bool = True) -> None:
    """Write `checkpoint` to `file`, with the layers first quantised as `quant`; missing folders are created.

    Matrices quantised by bitsandbytes are written dequantised. Without `tokenizer` the model runs on token ids only.
    A failure leaves nothing behind.

    Raises:
        EngineError: "config": the package gguf is not installed.
        ModelError: the checkpoint cannot be read, or its tokenizer or rope scaling is not supported here.
        OSError: the file cannot be written.
    """
    try:
        import gguf
    except ImportError:
        raise EngineError(
            "config", f"Writing GGUF files needs the package gguf, which is not installed: {INSTALL}."
        ) from None
    config = checkpoint.config
    vocabulary = Vocabulary.of(checkpoint) if tokenizer else None
    if config.rope.kind == "yarn":
        raise ModelError('rope scaling "yarn" is not written to GGUF here.')
    made = not file.parent.exists()
    file.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=file.parent, prefix=f".{file.name}-", delete=False) as part:
        written = Path(part.name)
    try:
        writer = gguf.GGUFWriter(written, ARCHITECTURES[config.family])
        _describe(writer, config, gguf)
        writer.add_file_type(FILE_TYPES[kind])
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        if vocabulary is None:
            writer.add_tokenizer_model("no_vocab")
        else:
            describe(writer, gguf, vocabulary, config.vocab)
        with Weights(checkpoint) as weights:
            _Tensors(writer, gguf, weights, config, kind, quant).add()
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
        writer.close()
        os.chmod(written, 0o666 & ~_umask())
        os.replace(written, file)
    except BaseException:
        written.unlink(missing_ok=True)
        if made:
            with suppress(OSError):
                file.parent.rmdir()
        raise


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
    if c.rope.kind == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(float(c.rope.options["factor"]))


class _Tensors:
    """Adds the tensors of one checkpoint under llama.cpp's names and in its layouts."""

    def __init__(
        self, writer: Any, gguf: Any, weights: Weights, config: ModelConfig, kind: Kind, quant: Quant | None
    ) -> None:
        self._writer = writer
        self._gguf = gguf
        self._weights = weights
        self._config = config
        self._quant: Quant | None = quant
        self._kind = kind

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
                written = TENSOR_NAMES[_last(name)]
                weight = self._matrix(name, outputs, matrix.inputs)
                self._put(f"{theirs}{written}.weight", pairwise(weight, heads.get(written)))
                if matrix.bias:
                    bias = self._weights.get(f"{name}.bias", outputs)
                    self._put(f"{theirs}{written}.bias", pairwise(bias, heads.get(written)))
        for norm in layer.norms:
            self._put(
                f"{theirs}{TENSOR_NAMES[_last(norm.name)]}.weight", self._weights.get(f"{norm.name}.weight", norm.size)
            )

    def _matrix(self, name: str, outputs: int, inputs: int) -> Tensor:
        weight = self._weights.linear(name, outputs, inputs)
        if self._quant is not None and self._weights.quant is None and isinstance(weight, Tensor):
            weight = quantise(weight, self._quant)
        return dequantised(weight, torch.float32)

    def _put(self, name: str, tensor: Tensor) -> None:
        kind = self._kind if tensor.dim() == 2 else "f32"
        if kind == "q4_0" and name in OUTER_MATRICES:
            kind = "q8_0"
        if kind in ("q4_0", "q8_0") and tensor.shape[1] % BLOCK_WEIGHTS:
            kind = "f16"
        if kind in ("q4_0", "q8_0"):
            form = self._gguf.GGMLQuantizationType[kind.upper()]
            packed = self._gguf.quants.quantize(tensor.float().contiguous().numpy(), form)
            self._writer.add_tensor(name, packed, raw_dtype=form)
        else:
            stored = tensor.to(torch.float16 if kind == "f16" else torch.float32)
            self._writer.add_tensor(name, stored.contiguous().numpy())


def _umask() -> int:
    """The process's umask, which a temporary file ignores."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def pairwise(rows: Tensor, heads: int | None) -> Tensor:
    """Reorder the rows of each head for llama.cpp's "normal" rope, which rotates neighbours instead of halves.

    Row i of the first half and row i of the second are rotated together: they become rows 2i and 2i + 1. `heads` None
    means an architecture that rotates halves (NeoX): the rows stay.
    """
    if heads is None:
        return rows
    reordered: Tensor = rows.unflatten(0, (heads, 2, -1)).transpose(1, 2).reshape(rows.shape)
    return reordered


def llama3_factors(rope: Rope, dim: int) -> Tensor:
    """Divisors of Llama 3.1's frequencies: float32 [dim / 2] (transformers' rope_type "llama3")."""
    low, high = float(rope.options["low_freq_factor"]), float(rope.options["high_freq_factor"])
    factor, original = float(rope.options["factor"]), float(rope.options["original_max_position_embeddings"])
    wavelength = 2 * math.pi * rope.theta ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    smooth = (original / wavelength - low) / (high - low)
    between = 1 / ((1 - smooth) / factor + smooth)
    factors = torch.where(wavelength > original / low, factor, torch.where(wavelength < original / high, 1.0, between))
    return factors.float()
