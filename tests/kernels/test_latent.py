"""Queries, keys and values of latents against torch."""

import pytest
import torch

from specchat.engine.gpu_checks.references import reference_norm
from specchat.engine.kernels.latent import expand, norm_latent
from tests.kernels.test_rowwise import DEVICE, DTYPES, TOLERANCE

ROWS = 5


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def expected_heads(
    queries: torch.Tensor, shared: torch.Tensor, parts: torch.Tensor, heads: int, interleaved: bool
) -> torch.Tensor:
    """Output of `expand`: [R, 3 * heads * D]."""
    queries, shared, parts = (each.sum(0) for each in (queries, shared, parts))
    rotated = shared.shape[1]
    plain = (queries.shape[1] // heads) - rotated
    query = queries.unflatten(-1, (heads, -1))
    keys, values = (
        one.unflatten(-1, (heads, -1)) for one in parts.split([heads * plain, parts.shape[1] - heads * plain], -1)
    )

    def halved(x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2) if interleaved else x

    query = torch.cat([halved(query[..., plain:]), query[..., :plain]], -1)
    key = torch.cat([halved(shared)[:, None].expand(-1, heads, -1), keys], -1)
    value = torch.nn.functional.pad(values, (0, plain + rotated - values.shape[-1]))
    return torch.cat([one.flatten(1) for one in (query, key, value)], -1)


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize(("heads", "plain", "rotated", "value"), [(3, 32, 16, 32), (2, 24, 8, 32)])
def test_heads_are_put_together(heads: int, plain: int, rotated: int, value: int, interleaved: bool) -> None:
    first = drawn(2, ROWS + 2, heads * (plain + rotated) + 40 + rotated)
    queries, shared = first[..., : heads * (plain + rotated)], first[..., -rotated:]
    parts = drawn(3, ROWS + 2, heads * (plain + value), seed=1)
    out = torch.full((1, ROWS + 2, 3 * heads * (plain + rotated)), 7.0, device=DEVICE)
    expand(queries, shared, parts, out, heads, ROWS, interleaved, None)
    expected = expected_heads(queries.double(), shared.double(), parts.double(), heads, interleaved)
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
