"""The compiled decoder: rows alike alone and in trees, with any threads and processor, as the reference has them.

`tests/engine/test_decoder.py` holds it against transformers.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import Tensor

from specchat.config.paths import demo_model
from specchat.engine.cpu.decoder import CpuDecoder
from specchat.engine.memory.vectors import unsupported
from specchat.engine.model.passes import Skip
from specchat.engine.model.tree_layout import Layout, Levels, depth_first
from specchat.engine.protocol.pair import Quant
from specchat.engine.recipe import Attention
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.bnb import bnb_checkpoint
from tests.engine.test_decoder import tokens
from tests.engine.test_trees import PARENTS, path_to
from tests.engine.tiny import FAMILIES, FAMILY, MORE, checkpoint, mostly


def whole(decoder: CpuDecoder | ReferenceDecoder, ids: list[int]) -> Tensor:
    return torch.cat([decoder.logits(decoder.forward(ids[i : i + 128], i)).clone() for i in range(0, len(ids), 128)])


def one_by_one(decoder: CpuDecoder, ids: list[int]) -> Tensor:
    return torch.cat([decoder.logits(decoder.forward([token], i)).clone() for i, token in enumerate(ids)])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_row_is_what_it_is_alone(family: str, tmp_path: Path) -> None:
    decoder = CpuDecoder(Checkpoint.open(checkpoint(tmp_path / "m", **FAMILIES[family])))
    ids = tokens(200)
    alone = one_by_one(decoder, ids)
    assert torch.equal(whole(decoder, ids), alone)
    for rows in (2, 3, 5, 7, 8, 9, 16):
        decoder.forward(ids[:100], 0)
        assert torch.equal(decoder.logits(decoder.forward(ids[100 : 100 + rows], 100)), alone[100 : 100 + rows])


@pytest.mark.parametrize("size", [64, 80])
def test_heads_of_several_vectors(size: int, tmp_path: Path) -> None:
    """That registers hold wholly, or all but the last of them."""
    shape = FAMILY["qwen3"] | {"head_dim": size}
    opened, ids = Checkpoint.open(checkpoint(tmp_path / "m", **shape)), tokens(60)
    decoder = CpuDecoder(opened)
    alone = one_by_one(decoder, ids)
    torch.testing.assert_close(alone, whole(ReferenceDecoder(opened), ids), atol=1e-4, rtol=1e-4)
    assert torch.equal(whole(decoder, ids), alone)


@pytest.mark.rotated(2)
@pytest.mark.parametrize("quant", ["nf4", "fp4", "int8"])
def test_quantised_weights_are_what_the_reference_unpacks(quant: Quant, tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    opened = Checkpoint.open(checkpoint(tmp_path / "m", hidden_size=128, intermediate_size=128))
    ids = tokens(150)
    few = ids[:40]  # each token of the reference takes as long as a pass
    decoder = CpuDecoder(opened, quant=quant)
    torch.testing.assert_close(
        whole(decoder, few), whole(ReferenceDecoder(opened, quant=quant), few), atol=1e-4, rtol=1e-4
    )
    assert torch.equal(whole(decoder, ids)[60:], one_by_one(decoder, ids)[60:])
    stored = Checkpoint.open(bnb_checkpoint(tmp_path / "stored", quant))
    torch.testing.assert_close(
        whole(CpuDecoder(stored), few), whole(ReferenceDecoder(stored), few), atol=1e-4, rtol=1e-4
    )


@pytest.mark.rotated(3, 1)
@pytest.mark.parametrize("family", mostly(["llama", "qwen2", "qwen3", *MORE]))
def test_a_row_of_a_tree_is_a_row_of_a_chain(family: str, tmp_path: Path) -> None:
    """Bit for bit; `keep` leaves the cache of the chain."""
    opened = Checkpoint.open(checkpoint(tmp_path / "m", **FAMILIES[family]))
    decoder, alone = CpuDecoder(opened), CpuDecoder(opened)
    ids, nodes = tokens(200), tokens(11, seed=1)
    everything = one_by_one(decoder, ids)
    for start in (1, 62, 120):
        whole(alone, ids[:start])
        whole(decoder, ids[:start])
        rows = decoder.logits(decoder.forward(nodes, start, layout=depth_first(PARENTS))).clone()
        assert not torch.equal(rows[4], rows[2])
        for node in range(11):
            chained = [nodes[i] for i in (0, *path_to(node))]
            assert torch.equal(rows[node], alone.logits(alone.forward(chained, start))[-1]), (start, node)
        decoder.keep(path_to(9), start + 1)
        alone.forward([nodes[i] for i in (0, *path_to(9))], start)
        caches = zip((decoder.cache.keys, decoder.cache.values), (alone.cache.keys, alone.cache.values), strict=True)
        for mine, theirs in ((mine, theirs) for kinds in caches for mine, theirs in zip(*kinds, strict=True)):
            assert torch.equal(mine[:, : start + 5], theirs[:, : start + 5])
    assert torch.equal(one_by_one(decoder, ids), everything)


def test_a_tree_grown_level_by_level_is_the_tree_at_once(tmp_path: Path) -> None:
    decoder = CpuDecoder(Checkpoint.open(checkpoint(tmp_path / "m")))
    nodes = tokens(11, seed=1)
    one_by_one(decoder, tokens(59))
    expected = decoder.forward(nodes, 59, layout=depth_first(PARENTS))
    found = {0: decoder.forward(nodes[:1], 59)[0]}
    levels, rows = Levels(), dict[int, int]()
    for level in ([6, 1, 10], [4, 7, 2], [8, 3, 5], [9]):
        layout = levels.layout([[rows[node] for node in path_to(node)[:-1]] for node in level])
        rows |= {node: row for row, node in enumerate(level, len(rows))}
        hidden = decoder.forward([nodes[node] for node in level], 59, layout=layout)
        found |= dict(zip(level, hidden, strict=True))
    assert all(torch.equal(found[node], expected[node]) for node in range(11))
    decoder.keep([rows[node] for node in path_to(9)], 60)
    kept = torch.stack(decoder.cache.keys)[:, :, 60:64].clone()
    decoder.forward([nodes[node] for node in (0, *path_to(9))], 59)
    assert torch.equal(torch.stack(decoder.cache.keys)[:, :, 60:64], kept)


@pytest.mark.parametrize("family", ["llama", "cohere2"])
def test_layers_that_are_left_out_are_those_of_the_reference(family: str, tmp_path: Path) -> None:
    """Of parallel halves the inputs of both stay."""
    opened = Checkpoint.open(checkpoint(tmp_path / "m", **FAMILIES[family]))
    decoder, plain, ids = CpuDecoder(opened), ReferenceDecoder(opened), tokens(20)
    skip = Skip(frozenset({1}), frozenset({0, 2}))
    mine, theirs = (one.logits(one.forward(ids, 0, skip)) for one in (decoder, plain))
    torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-4)
    kept = torch.stack(decoder.cache.keys), torch.stack(decoder.cache.values)
    decoder.forward(ids, 0)
    held = torch.stack(decoder.cache.keys), torch.stack(decoder.cache.values)
    assert not torch.equal(kept[0], held[0])
    guesses = decoder.likeliest(ids[5:9], 5, skip)
    assert len(guesses) == 4
    assert torch.equal(torch.stack(decoder.cache.keys), held[0])
    assert torch.equal(torch.stack(decoder.cache.values), held[1])


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("drafts", [None, (3, 9, 200)])
def test_a_pass_with_its_scores_is_a_pass_and_its_scores(
    drafts: tuple[int, ...] | None, threads: int, tmp_path: Path
) -> None:
    """Of chains and trees, whose entries and tapped states stay, too."""
    opened = replace(Checkpoint.open(checkpoint(tmp_path / "m")), drafts=drafts)
    ids, tree = tokens(60), depth_first(PARENTS)
    made, apart = (CpuDecoder(opened, threads=threads) for _ in range(2))
    for one in (made, apart):
        one.record_states([0, 2, 4])
        one.forward(ids[:40], 0)
    nodes = ids[40 : 41 + len(PARENTS)]
    for fed, start, layout in ((ids[40:41], 40, None), (ids[40:49], 40, None), (ids[:20], 40, None), (nodes, 40, tree)):
        scores = made.logits_after(fed, start, layout).clone()
        assert torch.equal(scores, apart.logits(apart.forward(fed, start, layout=layout)))
        if layout is not None:
            for one in (made, apart):
                one.keep([1, 2], start + 1)
        assert torch.equal(torch.stack(made.cache.keys), torch.stack(apart.cache.keys))
        assert torch.equal(torch.stack(made.cache.values), torch.stack(apart.cache.values))
        for layer in (0, 2, 4):
            assert torch.equal(made.states(layer, 0, start + 3), apart.states(layer, 0, start + 3))


def test_the_number_of_threads_changes_no_bit() -> None:
    opened = Checkpoint.open(demo_model("target"))
    one, several = CpuDecoder(opened, 200, threads=1), CpuDecoder(opened, 200, threads=3)
    ids = tokens(150)
    expected = whole(one, ids)
    for active in (2, 3):
        several.use_threads(active)
        assert several.threads == active
        assert torch.equal(whole(several, ids), expected)
        assert torch.equal(one_by_one(several, ids[:20]), expected[:20])


WIDE = {"hidden_size": 128, "intermediate_size": 320}


@pytest.mark.parametrize("family", ["gemma2", "gemma4_e", "cohere2", "deepseek_v3", "glm4_moe_lite"])
def test_so_where_layers_have_more_steps(family: str, tmp_path: Path) -> None:
    """With inputs of layers, shared entries, norms of updates, parallel halves and latents."""
    shape = FAMILIES[family] | WIDE | ({"hidden_size_per_layer_input": 144} if family == "gemma4_e" else {})
    opened, ids, tree = Checkpoint.open(checkpoint(tmp_path / "m", **shape)), tokens(150), depth_first(PARENTS)
    one, several = CpuDecoder(opened, 200, threads=1), CpuDecoder(opened, 200, threads=3)
    expected, nodes = whole(one, ids), tokens(11, seed=1)
    of_tree = one.forward(nodes, 150, layout=tree).clone()
    for active in (2, 3):
        several.use_threads(active)
        assert torch.equal(whole(several, ids), expected)
        assert torch.equal(several.forward(nodes, 150, layout=tree), of_tree)


DIGEST = """
import hashlib, sys
from pathlib import Path
import torch
torch.compile = lambda function, **_: function  # as tests/engine/bnb.py
from specchat.engine.cpu.decoder import CpuDecoder
from specchat.engine.weights.checkpoint import Checkpoint
for folder in sys.argv[2:]:
    decoder = CpuDecoder(Checkpoint.open(Path(folder)), 64, sys.argv[1] or None)
    rows = torch.cat([decoder.logits(decoder.forward(list(range(20, 20 + count)), 0)) for count in (30, 1, 2, 3, 6)])
    print(hashlib.sha256(rows.contiguous().numpy().tobytes()).hexdigest())
