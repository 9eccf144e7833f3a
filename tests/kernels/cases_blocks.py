"""Launches with each form of blocks as a step of Llama-3.1-8B has them, for the compile-only suite."""

from torch import bfloat16, empty, int32

from specchat.engine.gpu_checks.blocks import FORMS
from specchat.engine.kernels.embed import _embed, embed
from tests.kernels import cases_experts
from tests.kernels.cases_products import product
from tests.kernels.compiled import Case, launched
from tests.kernels.storage import blocks

HIDDEN = 4096
"""Outputs and inputs of the products."""


def embedded(kind: str, eps: float | None = None) -> Case:
    table, tokens, residual = blocks(kind), empty(1, dtype=int32), empty(1, HIDDEN)
    name = f"embed {kind}" if eps is None else f"embed {kind} with a norm"
    return launched(name, _embed, lambda: embed(tokens, table, residual, 1, 2.0, eps, bfloat16))


def of_experts(kind: str) -> list[Case]:
    gates, last = (blocks(kind, *shape) for shape in (cases_experts.GATES, cases_experts.LAST))
    return [
        cases_experts.product(f"{kind} gates of experts, 8 rows", gates, 8, "silu"),
        cases_experts.product(f"{kind} of experts, 8 rows", last, 8),
    ]


CASES = [
    *(product(f"{kind}, 8 rows", blocks(kind), 8) for kind in FORMS),
    *(product(f"{kind}, 8 rows in wide programs", blocks(kind), 8, wide=True) for kind in ("Q2_K", "Q4_K", "IQ4_XS")),
    product("Q4_K with silu, 8 rows", blocks("Q4_K", 28672), 8, "silu"),
    product("Q4_0 of 896 inputs, 8 rows", blocks("Q4_0", 4864, 896), 8),
    product("Q5_0 of 2880 inputs, 8 rows", blocks("Q5_0", 4096, 2880), 8),
    *(case for kind in ("Q4_K", "Q6_K") for case in of_experts(kind)),
]
MANY = [product(f"{kind}, 64 rows", blocks(kind), 64) for kind in FORMS]
"""Those that take longest to compile."""
TABLES = [*map(embedded, FORMS), embedded("Q6_K", 1e-6)]
UNPACKED = ("Q4_1", "Q8_0", "Q2_K", "Q3_K", "Q5_K", "Q6_K", "IQ4_XS", "IQ2_XS", "IQ2_S", "IQ3_XXS")
"""One of each way to unpack blocks."""
ALIKE = [
    *(name for kind in FORMS if kind not in UNPACKED for name in (f"{kind}, 8 rows", f"embed {kind}")),
    *(f"{kind}, 8 rows in wide programs" for kind in ("Q2_K", "IQ4_XS")),
    *(f"Q6_K{gates} of experts, 8 rows" for gates in ("", " gates")),
    "Q4_0 of 896 inputs, 8 rows",
]
