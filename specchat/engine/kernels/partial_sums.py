"""Partial sums of a product, which the kernel that reads them adds."""

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def summed(first: tl.tensor, inside: tl.tensor, stride_split: tl.tensor, SPLITS: tl.constexpr) -> tl.tensor:
    """Partial sums at pointers, added in index order; zeros outside."""
    x = tl.load(first, mask=inside, other=0.0)
    for split in tl.static_range(1, SPLITS):
        x += tl.load(first + split * stride_split, mask=inside, other=0.0)
    return x
