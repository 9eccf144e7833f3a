"""Families that differ from Llama in more than a norm or a bias, on the device: every feature of a recipe."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from specchat.engine.device.decoder import DeviceDecoder, RowOptions
from specchat.engine.device.model import DeviceModel
from specchat.engine.device.rehearsal import blank
from specchat.engine.device.skips import SkipFlags
from specchat.engine.device.weights import held_bytes, load
from specchat.engine.errors import ModelError
from specchat.engine.formats import by_quant
from specchat.engine.formats.layout import FourBit, values_of
from specchat.engine.heads.target import Embedding
from specchat.engine.heads.tensors import HeadTensors
from specchat.engine.kernels import gpu_shapes
from specchat.engine.kernels.processors import processors
from specchat.engine.memory.gpu_need import unsupported, verifying
from specchat.engine.memory.need import Model, need
from specchat.engine.memory.plan import GPU_RUNTIME, plan
from specchat.engine.model.passes import Skip
from specchat.engine.protocol.options import Sampling
from specchat.engine.protocol.pair import Quant
from specchat.engine.recipe import Attention, Delta, Experts, Gated, Layer, ShortConv
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.runners.device import device_runner
from specchat.engine.runners.host import host_model
from specchat.engine.strategies import STRATEGIES
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.config import parse_config
from specchat.engine.weights.weights import Weights
from tests.device.conftest import CONTEXT, DEVICE, ON_GPU, SHAPE, decoder
from tests.device.test_decoder import SLACK, assert_nodes_are_the_ends_of_their_paths, ids, run
from tests.device.test_decoding import write
from tests.engine.test_bad_models import edit
from tests.engine.test_decoder import reference
from tests.engine.tiny import FAMILIES, FAMILY, MORE, VOCAB, checkpoint, config, perturbed
from tests.families.test_details import WRONG
from tests.families.test_longrope import LONG
from tests.gpu_net.sanitiser import sanitised


def changes(family: str, layers: int = SHAPE["num_hidden_layers"]) -> dict[str, Any]:
    """A small model of a family, whose second layer differs from the first if any does.

    Where layers share KV entries there are two that do, of both kinds.
    """
    layers = max(layers, 4 if "num_kv_shared_layers" in FAMILIES[family] else 0)
    found = {**FAMILIES[family], "num_key_value_heads": 1}
    kinds = {key: found[key][:layers] for key in ("no_rope_layers", "layer_types", "layer_rope_theta") if key in found}
    return SHAPE | found | kinds | {"num_hidden_layers": layers}


BEFORE, ROWS = 9, 12
"""Tokens before those whose logits are compared: queries that grow do so from position 16 on."""
RUN = [family for family in MORE if not unsupported(parse_config(Path(), config(**FAMILIES[family])))]
"""Families that the kernels take."""
PLAIN = "gemma2", "cohere2", "deepseek_v3", "hunyuan"
"""Families with a feature of their own: a cap on scores, parallel halves, latents, late norms."""
FEW = "gemma4_moe", "gemma4_e", "gpt_oss", "qwen3_next"
"""Families with most features between them."""
BRIEF = (
    *FEW,
    "muse",
    "lfm2",
    "granite",
    "glm4",
    "smollm3",
    "olmo3",
    "phi3",
    "glm4_moe",
    "ministral3",
    "granitemoehybrid",
    *PLAIN,
)
"""Families that have every feature of the others between them."""
MIXED = (*FEW, "muse", "lfm2", "glm4_moe", "deepseek_v3", "granitemoehybrid")
"""Families in which one row could learn of another by each way that there is."""


def whole(families: tuple[str, ...]) -> list[Any]:
    """All families as parameters; those beside some are slow."""
    return [pytest.param(one, marks=() if one in families else pytest.mark.slow) for one in RUN]


@pytest.fixture(scope="module", params=whole(FEW))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp(request.param) / "m", seed=3, **changes(request.param))


@pytest.fixture(scope="module", params=whole(MIXED))
def each(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp(request.param) / "m", seed=3, **changes(request.param))


@pytest.mark.rotated(3)
def test_rows_and_nodes_are_alone(each: Path) -> None:
    model, tokens = decoder(each), ids(8)
    alone = torch.cat([run(model, [t], i) for i, t in enumerate(tokens)])
    entries = [[part[:, :8].clone() for part in pair] for pair in model.entries]
    for start, rows in ((0, 5), (2, 6)):
        assert torch.equal(run(model, tokens[start : start + rows], start), alone[start : start + rows])
    model.forward(torch.tensor(tokens * 4, device=DEVICE).int(), torch.zeros(1, dtype=torch.int32, device=DEVICE), 32)
    for before, after in zip(entries, model.entries, strict=True):
        assert all(torch.equal(a, b[:, :8]) for a, b in zip(before, after, strict=True))
    assert_nodes_are_the_ends_of_their_paths(model, 59)


def test_skipping_is_the_hosts_skipping(folder: Path) -> None:
    """Either half of a layer, or both of one: a factor at its end is then left out too."""
    found, tokens = Checkpoint.open(folder), ids(6)
    flags, model, host = SkipFlags(found.config.recipe, DEVICE), decoder(folder), host_model(found)
    for attention, mlp in (({1}, {0}), ({0, 1}, {1}), ({0}, {0})):
        skip = Skip(frozenset(attention), frozenset(mlp))
        flags.set(skip)
        theirs = host.logits(host.forward(tokens, 0, skip))
        torch.testing.assert_close(run(model, tokens, 0, flags), theirs, atol=2 * SLACK, rtol=SLACK)


def test_heads_are_given_what_the_layers_and_the_head_have(folder: Path) -> None:
    """States, embeddings, the last norm and the head by themselves, as on the host."""
    tokens = ids(6)
    runner = device_runner(decoder(folder), None, VOCAB, DEVICE)
    ours, theirs = runner.target.model, host_model(Checkpoint.open(folder))
    assert isinstance(ours, DeviceModel)
    for model in (ours, theirs):
        model.record_states(range(model.config.layers + 1))
    ours.write(tokens, 0)
    logits = theirs.logits(theirs.forward(tokens, 0)).clone()
    last = ours.config.layers
    for layer in range(last + 1):
        expected = theirs.states(layer, 0, 6)
        torch.testing.assert_close(ours.states(layer, 0, 6).cpu(), expected, atol=SLACK, rtol=SLACK)
    embedded = ours.embed(tokens).cpu()
    torch.testing.assert_close(embedded, theirs.states(0, 0, 6), atol=SLACK, rtol=SLACK)
    normed = ours.final_norm(ours.states(last, 0, 6))
    torch.testing.assert_close(normed.cpu(), theirs.final_norm(theirs.states(last, 0, 6)), atol=SLACK, rtol=SLACK)
    torch.testing.assert_close(ours.project(normed).cpu(), logits, atol=2 * SLACK, rtol=SLACK)
    torch.testing.assert_close(ours.next_logits(tokens[5], 5), logits[5, :VOCAB], atol=2 * SLACK, rtol=SLACK)


def test_heads_that_want_rows_of_the_table_get_them_without_the_norm(tmp_path: Path) -> None:
    folder, tokens = checkpoint(tmp_path / "m", seed=3, **changes("muse")), ids(6)
    table = load_file(folder / "model.safetensors")["model.embed_tokens.weight"][tokens]
    ours = device_runner(decoder(folder), None, VOCAB, DEVICE).target.model
    opened = Checkpoint.open(folder)
    for model in (ours, host_model(opened), ReferenceDecoder(opened)):
        assert torch.equal(model.embed(tokens, normed=False).cpu(), table)
        assert torch.equal(Embedding(Weights(opened), HeadTensors(), model, model.config.hidden)(tokens).cpu(), table)
        assert not torch.allclose(model.embed(tokens).cpu(), table, atol=0.1)


def launched(layer: Layer, apart: int) -> int:
    """Launches of a layer, with activations apart or not: Llama's nine, or those of a mixture in place of two.

    A product of gates of a recurrent layer takes one more, a short convolution two fewer. Heads of latents take one to
    be put together, and two for each latent: its norm and its product.
    """
    feed, mixer, of_gated = layer.feed, layer.mixer, 2 + (apart or bool(layer.feed and layer.gated.ungated))
    of_mixer = 7 + (isinstance(mixer, Delta) and mixer.gates is not None) - 2 * isinstance(mixer, ShortConv)
    if isinstance(mixer, Attention) and mixer.latent:
        of_mixer += 1 + 2 * len(mixer.latent.products)
    if not isinstance(feed, Experts):
        return of_mixer + of_gated if feed else of_mixer - 1
    beside = 0 if feed.joined else of_gated * bool(feed.shared) + bool(feed.shared_gate)
    return of_mixer + 2 + of_gated + beside


@pytest.mark.skipif(ON_GPU, reason="launches are counted where they are interpreted")
@pytest.mark.parametrize("apart", [0, pytest.param(1, marks=pytest.mark.slow)], ids=["within", "activations apart"])
def test_a_pass_launches_no_more_than_llamas(folder: Path, apart: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for those of mixtures. An activation is part of the product of its gates where whole sums cost little.

    Inputs of layers take three launches to make, and four in each layer.
    """
    if apart:
        monkeypatch.setattr(gpu_shapes, "ACTIVATED", 0)
    model = decoder(folder)
    with sanitised() as found:
        run(model, ids(3), 0)
    layers, own = model.config.recipe.layers, model.program.inputs is not None
    expected = sum(launched(layer, apart) for layer in layers) + 4 * own * len(layers)
    assert sum(found.launches.values()) == expected + 3 + 3 * own
    assert not found.faults


