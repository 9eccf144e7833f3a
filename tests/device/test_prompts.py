"""Passes of prompts, of many rows: what they leave is what narrower passes leave, of every kind of layer."""

from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.device.graphs import Graphs
from specchat.engine.device.model import DeviceModel
from specchat.engine.device.rehearsal import Rehearsed
from specchat.engine.device.weights import load
from specchat.engine.kernels import gpu_shapes
from specchat.engine.kernels.gpu_shapes import DENSE_ROWS, PASS_ROWS, PROMPT_ROWS
from specchat.engine.weights.checkpoint import Checkpoint
from tests.device.conftest import DEVICE
from tests.device.test_decoder import ids, run
from tests.device.test_families import changes
from tests.engine.tiny import VOCAB, checkpoint

CONTEXT, BEFORE, COUNT, AFTER = 256, 5, 139, 3
"""Tokens before a wide pass, in it and after it: of the groups two are whole, and the last are empty."""
KINDS = "gemma4_moe", "gemma4_e", "gpt_oss", "qwen3_next", "lfm2", "deepseek_v3"
"""Windows, inputs of layers, sinks, states, short convolutions and latents, with experts of four kinds."""


def opened(family: str, folder: Path, context: int = CONTEXT) -> DeviceDecoder:
    """With rings of fewer entries than the positions of a padded pass."""
    found = Checkpoint.open(checkpoint(folder / "m", seed=3, **changes(family) | {"max_position_embeddings": context}))
    with patch.object(gpu_shapes, "BACK", 0):
        return DeviceDecoder(found.config, load(found, None, DEVICE, torch.float32), context, DEVICE, torch.float32)


def after(model: DeviceDecoder, graphs: type[Graphs], block: int, count: int = COUNT) -> list[torch.Tensor]:
    """Logits after a text that is read in blocks, and its KV entries."""
    for keys, values in model.entries:
        keys.fill_(torch.nan)
        values.fill_(torch.nan)
    reading = DeviceModel(model, "target", VOCAB, graphs(DEVICE, []), DEVICE)
    tokens, end = ids(BEFORE + count + AFTER), BEFORE + count
    reading.write(tokens[:BEFORE], 0)
    for first in range(BEFORE, end, block):
        reading.write(tokens[first : min(first + block, end)], first)
    logits = run(model, tokens[end:], end)
    return [logits.clone(), *(entry.clone() for pair in model.entries for entry in pair)]


@pytest.mark.rotated(3)
@pytest.mark.parametrize("family", KINDS)
def test_many_rows_leave_what_few_leave(family: str, tmp_path: Path) -> None:
    """Rows that pad a captured pass leave nothing at all."""
    model = opened(family, tmp_path)
    few = after(model, Graphs, PASS_ROWS)
    many = after(model, Rehearsed, COUNT)
    assert not few[0].isnan().any()
    for ours, theirs in zip(many, few, strict=True):
        assert torch.equal(ours.nan_to_num(777), theirs.nan_to_num(777))


@pytest.mark.parametrize("family", ["qwen3", "qwen3_moe", "qwen3_next"])
def test_models_of_experts_have_twice_the_rows_in_a_pass(family: str, tmp_path: Path) -> None:
    """A pass then reads an expert for more rows. Groups beyond the last row do nothing, and a row has its bits."""
    count = DENSE_ROWS + PASS_ROWS + 3
    model = opened(family, tmp_path, count + 2 * PASS_ROWS)
    block = DeviceModel(model, "target", VOCAB, Graphs(DEVICE, []), DEVICE).block
    assert block == len(model.buffers.residual) == (DENSE_ROWS if family == "qwen3" else PROMPT_ROWS)
    if family != "qwen3":
        few = after(model, Graphs, PASS_ROWS, count)
        many = after(model, Rehearsed, block, count)
        assert all(torch.equal(a.nan_to_num(777), b.nan_to_num(777)) for a, b in zip(many, few, strict=True))
