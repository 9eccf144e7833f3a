"""gpt-oss in its own layouts: stacks by turns in 16 bits, and MXFP4 as it is published."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import GptOssConfig, GptOssForCausalLM
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from specchat.engine.errors import ModelError
from specchat.engine.formats.mxfp4 import Mxfp4, mxfp4
from specchat.engine.formats.quantise import dequantised
from specchat.engine.formats.scale_tables import by_exponents
from specchat.engine.memory.need import Model, need
from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.runners.host import host_model
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.models.about import about_folder
from tests.engine.test_decoder import tokens
from tests.engine.tiny import GPT_OSS_ROPE, VOCAB

SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_local_experts": 5,
    "num_experts_per_tok": 2,
    "sliding_window": 8,
    "max_position_embeddings": 256,
    "eos_token_id": 256,
    "rope_parameters": GPT_OSS_ROPE,
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("oss")
    torch.manual_seed(3)
    model = GptOssForCausalLM(GptOssConfig(**SHAPE))
    for name, weight in model.named_parameters():
        if "norm" in name:
            weight.data.normal_(1.0, 0.1)
        elif weight.dim() == 1 or name.endswith("_bias"):
            weight.data.normal_(std=0.7)  # sinks and biases
        else:
            weight.data.normal_(std=2.5 / weight.shape[-2 if weight.dim() == 3 else -1] ** 0.5)
    model.save_pretrained(folder)
    return folder


def by_transformers(folder: Path, ids: list[int]) -> torch.Tensor:
    model = GptOssForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        found: torch.Tensor = model(torch.tensor([ids])).logits[0]
    return found


def logits(model: CachedDecoder, ids: list[int]) -> torch.Tensor:
    return torch.cat([model.logits(model.forward(ids[i : i + 17], i)).clone() for i in range(0, len(ids), 17)])


@pytest.mark.parametrize("kind", [ReferenceDecoder, host_model])
def test_its_logits_are_those_of_transformers(kind: type[ReferenceDecoder], saved: Path) -> None:
    ids = tokens(60)
    theirs = by_transformers(saved, ids)
    assert theirs.std() > 0.3
    torch.testing.assert_close(logits(kind(Checkpoint.open(saved)), ids), theirs, atol=3e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "left",
    [
        None,
        {"quant_method": "mxfp4"},
        {"quant_method": "mxfp4", "dequantize": True, "modules_to_not_convert": ["lm_head"]},
        {"quant_method": "bitsandbytes", "load_in_4bit": False, "load_in_8bit": False},
    ],
    ids=str,
)
def test_a_derivative_in_16_bits_runs_natively(left: object, saved: Path, tmp_path: Path) -> None:
    """Whatever quantisation its settings still name."""
    model = GptOssForCausalLM.from_pretrained(saved, dtype=torch.bfloat16)
    model.save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(settings | ({"quantization_config": left} if left else {})))
    opened, ids = Checkpoint.open(tmp_path), tokens(40)
    assert (opened.quant, opened.format, about_folder(tmp_path, "oss").quant) == (None, None, "bfloat16")
    with torch.no_grad():
        theirs = model.float()(torch.tensor([ids])).logits[0]
    for kind in (ReferenceDecoder, host_model):
        torch.testing.assert_close(logits(kind(opened), ids), theirs, atol=3e-4, rtol=1e-4)


def test_a_row_is_what_it_is_alone(saved: Path) -> None:
    ids, model = tokens(40), host_model(Checkpoint.open(saved))
    alone = torch.cat([model.logits(model.forward([token], i)).clone() for i, token in enumerate(ids)])
    assert torch.equal(logits(model, ids), alone)


def published(saved: Path, folder: Path) -> Path:
    """The same model with random MXFP4 experts, in the published names; its dense twin lies in `folder`/dense."""
    generator, weights = torch.Generator().manual_seed(4), load_file(saved / "model.safetensors")
    packed, dense = dict(weights), dict(weights)
    for name, weight in weights.items():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            experts, inputs, outputs = weight.shape
            blocks = torch.randint(256, (experts, outputs, inputs // 32, 16), dtype=torch.uint8, generator=generator)
            scales = torch.randint(122, 126, (experts, outputs, inputs // 32), dtype=torch.uint8, generator=generator)
            del packed[name]
            packed |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
            dense[name] = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32).contiguous()
    settings = json.loads((saved / "config.json").read_text())
    stored = {"mxfp4": (packed, {"quantization_config": {"quant_method": "mxfp4"}}), "dense": (dense, {})}
    for kind, (tensors, more) in stored.items():
        (folder / kind).mkdir()
        save_file(tensors, folder / kind / "model.safetensors", metadata={"format": "pt"})
        (folder / kind / "config.json").write_text(json.dumps(settings | more))
    return folder / "mxfp4"


def test_mxfp4_is_what_transformers_makes_of_it(saved: Path, tmp_path: Path) -> None:
    ids, opened = tokens(40), Checkpoint.open(published(saved, tmp_path))
    assert opened.quant is None
    theirs = by_transformers(tmp_path / "dense", ids)
    for kind in (ReferenceDecoder, host_model):
        torch.testing.assert_close(logits(kind(opened), ids), theirs, atol=3e-4, rtol=1e-4)


def test_blocks_that_fit_no_matrix_are_refused(saved: Path, tmp_path: Path) -> None:
    folder = published(saved, tmp_path)
    weights = load_file(folder / "model.safetensors")
    name = "model.layers.1.mlp.experts.down_proj_scales"
    weights[name] = weights[name][..., :1].contiguous()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"down_proj: MXFP4 blocks \[64, 4, 16\] with scales \[64, 1\] do not make a"):
        host_model(Checkpoint.open(folder))


def test_what_it_takes_is_planned(saved: Path, tmp_path: Path) -> None:
    opened = Checkpoint.open(published(saved, tmp_path))
    assert opened.format == Mxfp4()
    plain = Model(opened.config, "cpu", threads=1)
    planned, unaware = (need(model, 256).weights for model in (replace(plain, stored=Mxfp4()), plain))
    held = host_model(opened, 256)
    cache = held.cache.memory()
    assert planned == pytest.approx(held.memory() - cache, rel=0.02)
    assert unaware > 2 * planned


def test_scales_of_a_byte_are_the_same_scales() -> None:
    """As those are stored, the least and the largest among them; others stay as they are."""
    drawn = torch.Generator().manual_seed(2)
    blocks = torch.randint(256, (96, 3, 16), dtype=torch.uint8, generator=drawn)
    scales = torch.randint(0, 253, (96, 3), dtype=torch.uint8, generator=drawn)
    scales[0] = torch.tensor([0, 1, 254])
    blocks[0] &= 0x33
    wide = mxfp4(blocks, scales, (96, 96), "here")
    narrow = by_exponents(wide)
    assert torch.equal(narrow.scales, scales)
    assert torch.equal(dequantised(narrow, torch.float32), dequantised(wide, torch.float32))
    assert by_exponents(narrow) is narrow
    other = replace(wide, scales=wide.scales * 1.5)
    assert by_exponents(other) is other


@pytest.mark.parametrize("exponent", [0, 1, 127, 252, 253, 254, 255])
def test_values_are_those_of_transformers_or_refused(exponent: int) -> None:
    """Of large exponents float32 has the small values alone; 255 is no exponent, whatever its values are."""
    scales = torch.tensor([[127, exponent]], dtype=torch.uint8)
    for magnitude in range(8):
        blocks = torch.full((1, 2, 16), 0x88 | 0x11 * magnitude, dtype=torch.uint8)
        theirs = convert_moe_packed_tensors(blocks[None].clone(), scales[None].clone(), dtype=torch.float32)[0].t()
        if exponent < 255 and theirs.isfinite().all():
            assert torch.equal(dequantised(mxfp4(blocks, scales, (1, 64), "here"), torch.float32), theirs)
        else:
            with pytest.raises(ModelError, match=r"here has scales that are no numbers\. Download it again\."):
                mxfp4(blocks, scales, (1, 64), "here")
