"""Embedding and norm against torch and transformers, row by row, and what becomes of the row-wise kernels compiled."""

import pytest
import torch
from torch import Tensor
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from specchat.engine.errors import ModelError
from specchat.engine.gpu_checks.references import reference_add_rms_norm, reference_embed, reference_norm
from specchat.engine.kernels.embed import embed
from specchat.engine.kernels.norm import NormOf, OtherNorm, ResidualUpdate, add_rms_norm
from specchat.engine.protocol.picture_ids import FIRST
from tests.kernels import compiled

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
DTYPES = (torch.bfloat16, torch.float16) if GPU else (torch.float32, torch.bfloat16)
TOLERANCE = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
"""Relative: a rounding or two of the type that is stored."""

EPS = 1e-5
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

    def test_rows_go_through_a_norm_without_a_weight(self, dtype: torch.dtype) -> None:
        table, residual = random(50, 1100, dtype=dtype), torch.zeros(3, 1100, device=DEVICE)
        tokens = torch.tensor([0, 49, 3], dtype=torch.int32, device=DEVICE)
        embed(tokens, table, residual, 3, 0.5, 1e-2)
        truth = torch.nn.functional.rms_norm(0.5 * table[tokens.long()].double(), (1100,), eps=1e-2)
        torch.testing.assert_close(residual.double(), truth, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(residual, reference_embed(tokens, table, 0.5, 1e-2))

    def test_an_id_of_a_picture_takes_the_row_of_its_pass(self) -> None:
        """Neither scale nor norm applies to it; what was there for other rows has no part."""
        table, pictures, residual = random(50, 1100), random(4, 1100, seed=1), torch.zeros(4, 1100, device=DEVICE)
        tokens = torch.tensor([3, FIRST, 49, FIRST + 900], dtype=torch.int32, device=DEVICE)
        embed(tokens, table, residual, 4, 0.5, 1e-2, pictures=pictures)
        assert torch.equal(residual[1::2], pictures[1::2])
        torch.testing.assert_close(residual[::2], reference_embed(tokens[::2], table, 0.5, 1e-2))

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
        add_rms_norm(ResidualUpdate(residual, skip=CLEAR if splits else None), partials, OtherNorm(weight, EPS, out), 2)
        assert torch.equal(residual, expected), "the partial sums are added in index order, to rows in use only"
        # Two float32 roundings of the residual stand against the truth in float64.
        close(out[:2], truth(expected[:2].double()).detach())
        close(out[:2], reference[:2])
        assert (out[2] == 7).all()

    def test_a_skipped_sublayer_adds_nothing(self, dtype: torch.dtype) -> None:
        residual, weight = random(2, 64), random(64, seed=1)
        before, out = residual.clone(), torch.empty(2, 64, device=DEVICE, dtype=dtype)
        stale = torch.full((2, 2, 64), torch.nan, device=DEVICE)
        add_rms_norm(ResidualUpdate(residual, skip=SET), stale, OtherNorm(weight, EPS, out), 2)
        assert torch.equal(residual, before)
        close(out, reference_add_rms_norm(before.double(), None, weight.double(), EPS)[1])

    @pytest.mark.parametrize("biased", [False, True])
    def test_is_torchs_layer_norm(self, biased: bool, dtype: torch.dtype) -> None:
        residual, weight, bias = 3 + random(3, 200), random(200, seed=1), random(200, seed=3)
        out = torch.full((3, 200), 7.0, device=DEVICE, dtype=dtype)
        given = torch.cat([weight, bias]) if biased else weight
        add_rms_norm(ResidualUpdate(residual), None, OtherNorm(given, EPS, out), 2, centred=True)
        last = bias.double() if biased else None
        close(out[:2], torch.nn.functional.layer_norm(residual.double(), (200,), weight.double(), last, EPS)[:2])
        assert (out[2] == 7).all()

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
        update = ResidualUpdate(residual, after and NormOf(*after), None if factor == 1 else factor)
        add_rms_norm(update._replace(skip=CLEAR), partials, OtherNorm(given, EPS, out), 2)
        torch.testing.assert_close(residual.double(), expected, rtol=1e-5, atol=1e-5)
        close(out[:2], truth[:2])
        assert (out[2] == 7).all()
        for ours, theirs in zip(reference, (expected, truth), strict=True):
            torch.testing.assert_close(ours[:2], theirs[:2], rtol=1e-5, atol=1e-5)
        kept = residual.clone()
        add_rms_norm(update._replace(skip=SET), partials * torch.nan, OtherNorm(given, EPS, out), 2)
        assert torch.equal(residual, kept)

    @pytest.mark.parametrize("before", [False, True])
    @pytest.mark.parametrize("normed", [False, True])
    def test_a_factor_at_the_end_of_a_layer(self, normed: bool, before: bool, dtype: torch.dtype) -> None:
        """It is left out where both halves of the layer are, and nowhere else."""
        residual, partials, weight = random(3, 200), random(3, 3, 200, seed=2), random(200, seed=1)
        scalar, after = torch.tensor([0.3], device=DEVICE), (random(200, seed=3), 10 * EPS) if normed else None
        given = weight if before else None
        for skip, earlier in ((None, None), (CLEAR, CLEAR), (CLEAR, SET), (SET, CLEAR), (SET, SET)):
            left_out, by = skip is SET, None if skip is SET and earlier is SET else scalar
            truth = residual.double()
            added = None if left_out else partials[:, :2].double()
            expected, reference = reference_add_rms_norm(truth[:2], added, given, EPS, after, 1.0, by)
            factor = 1.0 if by is None else 0.3
            product = partials.double().sum(0)[:2]
            if after is not None:
                product = torch.nn.functional.rms_norm(product, (200,), after[0].double(), after[1])
            torch.testing.assert_close(expected, factor * (truth[:2] if left_out else truth[:2] + product))
            state, out = residual.clone(), torch.full((3, 200), 7.0, device=DEVICE, dtype=dtype)
            stale = partials * torch.nan if left_out else partials
            update = ResidualUpdate(state, after and NormOf(*after), None, skip, scalar, earlier)
            add_rms_norm(update, stale, OtherNorm(given, EPS, out), 2)
            torch.testing.assert_close(state[:2].double(), expected, rtol=1e-5, atol=1e-5)
            assert torch.equal(state[2], residual[2])
            assert (out[2] == 7).all()
            close(out[:2], reference)

    @pytest.mark.parametrize("count", [1, 2])
    def test_other_norms_are_of_the_same_sums(self, count: int, dtype: torch.dtype) -> None:
        residual, partials, weight = random(3, 200), random(3, 3, 200, seed=2), random(200, seed=1)
        weights, outs = (
            [random(200, seed=3 + i) for i in range(count)],
            torch.full((count + 1, 3, 200), 7.0, device=DEVICE, dtype=dtype),
        )
        others = [OtherNorm(one, 10.0**-i, out) for i, (one, out) in enumerate(zip(weights, outs[1:], strict=True))]
        state, plain = residual.clone(), torch.full((3, 200), 7.0, device=DEVICE, dtype=dtype)
        add_rms_norm(ResidualUpdate(state, skip=CLEAR), partials, OtherNorm(weight, EPS, outs[0]), 2, others)
        add_rms_norm(ResidualUpdate(residual, skip=CLEAR), partials, OtherNorm(weight, EPS, plain), 2)
        assert torch.equal(state, residual)
        assert torch.equal(outs[0], plain)
        for one in others:
            close(one.out[:2], reference_norm(residual[:2].double(), one.weight.double(), one.eps))
        assert (outs[:, 2] == 7).all()

    def test_too_wide_is_said(self) -> None:
        wide = torch.zeros(1, 8193, device=DEVICE)
        with pytest.raises(ModelError, match=r"8193 wide.*8192 at most.*CPU"):
            add_rms_norm(ResidualUpdate(wide), None, OtherNorm(wide[0], EPS, wide), 1)

    @pytest.mark.parametrize(
        ("hidden", "normed"), [(96, False), (1100, False), (200, True), pytest.param(4096, False, marks=ON_DEVICE)]
    )
    def test_rows_are_alone(self, hidden: int, normed: bool, dtype: torch.dtype) -> None:
        residual, partials, weight = random(64, hidden), random(3, 64, hidden, seed=1), random(hidden, seed=2)
        scalar = torch.tensor([0.3], device=DEVICE)
        after = (NormOf(random(hidden, seed=3), EPS), 0.22, CLEAR, scalar, CLEAR) if normed else (None, None, CLEAR)

        def run(first: int, rows: int) -> tuple[Tensor, Tensor]:
            state, out = residual[first:].clone(), torch.empty(rows, hidden, device=DEVICE, dtype=dtype)
            update = ResidualUpdate(state, *after)
            add_rms_norm(update, partials[:, first:].contiguous(), OtherNorm(weight, EPS, out), rows)
            return out, state[:rows]

        alone = [run(r, 1) for r in range(64)]
        for rows in COUNTS:
            out, state = run(0, rows)
            assert torch.equal(out, torch.cat([a for a, _ in alone[:rows]]))
            assert torch.equal(state, torch.cat([b for _, b in alone[:rows]]))


@pytest.mark.slow
@compiled.NEWEST
def test_compiled_for_gpus_that_are_not_here(architectures: tuple[int, ...]) -> None:
    ceilings = {
        "embed": (24, 2048),
        "embed, scaled": (24, 2048),
        "embed, normed": (40, 16384),
        "norm": (56, 8192),
        "norm without partials": (40, 64),
        "norm, widest": (56, 16384),
        "norm, centred": (56, 8192),
        "norm, centred, and a bias": (56, 8192),
        "norm, weights ahead": (56, 8192),
        "norm, scaled": (56, 8192),
        "norm and two others": (56, 8192),
        "norm of what is added": (80, 8192),
        "norm of what is added, and a factor at the end": (80, 8192),
        "rope, head norms": (56, 0),
        "rope, head norms, weights ahead": (56, 0),
        "rope, 256 a head": (88, 0),
        "rope, 256 a head, of a part, gates": (88, 0),
        "rope, 80 a head": (56, 0),
        "rope, a norm of all heads": (64, 2048),
        "rope, norms of values, a ring": (88, 0),
        "rope, norms of values, 512 a head": (128, 0),
        "rope, queries that grow": (56, 0),
        "silu": (48, 0),
        "gelu": (48, 0),
        "clamped gate": (48, 0),
        "squared ReLU alone": (48, 0),
        "xIELU alone": (48, 0),
        "inputs of layers": (64, 0),
        "gate on inputs of layers": (48, 0),
    }
    found = compiled.reports("tests.kernels.cases_rowwise", architectures)
    assert {r.name for r in found} == set(ceilings)
    for report in found:
        compiled.check_limits(report, *ceilings[report.name])
        assert (report.prefetches > 0) == report.name.endswith("weights ahead"), report
