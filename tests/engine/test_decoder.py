"""The native decoder against transformers, and its row invariance."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from specchat.engine.model import decoder as decoder_module
from specchat.engine.model import layers
from specchat.engine.model.checkpoint import Checkpoint
from specchat.engine.model.decoder import Decoder, Skip
from specchat.engine.model.layers import blocks, scripted
from specchat.engine.model.plan import context_of
from specchat.engine.model.rows import Half, HalfThreaded, fits_half, half_works, row_invariant
from tests.engine.tiny import FAMILY, VOCAB, checkpoint

pytestmark = pytest.mark.cpu


def tokens(count: int, seed: int = 0) -> list[int]:
    return torch.randint(0, VOCAB, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def reference(folder: Path, ids: list[int]) -> torch.Tensor:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0]


def whole(decoder: Decoder, ids: list[int]) -> torch.Tensor:
    return torch.cat([decoder.logits(decoder.forward(ids[i : i + 128], i)) for i in range(0, len(ids), 128)])


def one_by_one(decoder: Decoder, ids: list[int]) -> torch.Tensor:
    return torch.cat([decoder.logits(decoder.forward([token], i)) for i, token in enumerate(ids)])


@pytest.mark.parametrize("family", FAMILY)
def test_logits_equal_transformers(family: str, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", seed=3, **FAMILY[family])
    ids = tokens(200)
    mine, theirs = whole(Decoder(Checkpoint.open(folder)), ids), reference(folder, ids)
    assert theirs.std() > 0.3  # lively logits, or agreement would mean nothing
    torch.testing.assert_close(mine, theirs, atol=2e-4, rtol=1e-4)


LONGER = {
    "yarn": ({"factor": 4.0, "original_max_position_embeddings": 64}, 256, 256),
    "linear": ({"factor": 4.0}, 64, 256),
    "llama3": (FAMILY["llama-llama3"]["rope_scaling"], 64, 512),
}
"""Scalings of a model of 64 positions, what it holds by itself, and what where it is asked for."""


@pytest.mark.parametrize("kind", LONGER)
def test_scaled_positions_reach_beyond_the_original_ones_as_in_transformers(kind: str, tmp_path: Path) -> None:
    scaling, usual, longest = LONGER[kind]
    rope = scaling | {"rope_type": kind}
    folder = checkpoint(tmp_path / "m", seed=3, max_position_embeddings=64, rope_scaling=rope)
    found = Checkpoint.open(folder)
    assert (context_of(found.config, None), context_of(found.config, 9999)) == (usual, longest)
    decoder = Decoder(found, context_of(found.config, 200))
    ids = tokens(decoder.context)
    assert len(ids) == 200
    torch.testing.assert_close(whole(decoder, ids), reference(folder, ids), atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["stories260K", "stories260K-q8"])
def test_logits_equal_transformers_on_real_weights(name: str, shared_data: Path) -> None:
    folder = shared_data / "checkpoints" / name
    ids = [1, *(t + 3 for t in tokens(250) if t < 400)]
    torch.testing.assert_close(
        whole(Decoder(Checkpoint.open(folder)), ids), reference(folder, ids), atol=2e-4, rtol=1e-4
    )


def test_rope_parameters_of_transformers_5(tmp_path: Path) -> None:
    old = checkpoint(tmp_path / "old", **FAMILY["llama-llama3"])
    new = checkpoint(tmp_path / "new")
    config = json.loads((old / "config.json").read_text())
    config["rope_parameters"] = config.pop("rope_scaling") | {"rope_theta": config.pop("rope_theta")}
    (new / "config.json").write_text(json.dumps(config))
    ids = tokens(100)
    assert torch.equal(whole(Decoder(Checkpoint.open(old)), ids), whole(Decoder(Checkpoint.open(new)), ids))


@pytest.mark.parametrize(
    ("family", "threads"), [("llama", 1), ("llama-gqa-untied", 1), ("qwen2", 1), ("qwen3", 1), ("qwen2", 2)]
)
def test_a_row_does_not_depend_on_its_company(family: str, threads: int, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        decoder = Decoder(Checkpoint.open(checkpoint(tmp_path / "m", **FAMILY[family])))
        ids = tokens(200)
        alone = one_by_one(decoder, ids)
        for start in (0, 55, 63, 120, 180):
            for rows in range(1, 17):
                together = decoder.logits(decoder.forward(ids[start : start + rows], start))
                assert torch.equal(together, alone[start : start + rows]), (start, rows)
        # Prefill in big blocks leaves the very same keys and values.
        keys = torch.stack(decoder.cache.keys)[:, :, :200].clone()
        whole(decoder, ids)
        assert torch.equal(keys, torch.stack(decoder.cache.keys)[:, :, :200])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("inputs", [1536, 4864])
def test_long_inputs_are_row_invariant(inputs: int, tmp_path: Path) -> None:
    decoder = Decoder(Checkpoint.open(checkpoint(tmp_path / "m", intermediate_size=inputs, num_hidden_layers=1)))
    ids = tokens(16)
    alone = one_by_one(decoder, ids)
    assert torch.equal(decoder.logits(decoder.forward(ids, 0)), alone)


def test_skipping_nothing_is_the_model_and_skipping_something_is_not(tmp_path: Path) -> None:
    decoder = Decoder(Checkpoint.open(checkpoint(tmp_path / "m")))
    ids = tokens(20)
    full = whole(decoder, ids)
    for skip in (Skip(attention=frozenset({1})), Skip(mlp=frozenset({2}))):
        assert not torch.equal(decoder.logits(decoder.forward(ids, 0, skip)), full)
    assert torch.equal(whole(decoder, ids), full)


def test_the_context_is_a_limit(tmp_path: Path) -> None:
    decoder = Decoder(Checkpoint.open(checkpoint(tmp_path / "m")), context=10)
    decoder.forward(tokens(10), 0)
    with pytest.raises(ValueError, match="do not fit"):
        decoder.forward([1], 10)


@pytest.mark.parametrize("family", FAMILY)
def test_scripted_blocks_are_the_plain_ones_bit_for_bit(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = checkpoint(tmp_path, **FAMILY[family])
    fast = Decoder(Checkpoint.open(folder))
    monkeypatch.setattr(decoder_module, "scripted", lambda: None)
    plain = Decoder(Checkpoint.open(folder))
    assert plain._blocks is blocks
    skip = Skip(attention=frozenset({1}), mlp=frozenset({0}))
    # Across a boundary of the cache's blocks, in odd and even numbers of rows, whole and with sub-layers left out.
    start = 0
    for count, left_out in ((61, Skip()), (1, Skip()), (2, skip), (5, Skip()), (16, skip)):
        tokens = list(range(3, 3 + count))
        ours, theirs = (decoder.forward(tokens, start, left_out) for decoder in (fast, plain))
        assert torch.equal(ours, theirs), (count, left_out)
        start += count


def test_dense_products_are_scripted_here(tmp_path: Path) -> None:
    """Otherwise the test above compares plain Python with itself."""
    decoder = Decoder(Checkpoint.open(checkpoint(tmp_path)))
    if not decoder.arrangements() <= {"half", "packed"}:
        pytest.skip(f"on this processor products are arranged otherwise: {decoder.arrangements()}")
    assert decoder._blocks is scripted()


@pytest.mark.parametrize("error", [RuntimeError("no attribute _linear_pointwise"), OSError("Can't get source")])
def test_without_torchscript_a_pass_is_plain_python(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: object) -> None:
        raise error

    monkeypatch.setattr(layers, "_scripted", [])
    monkeypatch.setattr(torch.jit, "script", failing)
    assert scripted() is None


def test_checkpoints_of_16_bits_are_multiplied_in_16_bits_here(tmp_path: Path) -> None:
    """Random float32 weights are not representable, and the same rounded to bfloat16 are."""
    if not half_works():
        pytest.skip("FBGEMM is not here, or not row-invariant on this processor")
    folder = checkpoint(tmp_path, seed=4, **FAMILY["qwen2"])
    assert not any(name.startswith("half") for name in Decoder(Checkpoint.open(folder)).arrangements())
    tensors = {name: t.to(torch.bfloat16) for name, t in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors")
    half = Decoder(Checkpoint.open(folder))
    assert half.arrangements() == {"half"}
    assert half._blocks is scripted()
    ids = tokens(40)
    torch.testing.assert_close(whole(half, ids), reference(folder, ids), atol=1e-4, rtol=1e-4)
    together = half.forward(ids[:9], 40)
    alone = [half.forward([token], 40 + i) for i, token in enumerate(ids[:9])]
    assert torch.equal(together, torch.cat(alone))


@pytest.mark.parametrize(("value", "fits"), [(0.1, False), (0.09997558593750, True), (1e-7, True), (1e5, False)])
def test_what_float16_holds(value: float, fits: bool) -> None:
    assert fits_half(torch.tensor([[0.0, value]])) == fits


def test_products_shared_between_threads_are_row_invariant_too() -> None:
    if not half_works():
        pytest.skip("FBGEMM is not here, or not row-invariant on this processor")
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(1024, 640, generator=generator).half().float()
    bias, x = torch.randn(1024, generator=generator), torch.randn(128, 640, generator=generator)
    shared = HalfThreaded(weight, bias)
    assert row_invariant(shared, x)
    torch.testing.assert_close(shared(x), x @ weight.T + bias, atol=1e-3, rtol=1e-4)
    torch.testing.assert_close(Half(weight, bias)(x), x @ weight.T + bias, atol=1e-3, rtol=1e-4)
