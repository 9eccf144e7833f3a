"""Quantised weights: made, stored, joined and unpacked bit for bit as bitsandbytes does; row-invariant products."""

import json
from collections.abc import Callable
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from specchat.engine.errors import ModelError
from specchat.engine.formats.layout import EightBit, FourBit, Weight
from specchat.engine.formats.quantise import block_scales, code_table, dequantised, fused, owned, quantise
from specchat.engine.loading import load
from specchat.engine.protocol.events import Finished
from specchat.engine.protocol.options import Limits, Message, Sampling, Speculation
from specchat.engine.protocol.pair import QUANTS, PairSpec, Quant
from specchat.engine.protocol.requests import Generate
from specchat.engine.reference.tensors import CheckpointTensors, slabs
from specchat.engine.strategies import STRATEGIES
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.matrices import reordered
from specchat.engine.weights.weights import Weights
from tests.engine.tiny import checkpoint, on_cpu

functional = pytest.importorskip("bitsandbytes.functional")
from bitsandbytes.nn import Int8Params, Linear8bitLt  # noqa: E402

from tests.engine.bnb import bnb_checkpoint, four_bit, stored_tensors  # noqa: E402

pytestmark = pytest.mark.cpu

FOUR: tuple[Quant, ...] = ("nf4", "fp4")
NAME = "model.layers.0.mlp.down_proj"


def matrix(outputs: int, inputs: int, dtype: torch.dtype = torch.bfloat16, seed: int = 0) -> Tensor:
    return torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(seed)).to(dtype)


def same_bits(a: Tensor, b: Tensor) -> bool:
    whole = {4: torch.int32, 2: torch.int16}[a.element_size()]
    return a.dtype == b.dtype and torch.equal(a.contiguous().view(whole), b.contiguous().view(whole))


def same_values(a: Tensor, b: Tensor) -> bool:
    """The same bits but for the sign of a zero: FP4 has a second one, negative for bitsandbytes' scalar code alone."""
    return same_bits(a + 0.0, b + 0.0)


@pytest.mark.parametrize("quant", FOUR)
def test_the_code_tables_are_bitsandbytes_own(quant: Quant) -> None:
    assert same_bits(code_table(quant), functional.get_4bit_type(quant, device="cpu"))


