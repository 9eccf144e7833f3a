"""One product and one attention of Qwen3-8B's shapes against torch in float64, with registers and spills."""

from typing import Any

import torch

from measure.gpu.checks import Check, command
from specchat.engine.kernels import attention, products, workspace
from specchat.engine.kernels.products import multiply, splits
from specchat.engine.model.quantise import dequantised, quantise

ROWS = (1, 16, 64)
PRODUCT = 4e-6
"""Largest difference of a product, in parts of the sum of magnitudes."""
ATTENTION = 2e-2
"""Largest difference of an attention in bfloat16, of values near 1."""


def product(device: torch.device, outputs: int = 4096, inputs: int = 4096) -> list[dict[str, Any]]:
    """Errors of x @ weight^T for a nested NF4 weight; raises AssertionError where one is too large."""
    generator = torch.Generator().manual_seed(0)
    weight = quantise((torch.randn(outputs, inputs, generator=generator) / inputs**0.5).to(device), "nf4")
    dtype = torch.bfloat16
    x = torch.randn(max(ROWS), inputs, generator=generator).to(device, dtype)
    truth = dequantised(weight, dtype).double()
    out = torch.empty(splits(weight), max(ROWS), outputs, device=device)
    found = []
    for rows in ROWS:
        multiply(x, weight, None, out, rows)
        error = (out.sum(0)[:rows].double() - x[:rows].double() @ truth.T).abs()
        part = float((error / (x[:rows].double().abs() @ truth.abs().T)).max())
        found.append({"rows": rows, "splits": len(out), "error": part, "allowed": PRODUCT})
        assert part <= PRODUCT, f"{rows} rows: {part:.1e} of the magnitudes, and {PRODUCT:.0e} are allowed"
    return found + compiled(products._multiply)


def attend(
    device: torch.device, start: int = 500, heads: int = 32, kv: int = 8, dim: int = 128
) -> list[dict[str, Any]]:
    """Errors of a chain's attention; raises AssertionError where one is too large."""
    generator, dtype, capacity = torch.Generator().manual_seed(1), torch.bfloat16, start + 100
    query = torch.randn(max(ROWS), heads, dim, generator=generator).to(device, dtype)
    keys, values = torch.randn(2, kv, capacity, dim, generator=generator).to(device, dtype)
    space = workspace.workspace(max(ROWS), heads, dim, capacity, device)
    out = torch.empty(max(ROWS), heads * dim, device=device, dtype=dtype)
    length = torch.tensor([start], dtype=torch.int32, device=device)
    found = []
    for rows in ROWS:
        attention.attend(query, keys, values, length, None, space, out, rows, None)
        truth = attention.reference_attend(query[:rows].double(), keys.double(), values.double(), start, None)
        error = float((out[:rows].double() - truth).abs().max())
        found.append({"rows": rows, "error": error, "allowed": ATTENTION})
        assert error <= ATTENTION, f"{rows} rows: off by {error:.1e}, and {ATTENTION:.0e} are allowed"
    return found + compiled(attention._partial) + compiled(attention._combine)


def compiled(kernel: Any) -> list[dict[str, Any]]:
    """Registers, spills and shared memory of what was compiled of a kernel in this process."""
    found = []
    for kept in getattr(kernel, "device_caches", {}).values():
        for made in kept[0].values():
            made._init_handles()
            found.append(
                {"kernel": made.name, "registers": made.n_regs, "spills": made.n_spills, "shared": made.metadata.shared}
            )
    return found


CHECKS: dict[str, Check] = {
    "product": lambda _: product(torch.device("cuda")),
    "attention": lambda _: attend(torch.device("cuda")),
}


if __name__ == "__main__":
    command(CHECKS)()
