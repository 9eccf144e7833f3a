"""Programs that do not round as those beside them: what compares programs has to tell them apart."""

from dataclasses import replace

from tests.kernels.cases_attention import CASES
from tests.kernels.cases_products import case

WIDE = case("bf16, 32 rows", 4096, 4096, 16, 4)
BY_BYTES = case("int8, 32 rows", 4096, 4096, 8, 4)

PRODUCTS = [
    replace(WIDE, name="bf16, 32 rows: shorter blocks", constants={**WIDE.constants, "BK": 32}),
    replace(BY_BYTES, name="int8, 32 rows: more warps", num_warps=8),
]
ATTENTION = [
    replace(case, name=f"{case.name}: not fused", options={"enable_fp_fusion": False})
    for case in CASES
    if case.name in ("tree, 128 a head", "combine a tree")
]
