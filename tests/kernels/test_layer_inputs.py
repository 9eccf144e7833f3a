"""Inputs of layers against float64 and torch's activations, row by row."""

import pytest
import torch
from torch import Tensor

from specchat.engine.gpu_checks.references import reference_gate_input, reference_make_inputs
from specchat.engine.kernels.activation import Activation
from specchat.engine.kernels.layer_inputs import gate_input, make_inputs
from specchat.engine.kernels.norm import NormOf
from tests.kernels.test_rowwise import CLEAR, COUNTS, DEVICE, DTYPES, EPS, SET, TOLERANCE, random

VOCAB, LAYERS = 50, 3
TOKENS = [0, 49, 3, 60, -1, 7]
"""Two of them are beyond the table."""


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


def made(tokens: list[int], size: int, dtype: torch.dtype, first: int = 0) -> tuple[Tensor, Tensor]:
    """The inputs of `tokens`, rows `first`, ... of a product, and those by the reference."""
    rows, of = len(tokens), torch.tensor(tokens, dtype=torch.int32, device=DEVICE)
    table, weight = random(VOCAB, LAYERS * size, dtype=dtype), 1 + random(size, seed=1) / 4
    partials = random(2, 64, LAYERS * size, seed=2)[:, first : first + rows].contiguous()
    found = torch.full((rows + 1, LAYERS, size), torch.nan, device=DEVICE)
    make_inputs(of, table, partials, weight, EPS, 0.7, found, rows)
    assert found[rows].isnan().all(), "a row beyond the count was written"
    return found[:rows], reference_make_inputs(of, table, partials, NormOf(weight, EPS), 0.7)


@pytest.mark.parametrize("size", [8, 24, 256])
def test_inputs_are_a_norm_and_a_row_of_the_table(size: int, dtype: torch.dtype) -> None:
    ours, reference = made(TOKENS, size, dtype)
    torch.testing.assert_close(ours.double(), reference, rtol=2e-6, atol=4e-6)
    table, weight = random(VOCAB, LAYERS * size, dtype=dtype).double(), (1 + random(size, seed=1) / 4).double()
    product = random(2, 64, LAYERS * size, seed=2)[:, : len(TOKENS)].double().sum(0).unflatten(-1, (LAYERS, size))
    normed = torch.nn.functional.rms_norm(product, (size,), weight, EPS)
    own = table[[0, 49, 3, 49, 0, 7]].unflatten(-1, (LAYERS, size))
    torch.testing.assert_close(reference, normed + 0.7 * own, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
@pytest.mark.parametrize("size", [8, 300])
def test_a_gate_is_torchs(size: int, activation: Activation, dtype: torch.dtype) -> None:
    inputs, partials = random(4, LAYERS, size), random(3, 4, size, seed=1)
    out = torch.full((4, size), 7.0, device=DEVICE, dtype=dtype)
    gate_input(partials, inputs[:, 1], out, 3, CLEAR, activation)
    assert (out[3] == 7).all(), "a row beyond the count was written"
    gate = partials[:, :3].double().sum(0)
    by = torch.nn.functional.silu if activation == "silu" else lambda x: torch.nn.functional.gelu(x, approximate="tanh")
    theirs = by(gate) * inputs[:3, 1].double()
    torch.testing.assert_close(out[:3].double(), theirs, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    torch.testing.assert_close(reference_gate_input(partials[:, :3].double(), inputs[:3, 1], activation), theirs)


def test_skip(dtype: torch.dtype) -> None:
    out = torch.full((2, 8), 7.0, device=DEVICE, dtype=dtype)
    gate_input(random(1, 2, 8), random(2, LAYERS, 8)[:, 0], out, 2, SET, "silu")
    assert (out == 7).all()


def test_rows_are_alone(dtype: torch.dtype) -> None:
    size, tokens = 24, [row % VOCAB for row in range(64)]
    inputs = torch.cat([made([token], size, dtype, row)[0] for row, token in enumerate(tokens)])
    partials = random(3, 64, size, seed=1)

    def gate(first: int, rows: int) -> Tensor:
        out = torch.empty(rows, size, device=DEVICE, dtype=dtype)
        own, given = partials[:, first : first + rows].contiguous(), inputs[first : first + rows, 2]
        gate_input(own, given, out, rows, None, "gelu_tanh")
        return out

    alone = torch.cat([gate(row, 1) for row in range(64)])
    for rows in COUNTS:
        assert torch.equal(made(tokens[:rows], size, dtype)[0], inputs[:rows])
        assert torch.equal(gate(0, rows), alone[:rows])