@pytest.mark.rotated(2, 1)
def test_chains_and_trees_write_what_plain_writes(folder: Path, tmp_path: Path) -> None:
    """Some of each are rejected; every reply rewinds what the one before has written."""
    draft = decoder(perturbed(tmp_path / "draft", folder, 0.05))
    runner, sampling = device_runner(decoder(folder), draft, VOCAB, DEVICE), Sampling(seed=7, temperature=0.9)
    plain = write(runner, "plain", 0, sampling, tokens=5)
    for strategy in ("draft", "draft-tree"):
        assert write(runner, strategy, 3, sampling, tokens=5) == plain, strategy


def of_two(family: str) -> dict[str, Any]:
    """As `changes`, but for LFM2, whose second convolution is in the third layer."""
    return changes(family, layers=3 if family == "lfm2" else 2)


def last(model: DeviceDecoder, tokens: list[int]) -> Tensor:
    run(model, tokens[:BEFORE], 0)
    return run(model, tokens[BEFORE:], BEFORE)


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Checkpoint, Tensor]]:
    """A family's checkpoint and its logits, which are transformers'."""

    @cache
    def made(family: str) -> tuple[Checkpoint, Tensor]:
        folder = checkpoint(tmp_path_factory.mktemp(family) / "m", seed=5, **of_two(family))
        theirs = reference(folder, ids(BEFORE + ROWS))[BEFORE:]
        torch.testing.assert_close(last(decoder(folder), ids(BEFORE + ROWS)), theirs, atol=SLACK, rtol=SLACK)
        return Checkpoint.open(folder), theirs

    return made


