"""Noise on the device: the bits are the host's, the transforms against float64, the law by its tests."""

from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from scipy.stats import gumbel_r, kstest
from torch import Tensor

from specchat.engine.decoding import noise as host
from specchat.engine.kernels import noise

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZE = 1 << 16


@triton.jit
def _words(seed: tl.tensor, position: tl.tensor, out: tl.tensor, stream: tl.constexpr, SIZE: tl.constexpr) -> None:
    token = tl.arange(0, SIZE)
    high, low = noise.words(tl.load(seed), tl.load(position), stream, token)
    tl.store(out + token, high.to(tl.int64))
    tl.store(out + SIZE + token, low.to(tl.int64))


@triton.jit
def _gumbel(seed: tl.tensor, position: tl.tensor, out: tl.tensor, stream: tl.constexpr, SIZE: tl.constexpr) -> None:
    token = tl.arange(0, SIZE)
    tl.store(out + token, noise.gumbel(tl.load(seed), tl.load(position), stream, token))


@triton.jit
def _gumbel_of(high: tl.tensor, low: tl.tensor, out: tl.tensor, SIZE: tl.constexpr) -> None:
    i = tl.arange(0, SIZE)
    made = noise.gumbel_of(tl.load(high + i).to(tl.uint32), tl.load(low + i).to(tl.uint32))
    tl.store(out + i, made)


@triton.jit
def _uniform(seed: tl.tensor, positions: tl.tensor, turn: tl.tensor, out: tl.tensor) -> None:
    i = tl.program_id(0)
    tl.store(out + i, noise.uniform(tl.load(seed), tl.load(positions + i), noise.ACCEPT, tl.load(turn)))


def whole(value: int, dtype: torch.dtype = torch.int64) -> Tensor:
    bits = 64 if dtype == torch.int64 else 32
    return torch.tensor([(value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)], dtype=dtype, device=DEVICE)


def drawn(seed: int, position: int, stream: int) -> np.ndarray:
    out = torch.empty(SIZE, device=DEVICE)
    _gumbel[(1,)](whole(seed), whole(position, torch.int32), out, stream, SIZE)
    return out.cpu().numpy()


@pytest.mark.parametrize(
    ("seed", "position", "stream"), [(0, 0, 0), (42, 8191, 2), (2**63 + 12345, 131_071, 1), (-1, 7, 0)]
)
def test_words_are_the_hosts(seed: int, position: int, stream: int) -> None:
    out = torch.empty(2, SIZE, dtype=torch.int64, device=DEVICE)
    _words[(1,)](whole(seed), whole(position, torch.int32), out, stream, SIZE)
    high, low = out.cpu().numpy().astype(np.uint64).reshape(2, SIZE)
    assert np.array_equal(high << np.uint64(32) | low, host.words(seed, position, stream, np.arange(SIZE)))


def test_gumbel_keeps_its_digits() -> None:
    """Against float64, relative to the larger of the value and 1: 4e-7 is 3 units of the last place of float32."""
    expected = host.gumbel(3, 17, 0, np.arange(SIZE))
    assert np.abs((drawn(3, 17, 0) - expected) / np.maximum(1.0, np.abs(expected))).max() < 4e-7


def test_gumbel_at_both_ends() -> None:
    """E = -log(1 - w) at 0 and 1, around 1/2, and down the whole tail: as precise as anywhere."""
    ends = [
        0,
        1,
        2**63 - 1,
        2**63,
        2**64 - 1,
        2**64 - 2,
        2**64 - 2**40,
        *(2**k for k in range(64)),
        *(2**64 - 2**k for k in range(64)),
    ]
    ends = [*ends, *[2**63 + 5] * (256 - len(ends))]
    high, low = (
        torch.tensor([f(w) for w in ends], device=DEVICE) for f in (lambda w: w >> 32, lambda w: w & 0xFFFFFFFF)
    )
    out = torch.empty(256, device=DEVICE)
    _gumbel_of[(1,)](high, low, out, 256)
    with localcontext(prec=60):
        expected = np.array([float(-(-(1 - (Decimal(w) + Decimal("0.5")) / 2**64).ln()).ln()) for w in ends])
    assert np.isfinite(out.cpu().numpy()).all()
    assert np.abs(out.cpu().numpy() - expected).max() < 4e-6
    assert expected.max() > 45
    assert expected.min() < -3.8


def test_gumbel_has_its_law() -> None:
    """Kolmogorov-Smirnov over 65,536 numbers a case: a shift of 0.01 is found with power > 0.9 in the four together."""
    for seed, position, stream in [(0, 0, 0), (0, 1, 0), (1, 0, 0), (0, 0, 2)]:
        assert kstest(drawn(seed, position, stream), gumbel_r.cdf).pvalue > 1e-3


def test_neighbours_are_independent() -> None:
    """Correlations of 65,536 pairs stay within 4.5 standard errors: tokens, positions, seeds and streams."""
    base = drawn(5, 100, 0)
    others = [np.roll(base, 1), drawn(5, 101, 0), drawn(6, 100, 0), drawn(5, 100, 2), drawn(5 + 2**32, 100, 0)]
    for other in others:
        assert abs(np.corrcoef(base, other)[0, 1]) < 4.5 / SIZE**0.5


def test_uniform_is_the_hosts() -> None:
    positions = torch.arange(400, dtype=torch.int32, device=DEVICE)
    out = torch.empty(400, device=DEVICE)
    _uniform[(400,)](whole(9), positions, whole(0, torch.int32), out)
    assert out.tolist() == [host.uniform(9, i, 1) for i in range(400)]
    assert kstest(out.tolist(), "uniform").pvalue > 1e-3


def test_a_turn_of_uniform_is_the_hosts() -> None:
    positions = torch.arange(30, dtype=torch.int32, device=DEVICE)
    out = torch.empty(30, device=DEVICE)
    _uniform[(30,)](whole(9), positions, whole(3, torch.int32), out)
    assert out.tolist() == [host.uniform(9, i, 1, 3) for i in range(30)]


def test_uniform_never_reaches_0_or_1() -> None:
    """The formula of `uniform` at the ends of its 23 bits, in float32."""
    for bits in (0, 2**23 - 1):
        made = (np.float32(bits) + np.float32(0.5)) * np.float32(2.0**-23)
        assert 0.0 < made < 1.0
        assert made == (bits + 0.5) * 2.0**-23
