"""Causal attention over the cache, row-invariant.

Each row is a batch entry of its own, with the query heads that share a key-value head as its query rows, and attends
whole blocks of keys up to its own position: nothing in its arithmetic depends on the other rows of the call.
"""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from specchat.engine.model.cache import BLOCK


def causal_masks(capacity: int) -> Tensor:
    """Additive masks float32 [BLOCK, capacity]: row i allows all but the last BLOCK - 1 - i columns.

    The last S columns are the mask of a position p with p % BLOCK == i that attends S keys, S being p + 1 rounded up.
    """
    masks = torch.zeros(BLOCK, capacity)
    masks[:, capacity - BLOCK :] = torch.full((BLOCK, BLOCK), float("-inf")).triu(1)
    return masks


def attend(query: Tensor, keys: Tensor, values: Tensor, masks: Tensor, start: int) -> Tensor:
    """Attention of rows at positions start, start + 1, ...

    Args:
        query: float32 [rows, kv_heads, group, head_dim].
        keys, values: float32 [kv_heads, capacity, head_dim], already holding the rows' own entries.
        masks: from `causal_masks`.

    Returns:
        float32 [rows, kv_heads, group, head_dim].
    """
    rows = query.shape[0]
    outputs = []
    done = 0
    while done < rows:
        position = start + done
        taken = min(rows - done, BLOCK - position % BLOCK)
        seen = position - position % BLOCK + BLOCK
        first = position % BLOCK
        outputs.append(
            scaled_dot_product_attention(
                query[done : done + taken],
                keys[:, :seen].expand(taken, -1, -1, -1),
                values[:, :seen].expand(taken, -1, -1, -1),
                attn_mask=masks[first : first + taken, masks.shape[1] - seen :].view(taken, 1, 1, seen),
            )
        )
        done += taken
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)
