"""The gate's activation against torch, and row by row."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from transformers.activations import ACT2FN, XIELUActivation
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts

from specchat.engine.gpu_checks.references import reference_gate_mul
from specchat.engine.kernels.activation import Activation, Curve, gate_mul
from tests.kernels.test_rowwise import CLEAR, COUNTS, DEVICE, DTYPES, ON_DEVICE, SET, TOLERANCE, random


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


TRUTH: dict[Activation, Callable[[Tensor, Tensor], Tensor]] = {
    "silu": lambda gate, up: torch.nn.functional.silu(gate) * up,
    "gelu_tanh": lambda gate, up: torch.nn.functional.gelu(gate, approximate="tanh") * up,
    "clamped_swiglu": lambda *parts: GptOssExperts._apply_gate(OF_GPT_OSS, torch.stack(parts, -1).flatten(-2)),
    "relu2": lambda gate, up: ACT2FN["relu2"](gate) * up,
}
OF_GPT_OSS = SimpleNamespace(alpha=1.702, limit=7.0)
"""What transformers' gate asks of its layer; it takes gates and values by turns."""


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("activation", TRUTH)
class TestGate:
    @pytest.mark.parametrize("inner", [172, 1024])
    def test_is_torchs(self, inner: int, activation: Activation, dtype: torch.dtype) -> None:
        partials, out = 3 * random(3, 4, 2 * inner), torch.full((4, inner), 7.0, device=DEVICE, dtype=dtype)
        gate_mul(partials, out, 3, CLEAR, activation)
        gate, up = partials.double().sum(0)[:3].chunk(2, -1)
        truth = TRUTH[activation](gate, up)
        # The sums of three float32 partials are what rounds most.
        torch.testing.assert_close(out[:3].double(), truth, rtol=2 * TOLERANCE[dtype], atol=1e-5)
        torch.testing.assert_close(reference_gate_mul(partials.double(), activation)[:3], truth)
        assert (out[3] == 7).all()

    def test_far_values(self, activation: Activation) -> None:
        """Where exp overflows, and where the cube does."""
        gate = torch.tensor([-1e18, -1e4, -20.0, 0.0, 20.0, 1e4, 1e18], device=DEVICE)
        out = torch.empty(1, len(gate), device=DEVICE)
        gate_mul(torch.cat((gate, torch.ones_like(gate)))[None, None], out, 1, None, activation)
        torch.testing.assert_close(
            out[0].double(), TRUTH[activation](gate.double(), torch.ones_like(gate).double()), rtol=1e-5, atol=1e-7
        )

    def test_skip(self, activation: Activation, dtype: torch.dtype) -> None:
        out = torch.full((2, 32), 7.0, device=DEVICE, dtype=dtype)
        gate_mul(random(1, 2, 64), out, 2, SET, activation)
        assert (out == 7).all()

    @pytest.mark.parametrize("inner", [600, pytest.param(12288, marks=ON_DEVICE)])
    def test_rows_are_alone(self, inner: int, activation: Activation, dtype: torch.dtype) -> None:
        partials = random(2, 64, 2 * inner)

        def run(first: int, rows: int) -> Tensor:
            out = torch.empty(rows, inner, device=DEVICE, dtype=dtype)
            gate_mul(partials[:, first : first + rows].contiguous(), out, rows, None, activation)
            return out

        alone = torch.cat([run(r, 1) for r in range(64)])
        for rows in COUNTS:
            assert torch.equal(run(0, rows), alone[:rows])


@pytest.mark.parametrize("activation", ["gelu_tanh", "relu2", "xielu"])
def test_gates_alone(activation: Activation, dtype: torch.dtype) -> None:
    partials, out = 3 * random(3, 4, 600), torch.full((4, 600), 7.0, device=DEVICE, dtype=dtype)
    numbers = [torch.tensor(one, device=DEVICE) for one in (0.4, -0.9, 0.3, -0.2)]
    curve = Curve(*numbers) if activation == "xielu" else None
    gate_mul(partials, out, 3, CLEAR, activation, curve)
    gate = partials.double().sum(0)[:3]
    if curve is None:
        truth = TRUTH[activation](gate, torch.ones_like(gate))
    else:
        theirs = XIELUActivation(dtype=torch.float64).to(DEVICE)
        theirs.load_state_dict(
            dict(
                zip(("alpha_p", "alpha_n", "beta", "eps"), (*(one[None] for one in curve[:2]), *curve[2:]), strict=True)
            )
        )
        truth = theirs(gate).detach()
    torch.testing.assert_close(out[:3].double(), truth, rtol=2 * TOLERANCE[dtype], atol=1e-5)
    both = torch.cat([partials, torch.ones_like(partials) / len(partials)], -1)
    torch.testing.assert_close(reference_gate_mul(both.double(), activation, curve)[:3], truth, rtol=1e-6, atol=1e-6)
    assert (out[3] == 7).all()
