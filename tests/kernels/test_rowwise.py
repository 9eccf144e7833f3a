"""The row-wise kernels against torch and transformers, row by row, and what the compiler makes of them."""

import pytest
import torch
from torch import Tensor
from transformers.models.llama.modeling_llama import LlamaRMSNorm, apply_rotary_pos_emb

from specchat.bench.published import shaped
from specchat.engine.errors import ModelError
from specchat.engine.kernels.embed import embed, reference_embed
from specchat.engine.kernels.norm import add_rms_norm, reference_add_rms_norm
from specchat.engine.kernels.rope import reference_rope, rope_and_write
from specchat.engine.model.config import ModelConfig
from specchat.engine.model.rope import tables
from tests.kernels import compiled

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
DTYPES = (torch.bfloat16, torch.float16) if GPU else (torch.float32, torch.bfloat16)
TOLERANCE = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
"""Relative: a rounding or two of the type that is stored."""

EPS = 1e-5
CAPACITY = 64
COUNTS = (*range(1, 17), 33, 64)
ON_DEVICE = (pytest.mark.gpu, pytest.mark.skipif(not GPU, reason="needs a CUDA device"))
"""Qwen3-8B's shapes take too long under the interpreter."""

SET = torch.ones(1, dtype=torch.int32, device=DEVICE)
CLEAR = torch.zeros(1, dtype=torch.int32, device=DEVICE)


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def close(ours: Tensor, truth: Tensor) -> None:
    torch.testing.assert_close(ours.double(), truth.double(), rtol=TOLERANCE[ours.dtype], atol=TOLERANCE[ours.dtype])


class TestEmbed:
    def test_rows_of_the_table(self, dtype: torch.dtype) -> None:
        table, residual = random(50, 1100, dtype=dtype), torch.full((4, 1100), 7.0, device=DEVICE)
        tokens = torch.tensor([0, 49, 3, 5], dtype=torch.int32, device=DEVICE)
        embed(tokens, table, residual, 3)
        assert torch.equal(residual[:3], torch.nn.functional.embedding(tokens[:3], table).float())
        assert torch.equal(residual[:3], reference_embed(tokens[:3], table))
        assert (residual[3] == 7).all(), "a row beyond the count was written"

    def test_rows_are_multiplied_by_a_scale(self, dtype: torch.dtype) -> None:
        table, residual = random(50, 64, dtype=dtype), torch.zeros(3, 64, device=DEVICE)
        tokens = torch.tensor([0, 49, 3], dtype=torch.int32, device=DEVICE)
        embed(tokens, table, residual, 3, 12.5)
        close(residual, 12.5 * table[tokens.long()].double())
        assert torch.equal(residual, reference_embed(tokens, table, 12.5))

    def test_an_id_outside_the_table(self) -> None:
        table, residual = random(50, 64), torch.ones(2, 64, device=DEVICE)
        tokens = torch.tensor([50, -1], dtype=torch.int32, device=DEVICE)
        embed(tokens, table, residual, 2)
        assert torch.equal(residual, torch.zeros_like(residual))
        assert torch.equal(residual, reference_embed(tokens, table))


