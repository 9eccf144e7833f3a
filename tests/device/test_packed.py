"""Checkpoints of other packages' 4-bit integers and 8-bit floats on the device: the host's logits, within the plan."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from specchat.engine.device.weights import held_bytes
from specchat.engine.formats import FourBit
from specchat.engine.model.checkpoint import Checkpoint
from specchat.engine.model.need import Model
from specchat.engine.model.plan import plan
from specchat.engine.reference.decoder import ReferenceDecoder
from tests.device.conftest import CONTEXT, SHAPE, decoder
from tests.device.test_decoder import SLACK, ids, run
from tests.engine.packed import packed
from tests.engine.test_packed import BOTH, INT4


@pytest.mark.parametrize("method", ["gptq", "compressed-tensors, 32", "awq", "fp8"])
def test_a_packed_checkpoint_has_the_host_s_logits_and_is_planned(method: str, tmp_path: Path) -> None:
    changes = SHAPE | {"hidden_size": 128, "intermediate_size": 192, "head_dim": 64}
    stored, truth = packed(tmp_path, *BOTH[method], **changes)
    model, tokens = decoder(stored), ids(6)
    host = ReferenceDecoder(Checkpoint.open(truth))
    expected = host.logits(host.forward(tokens, 0))
    torch.testing.assert_close(run(model, tokens, 0), expected, atol=2 * SLACK, rtol=SLACK)
    assert all(isinstance(one.weight, FourBit) == (method in INT4) for one in model.weights.products.values())
    opened = Checkpoint.open(stored)
    of = Model(model.config, "cuda", opened.quant, fixed=opened.quant is not None, nested=opened.nested)
    of = replace(of, integers=opened.integers) if opened.integers else of
    held = held_bytes(decoder(stored, torch.float16).weights)
    assert held <= plan(of, None, CONTEXT).need("cuda").weights + 4 * 16 * len(model.weights.products) <= 1.2 * held


def test_a_packed_head_becomes_dense(tmp_path: Path) -> None:
    stored, truth = packed(tmp_path, *INT4["compressed-tensors, 32"], head=True, **SHAPE)
    made, expected = (decoder(one).weights.head for one in (stored, truth))
    assert isinstance(made, torch.Tensor)
    assert isinstance(expected, torch.Tensor)
    assert torch.equal(made, expected)
