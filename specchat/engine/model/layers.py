"""All transformer blocks of a pass in one function, written so that TorchScript can run it.

A step on the CPU is some six hundred calls of a few microseconds: without Python between them it takes a fifth less.
The operations, and so the bits, are the same either way; what TorchScript cannot call (quantised products, arrangements
that cut a product up) runs the same function as plain Python.
"""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear, scaled_dot_product_attention, silu

from specchat.engine.model.norm import normed


def blocks(
    x: Tensor,
    rows: int,
    start: int,
    masks: Tensor,
    together: bool,
    keys: list[Tensor],
    values: list[Tensor],
    cos: Tensor,
    sin: Tensor,
    heads: int,
    kv_heads: int,
    norms: list[Tensor],
    eps: Tensor,
    head_norms: list[Tensor],
    head_eps: Tensor,
    products: list[Tensor],
    biases: list[Tensor | None],
    attends: list[bool],
    feeds: list[bool],
    depths: list[int],
    lengths: list[int],
    before: list[list[int]],
    stash: list[Tensor],
    stashed: int,
) -> Tensor:
    """Hidden states float32 [rows, hidden] after all blocks; `x` is changed in place.

    Rows are runs of tokens that follow each other, a chain being one run. The slots of the cache are those of a chain,
    so a run overwrites what a run before it left there, and a row has bit for bit the result that it has in a chain.

    Args:
        x: float32 [padded, hidden], whose first `rows` are the tokens; the others go through the products with them,
            whose rows come out the same in so many rows, and nowhere else.
        masks: `attention.causal_masks`; `together` says whether rows may share a call.
        keys, values: the cache, of each layer float32 [kv_heads, capacity, head_dim]; the rows' entries are written.
        cos, sin: float32 [capacity, head_dim].
        norms: for each layer the weights of both norms, as `RMSNorm` keeps them; `head_norms` those of query and key
            heads, or nothing.
        products: for each layer qkv, out, gate-up, down: dense float32, or packed by oneDNN or FBGEMM; in plain Python
            callables.
        attends, feeds: which layers' attention and MLP take part.
        depths, lengths: run r is at positions start + depths[r], ..., lengths[r] of them.
        before: rows of the stash whose entries are put into the slots right before each run.
        stash: keys and values float32 [layers, rows, kv_heads, head_dim] that get the rows' entries from row `stashed`
            on, or nothing.
    """
    extra = x.shape[0] - rows
    fill = x.new_zeros([extra, heads * cos.shape[1]]) if extra > 0 else x
    cos = at_positions(cos, start, depths, lengths)
    sin = at_positions(sin, start, depths, lengths)
    counts: list[int] = []
    spanned: list[int] = []
    seen = [masks]
    seen.clear()
    for r in range(len(lengths)):
        place = start + depths[r]
        inside = spans(place, lengths[r], lengths[r] if together else 1, masks.shape[0])
        for count in inside:
            seen.append(span_mask(masks, heads // kv_heads, place, count))
            place += count
        counts.extend(inside)
        spanned.append(len(inside))
    for i in range(len(attends)):
        if attends[i]:
            qkv = product(normed(x, norms[2 * i], eps), products[4 * i], biases[4 * i])
            if extra > 0:
                qkv = qkv.narrow(0, 0, rows)
            qkv = qkv.view([rows, heads + 2 * kv_heads, -1])
            qk, value = qkv.split([heads + kv_heads, kv_heads], 1)
            if len(head_norms) > 0:
                query, key = qk.split([heads, kv_heads], 1)
                query, key = normed(query, head_norms[2 * i], head_eps), normed(key, head_norms[2 * i + 1], head_eps)
                qk = torch.cat([query, key], 1)
            query, key = torch.addcmul(qk * cos, qk.roll(qk.shape[2] // 2, -1), sin).split([heads, kv_heads], 1)
            grouped = query.unflatten(1, [kv_heads, heads // kv_heads])
            if len(stash) > 0:
                stash[0][i].narrow(0, stashed, rows).copy_(key)
                stash[1][i].narrow(0, stashed, rows).copy_(value)
            if len(counts) == 1 and len(before[0]) == 0:
                put(keys[i], values[i], start + depths[0], key, value)
                mixed = attended(grouped, keys[i], values[i], seen[0])
            else:
                parts = [grouped]
                parts.clear()
                first, s = 0, 0
                for r in range(len(lengths)):
                    place = start + depths[r]
                    if len(before[r]) > 0:
                        kept = torch.tensor(before[r])
                        put(
                            keys[i],
                            values[i],
                            place - len(before[r]),
                            stash[0][i].index_select(0, kept),
                            stash[1][i].index_select(0, kept),
                        )
                    put(
                        keys[i],
                        values[i],
                        place,
                        key.narrow(0, first, lengths[r]),
                        value.narrow(0, first, lengths[r]),
                    )
                    for _ in range(spanned[r]):
                        parts.append(attended(grouped.narrow(0, first, counts[s]), keys[i], values[i], seen[s]))
                        first += counts[s]
                        s += 1
                mixed = torch.cat(parts)
            mixed = mixed.reshape([rows, -1])
            if extra > 0:
                mixed = torch.cat([mixed, fill])
            x.add_(product(mixed, products[4 * i + 1], biases[4 * i + 1]))
        if feeds[i]:
            gate_up = product(normed(x, norms[2 * i + 1], eps), products[4 * i + 2], biases[4 * i + 2])
            gate, up = gate_up.chunk(2, -1)
            x.add_(product(silu(gate).mul_(up), products[4 * i + 3], biases[4 * i + 3]))
    return x.narrow(0, 0, rows) if extra > 0 else x


def at_positions(table: Tensor, start: int, depths: list[int], lengths: list[int]) -> Tensor:
    """Rows float32 [rows, 1, head_dim] of a table of positions, for runs of tokens."""
    parts = [table]
    parts.clear()
    for r in range(len(lengths)):
        parts.append(table.narrow(0, start + depths[r], lengths[r]))
    return (parts[0] if len(parts) == 1 else torch.cat(parts)).unsqueeze(1)


def put(keys: Tensor, values: Tensor, slot: int, key: Tensor, value: Tensor) -> None:
    """Write entries float32 [rows, kv_heads, head_dim] to a layer's cache from `slot` on."""
    keys.narrow(1, slot, key.shape[0]).copy_(key.transpose(0, 1))
    values.narrow(1, slot, value.shape[0]).copy_(value.transpose(0, 1))


def spans(start: int, rows: int, most: int, block: int) -> list[int]:
    """Rows at positions from `start` on in runs of at most `most` that share their last block of keys."""
    counts = [0]
    counts.clear()
    done = 0
    while done < rows:
        count = min(rows - done, block - (start + done) % block, most)
        counts.append(count)
        done += count
    return counts


def span_mask(masks: Tensor, group: int, start: int, rows: int) -> Tensor:
    """The mask that is added to the scores of a span: float32 [entries, 1, 2 * group, seen].

    Rows start, start + 1, ... end in one block and so see the same number of keys.
    """
    first = start % masks.shape[0]
    seen = start - first + masks.shape[0]
    mask = masks.narrow(0, first, rows).narrow(1, masks.shape[1] - seen, seen)
    if rows == 1:
        return mask.view([1, 1, 1, seen]).expand([1, 1, 2 * group, seen])
    if rows % 2 == 1:
        mask = torch.cat([mask, mask[-1:]])
    return mask.repeat_interleave(group, 0).view([-1, 1, 2 * group, seen])


def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x @ weight^T + bias; in plain Python `weight` is a callable that knows its bias."""
    if torch.jit.is_scripting():
        if weight.dtype == torch.uint8:
            return torch.ops.aten.fbgemm_linear_fp16_weight_fp32_activation(x, weight, bias)
        if weight.is_mkldnn:
            return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return linear(x, weight, bias)
    return weight(x)


def attended(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Attention of the rows of one span.

    Args:
        query: float32 [rows, kv_heads, group, head_dim].
        keys, values: float32 [kv_heads, capacity, head_dim], already holding the rows' own entries.
        mask: of `span_mask`.

    Returns:
        float32 [rows, kv_heads, group, head_dim].
    """
    rows, kv_heads, group, dim = query.shape
    entries, seen = mask.shape[0], mask.shape[3]
    keys = keys.narrow(1, 0, seen).expand([entries, -1, -1, -1])
    values = values.narrow(1, 0, seen).expand([entries, -1, -1, -1])
    if rows == 1:
        paired = torch.cat([query, query], 2)
        return scaled_dot_product_attention(paired, keys, values, mask).narrow(2, 0, group)
    even = torch.cat([query, query[-1:]]) if rows % 2 == 1 else query
    paired = even.view([entries, 2, kv_heads, group, dim]).transpose(1, 2).reshape([entries, kv_heads, -1, dim])
    mixed = scaled_dot_product_attention(paired, keys, values, mask)
    return mixed.view([entries, kv_heads, 2, group, dim]).transpose(1, 2).reshape([-1, kv_heads, group, dim])[:rows]


def scripted() -> Callable[..., Tensor] | None:
    """`blocks` as TorchScript runs it; None where this torch cannot."""
    if not _scripted:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                _scripted.append(torch.jit.script(blocks))
        except (RuntimeError, OSError):  # a build without oneDNN or TorchScript, or no source to read
            _scripted.append(None)
    made: Callable[..., Tensor] | None = _scripted[0]
    return made


_scripted: list[Any] = []