"""
AVX2 = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx2,+fma,+f16c"}
NO_TABLES = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+fma,+f16c"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [AVX2, NO_TABLES], ids=["avx2", "less"])
def test_the_kind_of_processor_changes_no_bit(kind: dict[str, str], tmp_path: Path) -> None:
    """Layers in 4 bits where they can be, a dense head; and experts."""
    shape = {"hidden_size": 128, "intermediate_size": 128, "moe_intermediate_size": 128}
    kinds = "llama", "qwen3_moe", "gemma4_moe", "gemma4_e"
    folders = [checkpoint(tmp_path / kind, **FAMILIES[kind] | shape) for kind in kinds]
    digests = {
        subprocess.run(
            [sys.executable, "-c", DIGEST, "nf4" if find_spec("bitsandbytes") else "", *map(str, folders)],
            env=os.environ | changed,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for changed in ({}, kind)
    }
    assert len(digests) == 1


WIDER: dict[str, Callable[[Attention], Attention]] = {
    "to later tokens": lambda m: replace(m, causal=False),
    "one of all heads": lambda m: replace(m, key_norm=m.key_norm and replace(m.key_norm, size=2 * m.head_dim)),
    "unlike eps": lambda m: replace(m, key_norm=m.key_norm and replace(m.key_norm, eps=1e-3)),
}


@pytest.mark.parametrize("feature", WIDER)
def test_features_that_the_pass_lacks_are_told_before_it_reads(feature: str, tmp_path: Path) -> None:
    """It would compute something else: its descriptors have no column for them."""
    recipe = Checkpoint.open(checkpoint(tmp_path / "m", **FAMILY["qwen3"])).config.recipe
    first, *others = recipe.layers
    changed = replace(first, mixer=WIDER[feature](first.mixer))
    assert not unsupported(recipe)
    assert feature in unsupported(replace(recipe, layers=(changed, *others)))


def test_a_draft_vocabulary_leaves_the_others_out(tmp_path: Path) -> None:
    opened = Checkpoint.open(checkpoint(tmp_path / "m"))
    every, few = CpuDecoder(opened), CpuDecoder(replace(opened, drafts=(3, 9, 200)))
    ids = tokens(12)
    expected, found = whole(every, ids), whole(few, ids)
    assert torch.equal(found[:, [3, 9, 200]], expected[:, [3, 9, 200]])
    assert found.isinf().sum(1).eq(expected.shape[1] - 3).all()


def test_too_many_tokens_are_refused(tmp_path: Path) -> None:
    decoder = CpuDecoder(Checkpoint.open(checkpoint(tmp_path / "m")), context=10)
    with pytest.raises(ValueError, match="do not fit"):
        decoder.forward(tokens(5), 6)
    with pytest.raises(ValueError, match="rows of logits"):
        decoder.logits(torch.zeros(129, decoder.config.hidden))
    with pytest.raises(ValueError, match="a tree of 66 nodes"):
        decoder.forward([1, 2], 0, layout=Layout([0], [2], [[]], 64))


def test_rows_may_lie_anywhere_in_memory() -> None:
    decoder = CpuDecoder(Checkpoint.open(demo_model("draft")), 64, threads=2)
    hidden = decoder.forward(tokens(6), 0)
    apart = torch.stack([hidden, hidden], 2)[:, :, 0]
    assert not apart.is_contiguous()
    expected = decoder.logits(hidden).clone()
    assert torch.equal(decoder.logits(apart), expected)
