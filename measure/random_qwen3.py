"""GGUF files of the shapes of Qwen3, of random bytes with scales of the size that weights have.

Types of tensors are those that llama.cpp's own quantiser gives a mixture, so that speeds are those of real files.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import gguf
import numpy as np
from numpy.typing import NDArray

from specchat.engine.llama_cpp.vocabulary import Vocabulary, describe

Mixture = Literal["F16", "BF16", "Q4_0", "Q4_K_M", "Q6_K", "Q8_0", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"]
DEVIATION = 0.02
"""Standard deviation of weights."""
ADDED = ("attn_output", "ffn_down", "ffn_down_exps")
"""Matrices whose products are added to the hidden states."""
POOL = 1 << 14
"""Blocks of a type that differ; tensors repeat them."""
BYTE_TOKENS = 256
HEAD_DIM = 128


@dataclass(frozen=True)
class Shape:
    """Sizes of a model; with experts `intermediate` is one's."""

    hidden: int
    intermediate: int
    layers: int
    vocab: int = 151936
    heads: int = 16
    kv_heads: int = 8
    experts: int = 0
    chosen: int = 0


SHAPES = {
    "0.6b": Shape(1024, 3072, 28),
    "1.7b": Shape(2048, 6144, 28),
    "7b": Shape(4096, 12288, 36),
    "30b-a3b": Shape(2048, 768, 4, 151936 * 4 // 48 // 16 * 16, 32, 4, 128, 8),
}
"""The first two are Qwen3's; the third has fewer heads than its 8B, the last four of its layers, and as much of the
vocabulary as of the layers."""


class Tables(NamedTuple):
    """The first rows of the embeddings and of a head apart from them, float32 [tokens, hidden], and a tokenizer."""

    embeddings: NDArray[np.float32]
    head: NDArray[np.float32]
    vocabulary: Vocabulary


def write(file: Path, shape: Shape, mixture: Mixture, tables: Tables | None = None) -> None:
    """Write a model of a shape; one with `tables`, which are in Q8_0, has layers that add zeros to the embeddings."""
    count = shape.layers
    writer = gguf.GGUFWriter(file, "qwen3moe" if shape.experts else "qwen3")
    _describe(writer, shape, count)
    if tables:
        describe(writer, gguf, tables.vocabulary, shape.vocab)
    else:
        _name_tokens(writer, shape.vocab)
    pools: dict[tuple[str, float], NDArray[np.uint8]] = {}

    def matrix(name: str, outputs: tuple[int, ...], inputs: int, kind: str) -> None:
        size, octets = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
        deviation = 0.0 if tables and name.partition(".weight")[0].endswith(ADDED) else DEVIATION
        if (kind, deviation) not in pools:
            pools[kind, deviation] = blocks(kind, POOL, deviation=deviation)
        raw = np.resize(pools[kind, deviation], (*outputs, inputs // size * octets))
        writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType[kind])

    def norm(name: str, size: int) -> None:
        writer.add_tensor(name, np.ones(size, np.float32))

    base = "Q4_K" if mixture == "Q4_K_M" else mixture
    better = {"Q4_0": "Q6_K", "Q4_K_M": "Q6_K"}.get(mixture, base)
    hidden, width, kv = shape.hidden, shape.heads * HEAD_DIM, shape.kv_heads * HEAD_DIM

    def table(name: str, rows: NDArray[np.float32]) -> None:
        kind = gguf.GGMLQuantizationType.Q8_0
        raw = gguf.quants.quantize(rows, kind)
        more = np.zeros((shape.vocab - len(raw), raw.shape[1]), np.uint8)
        writer.add_tensor(name, np.concatenate([raw, more]), raw_dtype=kind)

    if tables:
        table("token_embd.weight", tables.embeddings)
        table("output.weight", tables.head)
    else:
        matrix("token_embd.weight", (shape.vocab,), hidden, better)
    of_experts, suffix = ((shape.experts,), "_exps") if shape.experts else ((), "")
    norm("output_norm.weight", hidden)
    for layer in range(count):
        more = better if mixture == "Q4_K_M" and _has_more_bits(layer, count) else base
        before = f"blk.{layer}."
        for name, size in (("attn_norm", hidden), ("ffn_norm", hidden), ("attn_q_norm", 128), ("attn_k_norm", 128)):
            norm(f"{before}{name}.weight", size)
        if shape.experts:
            router = np.random.default_rng(layer).standard_normal((shape.experts, hidden)).astype(np.float32)
            writer.add_tensor(f"{before}ffn_gate_inp.weight", DEVIATION * router)
        for name, outputs, inputs, kind in (
            ("attn_q", (width,), hidden, base),
            ("attn_k", (kv,), hidden, base),
            ("attn_v", (kv,), hidden, more),
            ("attn_output", (hidden,), width, base),
            (f"ffn_gate{suffix}", (*of_experts, shape.intermediate), hidden, base),
            (f"ffn_up{suffix}", (*of_experts, shape.intermediate), hidden, base),
            (f"ffn_down{suffix}", (*of_experts, hidden), shape.intermediate, more),
        ):
            matrix(f"{before}{name}.weight", outputs, inputs, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@contextmanager
def made(names: list[str]) -> Iterator[list[Path]]:
    """Write random files of a shape and a mixture of types each, such as "0.6b:Q4_K_M"."""
    with TemporaryDirectory(prefix="specchat-gguf-") as folder:
        files = []
        for name in names:
            shape, _, mixture = name.partition(":")
            files.append(Path(folder) / f"qwen3-{shape}-{mixture}.gguf")
            write(files[-1], SHAPES[shape], mixture)  # type: ignore[arg-type]
        yield files


def blocks(kind: str, count: int, seed: int = 0, deviation: float = DEVIATION) -> NDArray[np.uint8]:
    """Random blocks of a type, uint8 [count, bytes of a block], of numbers of a standard deviation, mean near 0."""
    rng = np.random.default_rng(seed)
    if kind in ("F16", "BF16"):
        values = (deviation * rng.standard_normal((count, 1))).astype(np.float32)
        return gguf.quants.quantize(values, gguf.GGMLQuantizationType[kind]).view(np.uint8)
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
    put(at[0], deviation / spread)
    if len(at) == 2:
        put(at[1], 7.5 * deviation / spread)
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
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    if shape.experts:
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(shape.chosen)
        writer.add_expert_feed_forward_length(shape.intermediate)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)


def _name_tokens(writer: Any, vocab: int) -> None:
    """Add a vocabulary of bytes and of words that no text has."""
    kinds, special = gguf.TokenType, ["<unk>", "<s>", "</s>"]
    octets = [f"<0x{octet:02X}>" for octet in range(BYTE_TOKENS)]
    words = [f"▁w{number}" for number in range(vocab - len(special) - len(octets))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*special, *octets, *words])
    writer.add_token_scores([0.0] * vocab)
    types = [kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL, *[kinds.BYTE] * len(octets), *[kinds.NORMAL] * len(words)]
    writer.add_token_types(types)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
