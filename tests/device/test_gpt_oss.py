"""gpt-oss on the device: clamped gates, sinks, biases of experts, and experts in MXFP4 as they are published."""

from pathlib import Path

import pytest
import torch

from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.device.weights import held_bytes, load
from specchat.engine.formats.layout import FourBit
from specchat.engine.formats.mxfp4 import Mxfp4
from specchat.engine.kernels.processors import processors
from specchat.engine.memory.gpu_need import unsupported, verifying
from specchat.engine.memory.need import Model
from specchat.engine.memory.plan import GPU_RUNTIME, plan
from specchat.engine.weights.checkpoint import Checkpoint
from tests.device.conftest import CONTEXT, DEVICE, decoder
from tests.device.test_decoder import SLACK, ids, run
from tests.families.test_gpt_oss import by_transformers, published, saved

__all__ = ["saved"]


def test_its_logits_are_those_of_transformers(saved: Path) -> None:
    tokens = ids(16)
    assert not unsupported(Checkpoint.open(saved).config)
    torch.testing.assert_close(run(decoder(saved), tokens, 0), by_transformers(saved, tokens), atol=SLACK, rtol=SLACK)


def test_mxfp4_is_what_transformers_makes_of_it_and_a_row_is_alone(saved: Path, tmp_path: Path) -> None:
    tokens, model = ids(16), decoder(published(saved, tmp_path))
    made = run(model, tokens, 0)
    torch.testing.assert_close(made, by_transformers(tmp_path / "dense", tokens), atol=SLACK, rtol=SLACK)
    assert torch.equal(made, torch.cat([run(model, [token], place) for place, token in enumerate(tokens)]))


def test_experts_stay_in_mxfp4_and_are_planned_so(saved: Path, tmp_path: Path) -> None:
    """Also in a pair that asks for another format, which is for what is dense."""
    opened = Checkpoint.open(published(saved, tmp_path))
    weights = load(opened, "int8", DEVICE, torch.float16)
    experts = [product.weight for matrix, product in weights.products.items() if "{}" in matrix.names[0]]
    assert all(isinstance(one, FourBit) and (one.block, one.scales.dtype) == (32, torch.uint8) for one in experts)
    assert len(experts) == 2 * opened.config.layers
    model = DeviceDecoder(opened.config, weights, CONTEXT, DEVICE, torch.float16)
    planned = plan(Model(opened.config, "cuda", "int8", Mxfp4()), None, CONTEXT, processors(DEVICE))
    needed = planned.need("cuda")
    tables = 4 * (16 + 256) * len(experts)
    assert needed.weights == pytest.approx(held_bytes(weights) - tables, rel=0.002)
    taken = model.memory() + GPU_RUNTIME + verifying(opened.config)
    assert needed.total - taken == pytest.approx(needed.weights - held_bytes(weights), abs=model.buffers.offsets.nbytes)
