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
from specchat.engine.formats.quantise import dequantised
from specchat.engine.llama_cpp.library import PACKAGE
from specchat.engine.llama_cpp.vocabulary import Vocabulary, describe
from specchat.engine.protocol.pair import Quant
from specchat.engine.recipe import Experts, Layer, Matrix, Recipe, Rope
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.config import ModelConfig
from specchat.engine.weights.matrices import packing, read_norm
from specchat.engine.weights.weights import Weights
from specchat.installing import install_command

Kind = Literal["f32", "f16", "q8_0", "q4_0"]
"""Type of matrices; vectors are always float32. With q4_0 the embeddings and the head are q8_0."""
KINDS: tuple[Kind, ...] = get_args(Kind)
BLOCK_WEIGHTS = 32
"""Weights of a row that share a scale in q8_0 and q4_0; a matrix whose rows are no multiple is stored as f16."""

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
        ModelError: the checkpoint cannot be read, or has a tokenizer or a feature that is not written here.
        OSError: the file cannot be written.
    """
    try:
        import gguf
    except ImportError:
        raise EngineError(
            "config", f"Writing GGUF files needs the package gguf, which is not installed: {install_command(PACKAGE)}."
        ) from None
    config = checkpoint.config
    vocabulary = Vocabulary.of(checkpoint) if tokenizer else None
    if reason := unsupported(config.recipe):
        raise ModelError(f"{reason} is not written to GGUF here.")
    made = not file.parent.exists()
    file.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=file.parent, prefix=f".{file.name}-", delete=False) as part:
        written = Path(part.name)
    try:
        writer = gguf.GGUFWriter(written, architecture(config.recipe))
        _describe(writer, config, gguf)
        writer.add_file_type(FILE_TYPES[kind])
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        if vocabulary is None:
            writer.add_tokenizer_model("no_vocab")
        else:
            describe(writer, gguf, vocabulary, config.vocab)
        with Weights(checkpoint) as weights:
            _Tensors(writer, gguf, weights, config.recipe, kind, quant).add()
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


def architecture(recipe: Recipe) -> str:
    """llama.cpp's name of the architecture that computes a recipe."""
    mixer, feed = recipe.layers[0].attention, recipe.layers[0].gated
    if mixer.query_norm is not None:
        return "qwen3"
    of_inputs_alone = mixer.qkv.bias and not mixer.out.bias and not feed.gate_up.bias
    return "qwen2" if of_inputs_alone else "llama"


def unsupported(recipe: Recipe) -> str:
    """The feature of a recipe that no GGUF file of ours holds, in words; empty where it has none."""
    if len(recipe.attentions) < len(recipe.layers):
        return "layers without attention"
    layers, mixers = recipe.layers, recipe.attentions
    kinds = {rope.kind for rope in recipe.ropes if rope is not None}
    factors = {recipe.embed_scale, recipe.logit_scale, *(layer.residual for layer in layers)}
    features = {
        "a mixture of experts": any(isinstance(one.feed, Experts) for one in layers),
        'rope scaling "yarn"': "yarn" in kinds,
        "a model whose layers differ": len({(_shape(one), one.attention.rope is None) for one in layers}) > 1,
        "a model that turns no queries and keys": None in recipe.ropes,
        "a rotation of a part of each head": any(one.rope and one.rope.width < one.head_dim for one in mixers),
        "queries and keys rotated in pairs": any(one.qkv.paired[1] for one in mixers),
        "fused matrices": any(len(matrix.names) < len(matrix.outputs) for matrix in recipe.matrices),
        "inputs of each layer": recipe.per_layer is not None,
        "layers that share KV entries": bool(recipe.shared),
        "attention within a window": any(one.window for one in mixers),
        "another activation than silu": any(one.gated.activation != "silu" for one in layers),
        "queries that grow with their position": any(one.temper[0] for one in mixers),
        "a gate on attention": any(one.gated for one in mixers),
        "attention sinks": any(one.sinks for one in mixers),
        "a norm of values": any(one.value_norm for one in mixers),
        "a factor at the end of a layer": any(one.scalar for one in layers),
        "a norm whose weight the file holds less one": any(norm.plus_one for one in layers for norm in one.norms),
        "a LayerNorm": recipe.norm.centred,
        "a cap on logits": recipe.cap > 0,
        "a norm after a sub-layer": any(one.post_mixer or one.post_feed for one in layers),
        "a factor on embeddings, scores, residuals or logits": (
            factors != {1.0} or any(one.scale != one.head_dim**-0.5 for one in mixers)
        ),
        "a norm of embeddings": recipe.embed_eps is not None,
        "a norm of all heads": any(one.query_norm and one.query_norm.size != one.head_dim for one in mixers),
        "a bias beside norms of heads": any(
            one.attention.query_norm and any(matrix.bias for matrix in one.products) for one in layers
        ),
    }
    return next((feature for feature, there in features.items() if there), "")


