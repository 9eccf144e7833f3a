"""The kernel of short convolutions as a step launches it, at LFM2-1.2B's shapes: 2,048 channels, 3 taps."""

from specchat.engine.kernels import short_conv
from tests.kernels.compiled import Case

SPLITS = 4

CASES = [
    Case(
        name=name,
        kernel=short_conv._short_conv,
        signature={
            "partials": "*fp32",
            "weights": "*fp32",
            "start": "*i32",
            "length": "*i32",
            "tree": "*i64" if tree else "constexpr",
            "keys": "*bf16",
            "values": "*bf16",
            "out": "*bf16",
            "skip": "*i32",
            "stride_split": "i32",
            "stride_row": "i32",
            "half": "i32",
            "capacity": "i32",
            "held": "i32",
            "TAPS": "constexpr",
            "SPLITS": "constexpr",
            "COLUMNS": "constexpr",
        },
        constants={"TAPS": 3, "SPLITS": SPLITS, "COLUMNS": short_conv.COLUMNS} | ({} if tree else {"tree": None}),
        aligned=("partials", "weights", "keys", "values", "out", "stride_split", "stride_row", "half"),
        num_warps=2,
    )
    for name, tree in (("short convolution", False), ("short convolution of a tree", True))
]
