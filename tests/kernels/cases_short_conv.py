"""The kernel of short convolutions as a step launches it, at LFM2-1.2B's shapes: 2,048 channels, 3 taps."""

from torch import bfloat16, empty, int32, int64

from specchat.engine.kernels.kv_entries import KvEntries
from specchat.engine.kernels.paths import RowPlaces
from specchat.engine.kernels.short_conv import _short_conv, short_conv
from tests.kernels.compiled import Case, launched

ROWS, CHANNELS, CAPACITY = 16, 2048, 4099


def _convolved(name: str, tree: bool) -> Case:
    position = empty(1, dtype=int32)
    cache = empty(1, CAPACITY, CHANNELS // 2, dtype=bfloat16)
    return launched(
        name,
        _short_conv,
        lambda: short_conv(
            *(empty(4, ROWS, 3 * CHANNELS), empty(CHANNELS, 1, 3), position),
            *(RowPlaces(position, empty(ROWS, dtype=int64) if tree else None, position), KvEntries(cache, cache)),
            *(empty(ROWS, CHANNELS, dtype=bfloat16), ROWS, CAPACITY),
        ),
    )


CASES = [_convolved("short convolution", tree=False), _convolved("short convolution of a tree", tree=True)]