def _shape(layer: Layer) -> tuple[int, ...]:
    return layer.attention.heads, layer.attention.kv_heads, layer.attention.head_dim, layer.gated.width


def _rope(recipe: Recipe) -> Rope:
    """The one of a recipe that is not `unsupported`."""
    (rope,) = recipe.ropes
    assert rope is not None
    return rope


def _describe(writer: Any, c: ModelConfig, gguf: Any) -> None:
    heads, kv_heads, head_dim, width = _shape(c.recipe.layers[0])
    rope = _rope(c.recipe)
    writer.add_context_length(c.context)
    writer.add_embedding_length(c.hidden)
    writer.add_block_count(c.layers)
    writer.add_feed_forward_length(width)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(c.recipe.norm.eps)
    writer.add_rope_dimension_count(rope.width)
    writer.add_rope_freq_base(rope.theta)
    writer.add_vocab_size(c.vocab)
    if rope.kind == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(float(rope.options["factor"]))


class _Tensors:
    """Adds the tensors of one checkpoint under llama.cpp's names and in its layouts."""

    def __init__(
        self, writer: Any, gguf: Any, weights: Weights, recipe: Recipe, kind: Kind, quant: Quant | None
    ) -> None:
        self._writer = writer
        self._gguf = gguf
        self._weights = weights
        self._recipe = recipe
        self._pack = packing(None if weights.quant else quant)
        self._kind = kind

    def add(self) -> None:
        recipe, rope = self._recipe, _rope(self._recipe)
        self._table("token_embd.weight", recipe.embed)
        self._put("output_norm.weight", read_norm(self._weights, recipe.norm))
        if not recipe.tied:
            self._table("output.weight", recipe.head)
        if rope.kind == "llama3":
            self._put("rope_freqs.weight", llama3_factors(rope))
        for index, layer in enumerate(recipe.layers):
            self._layer(layer, f"blk.{index}.")

    def _table(self, name: str, matrix: Matrix) -> None:
        ((stored, outputs),) = matrix.parts
        self._put(name, self._weights.get(f"{stored}.weight", outputs, matrix.inputs))

    def _layer(self, layer: Layer, theirs: str) -> None:
        heads: dict[str, int] = {}
        if architecture(self._recipe) == "llama":
            heads = {"attn_q": layer.attention.heads, "attn_k": layer.attention.kv_heads}
        for matrix in layer.products:
            for name, outputs in matrix.parts:
                written = TENSOR_NAMES[_last(name)]
                stored = self._weights.linear(name, outputs, matrix.inputs)
                weight = dequantised(self._pack(matrix, stored), torch.float32)
                self._put(f"{theirs}{written}.weight", pairwise(weight, heads.get(written)))
                if matrix.bias:
                    bias = self._weights.get(f"{name}.bias", outputs)
                    self._put(f"{theirs}{written}.bias", pairwise(bias, heads.get(written)))
        for norm in layer.norms:
            self._put(f"{theirs}{TENSOR_NAMES[_last(norm.name)]}.weight", read_norm(self._weights, norm))

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


def llama3_factors(rope: Rope) -> Tensor:
    """Divisors of Llama 3.1's frequencies: float32 [width / 2] (transformers' rope_type "llama3")."""
    low, high = float(rope.options["low_freq_factor"]), float(rope.options["high_freq_factor"])
    factor, original = float(rope.options["factor"]), float(rope.options["original_max_position_embeddings"])
    wavelength = 2 * math.pi * rope.theta ** (torch.arange(0, rope.width, 2, dtype=torch.float64) / rope.width)
    smooth = (original / wavelength - low) / (high - low)
    between = 1 / ((1 - smooth) / factor + smooth)
    factors = torch.where(wavelength > original / low, factor, torch.where(wavelength < original / high, 1.0, between))
    return factors.float()
