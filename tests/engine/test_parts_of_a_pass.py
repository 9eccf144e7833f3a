"""Passes over some of the layers, and the hidden states between layers: bit for bit those of whole passes."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor

from specchat.engine.cpu.decoder import CpuDecoder
from specchat.engine.decoding.cached import CachedModel
from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.model.passes import PassRows, Skip
from specchat.engine.model.tree_layout import MAX_TREE_NODES, Layout, depth_first
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.test_decoder import tokens
from tests.engine.test_trees import PARENTS, path_to
from tests.engine.tiny import FAMILIES, MORE, checkpoint, mostly

pytestmark = pytest.mark.cpu

Make = Callable[[Checkpoint], CachedDecoder]
LAYERS = 4
CUTS = [(0, 0, 1, 3, 4, 4), (0, 2, 4)]
"""Between any two layers, and parts of one layer, several and none."""


@pytest.fixture(params=[ReferenceDecoder, CpuDecoder])
def make(request: pytest.FixtureRequest) -> Make:
    return request.param


def in_parts(decoder: CachedDecoder, ids: list[int], start: int, cut: tuple[int, ...], layout: Layout | None) -> Tensor:
    x = decoder.embed(ids)
    for first, last in pairwise(cut):
        given = x.clone()
        x, before = decoder.run_layers(x, range(first, last), PassRows(ids, start, layout)), x
        assert torch.equal(before, given)
    return x


@pytest.mark.rotated(4)
@pytest.mark.parametrize("family", mostly(["llama-bias", "qwen3", *MORE]))
def test_a_pass_cut_anywhere_is_the_whole_pass(family: str, make: Make, tmp_path: Path) -> None:
    opened = Checkpoint.open(checkpoint(tmp_path / "m", **FAMILIES[family]))
    whole, cut_up = make(opened), make(opened)
    ids, nodes = tokens(20), tokens(11, seed=1)
    passes: list[tuple[list[int], int, Layout | None]] = [
        (ids[:12], 0, None),
        (ids[12:13], 12, None),
        (ids[13:20], 13, None),
        (nodes, 20, depth_first(PARENTS)),
    ]
    expected = [whole.forward(given, start, layout=layout).clone() for given, start, layout in passes]
    whole.keep(path_to(9), 21)
    for cut in CUTS:
        for (given, start, layout), theirs in zip(passes, expected, strict=True):
            assert torch.equal(in_parts(cut_up, given, start, cut, layout), theirs), (cut, start)
        cut_up.keep(path_to(9), 21)
        for mine, others in ((cut_up.cache.keys, whole.cache.keys), (cut_up.cache.values, whole.cache.values)):
            assert all(torch.equal(a[:, :25], b[:, :25]) for a, b in zip(mine, others, strict=True))


def test_a_first_part_without_layers_returns_its_input(make: Make, tmp_path: Path) -> None:
    decoder = make(Checkpoint.open(checkpoint(tmp_path / "m")))
    x = decoder.embed(tokens(5))
    for none in (range(0), range(2, 2)):
        assert torch.equal(decoder.run_layers(x, none, PassRows(tokens(5), 0)), x)
    assert not torch.stack(decoder.cache.keys).any()


def test_a_part_writes_the_entries_of_its_layers_alone(make: Make, tmp_path: Path) -> None:
    decoder = make(Checkpoint.open(checkpoint(tmp_path / "m")))
    decoder.forward(tokens(5), 0)
    before = torch.stack(decoder.cache.keys)
    decoder.run_layers(decoder.embed(tokens(5, seed=1)), range(1, 3), PassRows(tokens(5, seed=1), 0))
    changed = [not torch.equal(a, b) for a, b in zip(before, decoder.cache.keys, strict=True)]
    assert changed == [False, True, True, False]


def test_a_part_leaves_out_what_it_is_told_to(make: Make, tmp_path: Path) -> None:
    decoder = make(Checkpoint.open(checkpoint(tmp_path / "m")))
    skip = Skip(frozenset({2}), frozenset({0, 3}))
    x = decoder.embed(tokens(5))
    for first, last in ((0, 2), (2, 4)):
        x = decoder.run_layers(x, range(first, last), PassRows(tokens(5), 0), skip)
    assert torch.equal(x, decoder.forward(tokens(5), 0, skip))


def test_what_is_tapped_is_what_transformers_has_between_layers(make: Make, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", num_key_value_heads=2)
    decoder, ids = make(Checkpoint.open(folder)), tokens(40)
    taps = decoder.record_states([3, 0, 1, 3])
    assert taps.layers == (0, 1, 3)
    for start in range(0, 40, 8):
        decoder.forward(ids[start : start + 8], start)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        states = model(torch.tensor([ids]), output_hidden_states=True).hidden_states
    for layer in taps.layers:
        torch.testing.assert_close(taps.at(layer, 0, 40), states[layer][0], atol=2e-4, rtol=1e-4)


def test_tapping_changes_no_bit_of_a_pass(make: Make, tmp_path: Path) -> None:
    opened = Checkpoint.open(checkpoint(tmp_path / "m"))
    plain, tapped = make(opened), make(opened)
    tapped.record_states([1, LAYERS])
    for given, start, layout in ((tokens(30), 0, None), (tokens(11, seed=1), 30, depth_first(PARENTS))):
        assert torch.equal(
            tapped.forward(given, start, layout=layout), plain.forward(given, start, layout=layout).clone()
        )
    assert tapped.memory() - plain.memory() == 4 * 64 * 2 * (256 + MAX_TREE_NODES)


def test_of_a_tree_the_states_of_the_path_that_stays_are_kept(make: Make, tmp_path: Path) -> None:
    opened = Checkpoint.open(checkpoint(tmp_path / "m"))
    grown, chained = make(opened), make(opened)
    ids, nodes = tokens(20), tokens(11, seed=1)
    mine, theirs = grown.record_states([2, LAYERS]), chained.record_states([2, LAYERS])
    for one in (grown, chained):
        one.forward(ids, 0)
    for path in (path_to(9), path_to(5), path_to(10)):
        grown.forward(nodes, 20, layout=depth_first(PARENTS))
        grown.keep(path, 21)
        chained.forward([nodes[node] for node in (0, *path)], 20)
        for layer in (2, LAYERS):
            assert torch.equal(mine.at(layer, 0, 21 + len(path)), theirs.at(layer, 0, 21 + len(path)))


def test_a_pass_that_leaves_something_out_is_not_tapped(make: Make, tmp_path: Path) -> None:
    decoder = make(Checkpoint.open(checkpoint(tmp_path / "m")))
    taps = decoder.record_states([2])
    decoder.forward(tokens(8), 0)
    before = taps.at(2, 0, 8).clone()
    decoder.forward(tokens(8, seed=1), 0, Skip(frozenset({1})))
    assert torch.equal(taps.at(2, 0, 8), before)


def test_a_text_taken_up_again_has_its_states(make: Make, tmp_path: Path) -> None:
    opened = Checkpoint.open(checkpoint(tmp_path / "m"))
    first, second = tokens(200), [*tokens(90), *tokens(80, seed=1)]
    again, anew = make(opened), make(opened)
    taps, expected = again.record_states([3]), anew.record_states([3])
    cached = CachedModel(again)
    cached.begin(first)
    assert cached.begin(second) == 90
    CachedModel(anew).begin(second)
    assert torch.equal(taps.at(3, 0, 169), expected.at(3, 0, 169))


def test_several_threads_keep_the_states_of_one(tmp_path: Path) -> None:
    opened = Checkpoint.open(checkpoint(tmp_path / "m"))
    one, three = CpuDecoder(opened, threads=1), CpuDecoder(opened, threads=3)
    expected, taps = one.record_states([0, 2, LAYERS]), three.record_states([0, 2, LAYERS])
    for decoder in (one, three):
        for round_ in range(40):
            decoder.forward(tokens(5, seed=round_), 5 * round_)
        decoder.forward(tokens(11, seed=1), 200, layout=depth_first(PARENTS))
        decoder.keep(path_to(9), 201)
    for layer in taps.layers:
        assert torch.equal(taps.at(layer, 0, 201 + len(path_to(9))), expected.at(layer, 0, 201 + len(path_to(9))))
