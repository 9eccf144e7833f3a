"""After a step: moves the KV entries of a tree's accepted nodes to the positions of a chain."""

import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.kernels.verify_state import AcceptedNodes, VerifyState


@triton.jit  # type: ignore[untyped-decorator]
def _keep(
    keys: tl.tensor,
    values: tl.tensor,
    nodes: AcceptedNodes,
    places: tl.tensor,
    capacity: tl.tensor,
    DIM: tl.constexpr,
    PADDED: tl.constexpr,
) -> None:
    accepted = tl.load(nodes.result)
    # `commit` has already counted the emitted tokens.
    start = tl.load(nodes.length) - tl.load(nodes.result + 2)
    head = tl.program_id(0).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    first = head * capacity * DIM
    d = tl.arange(0, PADDED)
    for depth in range(1, accepted + 1):
        place = tl.load(nodes.kept + depth)
        if places is not None:
            place = tl.load(places + place)
        # Never below `depth`: an overwritten entry was moved before, or is not on the path.
        if place > depth:
            source = first + (start + place) % capacity * DIM + d
            target = first + (start + depth) % capacity * DIM + d
            tl.store(keys + target, tl.load(keys + source, mask=d < DIM), mask=d < DIM)
            tl.store(values + target, tl.load(values + source, mask=d < DIM), mask=d < DIM)


def keep(keys: Tensor, values: Tensor, state: VerifyState, places: Tensor | None) -> None:
    """After `commit`, move the KV entries of the accepted nodes together, from that of node 0 on.

    Args:
        keys, values: KV entries or their scales, [layers, kv, capacity, D]; before, node i is the i-th KV entry after
            node 0. A ring holds KV entry p modulo its capacity.
        places: int32 [rows + 1], the nodes' numbers in this cache if they differ from the step's: at least the node's
            depth, or 0 for a node without KV entry; the nodes after it have none either.
    """
    layers, kv_heads, capacity, dim = keys.shape
    _keep[(layers, kv_heads)](
        keys,
        values,
        state.accepted,
        places,
        capacity,
        DIM=dim,
        PADDED=triton.next_power_of_2(dim),
        num_warps=1,
        enable_fp_fusion=True,
    )
