"""The device's decoder against transformers and the host's."""

from pathlib import Path

import pytest
import torch

from specchat.engine.device.decoder import Branches, DeviceDecoder
from specchat.engine.device.skips import SkipFlags
from specchat.engine.device.weights import held_bytes
from specchat.engine.formats.layout import EightBit
from specchat.engine.formats.quantise import dequantised
from specchat.engine.kernels import gpu_shapes
from specchat.engine.kernels.processors import processors
from specchat.engine.memory.need import Model, quantised
from specchat.engine.memory.plan import GPU_RUNTIME, plan
from specchat.engine.model.passes import Skip
from specchat.engine.protocol.pair import Quant
from specchat.engine.runners.device import device_runner
from specchat.engine.weights.checkpoint import Checkpoint
from tests.device.conftest import CONTEXT, DEVICE, SHAPE, Folders, decoder
from tests.engine.test_decoder import reference
from tests.engine.tiny import FAMILY, VOCAB, checkpoint

SLACK = 1e-3


def ids(count: int, seed: int = 0) -> list[int]:
    return torch.randint(0, VOCAB, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def run(model: DeviceDecoder, tokens: list[int], start: int, flags: SkipFlags | None = None) -> torch.Tensor:
    """Logits of up to 16 tokens written from slot `start` on."""
    fed = torch.tensor(tokens, dtype=torch.int32, device=DEVICE)
    model.forward(fed, torch.tensor([start], dtype=torch.int32, device=DEVICE), len(tokens), flags)
    return model.logits(0, len(tokens))[: len(tokens)].cpu().clone()


@pytest.mark.parametrize("family", ["llama", "llama-bias", "llama-yarn", "qwen2", "qwen3"])
def test_logits_equal_transformers(family: str, tmp_path: Path) -> None:
    changes = SHAPE | FAMILY[family] | {"num_hidden_layers": 1}
    folder = checkpoint(tmp_path / "m", seed=3, **changes)
    tokens = ids(7)
    mine, theirs = run(decoder(folder), tokens, 0), reference(folder, tokens)
    assert theirs.std() > 0.3
    torch.testing.assert_close(mine, theirs, atol=SLACK, rtol=SLACK)


def test_an_activation_may_be_apart_from_its_product(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = ids(7)
    within = decoder(folders.target)
    monkeypatch.setattr(gpu_shapes, "ACTIVATED", 0)
    apart = decoder(folders.target)
    sums = [model.buffers.layers[0]["feed"]["gates and values"].numel() for model in (within, apart)]
    assert sums[0] == 0 < sums[1]
    torch.testing.assert_close(run(within, tokens, 0), run(apart, tokens, 0), atol=SLACK, rtol=SLACK)


def test_a_row_does_not_depend_on_its_company(folders: Folders) -> None:
    model = decoder(folders.target)
    tokens = ids(20)
    alone = torch.cat([run(model, [t], i) for i, t in enumerate(tokens)])
    for start, rows in ((0, 2), (0, 5), (0, 16), (3, 7), (4, 16)):
        assert torch.equal(run(model, tokens[start : start + rows], start), alone[start : start + rows])


def test_partial_sums_of_the_rows_in_a_pass_are_added_and_no_others(folders: Folders) -> None:
    """A row's share of the head's sums is vocab * 4 bytes a split: sixteen of them are 25 MB a pass on an H100."""
    model = decoder(folders.target)
    expected = run(model, ids(3), 0)
    partials = model.buffers.logits
    model.buffers.logits = torch.full((2, *partials.shape[1:]), 7.0, device=DEVICE)
    model.buffers.logits[1] = 1.0

    def multiply(_: object, __: object, ___: object, out: torch.Tensor, rows: int) -> None:
        out[0, :rows], out[1, :rows] = partials[0, :rows] - 1, 1.0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("specchat.engine.device.decoder.multiply", multiply)
        found = model.logits(0, 3)
    torch.testing.assert_close(found[:3].cpu(), expected)
    assert (found[3:] == 7).all()


def numbers(*values: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype, device=DEVICE)


@pytest.mark.parametrize("start", [5, 59])
def test_a_node_of_a_tree_is_the_end_of_its_path(folders: Folders, start: int) -> None:
    """Also across a block of keys; in one pass, and where the tree grows by one level a pass."""
    assert_nodes_are_the_ends_of_their_paths(decoder(folders.target), start)


def assert_nodes_are_the_ends_of_their_paths(model: DeviceDecoder, start: int) -> None:
    model.forward(numbers(*ids(start)), numbers(0), start)
    assert_nodes_end_their_paths_after(model, start)


def assert_nodes_end_their_paths_after(model: DeviceDecoder, start: int) -> None:
    """After a text of `start` tokens that the caches hold."""
    tokens = ids(8, seed=1)
    paths = [[0], [0, 1], [0, 2], [0, 1, 3], [0, 2, 4], [0, 2, 5], [0, 1, 3, 6], [0, 2, 5, 7]]
    # Depth first: what is before a node in the caches is its path.
    ends = {path[-1]: run(model, [tokens[path[-1]]], start + len(path) - 1)[0] for path in sorted(paths)}
    alone = [ends[node] for node in range(8)]
    length, depth = numbers(start), [len(path) - 1 for path in paths]
    bits = numbers(*(sum(1 << node for node in path) for path in paths), dtype=torch.int64)

    model.forward(numbers(*tokens), length, 8, tree=Branches(length, numbers(*depth), bits))
    assert torch.equal(model.logits(0, 8)[:8].cpu(), torch.stack(alone))

    def nodes() -> list[torch.Tensor]:
        return [k[:, [(start + node) % k.shape[1] for node in range(8)]] for k, _ in model.entries]

    together = nodes()

    for first, end in ((0, 1), (1, 3), (3, 6), (6, 8)):
        rows = end - first
        tree = Branches(length, numbers(*(d - first for d in depth[first:end])), bits[first:end].clone())
        model.forward(numbers(*tokens[first:end]), length + first, rows, tree=tree)
        assert torch.equal(model.logits(0, rows)[:rows].cpu(), torch.stack(alone[first:end]))
    assert all(torch.equal(a, b) for a, b in zip(together, nodes(), strict=True))


def test_a_pass_of_prefill_leaves_what_single_rows_leave(folders: Folders) -> None:
    model = decoder(folders.target)
    tokens = ids(20)
    for i, token in enumerate(tokens):
        run(model, [token], i)
    keys = [k[:, :20].clone() for k, _ in model.entries]
    fed = torch.zeros(64, dtype=torch.int32, device=DEVICE)
    fed[:20] = torch.tensor(tokens)
    model.forward(fed, torch.zeros(1, dtype=torch.int32, device=DEVICE), 64)
    assert all(torch.equal(a, b[:, :20]) for a, (b, _) in zip(keys, model.entries, strict=True))


def test_a_skip_set_is_copied_to_the_device_where_it_changes(folders: Folders) -> None:
    flags, skip = SkipFlags(Checkpoint.open(folders.target).config.recipe, DEVICE), Skip(mlp=frozenset({0}))
    flags.set(skip)
    mlp = flags.of(0, "feed")
    assert int(mlp) != 0
    mlp.fill_(7)
    flags.set(skip)
    assert int(mlp) == 7
    flags.set(Skip())
    assert int(mlp) == 0


@pytest.mark.parametrize("quant", [None, "nf4", "int8"])
def test_a_pair_takes_what_was_planned(quant: Quant | None, tmp_path: Path) -> None:
    """In float16; big enough that the model outweighs what a plan rounds."""
    changes = SHAPE | {"hidden_size": 512, "intermediate_size": 2048, "num_attention_heads": 8, "head_dim": 64}
    folder = checkpoint(tmp_path / "m", **changes)
    big = decoder(folder, torch.float16, quant)
    draft = Model(big.config, "cuda")
    if quant is None:
        small = decoder(folder, torch.float16)
    else:
        small, draft = decoder(folder, torch.float16, quant, "int8"), quantised(draft, quant)
    pair = Model(big.config, "cuda", quant), draft
    planned = plan(*pair, CONTEXT, processors(DEVICE)).need("cuda")
    runner = device_runner(big, small, VOCAB, DEVICE)
    assert planned.total - GPU_RUNTIME == pytest.approx(runner.memory(), rel=0.01)
    weights = held_bytes(big.weights) + held_bytes(small.weights)
    assert planned.weights == pytest.approx(weights, rel=0.005)


@pytest.mark.parametrize("tied", [True, False])
def test_a_quantised_head_gives_the_logits_of_what_it_dequantises_to(tied: bool, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", **SHAPE | {"tie_word_embeddings": tied})
    dense, small = decoder(folder), decoder(folder, head="int8")
    assert isinstance(small.weights.head, EightBit)
    assert torch.equal(small.weights.embed.to(DEVICE), dense.weights.embed.to(DEVICE))
    tokens = ids(4)
    found = run(small, tokens, 0)
    run(dense, tokens, 0)
    head = dequantised(small.weights.head, torch.float32)
    torch.testing.assert_close(found, (dense.buffers.x[:4] @ head.T).cpu(), atol=SLACK, rtol=SLACK)