@pytest.mark.rotated(4)
@pytest.mark.parametrize("wrong", [wrong for wrong, (family, _) in WRONG.items() if family in (*FAMILY, *BRIEF)])
def test_a_wrong_detail_shows(wrong: str, right: Callable[[str], tuple[Checkpoint, Tensor]]) -> None:
    """In a layer with another after it: the last norm takes back a factor at the end."""
    family, change = WRONG[wrong]
    plain = parse_config(Path(), config(**of_two(family)))
    if reason := unsupported(plain) or unsupported(replace(plain, recipe=change(plain.recipe))):
        pytest.skip(reason)
    found, theirs = right(family)
    wrong_one = replace(found.config, recipe=change(found.config.recipe))
    changed = replace(found, config=wrong_one)
    model = DeviceDecoder(wrong_one, load(changed, None, DEVICE, torch.float32), CONTEXT, DEVICE, torch.float32)
    assert (last(model, ids(BEFORE + ROWS)) - theirs).abs().max() > 5 * SLACK


@pytest.mark.parametrize(("context", "length"), [(64, 10), (65, 70)], ids=["short", "long"])
def test_longrope_is_that_of_the_context(context: int, length: int, tmp_path: Path) -> None:
    """The cache has more positions than the context, which alone says which factors there are."""
    folder, tokens = checkpoint(tmp_path / "m", seed=3, **changes("phi3") | LONG | {"hidden_size": 64}), ids(length)
    found = Checkpoint.open(folder)
    model = DeviceDecoder(found.config, load(found, None, DEVICE, torch.float32), context, DEVICE, torch.float32)
    fed, start = torch.tensor(tokens, dtype=torch.int32, device=DEVICE), length - 8
    model.forward(fed, torch.zeros(1, dtype=torch.int32, device=DEVICE), start)
    torch.testing.assert_close(
        run(model, tokens[start:], start), reference(folder, tokens)[start:], atol=SLACK, rtol=SLACK
    )