class TestNorm:
    @pytest.mark.parametrize("hidden", [64, 1000, 4096, 8192])
    @pytest.mark.parametrize("splits", [0, 1, 5])
    def test_is_llamas(self, hidden: int, splits: int, dtype: torch.dtype) -> None:
        residual, weight = random(3, hidden), random(hidden, dtype=dtype, seed=1)
        partials = 100 * random(splits, 3, hidden, seed=2) if splits else None
        expected = residual.clone()
        for part in partials if partials is not None else ():
            expected[:2] += part[:2]
        out = torch.full((3, hidden), 7.0, device=DEVICE, dtype=dtype)
        truth = LlamaRMSNorm(hidden, EPS).to(DEVICE, torch.float64)
        truth.weight.data.copy_(weight)
        _, reference = reference_add_rms_norm(residual.double(), partials, weight.double(), EPS)
        add_rms_norm(residual, partials, weight, EPS, out, 2, CLEAR if splits else None)
        assert torch.equal(residual, expected), "the partial sums are added in index order, to rows in use only"
        # Two float32 roundings of the residual stand against the truth in float64.
        close(out[:2], truth(expected[:2].double()).detach())
        close(out[:2], reference[:2])
        assert (out[2] == 7).all()

    def test_a_skipped_sublayer_adds_nothing(self, dtype: torch.dtype) -> None:
        residual, weight = random(2, 64), random(64, seed=1)
        before, out = residual.clone(), torch.empty(2, 64, device=DEVICE, dtype=dtype)
        add_rms_norm(residual, torch.full((2, 2, 64), torch.nan, device=DEVICE), weight, EPS, out, 2, SET)
        assert torch.equal(residual, before)
        close(out, reference_add_rms_norm(before.double(), None, weight.double(), EPS)[1])

    @pytest.mark.parametrize("normed", [False, True])
    @pytest.mark.parametrize("factor", [1.0, 0.22])
    @pytest.mark.parametrize("before", [False, True])
    def test_a_norm_and_a_factor_of_what_is_added(
        self, normed: bool, factor: float, before: bool, dtype: torch.dtype
    ) -> None:
        """As OLMo-2 and Granite have them, alone, together, and with or without a norm before the next sub-layer."""
        residual, partials, weight = random(3, 200), random(3, 3, 200, seed=2), random(200, seed=1)
        after = (random(200, seed=3), 10 * EPS) if normed else None
        expected = residual.double()
        product = partials.double().sum(0)[:2]
        if after is not None:
            product = torch.nn.functional.rms_norm(product, (200,), after[0].double(), after[1])
        expected[:2] += factor * product
        truth = torch.nn.functional.rms_norm(expected, (200,), weight.double(), EPS) if before else expected
        given = weight if before else None
        reference = reference_add_rms_norm(residual.double(), partials, given, EPS, after, factor)
        out = torch.full((3, 200), 7.0, device=DEVICE, dtype=dtype)
        add_rms_norm(residual, partials, given, EPS, out, 2, CLEAR, after, factor)
        torch.testing.assert_close(residual.double(), expected, rtol=1e-5, atol=1e-5)
        close(out[:2], truth[:2])
        assert (out[2] == 7).all()
        for ours, theirs in zip(reference, (expected, truth), strict=True):
            torch.testing.assert_close(ours[:2], theirs[:2], rtol=1e-5, atol=1e-5)
        kept = residual.clone()
        add_rms_norm(residual, partials * torch.nan, given, EPS, out, 2, SET, after, factor)
        assert torch.equal(residual, kept)

    def test_too_wide_is_said(self) -> None:
        wide = torch.zeros(1, 8193, device=DEVICE)
        with pytest.raises(ModelError, match=r"8193 wide.*8192 at most.*CPU"):
            add_rms_norm(wide, None, wide[0], EPS, wide, 1, None)

    @pytest.mark.parametrize(
        ("hidden", "normed"), [(96, False), (1100, False), (200, True), pytest.param(4096, False, marks=ON_DEVICE)]
    )
    def test_rows_are_alone(self, hidden: int, normed: bool, dtype: torch.dtype) -> None:
        residual, partials, weight = random(64, hidden), random(3, 64, hidden, seed=1), random(hidden, seed=2)
        after = ((random(hidden, seed=3), EPS), 0.22) if normed else ()

        def run(first: int, rows: int) -> tuple[Tensor, Tensor]:
            state, out = residual[first:].clone(), torch.empty(rows, hidden, device=DEVICE, dtype=dtype)
            add_rms_norm(state, partials[:, first:].contiguous(), weight, EPS, out, rows, CLEAR, *after)
            return out, state[:rows]

        alone = [run(r, 1) for r in range(64)]
        for rows in COUNTS:
            out, state = run(0, rows)
            assert torch.equal(out, torch.cat([a for a, _ in alone[:rows]]))
            assert torch.equal(state, torch.cat([b for _, b in alone[:rows]]))


