"""Checkpoints of other packages' 4-bit integers and 8-bit floats: run as stored, or refused by what they have."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from specchat.engine.errors import ForeignModel, ModelError
from specchat.engine.formats import FourBit
from specchat.engine.loading import load
from specchat.engine.model.checkpoint import Checkpoint
from specchat.engine.model.eight_bit_floats import dequantise_floats
from specchat.engine.model.need import Model
from specchat.engine.model.plan import plan
from specchat.engine.model.quantise import dequantised
from specchat.engine.model.weights import Weights
from specchat.engine.options import Limits, Speculation
from specchat.engine.pair import PairSpec
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.runners.host import host_model
from specchat.models.about import about_folder
from tests.engine.packed import Pack, compressed, floats, gptq, packed
from tests.engine.test_lossless import SAMPLINGS, finished, reply
from tests.engine.tiny import FAMILIES, on_cpu

pytestmark = pytest.mark.cpu

SHAPE = {"hidden_size": 256, "intermediate_size": 384, "num_hidden_layers": 2, "head_dim": 64}
NAME = "model.layers.0.mlp.down_proj"


def of_compressed(**weights: Any) -> dict[str, Any]:
    scheme = {"type": "int", "num_bits": 4, "symmetric": True} | weights
    kind = "pack-quantized" if scheme["type"] == "int" else "float-quantized"
    groups = {"group_0": {"targets": ["Linear"], "weights": scheme}}
    return {"quant_method": "compressed-tensors", "format": kind, "config_groups": groups, "ignore": ["lm_head"]}


INT4: dict[str, tuple[Pack, dict[str, Any]]] = {
    "compressed-tensors, 128": (compressed(128), of_compressed(group_size=128)),
    "compressed-tensors, 32": (compressed(32), of_compressed(group_size=32)),
    "compressed-tensors, channels": (compressed(0), of_compressed(strategy="channel")),
    "gptq": (gptq(64), {"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": False, "sym": True}),
    "gptq v2": (gptq(64, 8, False), {"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2"}),
    "auto-round": (gptq(32), {"quant_method": "auto-round", "bits": 4, "packing_format": "auto_round:auto_gptq"}),
}
FP8: dict[str, tuple[Pack, dict[str, Any]]] = {
    "fp8": (floats("square", "_scale_inv"), {"quant_method": "fp8", "weight_block_size": [128, 128]}),
    "fp8 of one scale": (floats("whole", "_scale_inv"), {"quant_method": "fp8"}),
    "compressed-tensors": (floats("row", "_scale"), of_compressed(type="float", num_bits=8)),
}
BOTH = INT4 | FP8


@pytest.mark.parametrize("method", BOTH)
def test_a_packed_checkpoint_is_the_model_that_it_stands_for(method: str, tmp_path: Path) -> None:
    stored, truth = packed(tmp_path, *BOTH[method], **SHAPE)
    opened, text = Checkpoint.open(stored), list(range(3, 40))
    assert opened.quant == ("int4" if method in INT4 else None)
    assert about_folder(stored, "m").quant == ("int4" if method in INT4 else "fp8")
    expected = ReferenceDecoder(Checkpoint.open(truth)).forward(text, 0)
    for model in (host_model(opened), ReferenceDecoder(opened)):
        torch.testing.assert_close(model.forward(text, 0), expected, rtol=2e-4, atol=2e-4)
    with Weights(opened) as weights, Weights(Checkpoint.open(truth)) as whole:
        found, wanted = (one.linear(NAME, 256, 384) for one in (weights, whole))
        assert isinstance(found, FourBit) == (method in INT4)
        assert isinstance(wanted, torch.Tensor)
        assert torch.equal(dequantised(found, torch.float32), wanted)
        assert torch.equal(weights.get(f"{NAME}.weight", 256, 384), wanted)


def test_squares_of_floats_are_those_of_transformers() -> None:
    module = pytest.importorskip("transformers.integrations.finegrained_fp8")
    weight = torch.randn(300, 200, generator=torch.Generator().manual_seed(1)).to(torch.float8_e4m3fn)
    scale = torch.rand(3, 2, generator=torch.Generator().manual_seed(2)) + 0.1
    truth = module._dequantize_fp8_weight(weight, scale, [128, 128], torch.float32)
    assert torch.equal(dequantise_floats("w", weight, scale, ""), truth.to(torch.bfloat16))


def test_integers_are_those_of_compressed_tensors() -> None:
    module = pytest.importorskip("compressed_tensors.compressors.pack_quantized.helpers", reason="not installed")
    matrix = torch.randn(48, 128, generator=torch.Generator().manual_seed(1))
    parts, _ = compressed(32)("m", matrix)
    unpacked = module.unpack_from_int32(parts["m.weight_packed"], 4, torch.Size((48, 128)))
    scales = parts["m.weight_scale"].float().repeat_interleave(32, 1)
    assert torch.equal(compressed(32)("m", matrix)[1], unpacked * scales)


def test_experts_are_packed_each_for_itself(tmp_path: Path) -> None:
    more = {"hidden_size": 128, "moe_intermediate_size": 64, "num_hidden_layers": 2}
    stored, truth = packed(tmp_path, *INT4["compressed-tensors, 32"], **FAMILIES["qwen3_moe"] | more)
    made, expected = (host_model(Checkpoint.open(one)).forward(list(range(3, 20)), 0) for one in (stored, truth))
    torch.testing.assert_close(made, expected, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("method", ["gptq", "fp8"])
def test_every_strategy_writes_what_plain_writes(method: str, tmp_path: Path) -> None:
    stored, _ = packed(tmp_path, *BOTH[method], **SHAPE)
    session = load(PairSpec("p", "P", on_cpu(stored), on_cpu(stored)), lambda _: None)
    for sampling in SAMPLINGS.values():
        plain, *others = (
            finished(reply(session, "abcab", sampling, Limits(24), Speculation.of(name))).token_ids
            for name in ("plain", "draft", "lookup", "early-exit", "ngram")
        )
        assert all(other == plain for other in others)


@pytest.mark.parametrize("method", ["compressed-tensors, 32", "gptq"])
def test_the_plan_holds_what_is_read(method: str, tmp_path: Path) -> None:
    stored, _ = packed(tmp_path, *INT4[method], **SHAPE)
    opened = Checkpoint.open(stored)
    held = host_model(opened, 64).memory()
    planned = plan(Model(opened.config, "cpu", "int4", fixed=True, nested=opened.nested, threads=1), None, 64)
    need = planned.need("cpu")
    assert held <= need.total
    assert need.weights + need.cache <= 1.3 * held


@pytest.mark.parametrize(
    ("settings", "method"),
    [
        ({"quant_method": "gptq", "bits": 4, "sym": False}, "gptq"),
        ({"quant_method": "gptq", "bits": 4, "desc_act": True}, "gptq"),
        ({"quant_method": "gptq", "bits": 8}, "gptq"),
        ({"quant_method": "auto-round", "bits": 4, "packing_format": "auto_round:auto_awq"}, "auto-round"),
        (of_compressed(symmetric=False), "compressed-tensors"),
        (of_compressed(num_bits=8), "compressed-tensors"),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, "compressed-tensors"),
        ({"quant_method": "fp8", "weight_block_size": [64, 64]}, "fp8"),
    ],
)
def test_what_is_not_read_goes_by_transformers(settings: dict[str, Any], method: str, tmp_path: Path) -> None:
    stored, _ = packed(tmp_path, gptq(64), settings, **SHAPE)
    with pytest.raises(ForeignModel, match=f"quantised with {method}, and specchat's decoder runs"):
        Checkpoint.open(stored)


@pytest.mark.parametrize(
    ("method", "part", "change", "words"),
    [
        ("gptq", "qzeros", lambda x: x + 1, "zero points"),
        ("gptq", "g_idx", lambda x: x.flip(0), "another order of its inputs"),
        ("gptq", "scales", lambda x: x[:5], "do not make 256 outputs of 384 inputs"),
        ("gptq", "scales", None, "scales is missing"),
        ("gptq", "scales", lambda x: x * float("nan"), "no numbers"),
        ("compressed-tensors, 32", "weight_packed", lambda x: x[:-1], "do not make 256 outputs of 384 inputs"),
        ("compressed-tensors, 32", "weight_scale", None, "weight_scale is missing"),
        ("fp8", "weight_scale_inv", None, "with no scale"),
        ("fp8", "weight_scale_inv", lambda x: x[:1], r"with scales \[1, 3\]"),
        ("fp8", "weight_scale_inv", lambda x: x * float("inf"), "no numbers"),
    ],
)
def test_damage_is_named(method: str, part: str, change: Any, words: str, tmp_path: Path) -> None:
    stored, _ = packed(tmp_path, *BOTH[method], **SHAPE)
    tensors = load_file(stored / "model.safetensors")
    found = tensors.pop(f"{NAME}.{part}")
    if change is not None:
        tensors[f"{NAME}.{part}"] = change(found).contiguous()
    save_file(tensors, stored / "model.safetensors")
    with Weights(Checkpoint.open(stored)) as weights, pytest.raises(ModelError, match=words) as caught:
        weights.linear(NAME, 256, 384)
    assert str(stored) in caught.value.message


def test_config_and_integers_must_agree(tmp_path: Path) -> None:
    stored, _ = packed(tmp_path, *INT4["gptq"], **SHAPE)
    path = stored / "config.json"
    bits = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": bits}))
    with Weights(Checkpoint.open(stored)) as weights, pytest.raises(ModelError, match=r"is int4, but config\.json"):
        weights.linear(NAME, 256, 384)
    with pytest.raises(ModelError, match="quantised as int4 already and cannot become nf4"):
        Checkpoint.open(packed(tmp_path / "b", *INT4["gptq"], **SHAPE)[0]).kept("nf4")