def test_rows_in_another_order_are_planned_without_nested_scales(tmp_path: Path) -> None:
    """Where a checkpoint stores them quantised; those that are quantised as they are loaded keep theirs."""
    pytest.importorskip("bitsandbytes")
    from tests.engine.bnb import quantised_in_place

    folder = checkpoint(
        tmp_path / "m", **changes("glm4") | {"hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 8}
    )
    for fixed in (False, True):
        found = Checkpoint.open(quantised_in_place(folder, "nf4") if fixed else folder)
        weights = load(found, "nf4", DEVICE, torch.bfloat16)
        qkv = weights.products[found.config.recipe.layers[0].mixer.qkv].weight
        assert isinstance(qkv, FourBit)
        assert (qkv.nested is None) == fixed
        model = Model(found.config, "cuda", "nf4", by_quant("nf4") if fixed else None)
        planned = plan(model, None, CONTEXT, processors(DEVICE)).need("cuda")
        assert planned.weights == pytest.approx(held_bytes(weights), rel=0.012)


def test_experts_of_padding_are_not_read(tmp_path: Path) -> None:
    """Rows after the last that counts: the others have the bits that they have alone."""
    model, tokens = decoder(checkpoint(tmp_path / "m", seed=3, **changes("qwen2_moe"))), ids(8)
    alone = torch.cat([run(model, [token], place) for place, token in enumerate(tokens[:3])])
    fed, last = torch.tensor(tokens, device=DEVICE).int(), torch.tensor([2], dtype=torch.int32, device=DEVICE)
    model.forward(fed, torch.zeros(1, dtype=torch.int32, device=DEVICE), 8, options=RowOptions(last))
    assert torch.equal(model.logits(0, 8)[:3].cpu(), alone)
    (pairs,) = model.buffers.pairs.values()
    assert 2 <= int(pairs.used) <= 5
    assert int(pairs.ends[int(pairs.used) - 1]) == 3 * pairs.top


@pytest.mark.parametrize("shared", [1, 2])
def test_experts_without_gates(shared: int, tmp_path: Path) -> None:
    """On all executors, beside a shared MLP that is one more expert or has another width."""
    folder = checkpoint(tmp_path / "m", seed=3, **changes("glm4_moe") | {"n_shared_experts": shared})
    opened, tokens = Checkpoint.open(folder), ids(7)

    def alone(of: Gated) -> Gated:
        return replace(of, gate_up=of.gate_up.only(1, 2), activation="relu2", ungated=True)

    def changed(one: Layer) -> Layer:
        of = one.feed
        assert isinstance(of, Gated) or of.shared
        each = alone(of) if isinstance(of, Gated) else replace(of, each=alone(of.each), shared=alone(of.shared))
        return replace(one, feed=each)

    recipe = replace(opened.config.recipe, layers=tuple(map(changed, opened.config.recipe.layers)))
    assert bool(recipe.joined()) == (shared == 1)
    found = replace(opened, config=replace(opened.config, recipe=recipe))
    device = DeviceDecoder(found.config, load(found, None, DEVICE, torch.float32), CONTEXT, DEVICE, torch.float32)
    theirs = ReferenceDecoder(found)
    expected = theirs.logits(theirs.forward(tokens, 0)).clone()
    host = host_model(found)
    torch.testing.assert_close(host.logits(host.forward(tokens, 0)), expected, atol=SLACK, rtol=SLACK)
    torch.testing.assert_close(run(device, tokens, 0), expected, atol=SLACK, rtol=SLACK)


@pytest.mark.parametrize("quant", ["nf4", "int8"])
@pytest.mark.parametrize(("hidden", "nested"), [(256, True), (64, False)])
def test_quantised_experts_are_the_hosts_and_planned(quant: Quant, hidden: int, nested: bool, tmp_path: Path) -> None:
    """With scales that are quantised themselves, where those of each expert's matrices fill their blocks."""
    shape = {"hidden_size": hidden, "intermediate_size": 64, "moe_intermediate_size": 64, "mlp_only_layers": [1]}
    folder, tokens = checkpoint(tmp_path / "m", seed=3, **changes("qwen3_moe") | shape), ids(6)
    theirs = ReferenceDecoder(Checkpoint.open(folder), quant=quant)
    model = decoder(folder, quant=quant)
    expected = theirs.logits(theirs.forward(tokens, 0))
    torch.testing.assert_close(run(model, tokens, 0), expected, atol=2 * SLACK, rtol=SLACK)
    experts = [one.weight for matrix, one in model.weights.products.items() if "{}" in matrix.names[0]]
    assert all(isinstance(one, FourBit) and (one.nested is not None) == nested for one in experts) or quant == "int8"
    planned = plan(Model(model.config, "cuda", quant), None, CONTEXT).need("cuda").weights
    small = decoder(folder, torch.float16, quant).weights
    four = [one.weight for one in small.products.values() if isinstance(one.weight, FourBit)]
    tables = sum(16 + 256 * (weight.nested is not None) for weight in four)
    assert planned == held_bytes(small) - 4 * tables


def test_a_stack_of_other_experts_is_refused(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", **FAMILIES["gemma4_moe"])
    edit(folder, num_experts=4)
    with pytest.raises(ModelError, match=r"gate_up_proj holds 5 experts, config.json asks for 4"):
        decoder(folder)


def test_layers_of_unlike_shapes(tmp_path: Path) -> None:
    """Other heads, widths and biases in one layer: each has its own part of buffers and caches, as was planned."""
    folder = checkpoint(tmp_path / "m", **SHAPE | {"num_hidden_layers": 3})
    found, weights = Checkpoint.open(folder), load_file(folder / "model.safetensors")
    first, layer, last = found.config.recipe.layers
    mixer, feed = layer.mixer, layer.feed
    assert mixer.rope is not None
    qkv = replace(mixer.qkv, outputs=(3 * 32, 32, 32), bias=True)
    other = replace(
        layer,
        mixer=replace(
            mixer, heads=3, kv_heads=1, head_dim=32, scale=0.2, qkv=qkv, out=replace(mixer.out, inputs=96),
            rope=replace(mixer.rope, width=32),
        ),
        feed=replace(feed, gate_up=replace(feed.gate_up, outputs=(96, 96)), down=replace(feed.down, inputs=96)),
    )  # fmt: skip
    generator = torch.Generator().manual_seed(1)
    for matrix in other.products:
        for name, outputs in matrix.parts:
            drawn = torch.randn(outputs, matrix.inputs + 1, generator=generator) / matrix.inputs**0.5
            weights[f"{name}.weight"] = drawn[:, 1:].contiguous()
            if matrix.bias:
                weights[f"{name}.bias"] = drawn[:, 0].contiguous()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    mixed = replace(found.config, recipe=replace(found.config.recipe, layers=(first, other, last)))
    assert not unsupported(mixed)
    changed, tokens = replace(found, config=mixed), ids(7)
    model = DeviceDecoder(mixed, load(changed, None, DEVICE, torch.float32), CONTEXT, DEVICE, torch.float32)
    host = host_model(changed)
    mine = run(model, tokens, 0)
    torch.testing.assert_close(mine, host.logits(host.forward(tokens, 0)), atol=SLACK, rtol=SLACK)
    assert torch.equal(mine, torch.cat([run(model, [token], place) for place, token in enumerate(tokens)]))
    assert_nodes_are_the_ends_of_their_paths(model, 5)
    assert [tuple(keys.shape) for keys, _ in model.entries] == [(1, 192, 16), (1, 192, 32), (1, 192, 16)]
    half = DeviceDecoder(mixed, load(changed, None, DEVICE, torch.float16), CONTEXT, DEVICE, torch.float16)
    planned = plan(Model(mixed, "cuda"), None, CONTEXT, processors(DEVICE)).need("cuda")
    taken = half.memory() + GPU_RUNTIME + verifying(mixed)
    assert planned.total == pytest.approx(taken, abs=0.01 * half.memory())
    many = replace(mixed, recipe=replace(mixed.recipe, layers=(*(first,) * 6, other, last)))
    rehearsed = blank(DeviceDecoder(many, half.weights, CONTEXT, DEVICE, torch.float16)).config.recipe.layers
    assert [one.mixer.heads for one in rehearsed] == [2] * max(one.layers for one in STRATEGIES.values()) + [3]


def test_rows_that_take_turns_are_planned_in_four_bits(tmp_path: Path) -> None:
    """Whose nested scales are dequantised when queries and gates are put in turns."""
    wide = {"hidden_size": 256, "intermediate_size": 256, "head_dim": 64}
    opened = Checkpoint.open(checkpoint(tmp_path / "m", seed=3, **changes("muse") | wide))
    weights = load(opened, "nf4", DEVICE, torch.float16)
    qkv = weights.products[opened.config.recipe.layers[0].mixer.qkv].weight
    assert isinstance(qkv, FourBit)
    assert qkv.nested is None
    planned = need(Model(opened.config, "cuda", "nf4"), CONTEXT).weights
    ones = [norm for layer in opened.config.recipe.layers for norm in layer.norms if not norm.name]
    shared = 4 * (sum(norm.size for norm in ones) - sum(norm.size for norm in set(ones)))
    four = [one.weight for one in weights.products.values() if isinstance(one.weight, FourBit)]
    tables = sum(16 + 256 * (weight.nested is not None) for weight in four)
    assert planned == held_bytes(weights) - 4 * tables + shared


@pytest.mark.parametrize(
    ("family", "forms"),
    [
        *(("gemma4", 2), ("gemma4_e", 3), ("gemma4_moe", 2), ("ministral3", 1), ("qwen3_moe", 1), ("qwen2_moe", 1)),
        *(("glm4_moe", 1), ("apertus", 1), ("nemotron", 1), ("starcoder2", 1)),
        ("lfm2", 2),
    ],
)
def test_all_that_a_family_holds_is_planned(family: str, forms: int, tmp_path: Path) -> None:
    """To the byte, but for ones that layers share; a rehearsal has a layer of each form."""
    needed = max(one.layers for one in STRATEGIES.values())
    # Where the last two layers share, the first one of the second kind has the entries.
    first = ["full_attention"] * (forms > 2)
    other = "conv" if family == "lfm2" else "sliding_attention"
    of = [*first, *[other] * (needed + 2 - len(first)), "full_attention"]
    kinds = {"layer_types": of} if forms > 1 else {}
    deep = changes(family) | kinds | {"num_hidden_layers": needed + 3}
    opened = Checkpoint.open(checkpoint(tmp_path / "m", seed=3, **deep))
    config, weights = opened.config, load(opened, None, DEVICE, torch.float16)
    model = DeviceDecoder(config, weights, CONTEXT, DEVICE, torch.float16)
    both = plan(Model(config, "cuda"), None, CONTEXT, processors(DEVICE))
    planned, tables = both.need("cuda"), [weights.rows, None if config.tied else values_of(weights.embed)]
    assert both.need("cpu").total == sum(one.nbytes for one in tables if one is not None)
    ones = [norm for layer in config.recipe.layers for norm in layer.norms if not norm.name]
    shared = 4 * (sum(norm.size for norm in ones) - sum(norm.size for norm in set(ones)))
    taken = model.memory() + GPU_RUNTIME + verifying(config)
    assert planned.total == taken + shared
    assert len(blank(model).config.recipe.layers) == needed + forms - 1
