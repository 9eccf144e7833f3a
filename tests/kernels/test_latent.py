"""Queries, keys and values of latents against torch."""

import pytest
import torch

from specchat.engine.kernels.latent import expand, norm_latent, reference_expand
from specchat.engine.kernels.norm import reference_norm
from tests.kernels.test_rowwise import DEVICE, DTYPES, TOLERANCE

ROWS = 5


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize(("heads", "plain", "rotated", "value"), [(3, 32, 16, 32), (2, 24, 8, 32)])
def test_heads_are_put_together(heads: int, plain: int, rotated: int, value: int, interleaved: bool) -> None:
    first = drawn(2, ROWS + 2, heads * (plain + rotated) + 40 + rotated)
    queries, shared = first[..., : heads * (plain + rotated)], first[..., -rotated:]
    parts = drawn(3, ROWS + 2, heads * (plain + value), seed=1)
    out = torch.full((1, ROWS + 2, 3 * heads * (plain + rotated)), 7.0, device=DEVICE)
    expand(queries, shared, parts, out, heads, ROWS, interleaved, None)
    expected = reference_expand(queries.double(), shared.double(), parts.double(), heads, interleaved)
    torch.testing.assert_close(out[0, :ROWS].double(), expected[:ROWS], atol=1e-5, rtol=1e-5)
    assert (out[0, ROWS:] == 7).all()
    expand(
        queries, shared, parts, out.fill_(7), heads, ROWS, interleaved, torch.ones(1, dtype=torch.int32, device=DEVICE)
    )
    assert (out == 7).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_latent_is_normed(dtype: torch.dtype) -> None:
    sums, weight = drawn(2, ROWS, 100)[..., 20:68], drawn(48, seed=2)
    out = torch.zeros(ROWS, 48, device=DEVICE, dtype=dtype)
    norm_latent(sums, (weight, 1e-6), out, ROWS, None)
    expected = reference_norm(sums.sum(0).double(), weight.double(), 1e-6)
    torch.testing.assert_close(out.double(), expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
