"""Texts of thousands of tokens and more, beyond position 2^18: logits are transformers', for rows in any company.

A text's entries come from transformers' own projections and rotations, since interpreted passes would take hours; a
short text shows that passes write the same.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.device.weights import load
from specchat.engine.kernels.gpu_shapes import PASS_ROWS, VERIFY_ROWS
from specchat.engine.weights.checkpoint import Checkpoint
from tests.device.conftest import DEVICE, SHAPE
from tests.device.test_decoder import SLACK, run
from tests.engine.tiny import VOCAB, checkpoint

ROWS = VERIFY_ROWS + 1
"""Of a last pass of the wide kind; of a narrow one its last NARROW."""
NARROW = 3
AHEAD = 30
"""Score of a needle for the last row, those of others being about 0."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = SHAPE | {"num_hidden_layers": 1, "max_position_embeddings": 1 << 19, "rope_theta": 1e6}
    return checkpoint(tmp_path_factory.mktemp("long") / "m", seed=3, **shape)


def theirs(folder: Path, text: Tensor, needle: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Logits of transformers after the last ROWS tokens of a text, and keys and values [kv, tokens, D] of the text.

    The key at `needle` is turned to what the last row looks for.
    """
    transformers: Any = pytest.importorskip("transformers")
    whole = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    model, layer = whole.model, whole.model.layers[0]
    attention, places = layer.self_attn, torch.arange(len(text))[None]
    with torch.inference_mode():
        hidden = layer.input_layernorm(model.embed_tokens(text[None]))
        queries, keys, values = (
            part(hidden).unflatten(-1, (-1, attention.head_dim)).transpose(1, 2)
            for part in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        turned = transformers.models.llama.modeling_llama.apply_rotary_pos_emb
        queries, keys = turned(queries, keys, *model.rotary_emb(hidden, places))
        if needle is not None:
            asked = queries[0, 0, -1]
            keys[0, 0, needle] = AHEAD / attention.scaling * asked / asked.square().sum()
        cache = transformers.DynamicCache()
        cache.update(keys[:, :, :-ROWS], values[:, :, :-ROWS], 0)
        found = whole(text[None, -ROWS:], past_key_values=cache, position_ids=places[:, -ROWS:])
    return found.logits[0], keys[0], values[0]


def opened(folder: Path, context: int) -> DeviceDecoder:
    found = Checkpoint.open(folder)
    return DeviceDecoder(found.config, load(found, None, DEVICE, torch.float32), context, DEVICE, torch.float32)


def text_of(length: int) -> Tensor:
    return torch.randint(VOCAB, (length,), generator=torch.Generator().manual_seed(length))


def test_passes_write_the_entries_of_transformers(folder: Path) -> None:
    text, model = text_of(PASS_ROWS + ROWS), opened(folder, 128)
    _, keys, values = theirs(folder, text)
    for first in range(0, PASS_ROWS, VERIFY_ROWS):
        run(model, text[first : first + VERIFY_ROWS].tolist(), first)
    for mine, expected in zip(model.entries[0], (keys, values), strict=True):
        torch.testing.assert_close(mine[:, :PASS_ROWS].cpu(), expected[:, :PASS_ROWS], atol=SLACK, rtol=SLACK)


@pytest.mark.rotated(2)
@pytest.mark.parametrize(
    ("length", "wide"),
    [
        (8192, True),
        *(pytest.param(of_many, True, marks=pytest.mark.slow) for of_many in (32_768, 131_072)),
        ((1 << 18) + 5000, False),
    ],
)
def test_a_needle_in_a_long_text_is_found_by_rows_in_any_company(folder: Path, length: int, wide: bool) -> None:
    """Those of a verify pass, a lone one, and with `wide` those of a prompt's."""
    text, needle, start = text_of(length), length // 3, length - ROWS
    model, (logits, *entries), (without, *_) = (
        opened(folder, length),
        theirs(folder, text, needle),
        theirs(folder, text),
    )
    assert (logits[-1] - without[-1]).abs().max() > 100 * SLACK
    for mine, expected in zip(model.entries[0], entries, strict=True):
        mine[:, : length - NARROW] = expected[:, :-NARROW].to(DEVICE)
    together = run(model, text[-NARROW:].tolist(), length - NARROW)
    torch.testing.assert_close(together, logits[-NARROW:], atol=SLACK, rtol=SLACK)
    assert torch.equal(run(model, text[-1:].tolist(), length - 1)[0], together[-1])
    if wide:
        fed, first = text[start:].to(DEVICE, torch.int32), torch.tensor([start], dtype=torch.int32, device=DEVICE)
        model.forward(fed, first, ROWS)
        assert torch.equal(model.logits(ROWS - NARROW, NARROW)[:NARROW].cpu(), together)
