"""Checkpoints of other packages' 4-bit integers and 8-bit floats on the device: the host's logits, within the plan."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.device.weights import held_bytes
from specchat.engine.formats.layout import FourBit
from specchat.engine.heads.files import FoundHeads, HeadFiles
from specchat.engine.memory.need import Model
from specchat.engine.memory.plan import plan
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.runners.device import device_runner
from specchat.engine.weights.checkpoint import Checkpoint
from tests.device.conftest import CONTEXT, DEVICE, SHAPE, decoder
from tests.device.test_decoder import SLACK, ids, run
from tests.device.test_decoding import SAMPLINGS
from tests.device.test_heads import steps, text
from tests.engine.packed import packed
from tests.engine.published_heads import HIDDEN, eagle, mtp
from tests.engine.test_packed import BOTH, FP4, INT4
from tests.engine.tiny import FAMILIES, VOCAB


@pytest.mark.parametrize("method", ["gptq, act order", "compressed-tensors, 32", "awq", "fp8", *[*FP4][:2]])
def test_a_packed_checkpoint_has_the_host_s_logits_and_is_planned(method: str, tmp_path: Path) -> None:
    changes = SHAPE | {"hidden_size": 128, "intermediate_size": 192, "head_dim": 64}
    stored, truth = packed(tmp_path, *BOTH[method], **changes)
    model, tokens = decoder(stored), ids(6)
    host = ReferenceDecoder(Checkpoint.open(truth))
    expected = host.logits(host.forward(tokens, 0))
    torch.testing.assert_close(run(model, tokens, 0), expected, atol=2 * SLACK, rtol=SLACK)
    assert all(isinstance(one.weight, FourBit) == (method != "fp8") for one in model.weights.products.values())
    opened = Checkpoint.open(stored)
    of = Model(model.config, "cuda", opened.quant, opened.format)
    held = held_bytes(decoder(stored, torch.float16).weights)
    tables = 4 * (16 + 256 * (method in FP4)) * len(model.weights.products)  # of values, and of powers of two
    assert held <= plan(of, None, CONTEXT).need("cuda").weights + tables <= 1.2 * held


def test_experts_have_orders_of_their_own(tmp_path: Path) -> None:
    sizes = {"hidden_size": 64, "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64}
    changes = FAMILIES["qwen2_moe"] | sizes | {"num_hidden_layers": 1}
    stored, truth = packed(tmp_path, *INT4["gptq, act order"], ("shared_expert_gate",), **changes)
    model, tokens = decoder(stored), ids(6)
    host = ReferenceDecoder(Checkpoint.open(truth))
    expected = host.logits(host.forward(tokens, 0))
    torch.testing.assert_close(run(model, tokens, 0), expected, atol=2 * SLACK, rtol=SLACK)
    (of,) = model.config.recipe.mixtures
    for matrix in (of.each.gate_up, of.each.down):
        weight = model.weights.products[matrix].weight
        assert isinstance(weight, FourBit)
        assert weight.order is not None
        assert weight.order.shape == (of.count, matrix.inputs)


def test_a_packed_head_becomes_dense(tmp_path: Path) -> None:
    stored, truth = packed(tmp_path, *INT4["compressed-tensors, 32"], head=True, **SHAPE)
    made, expected = (decoder(one).weights.head for one in (stored, truth))
    assert isinstance(made, torch.Tensor)
    assert isinstance(expected, torch.Tensor)
    assert torch.equal(made, expected)


def test_heads_draft_as_on_the_values_that_a_packed_target_stands_for(tmp_path: Path) -> None:
    """By the target's head, packed too, and by the rows of a draft vocabulary in it."""
    changes = SHAPE | {"hidden_size": HIDDEN, "head_dim": 32, "num_hidden_layers": 1}
    folders = packed(tmp_path, *INT4["compressed-tensors, 32"], head=True, **changes)
    of_eagle, of_mtp = HeadFiles.open(eagle(tmp_path / "eagle")), HeadFiles.open(mtp(tmp_path / "mtp"))
    made: list[list[StepOutcome]] = []
    for folder in folders:
        few = replace(Checkpoint.open(folder), drafts=tuple(range(0, VOCAB, 2)))
        found = FoundHeads({"eagle": of_eagle, "mtp": replace(of_mtp, frequent=few)})
        runner = device_runner(decoder(folder), None, VOCAB, DEVICE, found=found)
        made.append([one for name in ("eagle", "mtp") for one in steps(runner, [(name, 3)], SAMPLINGS["greedy"])])
        plain = text(steps(runner, [("plain", 0)] * 2, SAMPLINGS["greedy"]))
        assert all(text([one])[:2] == plain[: len(one.tokens)] for one in made[-1])
    stored, truth = made
    assert [one.drafts for one in stored] == [one.drafts for one in truth]
    assert all(len(one.drafts) == 3 for one in stored)
