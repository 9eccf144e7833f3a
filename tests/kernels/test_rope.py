"""The rotation and its norms against transformers, row by row."""

import pytest
import torch
from torch import Tensor
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from specchat.engine.gpu_checks.references import reference_rope
from specchat.engine.kernels.kv_entries import KvEntries
from specchat.engine.kernels.rope import RopeNorms, RopeRows, Turns, rope_and_write
from specchat.engine.model.rope import tables
from specchat.engine.recipe import Rope
from tests.kernels.test_rowwise import CLEAR, COUNTS, DEVICE, DTYPES, EPS, ON_DEVICE, SET, TOLERANCE, random

CAPACITY = 64


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


class Rotation:
    """One call's buffers; the cache starts as NaN, so that every slot that is written shows."""

    def __init__(
        self,
        dtype: torch.dtype,
        heads: int,
        kv: int,
        dim: int,
        splits: int,
        normed: bool,
        together: bool = False,
        further: bool = False,
        width: int | None = None,
        gated: bool = False,
        held: int = CAPACITY,
    ) -> None:
        self.held = held
        """Entries of the cache, a ring if they are fewer than positions."""
        self.dtype, self.heads, self.kv, self.dim, self.gated = dtype, heads, kv, dim, gated
        self.partials = random(splits, CAPACITY, ((1 + gated) * heads + 2 * kv) * dim)
        sizes = (heads * dim, kv * dim) if together else (dim, dim)
        of_query, of_key = (1 + random(size, seed=seed).to(dtype) / 4 for seed, size in enumerate(sizes))
        of_value = (1 + random(dim, seed=7) / 4, EPS) if further else None
        self.norms = RopeNorms((of_query, EPS), (of_key, EPS), of_value) if normed else RopeNorms(of_value=of_value)
        self.temper = 1 + torch.arange(CAPACITY, device=DEVICE) / 7 if further else None
        """Factors on queries."""
        self.turn(rope(width or dim))

    def turn(self, by: Rope | None) -> None:
        width = by.width if by else self.dim
        self.cos, self.sin = (table.to(DEVICE) for table in tables(by, width, CAPACITY))
        self.turns = Turns.of(self.cos, self.sin, by.turning if by else 1)

    def run(
        self, length: int, offsets: list[int], first: int = 0, skip: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rows `first`, `first + 1`, ... of the product: one for each offset."""
        rows = len(offsets)
        query = torch.full((rows, self.heads, self.dim), torch.nan, device=DEVICE, dtype=self.dtype)
        keys, values = torch.full((2, self.kv, self.held, self.dim), torch.nan, device=DEVICE, dtype=self.dtype)
        at = (torch.tensor(of, dtype=torch.int32, device=DEVICE) for of in ([length], offsets))
        rope_and_write(
            self.partials[:, first : first + rows].contiguous(),
            self.norms,
            self.turns,
            RopeRows(rows, *at, skip, temper=self.temper),
            query,
            KvEntries(keys, values),
            self.gated,
        )
        return query, keys, values


def rope(width: int) -> Rope:
    return Rope(10000.0, "default", width, {})


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
        if call.norms.query is not None and call.norms.key is not None:
            q, k = (
                torch.nn.functional.rms_norm(x.reshape(rows, -1, len(norm)), (len(norm),), norm.double(), EPS).view(
                    x.shape
                )
                for x, (norm, _) in ((q, call.norms.query), (k, call.norms.key))
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
        reference = reference_rope(call.partials[:, :rows], call.norms, (call.cos, call.sin), positions, heads, kv)
        for ours, theirs in zip((q, k, v), reference, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
        for cache in (keys, values):
            untouched = torch.ones(CAPACITY, dtype=torch.bool, device=DEVICE)
            untouched[written] = False
            assert cache[:, untouched].isnan().all(), "a slot outside the step was written"

    @pytest.mark.parametrize("dim", [8, 80, 512])
    @pytest.mark.parametrize(("normed", "together"), [(False, False), (True, False), (True, True)])
    def test_norms_of_values_and_factors_on_queries(
        self, dim: int, normed: bool, together: bool, dtype: torch.dtype
    ) -> None:
        """As Gemma 4 and Ministral 3 have them; queries and keys are else what they are without."""
        heads, kv, length, offsets = 4, 2, 9, [0, 1, 1, 2, 2]
        call = Rotation(dtype, heads, kv, dim, 3, normed, together, further=True)
        plain = Rotation(torch.float32, heads, kv, dim, 3, normed, together)
        plain.norms = call.norms._replace(of_value=None)
        of_values, temper = call.norms.of_value, call.temper
        assert of_values is not None
        assert temper is not None
        written, positions = slice(length, length + 5), torch.tensor(offsets, device=DEVICE) + length
        q, keys, values = (x.double() for x in plain.run(length, offsets))
        v = torch.nn.functional.rms_norm(values[:, written].transpose(0, 1), (dim,), of_values[0].double(), EPS)
        truth = q * temper[positions, None, None].double(), keys[:, written].transpose(0, 1), v
        partials = call.partials[:, :5]
        reference = reference_rope(partials, call.norms, (call.cos, call.sin), positions, heads, kv, temper)
        query, keys, values = call.run(length, offsets, skip=CLEAR)
        ours = query, keys[:, written].transpose(0, 1), values[:, written].transpose(0, 1)
        slack = 3 * TOLERANCE[torch.float32] + TOLERANCE[dtype]
        for made, theirs, by_reference in zip(ours, truth, reference, strict=True):
            torch.testing.assert_close(made.double(), theirs, rtol=slack, atol=3 * slack)
            torch.testing.assert_close(by_reference, theirs, rtol=1e-5, atol=1e-5)

    @pytest.mark.parametrize(("dim", "width"), [(8, 2), (80, 32), (96, 72), (128, 64)])
    @pytest.mark.parametrize(("normed", "together"), [(False, False), (True, False), (True, True)])
    def test_a_part_of_each_head_is_rotated(
        self, dim: int, width: int, normed: bool, together: bool, dtype: torch.dtype
    ) -> None:
        """The first values as heads of that width are; the others are what they are before the rotation."""
        heads, kv, length, offsets = 4, 2, 9, [0, 1, 1, 2, 2]
        call = Rotation(dtype, heads, kv, dim, 3, normed, together, width=width)
        still = Rotation(torch.float32, heads, kv, dim, 3, normed, together)
        still.norms = call.norms
        still.turn(None)
        positions, written = torch.tensor(offsets, device=DEVICE) + length, slice(length, length + 5)

        def results(call: Rotation) -> tuple[Tensor, Tensor]:
            query, keys, _ = call.run(length, offsets, skip=CLEAR)
            return query.double(), keys[:, written].transpose(0, 1).double()

        c, s = call.cos[positions, None].double(), call.sin[positions, None].double()
        slack = 3 * TOLERANCE[torch.float32] + TOLERANCE[dtype]
        partials = call.partials[:, :5]
        reference = reference_rope(partials, call.norms, (call.cos, call.sin), positions, heads, kv)
        for made, unturned, by_reference in zip(results(call), results(still), reference, strict=False):
            part = unturned[..., :width]
            truth = torch.cat((part * c + part.roll(width // 2, -1) * s, unturned[..., width:]), -1)
            torch.testing.assert_close(made, truth, rtol=slack, atol=3 * slack)
            torch.testing.assert_close(by_reference, truth, rtol=1e-5, atol=1e-5)
            assert torch.equal(made[..., width:], unturned[..., width:].to(dtype).double())

    def test_pairs_that_stay_need_no_table(self, dtype: torch.dtype) -> None:
        """Of 16 pairs 4 turn; the tables of all say that the others do not."""
        call, length, offsets = Rotation(dtype, 4, 2, 32, 2, True), 9, [0, 1, 2]
        call.turn(Rope(10000.0, "proportional", 32, {"partial_rotary_factor": 0.25}))
        assert (tuple(call.turns.cos.shape), tuple(call.cos.shape)) == ((CAPACITY, 4), (CAPACITY, 32))
        query, keys, _ = call.run(length, offsets, skip=CLEAR)
        positions = torch.tensor(offsets, device=DEVICE) + length
        truth = reference_rope(call.partials[:, :3], call.norms, (call.cos, call.sin), positions, 4, 2)
        slack = 3 * TOLERANCE[torch.float32] + TOLERANCE[dtype]
        for ours, theirs in zip((query, keys[:, length : length + 3].transpose(0, 1)), truth, strict=False):
            torch.testing.assert_close(ours.double(), theirs, rtol=slack, atol=3 * slack)
        assert (call.sin[1:, 4:16] == 0).all()
        assert (call.sin[1:, :4] < 0).any()

    @pytest.mark.parametrize(("normed", "together"), [(False, False), (True, False), (True, True)])
    def test_gates_between_queries_are_left_out(self, normed: bool, together: bool, dtype: torch.dtype) -> None:
        heads, kv, dim, length, offsets = 18, 2, 16, 9, [0, 1, 1, 2, 2]
        call = Rotation(dtype, heads, kv, dim, 3, normed, together, width=8, gated=True)
        plain = Rotation(dtype, heads, kv, dim, 3, normed, together, width=8)
        queries, rest = call.partials.split((2 * heads * dim, 2 * kv * dim), -1)
        plain.partials = torch.cat((queries.unflatten(-1, (heads, 2, dim))[..., 0, :].flatten(-2), rest), -1)
        (query, *caches), (plain_query, *plain_caches) = call.run(length, offsets), plain.run(length, offsets)
        assert torch.equal(query, plain_query)
        for ours, theirs in zip(caches, plain_caches, strict=True):
            assert torch.equal(ours[:, length : length + 5], theirs[:, length : length + 5])
        positions = torch.tensor(offsets, device=DEVICE) + length
        given = call.norms, (call.cos, call.sin), positions, heads, kv
        made = reference_rope(call.partials[:, :5], *given, gated=True)
        for ours, theirs in zip(made, reference_rope(plain.partials[:, :5], *given), strict=True):
            assert torch.equal(ours, theirs)

    @pytest.mark.parametrize("of_queries", [False, True])
    def test_norms_of_queries_and_keys_may_be_unlike(self, of_queries: bool, dtype: torch.dtype) -> None:
        """One alone, of each head or of all of them, and of another eps."""
        heads, kv, dim, length, offsets = 4, 2, 16, 9, [0, 1, 1, 2, 2]
        for together in (False, True):
            call = Rotation(dtype, heads, kv, dim, 3, True, together)
            (of_query, _), (of_key, _) = call.norms.query or (), call.norms.key or ()
            call.norms = RopeNorms((of_query, 0.5)) if of_queries else RopeNorms(key=(of_key, 0.5))
            query, keys, _ = call.run(length, offsets, skip=CLEAR)
            positions = torch.tensor(offsets, device=DEVICE) + length
            made = query, keys[:, length : length + 5].transpose(0, 1)
            truth = reference_rope(call.partials[:, :5], call.norms, (call.cos, call.sin), positions, heads, kv)
            slack = 3 * TOLERANCE[torch.float32] + TOLERANCE[dtype]
            for ours, theirs in zip(made, truth, strict=False):
                torch.testing.assert_close(ours.double(), theirs, rtol=slack, atol=3 * slack)

    def test_nothing_is_written_beyond_the_cache(self, dtype: torch.dtype) -> None:
        _, keys, values = Rotation(dtype, 2, 2, 8, 1, False).run(CAPACITY - 2, [0, 1, 2, 3])
        for cache in (keys, values):
            assert not cache[:, -2:].isnan().any()
            assert cache[:, :-2].isnan().all(), "a row beyond the end went into the next head's slots"

    def test_skip(self, dtype: torch.dtype) -> None:
        assert all(t.isnan().all() for t in Rotation(dtype, 2, 1, 8, 1, False).run(3, [0, 1], skip=SET))

    @pytest.mark.parametrize(
        ("heads", "kv", "dim", "width", "normed", "together", "further"),
        [
            (2, 1, 8, 8, True, False, False),
            (1, 1, 80, 80, False, False, True),
            (3, 1, 8, 4, True, True, False),
            pytest.param(32, 8, 128, 64, True, False, False, marks=ON_DEVICE),
            pytest.param(32, 32, 128, 128, True, True, False, marks=ON_DEVICE),
            pytest.param(32, 4, 512, 512, True, False, True, marks=ON_DEVICE),
        ],
    )
    def test_rows_are_alone(
        self, heads: int, kv: int, dim: int, width: int, normed: bool, together: bool, further: bool, dtype: torch.dtype
    ) -> None:
        call = Rotation(dtype, heads, kv, dim, 2, normed, together, further, width)
        alone = [call.run(r, [0], r) for r in range(CAPACITY)]
        for rows in COUNTS:
            query, keys, values = call.run(0, list(range(rows)))
            assert torch.equal(query, torch.cat([q for q, _, _ in alone[:rows]]))
            assert torch.equal(keys[:, :rows], torch.cat([k[:, [r]] for r, (_, k, _) in enumerate(alone[:rows])], 1))
            assert torch.equal(values[:, :rows], torch.cat([v[:, [r]] for r, (_, _, v) in enumerate(alone[:rows])], 1))