class Rotation:
    """One call's buffers; the cache starts as NaN, so that every slot that is written shows."""

    def __init__(
        self, dtype: torch.dtype, heads: int, kv: int, dim: int, splits: int, normed: bool, together: bool = False
    ) -> None:
        self.dtype, self.heads, self.kv, self.dim = dtype, heads, kv, dim
        self.partials = random(splits, CAPACITY, (heads + 2 * kv) * dim)
        sizes = (heads * dim, kv * dim) if together else (dim, dim)
        of_query, of_key = (1 + random(size, seed=seed).to(dtype) / 4 for seed, size in enumerate(sizes))
        self.norms = (of_query, of_key) if normed else (None, None)
        self.cos, self.sin = (
            t.to(DEVICE) for t in tables(config(heads, kv, dim).recipe.layers[0].mixer.rope, dim, CAPACITY)
        )

    def run(
        self, length: int, offsets: list[int], first: int = 0, skip: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rows `first`, `first + 1`, ... of the product: one for each offset."""
        rows = len(offsets)
        query = torch.full((rows, self.heads, self.dim), torch.nan, device=DEVICE, dtype=self.dtype)
        keys, values = torch.full((2, self.kv, CAPACITY, self.dim), torch.nan, device=DEVICE, dtype=self.dtype)
        rope_and_write(
            self.partials[:, first : first + rows].contiguous(),
            *self.norms,
            EPS,
            self.cos,
            self.sin,
            torch.tensor([length], dtype=torch.int32, device=DEVICE),
            torch.tensor(offsets, dtype=torch.int32, device=DEVICE),
            query,
            keys,
            values,
            rows,
            skip,
        )
        return query, keys, values


def config(heads: int, kv: int, dim: int) -> ModelConfig:
    theta, sizes = 10000.0, (heads * dim, 64, 1, heads, kv, dim, 32, CAPACITY)
    return shaped("llama", *sizes, theta, tied=True)


class TestRope:
    @pytest.mark.parametrize("dim", [8, 64, 80, 128, 256])
    @pytest.mark.parametrize(
        ("normed", "together", "heads", "kv"),
        [(False, False, 4, 2), (True, False, 4, 2), (True, True, 4, 2), (True, True, 18, 6)],
    )
    def test_is_transformers(
        self, dim: int, normed: bool, together: bool, heads: int, kv: int, dtype: torch.dtype
    ) -> None:
        length, offsets = 9, [0, 1, 1, 2, 2]
        call = Rotation(dtype, heads, kv, dim, 3, normed, together)
        query, keys, values = call.run(length, offsets, skip=CLEAR)
        rows = len(offsets)
        product = call.partials[:, :rows].double().sum(0).view(rows, -1, dim)
        q, k, v = product.split((heads, kv, kv), 1)
        if call.norms[0] is not None and call.norms[1] is not None:
            q, k = (
                torch.nn.functional.rms_norm(x.reshape(rows, -1, len(norm)), (len(norm),), norm.double(), EPS).view(
                    x.shape
                )
                for x, norm in zip((q, k), call.norms, strict=True)
            )
        positions = torch.tensor(offsets, device=DEVICE) + length
        angles = torch.outer(positions.double(), 10000.0 ** -(torch.arange(0, dim, 2, device=DEVICE).double() / dim))
        angles = torch.cat((angles, angles), -1)
        q, k = apply_rotary_pos_emb(q, k, angles.cos(), angles.sin(), unsqueeze_dim=1)
        truth = 3 * TOLERANCE[torch.float32] + TOLERANCE[dtype]
        written = slice(length, length + rows)
        for ours, theirs in (
            (query, q),
            (keys[:, written].transpose(0, 1), k),
            (values[:, written].transpose(0, 1), v),
        ):
            torch.testing.assert_close(ours.double(), theirs, rtol=truth, atol=3 * truth)
        reference = reference_rope(call.partials[:, :rows], *call.norms, EPS, call.cos, call.sin, positions, heads, kv)
        for ours, theirs in zip((q, k, v), reference, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
        for cache in (keys, values):
            untouched = torch.ones(CAPACITY, dtype=torch.bool, device=DEVICE)
            untouched[written] = False
            assert cache[:, untouched].isnan().all(), "a slot outside the step was written"

    def test_nothing_is_written_beyond_the_cache(self, dtype: torch.dtype) -> None:
        _, keys, values = Rotation(dtype, 2, 2, 8, 1, False).run(CAPACITY - 2, [0, 1, 2, 3])
        for cache in (keys, values):
            assert not cache[:, -2:].isnan().any()
            assert cache[:, :-2].isnan().all(), "a row beyond the end went into the next head's slots"

    def test_skip(self, dtype: torch.dtype) -> None:
        assert all(t.isnan().all() for t in Rotation(dtype, 2, 1, 8, 1, False).run(3, [0, 1], skip=SET))

    @pytest.mark.parametrize(
        ("heads", "kv", "dim", "normed", "together"),
        [
            (2, 1, 8, True, False),
            (1, 1, 80, False, False),
            (3, 1, 8, True, True),
            pytest.param(32, 8, 128, True, False, marks=ON_DEVICE),
            pytest.param(32, 32, 128, True, True, marks=ON_DEVICE),
        ],
    )
    def test_rows_are_alone(
        self, heads: int, kv: int, dim: int, normed: bool, together: bool, dtype: torch.dtype
    ) -> None:
        call = Rotation(dtype, heads, kv, dim, 2, normed, together)
        alone = [call.run(r, [0], r) for r in range(CAPACITY)]
        for rows in COUNTS:
            query, keys, values = call.run(0, list(range(rows)))
            assert torch.equal(query, torch.cat([q for q, _, _ in alone[:rows]]))
            assert torch.equal(keys[:, :rows], torch.cat([k[:, [r]] for r, (_, k, _) in enumerate(alone[:rows])], 1))
            assert torch.equal(values[:, :rows], torch.cat([v[:, [r]] for r, (_, _, v) in enumerate(alone[:rows])], 1))


@compiled.NEWEST
def test_compiled_for_gpus_that_are_not_here(architectures: tuple[int, ...]) -> None:
    ceilings = {
        "embed": (24, 2048),
        "embed, scaled": (24, 2048),
        "norm": (56, 8192),
        "norm without partials": (40, 64),
        "norm, widest": (56, 16384),
        "norm, scaled": (56, 8192),
        "norm of what is added": (80, 8192),
        "rope, head norms": (56, 0),
        "rope, 256 a head": (88, 0),
        "rope, 80 a head": (56, 0),
        "rope, a norm of all heads": (64, 2048),
        "silu": (48, 0),
        "gelu": (48, 0),
    }
    found = compiled.reports("tests.kernels.cases_rowwise", architectures)
    assert {r.name for r in found} == set(ceilings)
    for report in found:
        compiled.check_limits(report, *ceilings[report.name])
