"""Checkpoints of other packages' 4-bit integers and 8-bit floats: run as stored, or refused by what they have."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from specchat.engine.cpu.description.buffers import PassBuffers
from specchat.engine.cpu.primitives.records import PRODUCT
from specchat.engine.errors import ForeignModel, ModelError
from specchat.engine.formats.fp8 import dequantise_floats
from specchat.engine.formats.layout import FourBit
from specchat.engine.formats.quantise import code_table, dequantised, fused, owned
from specchat.engine.formats.scale_tables import by_exponents, by_table
from specchat.engine.loading import load
from specchat.engine.memory.devices import Machine, place
from specchat.engine.memory.host_need import buffers
from specchat.engine.memory.need import Model
from specchat.engine.memory.plan import plan
from specchat.engine.protocol.options import Limits, Speculation
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.reference.tensors import slabs
from specchat.engine.runners.host import host_model
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.matrices import reordered
from specchat.engine.weights.weights import Weights
from specchat.models.about import about_folder
from specchat.models.fit import _model
from specchat.models.machine import FreeMemory
from tests.engine.packed import (
    Pack,
    act_ordered,
    awq,
    awq_gemv,
    compressed,
    compressed_shifted,
    floats,
    gptq,
    gptq_shifted,
    microscaled,
    microscaled_twice,
    packed,
)
from tests.engine.test_lossless import SAMPLINGS, finished, reply
from tests.engine.tiny import FAMILIES, checkpoint, on_cpu

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
OF_AWQ = {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True, "version": "gemm"}
OF_GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": False, "sym": False}
OF_AUTO_ROUND = {"quant_method": "auto-round", "bits": 4, "group_size": 32, "sym": False}
SHIFTED: dict[str, tuple[Pack, dict[str, Any]]] = {
    "awq": (awq(64), OF_AWQ),
    "awq, gemv": (awq_gemv(64), OF_AWQ | {"version": "gemv"}),
    "awq, gemv, 32": (awq_gemv(32), OF_AWQ | {"version": "gemv", "group_size": 32}),
    "awq, gemv, 128": (awq_gemv(128), OF_AWQ | {"version": "GEMV", "group_size": 128}),
    "awq of auto-round": (awq(32), OF_AUTO_ROUND | {"packing_format": "auto_round:auto_awq"}),
    "gptq, zero points": (gptq_shifted(64, 1), OF_GPTQ | {"desc_act": True, "static_groups": True}),
    "gptq v2, zero points": (gptq_shifted(64, 0), OF_GPTQ | {"checkpoint_format": "gptq_v2"}),
    "compressed-tensors, zero points": (
        compressed_shifted(128),
        of_compressed(group_size=128, strategy="group", symmetric=False),
    ),
}
OF_ORDER = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True}
ORDERED: dict[str, tuple[Pack, dict[str, Any]]] = {
    "gptq, act order": (act_ordered(gptq(32), 32), OF_ORDER),
    "gptq, act order, zero points": (act_ordered(gptq_shifted(64, 1), 64), OF_ORDER | OF_GPTQ | {"desc_act": True}),
    "compressed-tensors, act order": (
        act_ordered(compressed(128), 128, "weight_g_idx"),
        of_compressed(group_size=128, strategy="group", actorder="group"),
    ),
}
INT4 |= SHIFTED | ORDERED
FP8: dict[str, tuple[Pack, dict[str, Any]]] = {
    "fp8": (floats("square", "_scale_inv"), {"quant_method": "fp8", "weight_block_size": [128, 128]}),
    "fp8 of one scale": (floats("whole", "_scale_inv"), {"quant_method": "fp8"}),
    "compressed-tensors": (floats("row", "_scale"), of_compressed(type="float", num_bits=8)),
    "modelopt": (floats("whole", "_scale"), {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]}),
}
FP4: dict[str, tuple[Pack, dict[str, Any]]] = {
    "compressed-tensors, mxfp4": (
        microscaled,
        of_compressed(type="float", strategy="group", group_size=32) | {"format": "mxfp4-pack-quantized"},
    ),
    "compressed-tensors, nvfp4": (
        microscaled_twice(divided=True),
        of_compressed(type="float", strategy="tensor_group", group_size=16) | {"format": "nvfp4-pack-quantized"},
    ),
    "modelopt, nvfp4": (
        microscaled_twice(divided=False),
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]},
    ),
}
BOTH = INT4 | FP8 | FP4


@pytest.mark.rotated(3)
@pytest.mark.parametrize("method", BOTH)
def test_a_packed_checkpoint_is_the_model_that_it_stands_for(method: str, tmp_path: Path) -> None:
    stored, truth = packed(tmp_path, *BOTH[method], **SHAPE)
    opened, text = Checkpoint.open(stored), list(range(3, 40))
    quant = "int4" if method in INT4 else "fp4" if method in FP4 else None
    assert opened.quant == quant
    assert about_folder(stored, "m").quant == (method[-5:] if method in FP4 else quant or "fp8")
    # Other packings of the same kind of weights differ in the values that are read alone.
    run = method not in ("auto-round", "gptq v2", *SHIFTED, *ORDERED) or method in ("awq", *list(ORDERED)[:2])
    expected = ReferenceDecoder(Checkpoint.open(truth)).forward(text, 0) if run else None
    for model in (host_model(opened), ReferenceDecoder(opened)) if run else ():
        torch.testing.assert_close(model.forward(text, 0), expected, rtol=2e-4, atol=2e-4)
    with Weights(opened) as weights, Weights(Checkpoint.open(truth)) as whole:
        found, wanted = (one.linear(NAME, 256, 384) for one in (weights, whole))
        assert isinstance(found, FourBit) == (quant is not None)
        assert isinstance(wanted, torch.Tensor)
        assert torch.equal(dequantised(found, torch.float32), wanted)
        assert torch.equal(weights.get(f"{NAME}.weight", 256, 384), wanted)


MX, NV, MODELOPT = FP4
UNFIT, NO_NUMBERS = "do not make a matrix of 256x384", "has scales that are no numbers"


@pytest.mark.parametrize(
    ("method", "part", "damaged", "words"),
    [
        (MX, "weight_packed", lambda stored: stored[:, :-1], UNFIT),
        (MX, "weight_packed", lambda stored: stored[0], UNFIT),
        (MX, "weight_scale", lambda stored: stored[:-1], UNFIT),
        (MX, "weight_scale", lambda stored: stored | 255, NO_NUMBERS),
        (NV, "weight_packed", lambda stored: stored[:, :-1], UNFIT),
        (NV, "weight_scale", lambda stored: stored.view(torch.uint8), UNFIT),
        (NV, "weight_scale", lambda stored: stored[0], UNFIT),
        (NV, "weight_scale", lambda stored: (stored.view(torch.uint8) | 255).view(stored.dtype), NO_NUMBERS),
        (NV, "weight_global_scale", lambda stored: stored.repeat(2), UNFIT),
        (NV, "weight_global_scale", lambda stored: stored.half(), UNFIT),
        (NV, "weight_global_scale", lambda stored: stored * 0, NO_NUMBERS),
        (NV, "weight_global_scale", lambda stored: stored * torch.nan, "no numbers|NaN"),
        (MODELOPT, "weight_scale_2", lambda stored: stored * 1e38 * 100, NO_NUMBERS),
    ],
)
def test_damaged_fp4_is_told_by_its_matrix(method: str, part: str, damaged: Any, words: str, tmp_path: Path) -> None:
    stored, _ = packed(tmp_path, *FP4[method], **SHAPE)
    tensors = load_file(stored / "model.safetensors")
    tensors[f"{NAME}.{part}"] = damaged(tensors[f"{NAME}.{part}"]).contiguous()
    save_file(tensors, stored / "model.safetensors", metadata={"format": "pt"})
    with Weights(Checkpoint.open(stored)) as weights, pytest.raises(ModelError, match=words) as caught:
        weights.linear(NAME, 256, 384)
    assert NAME in caught.value.message


def test_words_of_a_header_cannot_steer_a_terminal(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m")
    opened, file = Checkpoint.open(folder), folder / "model.safetensors"
    before = file.read_bytes()
    end = 8 + int.from_bytes(before[:8], "little")
    header = before[8:end].replace(b'"F32"', b'"\\u001b[7"')
    file.write_bytes(len(header).to_bytes(8, "little") + header + before[end:])
    for read in (Weights, lambda _: Checkpoint.open(folder)):
        with pytest.raises(ModelError, match="unknown variant") as caught:
            read(opened)
        assert caught.value.message.isprintable()


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


def test_floats_of_16_are_those_of_compressed_tensors() -> None:
    module = pytest.importorskip("compressed_tensors.compressors.nvfp4.base", reason="not installed")
    quantization = pytest.importorskip("compressed_tensors.quantization", reason="not installed")
    matrix = torch.randn(48, 128, generator=torch.Generator().manual_seed(1))
    parts, truth = microscaled_twice(divided=True)("m", matrix)
    weights = quantization.QuantizationArgs(num_bits=4, type="float", strategy="tensor_group", group_size=16)
    scheme = quantization.QuantizationScheme(targets=["Linear"], weights=weights)
    stored = {name.removeprefix("m."): one for name, one in parts.items()}
    found = module.NVFP4PackedCompressor.decompress(stored, scheme)["weight"]
    assert torch.equal(found, truth.to(found.dtype))


@pytest.mark.parametrize("method", ["compressed-tensors, 32", "awq of auto-round", *[*FP4][:2]])
def test_experts_are_packed_each_for_itself(method: str, tmp_path: Path) -> None:
    more = {"hidden_size": 128, "moe_intermediate_size": 64, "num_hidden_layers": 2}
    stored, truth = packed(tmp_path, *BOTH[method], **FAMILIES["qwen3_moe"] | more)
    made, expected = (host_model(Checkpoint.open(one)).forward(list(range(3, 20)), 0) for one in (stored, truth))
    torch.testing.assert_close(made, expected, rtol=2e-4, atol=2e-4)


def test_matrices_that_awq_left_dense_and_biases_are_read(tmp_path: Path) -> None:
    left = ("layers.1.self_attn.q_proj", "layers.0.mlp")
    of = OF_AWQ | {"modules_to_not_convert": ["lm_head", *left]}
    stored, truth = packed(tmp_path, awq(64), of, left, attention_bias=True, tie_word_embeddings=False, **SHAPE)
    models = [host_model(Checkpoint.open(one), 64) for one in (stored, truth)]
    made, expected = (model.forward(list(range(3, 20)), 0) for model in models)
    torch.testing.assert_close(made, expected, rtol=2e-4, atol=2e-4)
    spec = PairSpec("p", "P", on_cpu(stored))
    need = place(spec, Checkpoint.open(stored), None, 64, Machine("no GPU", None), 1).plan.need("cpu")
    assert need.weights + need.cache == pytest.approx(models[0].memory(), rel=0.001)
    listed = about_folder(stored, "m")
    assert plan(_model(spec, spec.target, listed, FreeMemory(None, None, threads=1)), None, 64).need("cpu") == need


def test_zero_points_follow_their_rows() -> None:
    made = torch.Generator().manual_seed(1)
    scales = torch.randint(1, 3, (4, 2), generator=made).float()
    octets = torch.randint(256, (4, 32), generator=made, dtype=torch.uint8)
    plain = FourBit(octets, scales, code_table("int4"), 32)
    shifted = replace(plain, zeros=torch.randint(-8, 9, (4, 2), generator=made, dtype=torch.int8))
    dense = torch.cat([dequantised(one, torch.float32) for one in (plain, shifted)])
    order = [7, 0, 5, 2, 1]
    whole = fused([plain, shifted])
    assert isinstance(whole, FourBit)
    for weight in (whole, by_exponents(whole)):
        assert torch.equal(dequantised(weight, torch.float32), dense)
        assert torch.equal(dequantised(reordered(weight, order), torch.float32), dense[order])
        assert torch.equal(torch.cat(list(slabs(owned(weight), 128))), dense)


@pytest.mark.parametrize("alike", [True, False])
def test_scales_of_a_table_follow_their_rows_in_bytes_where_all_have_the_same_table(alike: bool) -> None:
    made = torch.Generator().manual_seed(1)

    def tabled(table: torch.Tensor) -> FourBit:
        octets, scales = (torch.randint(256, (3, n), generator=made, dtype=torch.uint8) for n in (32, 4))
        return by_table(FourBit(octets, scales, code_table("fp4"), 16), scales, table)

    tables = torch.rand(2, 256, generator=made)
    parts, order = [tabled(tables[0]), tabled(tables[0 if alike else 1])], [5, 0, 3, 2, 1]
    dense = torch.cat([dequantised(one, torch.float32) for one in parts])
    for found, rows in ((fused(parts), dense), (reordered(fused(parts), order), dense[order])):
        assert isinstance(found, FourBit)
        assert found.scales.dtype == (torch.uint8 if alike else torch.float32)
        assert torch.equal(dequantised(found, torch.float32), rows)


@pytest.mark.rotated(2)
@pytest.mark.parametrize("method", ["gptq, act order, zero points", "fp8", *[*FP4][:2]])
def test_every_strategy_writes_what_plain_writes(method: str, tmp_path: Path) -> None:
    stored, _ = packed(tmp_path, *BOTH[method], **SHAPE)
    session = load(PairSpec("p", "P", on_cpu(stored), on_cpu(stored)), lambda _: None)
    for sampling in SAMPLINGS.values():
        plain, *others = (
            finished(reply(session, "abcab", sampling, Limits(24), Speculation.of(name))).token_ids
            for name in ("plain", "draft", "lookup", "early-exit", "ngram")
        )
        assert all(other == plain for other in others)


@pytest.mark.parametrize("method", ["compressed-tensors, 32", "gptq, act order", "awq", *[*FP4][:2]])
def test_the_plan_holds_what_is_read(method: str, tmp_path: Path) -> None:
    stored, _ = packed(tmp_path, *BOTH[method], **SHAPE)
    opened = Checkpoint.open(stored)
    held = host_model(opened, 64).memory()
    model = Model(opened.config, "cpu", opened.quant, opened.format, threads=1)
    need = plan(model, None, 64).need("cpu")
    assert held <= need.total
    assert need.weights + need.cache == pytest.approx(held, rel=0.001)


def test_the_plan_holds_rows_in_the_order_of_weights(tmp_path: Path) -> None:
    config = Checkpoint.open(checkpoint(tmp_path / "m", **SHAPE)).config
    table = np.zeros(4, PRODUCT)
    table["panels"], table["inputs"] = 1, [256, 256, 256, 384]
    held: list[int] = []
    for order in (0, 1):
        table["order"] = order
        held.append(PassBuffers(config, table, 1, 64).own.nbytes - buffers(config, 1, 1, 64, bool(order)))
    assert held[0] == held[1]


@pytest.mark.parametrize(
    ("settings", "method"),
    [
        ({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"}, "gptq"),
        ({"quant_method": "gptq", "bits": 8}, "gptq"),
        (OF_AWQ | {"version": "gemv_fast"}, "awq"),
        (OF_AUTO_ROUND | {"packing_format": "auto_round:auto_awq", "bits": 3}, "auto-round"),
        (OF_AUTO_ROUND, "auto-round"),
        (of_compressed(num_bits=8), "compressed-tensors"),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, "compressed-tensors"),
        ({"quant_method": "fp8", "weight_block_size": [64, 64]}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}, "modelopt W4A8_AWQ"),
        ({"quant_method": "modelopt"}, "modelopt"),
        (of_compressed(type="float", group_size=[16]) | {"format": "nvfp4-pack-quantized"}, "compressed-tensors"),
    ],
)
def test_what_is_not_read_goes_by_transformers(settings: dict[str, Any], method: str, tmp_path: Path) -> None:
    stored, _ = packed(tmp_path, gptq(64), settings, **SHAPE)
    with pytest.raises(ForeignModel, match=f"quantised with {method}, and specchat's decoder runs"):
        Checkpoint.open(stored)
    about = about_folder(stored, "m")
    assert (about.config, bool(about.foreign)) == (None, "modelopt" not in method)
    assert about.foreign or f"quantised with {method}, which neither" in about.why_not


def test_the_quantisation_may_stand_with_the_text_part(tmp_path: Path) -> None:
    stored, _ = packed(tmp_path, *INT4["gptq, zero points"], ("proj",), **FAMILIES["gemma3"])
    expected = Checkpoint.open(stored)
    settings = json.loads((stored / "config.json").read_text())
    (stored / "config.json").write_text(json.dumps({"model_type": "gemma3", "text_config": settings}))
    opened = Checkpoint.open(stored)
    assert opened.format == expected.format is not None


@pytest.mark.parametrize(
    ("family", "more"),
    [
        ("qwen2_moe", {"moe_intermediate_size": 64, "shared_expert_intermediate_size": 96}),
        ("gemma3", {}),
        ("gemma4_e", {"hidden_size_per_layer_input": 32}),
        ("qwen3_5", {"linear_num_value_heads": 8}),
    ],
)
def test_any_product_has_inputs_in_another_order(family: str, more: dict[str, Any], tmp_path: Path) -> None:
    changes = FAMILIES[family] | {"hidden_size": 64, "intermediate_size": 96} | more
    stored, truth = packed(tmp_path, *INT4["gptq, act order"], ("shared_expert_gate",), **changes)
    text, opened = list(range(3, 20)), Checkpoint.open(stored)
    expected = ReferenceDecoder(Checkpoint.open(truth)).forward(text, 0)
    model = host_model(opened)
    # One row alone has each of its experts alone.
    made = [model.forward(text, 0), model.forward(text[-1:], 16)]
    torch.testing.assert_close(made[0], expected, rtol=2e-4, atol=2e-4)
    assert torch.equal(made[1], made[0][-1:])
    torch.testing.assert_close(ReferenceDecoder(opened).forward(text, 0), expected, rtol=2e-4, atol=2e-4)


def test_matrices_of_unlike_orders_become_dense() -> None:
    made = torch.Generator().manual_seed(1)
    octets = torch.randint(256, (4, 32), generator=made, dtype=torch.uint8)
    one, other = (
        FourBit(octets, torch.ones(4, 2), code_table("int4"), 32, order=torch.randperm(64, generator=made).int())
        for _ in range(2)
    )
    dense = [dequantised(each, torch.float32) for each in (one, other, one)]
    assert not torch.equal(dense[0], dense[1])
    for parts in ([one, other], [one, replace(one, order=None)], [one, one]):
        whole = fused(parts)
        assert isinstance(whole, FourBit) == (parts[1] is one)
        expected = torch.cat([dequantised(each, torch.float32) for each in parts])
        assert torch.equal(dequantised(whole, torch.float32), expected)
    moved = owned(reordered(one, [3, 1]))
    assert torch.equal(torch.cat(list(slabs(moved, 64))), dense[0][[3, 1]])


@pytest.mark.parametrize(
    ("method", "part", "change", "words"),
    [
        ("gptq", "qzeros", lambda x: x + 1, r"zero points in qzeros, and by config\.json there are none"),
        ("awq", "qzeros", None, "qzeros is missing"),
        ("awq", "qzeros", lambda x: x[:5], r"\[5, 32\] in qzeros, which are not those of 6 groups of 256 outputs"),
        ("awq", "qzeros", lambda x: x.float(), "zero points torch.float32"),
        ("awq", "qweight", lambda x: x.view(48, 256), "do not make 256 outputs of 384 inputs"),
        ("awq, gemv", "qzeros", lambda x: x[:, :1], r"\[256, 1\] in qzeros, which are not those of 6 groups"),
        ("awq, gemv", "scales", lambda x: x[:, :8], "do not make 256 outputs of 384 inputs"),
        ("awq, gemv", "qweight", lambda x: x.t(), "do not make 256 outputs of 384 inputs"),
        ("gptq, zero points", "qweight", lambda x: x.view(384, 32), "do not make 256 outputs of 384 inputs"),
        ("gptq, zero points", "qzeros", lambda x: x.t(), "which are not those of 6 groups"),
        ("compressed-tensors, zero points", "weight_zero_point", lambda x: x[1:], "which are not those of 3 groups"),
        ("compressed-tensors, 32", "weight_zero_point", torch.tensor(0), "zero points in weight_zero_point, and by"),
        ("gptq", "g_idx", lambda x: x.flip(0), r"another order of its inputs in g_idx, of which config\.json"),
        ("gptq, act order", "g_idx", lambda x: x.clamp(min=1), "in g_idx that are not 12 of 32 each"),
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
    found = tensors.pop(f"{NAME}.{part}", None)
    if isinstance(change, torch.Tensor):
        tensors[f"{NAME}.{part}"] = change
    elif change is not None:
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