@pytest.mark.parametrize("nested", [True, False])
def test_rows_in_another_order_keep_their_values(nested: bool) -> None:
    order = torch.randperm(24, generator=torch.Generator().manual_seed(1)).tolist()
    dense = matrix(24, 128, torch.float32)
    for weight in (four_bit(dense, "nf4", nested, 64)[0], quantise(dense, "int8"), dense):
        expected = dequantised(weight, torch.float32) if not isinstance(weight, Tensor) else weight
        found = reordered(weight, order)
        assert torch.equal(
            dequantised(found, torch.float32) if not isinstance(found, Tensor) else found, expected[order]
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("block", [64, 32])
@pytest.mark.parametrize("quant", FOUR)
def test_unpacked_weights_have_the_bits_of_bitsandbytes(
    quant: Quant, block: int, nested: bool, dtype: torch.dtype
) -> None:
    weight, truth = four_bit(matrix(70, 192, dtype), quant, nested, block)
    assert same_values(dequantised(weight, dtype), truth)


@pytest.mark.parametrize("quant", FOUR)
def test_bitsandbytes_unpacks_to_the_same_values_on_every_processor(quant: Quant) -> None:
    """Its vectors of AVX-512 hold 16 values: rows of 8 take the scalar code that other processors take."""
    weight, _ = four_bit(matrix(70, 192), quant, nested=False, block=64)
    assert (weight.packed & 15 == 8).any(), "no second zero"
    truth = torch.ops.bitsandbytes.dequantize_4bit(
        weight.packed.flatten(), weight.scales.flatten(), 64, quant, (70 * 192 // 8, 8), torch.float32
    )
    assert same_values(dequantised(weight, torch.float32), truth.view(70, 192))


@pytest.mark.parametrize("quant", FOUR)
def test_quantising_gives_what_bitsandbytes_stores(quant: Quant) -> None:
    dense = matrix(48, 256)
    weight = quantise(dense, quant)
    assert isinstance(weight, FourBit)
    assert weight.block == 64
    stored = stored_tensors("x", dense, quant)
    assert torch.equal(weight.packed.flatten(), stored["x.weight"].flatten())
    assert torch.equal(weight.scales.flatten(), stored["x.weight.absmax"])
    assert weight.nested is not None
    assert torch.equal(weight.nested.absmax, stored["x.weight.nested_absmax"])


def test_quantising_to_int8_gives_what_bitsandbytes_stores() -> None:
    dense = matrix(48, 100)
    weight = quantise(dense, "int8")
    assert isinstance(weight, EightBit)
    stored = stored_tensors("x", dense, "int8")
    assert torch.equal(weight.values, stored["x.weight"])
    assert torch.equal(weight.scales, stored["x.SCB"] / 127)
    truth = functional.int8_vectorwise_dequant(stored["x.weight"], stored["x.SCB"])
    torch.testing.assert_close(dequantised(weight, torch.float32), truth, rtol=1e-6, atol=0)


def unpacked_by_bitsandbytes(packed: Tensor, state: Any) -> Tensor:
    """Its own unpacking, of all blocks in one row. With the rows as they are, its code for AVX-512 (0.50.2) starts a
    block anew with every row and so takes the scale of another."""
    shape, state.shape = state.shape, torch.Size([1, prod(state.shape)])
    return functional.dequantize_4bit(packed, state).view(shape)  # type: ignore[no-any-return]


ACROSS = [(5, 352), (64, 96), (48, 100), (7, 13), (3, 32)]
"""Blocks of 64 that go on from row to row; the last may be shorter, and in one matrix a byte is half empty."""


@pytest.mark.parametrize("shape", ACROSS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("quant", FOUR)
def test_blocks_go_on_from_row_to_row_as_bitsandbytes_makes_them(
    quant: Quant, dtype: torch.dtype, shape: tuple[int, int]
) -> None:
    dense = matrix(*shape, dtype)
    packed, state = functional.quantize_4bit(dense, blocksize=64, compress_statistics=True, quant_type=quant)
    weight = quantise(dense, quant)
    assert isinstance(weight, Tensor)
    assert same_values(weight, unpacked_by_bitsandbytes(packed, state))


@pytest.mark.parametrize(
    ("inputs", "block", "nested"),
    [(112, 64, True), (112, 64, False), (96, 128, True), (128, 128, False), (112, 32, True)],
)
@pytest.mark.parametrize("quant", FOUR)
def test_a_stored_matrix_of_any_blocks_loads_as_it_is(
    quant: Quant, inputs: int, block: int, nested: bool, tmp_path: Path
) -> None:
    folder = bnb_checkpoint(tmp_path, quant, inputs, nested=nested, block=block)
    stored = load_file(folder / "model.safetensors")
    state = functional.QuantState.from_dict(
        {k.removeprefix(NAME + "."): v for k, v in stored.items() if k.startswith(f"{NAME}.weight.")},
        torch.device("cpu"),
    )
    with Weights(Checkpoint.open(folder)) as weights:
        weight = weights.linear(NAME, 64, inputs)
    assert isinstance(weight, Tensor)
    assert same_values(weight, unpacked_by_bitsandbytes(stored[f"{NAME}.weight"], state))


@pytest.mark.parametrize("quant", FOUR)
def test_a_checkpoint_of_such_matrices_answers_as_its_unpacked_weights_do(quant: Quant, tmp_path: Path) -> None:
    """And what bitsandbytes left dense, or what is dense here, is not quantised once more."""
    stored = bnb_checkpoint(tmp_path / "stored", quant, 112)
    quantised_here = checkpoint(tmp_path / "dense", intermediate_size=112, num_key_value_heads=2)
    unpacked = checkpoint(tmp_path / "unpacked", intermediate_size=112, num_key_value_heads=2)
    tensors = load_file(unpacked / "model.safetensors")
    for name, tensor in tensors.items():
        if name.endswith("_proj.weight"):
            packed, state = functional.quantize_4bit(tensor, blocksize=64, compress_statistics=True, quant_type=quant)
            tensors[name] = unpacked_by_bitsandbytes(packed, state)
    save_file(tensors, unpacked / "model.safetensors")
    asked = Generate(1, (Message("user", "abcabcabc"),), Sampling(temperature=0.7, seed=3), Limits(40))
    written = []
    for folder, quant_asked in ((stored, None), (quantised_here, quant), (unpacked, None)):
        session = load(PairSpec("q", "Q", replace(on_cpu(folder), quant=quant_asked)), lambda _: None)
        *_, last = session.generate(asked)
        assert isinstance(last, Finished)
        written.append(last.token_ids)
    assert written[0] == written[1] == written[2]


def test_what_a_quantised_checkpoint_left_dense_stays_dense(tmp_path: Path) -> None:
    folder = bnb_checkpoint(tmp_path, "nf4")
    tensors = load_file(folder / "model.safetensors")
    dense = load_file(
        checkpoint(tmp_path / "dense", intermediate_size=128, num_key_value_heads=2) / "model.safetensors"
    )
    for name in [name for name in tensors if name.startswith(NAME)]:
        del tensors[name]
    tensors[f"{NAME}.weight"] = dense[f"{NAME}.weight"]
    save_file(tensors, folder / "model.safetensors")
    opened = Checkpoint.open(folder)
    kept, x = CheckpointTensors(opened, "nf4"), matrix(1, 128, torch.float32, seed=1)
    for layer, stays in enumerate((True, False)):
        of = opened.config.recipe.layers[layer].feed.down
        found = kept.product(x, of) - x @ dense[f"{of.names[0]}.weight"].T
        assert bool(found.abs().max() < 1e-4) is stays


def test_bitsandbytes_rounds_activations_to_int8_too_and_we_do_not() -> None:
    """The weights are the same (see above); what is multiplied with them is not."""
    dense, x = matrix(48, 128, torch.float32), matrix(4, 128, torch.float32, seed=1)
    layer = Linear8bitLt(128, 48, bias=False, has_fp16_weights=False).eval()
    layer.weight = Int8Params(dense.clone(), requires_grad=False).to("cpu")
    unpacked = dequantised(quantise(dense, "int8"), torch.float32)
    theirs, ours = layer(x), x @ unpacked.T
    values, largest, _ = functional.int8_vectorwise_quant(x.half())
    rounded = values.float() * largest[:, None] / 127
    assert (theirs - rounded @ unpacked.T).abs().max() < 0.01
    assert 0.02 < (theirs - ours).abs().max() < 1.0


@pytest.mark.parametrize("quant", QUANTS)
def test_joined_parts_unpack_to_their_parts(quant: Quant) -> None:
    parts: list[Weight] = [quantise(matrix(n, 256, seed=n), quant) for n in (128, 64, 32)]
    whole = fused(parts)
    assert type(whole) is type(parts[0])
    if isinstance(whole, FourBit):
        assert whole.nested is not None  # 64 rows of 4 blocks fill the blocks of the scales
    assert same_bits(dequantised(whole, torch.float32), torch.cat([dequantised(p, torch.float32) for p in parts]))


def test_parts_whose_scales_do_not_fill_their_blocks_are_joined_without_nesting() -> None:
    parts: list[Weight] = [quantise(matrix(n, 64, seed=n), "nf4") for n in (48, 16)]
    whole = fused(parts)
    assert isinstance(whole, FourBit)
    assert whole.nested is None
    assert same_bits(dequantised(whole, torch.float32), torch.cat([dequantised(p, torch.float32) for p in parts]))


def test_parts_that_are_nested_differently_are_joined() -> None:
    plain, truth = four_bit(matrix(64, 256), "fp4", False, 64)
    nested = quantise(matrix(64, 256, seed=1), "fp4")
    whole = fused([plain, nested])
    assert isinstance(whole, FourBit)
    assert same_values(dequantised(whole, torch.bfloat16), torch.cat([truth, dequantised(nested, torch.bfloat16)]))


def test_a_dense_part_makes_the_whole_dense() -> None:
    dense, other = matrix(64, 64), quantise(matrix(32, 64), "int8")
    whole = fused([dense, other])
    assert isinstance(whole, Tensor)
    assert same_bits(whole, torch.cat([dense, dequantised(other, torch.bfloat16)]))


@pytest.mark.parametrize("storage", [torch.uint8, torch.bfloat16])
@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("block", [64, 32])
@pytest.mark.parametrize("quant", FOUR)
def test_a_stored_matrix_loads_as_it_is(
    quant: Quant, block: int, nested: bool, storage: torch.dtype, tmp_path: Path
) -> None:
    folder = bnb_checkpoint(tmp_path, quant, nested=nested, block=block, storage=storage)
    stored = load_file(folder / "model.safetensors")
    state = functional.QuantState.from_dict(
        {k.removeprefix(NAME + "."): v for k, v in stored.items() if k.startswith(f"{NAME}.weight.")},
        torch.device("cpu"),
    )
    truth = functional.dequantize_4bit(stored[f"{NAME}.weight"].view(torch.uint8), state)
    with Weights(Checkpoint.open(folder)) as weights:
        weight = weights.linear(NAME, 64, 128)
    assert isinstance(weight, FourBit)
    assert (weight.nested is not None) == nested
    assert same_values(dequantised(weight, torch.float32), truth)


def test_a_stored_int8_matrix_loads_as_it_is(tmp_path: Path) -> None:
    folder = bnb_checkpoint(tmp_path, "int8")
    stored = load_file(folder / "model.safetensors")
    with Weights(Checkpoint.open(folder)) as weights:
        weight = weights.linear(NAME, 64, 128)
    assert isinstance(weight, EightBit)
    assert torch.equal(weight.values, stored[f"{NAME}.weight"])
    assert torch.equal(weight.scales, stored[f"{NAME}.SCB"] / 127)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_dense_matrix_keeps_its_dtype(dtype: torch.dtype, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path)
    tensors = {k: v.to(dtype) for k, v in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors")
    with Weights(Checkpoint.open(folder)) as weights:
        weight = weights.linear(NAME, 64, 112)
        assert isinstance(weight, Tensor)
        assert same_bits(weight, tensors[f"{NAME}.weight"])
        assert weights.get(f"{NAME}.weight", 64, 112).dtype == torch.float32


def settings_changed(**changes: object) -> Callable[[dict[str, Tensor]], None]:
    def spoil(tensors: dict[str, Tensor]) -> None:
        name = f"{NAME}.weight.quant_state.bitsandbytes__nf4"
        settings = json.loads(bytes(tensors[name].tolist())) | changes
        tensors[name] = torch.tensor(list(json.dumps(settings).encode()), dtype=torch.uint8)

    return spoil


def part_changed(part: str, change: Callable[[Tensor], Tensor]) -> Callable[[dict[str, Tensor]], None]:
    def spoil(tensors: dict[str, Tensor]) -> None:
        tensors[f"{NAME}.{part}"] = change(tensors[f"{NAME}.{part}"])

    return spoil


def part_missing(part: str) -> Callable[[dict[str, Tensor]], object]:
    return lambda tensors: tensors.pop(f"{NAME}.{part}")


DAMAGED: dict[str, tuple[Quant, Callable[[dict[str, Tensor]], object], str]] = {
    "shape": ("nf4", settings_changed(shape=[64, 64]), "has shape [64, 64], not [64, 128]"),
    "kind": ("nf4", settings_changed(quant_type="fp4"), "has quant_type fp4, not nf4"),
    "block": ("nf4", settings_changed(blocksize=48), "has blocks of 48, which bitsandbytes does not make"),
    "block is a list": ("nf4", settings_changed(blocksize=[64]), "blocksize is [64], not a positive"),
    "nested block": ("nf4", settings_changed(nested_blocksize=64), "has nested_blocksize 64, not 256"),
    "offset": ("nf4", settings_changed(nested_offset=None), "has no nested_offset"),
    "no JSON": (
        "nf4",
        part_changed("weight.quant_state.bitsandbytes__nf4", lambda t: t[:-1]),
        "quant_state.bitsandbytes__nf4 cannot be read as JSON",
    ),
    "no object": (
        "nf4",
        part_changed("weight.quant_state.bitsandbytes__nf4", lambda t: t[:1] * 0 + ord("1")),
        "does not hold a JSON object",
    ),
    "long offset": ("nf4", settings_changed(nested_offset=10**400), "not a number"),
    "scales without numbers": (
        "int8",
        part_changed("SCB", lambda t: t * float("nan")),
        "SCB holds values that are no numbers",
    ),
    "bytes": ("nf4", part_changed("weight", lambda t: t[:-1]), "has 4095 values, not 4096"),
    "scales": ("nf4", part_changed("weight.absmax", lambda t: t[:-1]), "absmax has 127 values, not 128"),
    "scales' dtype": ("nf4", part_changed("weight.absmax", lambda t: t.int()), "absmax is torch.int32"),
    "table": ("nf4", part_changed("weight.quant_map", lambda t: t.flip(0)), "quant_map is not the table of nf4"),
    "table's size": ("nf4", part_changed("weight.quant_map", lambda t: t[:8]), "quant_map has 8 values, not 16"),
    "no nested scales": ("nf4", part_missing("weight.nested_absmax"), "weight.nested_absmax is missing"),
    "no table": ("nf4", part_missing("weight.quant_map"), "weight.quant_map is missing"),
    "no settings": (
        "nf4",
        part_missing("weight.quant_state.bitsandbytes__nf4"),
        "is torch.uint8, quantised in a way that specchat does not know",
    ),
    "int8 shape": ("int8", part_changed("weight", lambda t: t[:, 1:].contiguous()), "has shape [64, 127]"),
    "int8 scales": ("int8", part_changed("SCB", lambda t: t[1:]), "SCB has 63 values, not 64"),
    "int8 without scales": ("int8", part_missing("SCB"), "is torch.int8, quantised in a way"),
    "int8 layout": ("int8", part_changed("weight_format", lambda t: t + 2), "laid out for one kind of GPU"),
    "float8": ("int8", part_changed("weight", lambda t: t.to(torch.float8_e4m3fn)), "holds 8-bit floats"),
    "no weight": ("nf4", part_missing("weight"), "weight is missing from the weights"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_matrix_is_refused_in_a_sentence(case: str, tmp_path: Path) -> None:
    quant, spoil, words = DAMAGED[case]
    folder = bnb_checkpoint(tmp_path, quant)
    tensors = load_file(folder / "model.safetensors")
    spoil(tensors)
    save_file({k: v.contiguous() for k, v in tensors.items()}, folder / "model.safetensors")
    with Weights(Checkpoint.open(folder)) as weights, pytest.raises(ModelError) as caught:
        weights.linear(NAME, 64, 128)
    assert words in caught.value.message
    assert str(tmp_path) in caught.value.message
    assert NAME in caught.value.message


def with_config(folder: Path, settings: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": settings}))
    return folder


@pytest.mark.parametrize(
    ("settings", "method"),
    [
        ({"quant_method": "gptq", "bits": 3}, "gptq"),
        ({"quant_method": "awq"}, "awq"),
        ({"quant_method": "fbgemm_fp8"}, "fbgemm_fp8"),
        ({"load_in_4bit": True, "bnb_4bit_quant_type": "nf5"}, "bitsandbytes nf5"),
        ("gptq", "gptq"),
    ],
)
def test_other_methods_are_refused_by_name(settings: object, method: str, tmp_path: Path) -> None:
    folder = with_config(checkpoint(tmp_path), settings)
    with pytest.raises(ModelError, match=f"quantised with {method}, and specchat's decoder runs"):
        Checkpoint.open(folder)


def test_config_and_weights_must_agree(tmp_path: Path) -> None:
    folder = with_config(bnb_checkpoint(tmp_path, "nf4"), {"quant_method": "bitsandbytes", "load_in_8bit": True})
    with (
        Weights(Checkpoint.open(folder)) as weights,
        pytest.raises(ModelError, match=r"is nf4, but config\.json says int8"),
    ):
        weights.linear(NAME, 64, 128)


def test_what_is_asked_for_and_what_is_stored_must_agree(tmp_path: Path) -> None:
    dense, stored = checkpoint(tmp_path / "dense"), bnb_checkpoint(tmp_path / "nf4", "nf4")
    assert (Checkpoint.open(dense).quant, Checkpoint.open(stored).quant) == (None, "nf4")
    assert [Checkpoint.open(dense).kept(asked) for asked in (None, "none", "int8")] == [None, None, "int8"]
    assert [Checkpoint.open(stored).kept(asked) for asked in (None, "none", "nf4")] == ["nf4"] * 3
    with pytest.raises(ModelError, match=r"is quantised as nf4 already and cannot become int8\. Leave quant out"):
        Checkpoint.open(stored).kept("int8")


@pytest.mark.parametrize("quant", QUANTS)
def test_every_strategy_writes_what_plain_writes_with_quantised_weights(quant: Quant, tmp_path: Path) -> None:
    stored = bnb_checkpoint(tmp_path / "target", quant)
    dense = checkpoint(tmp_path / "draft", intermediate_size=128, num_key_value_heads=2)
    target, draft = on_cpu(stored), replace(on_cpu(dense), quant=quant)
    session = load(PairSpec("q", "Q", target, replace(draft, activations="float32")), lambda _: None)
    asked = Generate(1, (Message("user", "abcabcabc"),), Sampling(temperature=0.7, seed=3), Limits(40))
    written = {
        strategy: next(e for e in session.generate(replace(asked, speculation=Speculation.of(strategy))) if over(e))
        for strategy in (name for name, info in STRATEGIES.items() if not info.needs_head)
    }
    assert {event.token_ids for event in written.values()} == {written["plain"].token_ids}
    # The draft was quantised from the weights that bitsandbytes had quantised for the target.
    assert written["draft"].stats.tested_acceptance_rate == 1.0


def over(event: object) -> bool:
    return isinstance(event, Finished)


@pytest.mark.parametrize("quant", QUANTS)
def test_slabs_are_the_unpacked_matrix(quant: Quant) -> None:
    """Of two slabs, whose scales were nested in blocks that go on from one to the other."""
    weight = quantise(matrix(1500, 704), quant)
    made = list(slabs(owned(weight)))
    assert len(made) == 2
    assert same_bits(torch.cat(made), dequantised(weight, torch.float32))


@pytest.mark.parametrize("quant", [None, *QUANTS])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_weights_are_kept_in_the_bytes_they_are_stored_in(
    quant: Quant | None, dtype: torch.dtype, tmp_path: Path
) -> None:
    folder = checkpoint(tmp_path, hidden_size=128, intermediate_size=256)
    tensors = {name: one.to(dtype) for name, one in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors")
    opened = Checkpoint.open(folder)
    bytes_each = {None: dtype.itemsize, "nf4": 0.5625, "fp4": 0.5625, "int8": 1.0}[quant]
    layers, recipe = sum(one.parameters for one in opened.config.recipe.matrices), opened.config.recipe
    norms = 4 * (recipe.parameters - layers - recipe.embed.parameters)
    rows = 4 * sum(sum(one.outputs) for one in recipe.matrices) if quant == "int8" else 0
    codes = 4 * 16 * len([*recipe.matrices]) if quant in ("nf4", "fp4") else 0
    expected = bytes_each * layers + rows + codes + norms + dtype.itemsize * recipe.embed.parameters
    kept = CheckpointTensors(opened, quant)
    assert kept.memory() == expected
    x = matrix(1, 128, torch.float32, seed=1)
    of = recipe.layers[1].mixer.qkv
    whole = torch.cat([tensors[f"{name}.weight"] for name in of.names]).double()
    near = {None: 1e-4, "int8": 0.05}.get(quant, 1.5)
    torch.testing.assert_close(kept.product(x, of).double(), x.double() @ whole.T, atol=near, rtol=0.0)


def test_nested_scales_are_read_as_bitsandbytes_reads_them() -> None:
    weight = quantise(matrix(64, 256), "nf4")
    assert isinstance(weight, FourBit)
    assert weight.nested is not None
    state = functional.QuantState(
        absmax=weight.nested.absmax, code=weight.nested.code, blocksize=256, dtype=torch.float32
    )
    truth = functional.dequantize_blockwise(weight.scales.flatten(), state) + weight.nested.offset[0]
    assert same_bits(block_scales(weight).flatten(), truth)
