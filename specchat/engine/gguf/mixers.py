"""Places of the tensors of mixers in a block of a GGUF file, and what llama.cpp's converter rearranged."""

from collections.abc import Sequence

from specchat.engine.gguf.blocks import FileBlock, Places, StoredAs
from specchat.engine.recipe import Attention, Delta, Latent, Selective, ShortConv


def mixer(block: FileBlock, of: Attention | ShortConv | Delta, paired: bool) -> Places:
    """The tensors of a mixer but for the norm before it; `paired` as in `config.Architecture`."""
    match of:
        case Attention(latent=Latent() as latent):
            yield from _latent(block, of, latent)
        case Attention():
            yield from _attention(block, of, paired)
        case ShortConv():
            yield from block.matrix(of.mix, ["shortconv.in_proj"])
            yield from block.matrix(of.out, ["shortconv.out_proj"])
            yield of.convolution, block.source("shortconv.conv.weight", dims=3)
        case Delta(selective=Selective() as selective):
            yield from _selective(block, of, selective)
        case Delta():
            yield from _delta(block, of)


def unused(mixer: Attention) -> tuple[str, ...]:
    """Tensors of attention that files may hold though it reads none: of entries it shares, and factors as norms."""
    shared = ("attn_k", "attn_v", "attn_k_norm") if mixer.share is not None else ()
    nameless = mixer.query_norm is not None and not mixer.query_norm.name
    return (*shared, *(("attn_q_norm", "attn_k_norm") if nameless else ()))


def _attention(block: FileBlock, mixer: Attention, paired: bool) -> Places:
    qkv = mixer.qkv
    parts = ("q", "gate", "k", "v") if len(qkv.names) == 4 else ("q", "k", "v")
    orders: list[Sequence[int]] = []
    for part, outputs in zip(parts, qkv.outputs, strict=False):
        rotated = part in ("q", "k")
        if rotated and paired:
            orders.append(_halves(outputs, mixer.head_dim))
        elif rotated and block.files.sections and qkv.paired[1]:
            orders.append(_pairs(outputs, *qkv.paired))
        else:
            orders.append(())
    if len(qkv.names) == 1:
        yield from block.matrix(qkv, ["attn_qkv"] if len(qkv.outputs) > 1 else ["attn_q"], orders)
    elif "attn_qkv.weight" in block:
        yield from block.matrix(qkv, ["attn_qkv"], orders)
    else:
        # Where a matrix has two names it is one that the recipe reads twice.
        names = [f"attn_{part}" for part, _ in zip(parts, qkv.names, strict=False)]
        names = [names[qkv.names.index(name)] for name in qkv.names]
        yield from block.matrix(qkv, names, orders)
    yield from block.matrix(mixer.out, ["attn_output"])
    yield from block.norm(mixer.query_norm, "attn_q_norm")
    yield from block.norm(mixer.key_norm, "attn_k_norm")
    if mixer.sinks:
        yield mixer.sinks, block.source("attn_sinks.weight")


def _latent(block: FileBlock, mixer: Attention, latent: Latent) -> Places:
    yield from block.matrix(mixer.qkv, ["attn_q_a" if latent.query else "attn_q", "attn_kv_a_mqa"])
    yield from block.matrix(mixer.out, ["attn_output"])
    if latent.query:
        yield from block.matrix(latent.query, ["attn_q_b"])
    yield from block.norm(latent.query_norm, "attn_q_a_norm")
    yield from block.norm(latent.key_value_norm, "attn_kv_a_norm")
    if "attn_k_b.weight" in block:
        values = f"{block.before}attn_v_b.weight"
        yield (
            f"{latent.key_value.names[0]}.weight",
            StoredAs(f"{block.before}attn_k_b.weight", dims=2, values=values),
        )
    else:
        yield from block.matrix(latent.key_value, ["attn_kv_b"])


def _delta(block: FileBlock, mixer: Delta) -> Places:
    # Files of Qwen3.5 hold the first value head of each key head, then the second ones; others as the recipe.
    tiled = "ssm_ba.weight" not in block and mixer.sharing > 1
    order = [sharing * mixer.key_heads + key for key in range(mixer.key_heads) for sharing in range(mixer.sharing)]

    def turned(size: int, before: int = 0) -> Sequence[int]:
        values = [before + head * size + row for head in order for row in range(size)]
        return [*range(before), *values] if tiled else ()

    keys = mixer.channels - mixer.value_heads * mixer.value_dim
    yield from block.matrix(
        mixer.mix, ["attn_qkv", "attn_gate"], [turned(mixer.value_dim, keys), turned(mixer.value_dim)]
    )
    assert mixer.gates
    if "ssm_ba.weight" in block:
        of_key = [*range(0, 2 * mixer.value_heads, 2 * mixer.sharing)]
        for part, name in enumerate(mixer.gates.names):
            first = part * mixer.sharing
            rows = [begin + first + head for begin in of_key for head in range(mixer.sharing)]
            yield f"{name}.weight", block.source("ssm_ba.weight", rows=rows, dims=2)
    else:
        yield from block.matrix(mixer.gates, ["ssm_beta", "ssm_alpha"], [turned(1), turned(1)])
    out = block.source("ssm_out.weight", inputs=turned(mixer.value_dim), dims=2)
    yield f"{mixer.out.names[0]}.weight", out
    yield mixer.convolution, block.source("ssm_conv1d.weight", rows=turned(mixer.value_dim, keys), dims=3)
    yield mixer.decay, block.source("ssm_a", rows=turned(1), change="exponential")
    shift = "ssm_dt" if "ssm_dt" in block else "ssm_dt.bias"  # Ollama's name, and llama.cpp's
    yield mixer.shift, block.source(shift, rows=turned(1))
    yield from block.norm(mixer.norm, "ssm_norm")


def _selective(block: FileBlock, mixer: Delta, of: Selective) -> Places:
    yield from block.matrix(mixer.mix, ["ssm_in"])
    yield from block.matrix(mixer.out, ["ssm_out"])
    yield mixer.convolution, block.source("ssm_conv1d.weight", dims=3)
    if of.conv_bias:
        yield of.conv_bias, block.source("ssm_conv1d.bias")
    yield mixer.decay, block.source("ssm_a", change="exponential")
    yield mixer.shift, block.source("ssm_dt.bias")
    yield of.skip, block.source("ssm_d")
    yield of.weight, block.source("ssm_norm.weight")


def _halves(outputs: int, head: int) -> list[int]:
    """The rows of heads whose values are in pairs of neighbours: the first of each pair, then the second."""
    of_head = [*range(0, head, 2), *range(1, head, 2)]
    return [first + row for first in range(0, outputs, head) for row in of_head]


def _pairs(outputs: int, head: int, rotated: int) -> list[int]:
    """The rows of heads whose rotated values are in halves, in pairs of neighbours."""
    half = rotated // 2
    of_head = [row + half * second for row in range(half) for second in (0, 1)]
    return [first + row for first in range(0, outputs, head) for row in (*of_head, *range(rotated, head))]
