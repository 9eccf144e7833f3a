"""GGUF files of the shapes of Qwen3, of random bytes with scales of the size that weights have.

Types of tensors are those that llama.cpp's own quantiser gives a mixture, so that speeds are those of real files.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np
from numpy.typing import NDArray

Mixture = Literal["Q4_0", "Q4_K_M", "Q6_K", "Q8_0"]
DEVIATION = 0.02
"""Standard deviation of weights."""
POOL = 1 << 14
"""Blocks of a type that differ; tensors repeat them."""
BYTE_TOKENS = 256
HEAD_DIM, HEADS, KV_HEADS = 128, 16, 8


@dataclass(frozen=True)
class Shape:
    """Sizes of a model."""

    hidden: int
    intermediate: int
    layers: int
    vocab: int = 151936


SHAPES = {
    "0.6b": Shape(1024, 3072, 28),
    "1.7b": Shape(2048, 6144, 28),
    "7b": Shape(4096, 12288, 36),
}
"""The first two are Qwen3's; the last one has fewer heads than its 8B."""


def write(file: Path, shape: Shape, mixture: Mixture) -> None:
    """Write a model of a shape."""
    count = shape.layers
    writer = gguf.GGUFWriter(file, "qwen3")
    _describe(writer, shape, count)
    pools: dict[str, NDArray[np.uint8]] = {}

    def matrix(name: str, outputs: int, inputs: int, kind: str) -> None:
        size, octets = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
        if kind not in pools:
            pools[kind] = blocks(kind, POOL)
        raw = np.resize(pools[kind], (outputs, inputs // size * octets))
        writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType[kind])

    def norm(name: str, size: int) -> None:
        writer.add_tensor(name, np.ones(size, np.float32))

    base = "Q4_K" if mixture == "Q4_K_M" else mixture
    better = {"Q4_0": "Q6_K", "Q4_K_M": "Q6_K"}.get(mixture, base)
    hidden, width, kv = shape.hidden, HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    matrix("token_embd.weight", shape.vocab, hidden, better)
    norm("output_norm.weight", hidden)
    for layer in range(count):
        more = better if mixture == "Q4_K_M" and _has_more_bits(layer, count) else base
        before = f"blk.{layer}."
        for name, size in (("attn_norm", hidden), ("ffn_norm", hidden), ("attn_q_norm", 128), ("attn_k_norm", 128)):
            norm(f"{before}{name}.weight", size)
        for name, outputs, inputs, kind in (
            ("attn_q", width, hidden, base),
            ("attn_k", kv, hidden, base),
            ("attn_v", kv, hidden, more),
            ("attn_output", hidden, width, base),
            ("ffn_gate", shape.intermediate, hidden, base),
            ("ffn_up", shape.intermediate, hidden, base),
            ("ffn_down", hidden, shape.intermediate, more),
        ):
            matrix(f"{before}{name}.weight", outputs, inputs, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def blocks(kind: str, count: int, seed: int = 0) -> NDArray[np.uint8]:
    """Random blocks of a type, uint8 [count, bytes of a block], of numbers with DEVIATION and a mean near 0."""
    rng = np.random.default_rng(seed)
    _, octets = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    raw = rng.integers(0, 256, (count, octets), dtype=np.uint8)

    def put(begin: int, value: float) -> None:
        raw[:, begin : begin + 2] = np.array([value], np.float16).view(np.uint8)

    if kind == "Q6_K":
        raw[:, 192:208] = rng.integers(-32, 32, (count, 16)).astype(np.int8).view(np.uint8)
    at = {"Q4_K": [0, 2], "Q6_K": [208]}.get(kind, [0])
    for begin in at:
        put(begin, 1.0)
    if len(at) == 2:  # minimums near the mean of what they are taken from
        put(at[1], 7.5)
    spread = float(gguf.quants.dequantize(raw[:64], gguf.GGMLQuantizationType[kind]).std())
    put(at[0], DEVIATION / spread)
    if len(at) == 2:
        put(at[1], 7.5 * DEVIATION / spread)
    return raw


def _has_more_bits(layer: int, layers: int) -> bool:
    """True for layers whose values and last matrices have the better type in a mixture "M"."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


def _describe(writer: Any, shape: Shape, layers: int) -> None:
    writer.add_context_length(4096)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(shape.intermediate)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    kinds, special = gguf.TokenType, ["<unk>", "<s>", "</s>"]
    octets = [f"<0x{octet:02X}>" for octet in range(BYTE_TOKENS)]
    words = [f"▁w{number}" for number in range(shape.vocab - len(special) - len(octets))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*special, *octets, *words])
    writer.add_token_scores([0.0] * shape.vocab)
    types = [kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL, *[kinds.BYTE] * len(octets), *[kinds.NORMAL] * len(words)]
    writer.add_token_types(types)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
