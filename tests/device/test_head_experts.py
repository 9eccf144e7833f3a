"""Mixtures of experts in trained heads by the kernels, against the reference."""

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear

from specchat.engine.device.head_experts import HeadExperts
from specchat.engine.heads.tensors import HeadTensors
from specchat.engine.program.ops import Buffer, Mix
from specchat.engine.recipe import Experts, Matrix
from specchat.engine.reference.layer import REFERENCE
from specchat.engine.reference.ops import LayerRows
from specchat.engine.weights.checkpoint import Checkpoint
from tests.device.conftest import DEVICE, ON_GPU
from tests.engine.tiny import FAMILIES, checkpoint


class Random(HeadTensors):
    """Random tensors of a mixture, by name; its experts in stacks."""

    def __init__(self, of: Experts) -> None:
        super().__init__()
        self._of, self._generator = of, torch.Generator().manual_seed(3)
        self._drawn: dict[object, Tensor] = {}

    def _draw(self, name: object, *shape: int) -> Tensor:
        if name not in self._drawn:
            drawn = torch.randn(shape, generator=self._generator) / shape[-1] ** 0.5
            self._drawn[name] = drawn.to(torch.bfloat16 if ON_GPU else torch.float32).to(DEVICE)
        return self._drawn[name]

    def product(self, x: Tensor, of: Matrix) -> Tensor:
        return linear(x, self._draw(of, sum(of.outputs), of.inputs).float())

    def vector(self, name: str) -> Tensor:
        return self._draw(name, self._of.count).float().abs()

    def stack(self, of: Matrix) -> Tensor | None:
        return torch.cat([self._draw(of.of(n), sum(of.outputs), of.inputs) for n in range(self._of.count)])


@pytest.mark.parametrize("family", ["qwen3_5_moe", "glm4_moe", "qwen3_moe"])
def test_a_head_s_mixture_is_the_reference_s(family: str, tmp_path: Path) -> None:
    """With an MLP beside the experts, gated or not, and with none."""
    of = Checkpoint.open(checkpoint(tmp_path / family, **FAMILIES[family])).config.recipe.mixtures[-1]
    tensors = Random(of)
    kernels = HeadExperts(tensors)
    x = torch.randn(17, of.router.inputs, generator=torch.Generator().manual_seed(4)).to(DEVICE)
    rows, source, out = LayerRows(x, tensors), Buffer("inputs", x.shape[1]), Buffer("mixture", x.shape[1])
    rows.buffers[source.name] = x
    REFERENCE.run(Mix(of, source, source, source, out), rows)
    truth = rows.buffers[out.name]
    for count in (1, 3, 17):
        made = kernels.run(of, x[:count])
        torch.testing.assert_close(made, truth[:count], **({"atol": 0.05, "rtol": 0.05} if ON_GPU else {}))
