"""The row-wise kernels as a step launches them, at Qwen3-8B's shapes: 4096 wide, 32 heads, 8 kv, 128 a head."""

import triton

from specchat.engine.kernels import activation, embed, layer_inputs, norm, rope
from specchat.engine.kernels.gpu_shapes import WIDEST
from tests.kernels.compiled import Case

HIDDEN = 4096
SPLITS = 4
OTHERS = "second", "second_out", "third", "third_out"

CASES = [
    *(
        Case(
            name=name,
            kernel=embed._embed,
            signature={
                "tokens": "*i32",
                "table": "*bf16",
                "residual": "*fp32",
                "vocab": "i32",
                "hidden": "i32",
                "scale": "fp32" if scaled else "constexpr",
                "eps": "fp32" if normed else "constexpr",
                "COLUMNS": "constexpr",
            },
            constants={"COLUMNS": WIDEST if normed else embed.COLUMNS}
            | ({} if scaled else {"scale": None})
            | ({} if normed else {"eps": None}),
            aligned=("tokens", "table", "residual", "hidden"),
            num_warps=norm.warps(WIDEST) if normed else 4,
        )
        for name, scaled, normed in (
            ("embed", False, False),
            ("embed, scaled", True, False),
            ("embed, normed", False, True),
        )
    ),
    *(
        Case(
            name=name,
            kernel=norm._add_rms_norm,
            signature={
                "residual": "*fp32",
                "partials": "*fp32" if splits else "constexpr",
                "after": "*fp32" if after else "constexpr",
                "weight": "constexpr" if after else "*bf16",
                "out": "*bf16",
                "skip": "*i32" if splits else "constexpr",
                "scalar": "*fp32" if scalar else "constexpr",
                "earlier": "*i32" if scalar else "constexpr",
                **dict.fromkeys(("second", "third"), "*fp32" if others else "constexpr"),
                **dict.fromkeys(("second_out", "third_out"), "*bf16" if others else "constexpr"),
                "ahead": "*u8" if "ahead" in name else "constexpr",
                "rows": "i32",
                "stride_split": "i32",
                "hidden": "i32",
                "after_eps": "fp32" if after else "constexpr",
                "eps": "fp32",
                "factor": "fp32" if factor else "constexpr",
                **dict.fromkeys(("second_eps", "third_eps"), "fp32" if others else "constexpr"),
                "SPLITS": "constexpr",
                "COLUMNS": "constexpr",
                "CENTRED": "constexpr",
            },
            constants={"SPLITS": splits, "COLUMNS": columns, "CENTRED": "centred" in name}
            | ({} if splits else {"partials": None, "skip": None})
            | ({"weight": None} if after else {"after": None, "after_eps": None})
            | ({} if factor else {"factor": None})
            | ({} if scalar else {"scalar": None, "earlier": None})
            | ({} if others else dict.fromkeys((*OTHERS, "second_eps", "third_eps")))
            | ({} if "ahead" in name else {"ahead": None}),
            aligned=(
                *("residual", "out", "stride_split", "hidden", "after" if after else "weight"),
                *(("partials", "skip") if splits else ()),
                *(("scalar", "earlier") if scalar else ()),
                *(OTHERS if others else ()),
                *(("ahead",) if "ahead" in name else ()),
            ),
            num_warps=norm.warps(columns),
        )
        for name, columns, splits, after, factor, scalar, others in (
            ("norm", HIDDEN, SPLITS, False, False, False, False),
            ("norm without partials", HIDDEN, 0, False, False, False, False),
            ("norm, widest", WIDEST, SPLITS, False, False, False, False),
            ("norm, centred", HIDDEN, SPLITS, False, False, False, False),
            ("norm, weights ahead", HIDDEN, SPLITS, False, False, False, False),
            ("norm, scaled", HIDDEN, SPLITS, False, True, False, False),
            ("norm and two others", HIDDEN, SPLITS, False, False, False, True),
            ("norm of what is added", HIDDEN, SPLITS, True, False, False, False),
            ("norm of what is added, and a factor at the end", HIDDEN, SPLITS, True, False, True, False),
        )
    ),
    *(
        Case(
            name=name,
            kernel=rope._rope_and_write,
            signature={
                "partials": "*fp32",
                "query_norm": "*bf16" if normed else "constexpr",
                "key_norm": "*bf16" if normed else "constexpr",
                "value_norm": "*fp32" if of_values else "constexpr",
                "cos": "*fp32",
                "sin": "*fp32",
                "temper": "*fp32" if tempered else "constexpr",
                "start": "*i32",
                "offsets": "*i32",
                "query": "*bf16",
                "keys": "*bf16",
                "values": "*bf16",
                "skip": "*i32",
                "ahead": "*u8" if "ahead" in name else "constexpr",
                "rows": "i32",
                "parts": "i32",
                "stride_split": "i32",
                "stride_row": "i32",
                "heads": "i32",
                "kv_heads": "i32",
                "capacity": "i32",
                "ring": "i32" if "ring" in name else "constexpr",
                "query_eps": "fp32" if normed else "constexpr",
                "key_eps": "fp32" if normed else "constexpr",
                "value_eps": "fp32" if of_values else "constexpr",
                "SPLITS": "constexpr",
                "DIM": "constexpr",
                "PADDED": "constexpr",
                "WIDTH": "constexpr",
                "STEP": "constexpr",
                "ALL_QUERIES": "constexpr",
                "ALL_KEYS": "constexpr",
                "LATE": "constexpr",
                "CHUNK": "constexpr",
            },
            constants={
                "SPLITS": SPLITS,
                "DIM": dim,
                "PADDED": triton.next_power_of_2(dim),
                "WIDTH": width,
                "STEP": 2 if "gate" in name else 1,
                "ALL_QUERIES": together,
                "ALL_KEYS": together,
                "LATE": False,
                "CHUNK": rope.CHUNK,
            }
            | ({} if normed else dict.fromkeys(("query_norm", "key_norm", "query_eps", "key_eps")))
            | ({} if of_values else {"value_norm": None, "value_eps": None})
            | ({} if "ring" in name else {"ring": None})
            | ({} if "ahead" in name else {"ahead": None})
            | ({} if tempered else {"temper": None}),
            aligned=(
                *("partials", "cos", "sin", "start", "offsets", "query", "keys", "values", "skip"),
                *("stride_split", "stride_row"),
                *(("query_norm", "key_norm") if normed else ()),
                *(("value_norm",) if of_values else ()),
                *(("temper",) if tempered else ()),
                *(("ahead",) if "ahead" in name else ()),
            ),
            num_warps=rope.warps(together),
        )
        for name, dim, width, normed, together, of_values, tempered in (
            ("rope, head norms", 128, 128, True, False, False, False),
            ("rope, head norms, weights ahead", 128, 128, True, False, False, False),
            ("rope, 256 a head", 256, 256, True, False, False, False),
            ("rope, 256 a head, of a part, gates", 256, 64, True, False, False, False),
            ("rope, 80 a head", 80, 80, False, False, False, False),
            ("rope, a norm of all heads", 128, 128, True, True, False, False),
            ("rope, norms of values, a ring", 256, 256, True, False, True, False),
            ("rope, norms of values, 512 a head", 512, 512, True, False, True, False),
            ("rope, queries that grow", 128, 128, False, False, False, True),
        )
    ),
    *(
        Case(
            name=name,
            kernel=activation._gate_mul,
            signature={
                "partials": "*fp32",
                "out": "*bf16",
                "skip": "*i32",
                "stride_split": "i32",
                "inner": "i32",
                "SPLITS": "constexpr",
                "COLUMNS": "constexpr",
                "ACTIVATION": "constexpr",
            },
            constants={"SPLITS": SPLITS, "COLUMNS": activation.COLUMNS, "ACTIVATION": which},
            aligned=("partials", "out", "skip", "stride_split", "inner"),
        )
        for name, which in (("silu", "silu"), ("gelu", "gelu_tanh"), ("clamped gate", "clamped_swiglu"))
    ),
    Case(
        name="inputs of layers",
        kernel=layer_inputs._make_inputs,
        signature={
            "tokens": "*i32",
            "table": "*bf16",
            "partials": "*fp32",
            "weight": "*fp32",
            "made": "*fp32",
            "vocab": "i32",
            "stride_split": "i32",
            "width": "i32",
            "eps": "fp32",
            "scale": "fp32",
            "SPLITS": "constexpr",
            "SIZE": "constexpr",
            "PADDED": "constexpr",
        },
        constants={"SPLITS": SPLITS, "SIZE": 256, "PADDED": 256},
        aligned=("tokens", "table", "partials", "weight", "made", "vocab", "stride_split", "width"),
        num_warps=1,
    ),
    Case(
        name="gate on inputs of layers",
        kernel=layer_inputs._gate_input,
        signature={
            "partials": "*fp32",
            "inputs": "*fp32",
            "out": "*bf16",
            "skip": "*i32",
            "stride_split": "i32",
            "stride_row": "i32",
            "size": "i32",
            "SPLITS": "constexpr",
            "COLUMNS": "constexpr",
            "ACTIVATION": "constexpr",
        },
        constants={"SPLITS": SPLITS, "COLUMNS": layer_inputs.COLUMNS, "ACTIVATION": "gelu_tanh"},
        aligned=("partials", "inputs", "out", "skip", "stride_split", "stride_row", "size"),
        num_warps=2,
    ),
]
