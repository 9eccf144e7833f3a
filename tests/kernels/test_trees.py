"""Verification of trees: scores, choices, the ratio test, the accepted path and its entries in the cache."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from specchat.engine.decoding import noise
from specchat.engine.decoding.acceptance import judge as host_judge
from specchat.engine.decoding.draft import Draft
from specchat.engine.decoding.sampler import History, Sampler, gumbel_argmax
from specchat.engine.kernels.choose import judge
from specchat.engine.kernels.commit import commit
from specchat.engine.kernels.keep import keep
from specchat.engine.kernels.scores import process
from specchat.engine.kernels.verify_state import BLOCK, Scored, VerifyState
from specchat.engine.protocol.options import ACCEPTANCES, Acceptance, Sampling
from tests.kernels.test_verify import (
    DEVICE,
    EVERYTHING,
    PENALTIES,
    PROMPT,
    ROWS,
    SAMPLED,
    TOP_P,
    feed,
    random_logits,
    started,
)

TREE = (0, 0, 0, 1, 1, 1, 6, 6, 6, 2, 7, 4)
"""Parents of nodes 1, 2, ...: nodes with three children, one and none."""


def paths(parents: Sequence[int]) -> list[list[int]]:
    """The nodes from node 0 to each node."""
    made = [[0]]
    for node, parent in enumerate(parents, 1):
        made.append([*made[parent], node])
    return made


def tokens_of(parents: Sequence[int], vocab: int, seed: int) -> list[int]:
    """Random tokens for the nodes, different ones for the children of a node."""
    rng, made = random.Random(seed), []
    for node, parent in enumerate(parents):
        taken = {made[i] for i in range(node) if parents[i] == parent}
        made.append(rng.choice([t for t in range(vocab) if t not in taken]))
    return made


def history_of(fed: Sequence[int], path: Sequence[int]) -> History:
    """What the penalties of the node at the end of a path see."""
    history = History(PROMPT)
    for node in path[1:]:
        history.push(fed[node - 1])
    return history


def grown(state: VerifyState, parents: Sequence[int], tokens: Sequence[int]) -> None:
    feed(state, tokens)
    state.set_tree(parents)


def chosen_tensor(state: VerifyState, logits: Tensor) -> Tensor:
    """The tokens of a verify pass with these logits float32 [rows, vocab]: int32 [ROWS + 1]."""
    rows, vocab = logits.shape
    scored = Scored.create(ROWS, vocab, DEVICE)
    chosen = torch.zeros(ROWS + 1, dtype=torch.int32, device=DEVICE)
    process(logits.to(DEVICE), state, 0, scored, rows, vocab)
    judge(scored, state, rows, chosen, None)
    return chosen


def chosen_by(state: VerifyState, logits: Tensor) -> list[int]:
    return chosen_tensor(state, logits)[: len(logits)].tolist()


def test_a_tree_is_set_and_taken_back() -> None:
    state = VerifyState.create(30, ROWS, DEVICE)
    chain = [state.parents.tolist(), state.depth.tolist(), state.path.tolist()]
    assert chain == [list(range(-1, ROWS)), list(range(ROWS + 1)), [2 ** (i + 1) - 1 for i in range(ROWS + 1)]]
    state.set_tree(TREE)
    nodes = len(TREE) + 1
    assert state.parents[:nodes].tolist() == [-1, *TREE]
    assert state.depth[:nodes].tolist() == [len(path) - 1 for path in paths(TREE)]
    assert state.path[:nodes].tolist() == [sum(1 << j for j in path) for path in paths(TREE)]
    assert state.parents[nodes:].tolist() == list(range(nodes - 1, ROWS))
    state.set_tree(())
    assert [state.parents.tolist(), state.depth.tolist(), state.path.tolist()] == chain


@pytest.mark.parametrize("sampling", [PENALTIES, SAMPLED, EVERYTHING], ids=["penal", "T", "all"])
def test_a_node_chooses_as_the_end_of_its_path(sampling: Sampling) -> None:
    """By the host's sampler; filters draw in `choose`, else `process` does."""
    vocab, nodes = BLOCK + 90, len(TREE) + 1
    state, tokens = started(vocab, sampling), tokens_of(TREE, 9, seed=1)
    grown(state, TREE, tokens)
    logits = random_logits(nodes, vocab, 3, 2.0)
    logits[:, :9] += 6.0
    sampler = Sampler(sampling)
    expected = [
        sampler.choose(logits[node], len(PROMPT) + len(path) - 1, history_of(tokens, path))
        for node, path in enumerate(paths(TREE))
    ]
    assert chosen_by(state, logits) == expected
    assert len(set(expected)) > 4


def by_turns(p: Tensor, children: Sequence[int], seed: int, position: int) -> int:
    """The rule of SpecInfer for candidates of which none is a sample, from a distribution float64 [vocab]."""
    rest = p.clone()
    for turn, token in enumerate(children):
        if noise.uniform(seed, position, noise.ACCEPT, turn) * float(rest.sum()) < float(rest[token]):
            return token
        rest[token] = 0.0
    return gumbel_argmax(rest.log().numpy(), seed, position, noise.RESIDUAL)


@pytest.mark.rotated(3)
@pytest.mark.parametrize(("sampling", "seeds"), [(SAMPLED, 9), (EVERYTHING, 2), (TOP_P, 1)], ids=["T", "all", "p"])
def test_the_ratio_test_of_a_tree_goes_by_turns(sampling: Sampling, seeds: int) -> None:
    vocab, turns = 24, set()
    for seed in range(seeds):
        options = replace(sampling, seed=seed)
        sampler, state = Sampler(options), started(vocab, options, "ratio")
        tokens = tokens_of(TREE, 5, seed)
        grown(state, TREE, tokens)
        logits = random_logits(len(TREE) + 1, vocab, seed, 1.0)
        logits[:, :5] += 2.5
        made = chosen_by(state, logits)
        for node, path in enumerate(paths(TREE)):
            scores = sampler.scores(logits[node], history_of(tokens, path))
            children = [t for t, parent in zip(tokens, TREE, strict=True) if parent == node]
            position = len(PROMPT) + len(path) - 1
            if children:
                assert made[node] == by_turns(sampler.probabilities(scores), children, seed, position)
                turns.add((len(children), children.index(made[node]) if made[node] in children else -1))
            else:
                assert made[node] == sampler.pick(scores, position)
    assert seeds < 9 or {(1, -1), (1, 0), (3, -1), (3, 0), (3, 1)} <= turns


@pytest.mark.rotated(3, 1)
@pytest.mark.parametrize("acceptance", ACCEPTANCES)
def test_verdicts_are_the_hosts(acceptance: Acceptance) -> None:
    lengths = set()
    for seed, sampling in enumerate((Sampling(), PENALTIES, *[SAMPLED] * 6, EVERYTHING)):
        options, vocab = replace(sampling, seed=seed), 30
        state, tokens = started(vocab, options, acceptance), tokens_of(TREE, 4, seed)
        grown(state, TREE, tokens)
        logits = random_logits(len(TREE) + 1, vocab, 100 + seed, 1.0)
        for parent, token in zip(TREE, tokens, strict=True):
            logits[parent, token] += 4.0
        commit(chosen_tensor(state, logits), state, state.fed.new_zeros(2), state.fed.new_zeros(16))
        draft = Draft(tokens, list(TREE))
        judged = host_judge(logits, draft, len(PROMPT), Sampler(options), History(PROMPT), acceptance)
        accepted, tested, emitted = state.result[:3].tolist()
        assert tuple(state.kept[1 : accepted + 1].tolist()) == judged.path
        assert (tested, int(state.result[2 + emitted])) == (judged.tested, judged.token)
        lengths.add(accepted)
    assert len(lengths) > 2


@pytest.mark.parametrize("children", [(3,), (1, 4), (0, 5, 2), (0, 1, 2, 3, 4, 5)])
def test_turns_leave_the_law(children: tuple[int, ...]) -> None:
    """By enumeration of the turns: what a node emits is distributed as p, whatever was drafted after it."""
    p = random_logits(1, 6, 4, 1.5)[0].double().softmax(-1)
    law, rest, reached = torch.zeros(6, dtype=torch.float64), p.clone(), 1.0
    for token in children:
        share = float(rest[token] / rest.sum())
        law[token] += reached * share
        reached *= 1.0 - share
        rest[token] = 0.0
    if rest.sum() > 0:
        law += reached * rest / rest.sum()
    torch.testing.assert_close(law, p)


def test_where_only_drafted_tokens_may_follow_one_of_them_does() -> None:
    """Rounding may leave a little after the last turn; then a sample of p is taken."""
    logits = torch.full((5, 12), -torch.inf)
    logits[:, [2, 7, 9]] = torch.tensor([1.0, 0.5, 0.2])
    for seed in range(12):
        state = started(12, Sampling(seed=seed, temperature=1.0), "ratio")
        grown(state, (0, 0, 0, 0), (2, 7, 9, 11))
        assert chosen_by(state, logits)[0] in (2, 7, 9)


def test_commit_walks_the_tree() -> None:
    """Against the rule in Python: random trees, choices and ends."""
    rng, depths = random.Random(2), set()
    for _ in range(80):
        n, eos = rng.randrange(16), rng.sample(range(9), rng.randrange(2))
        parents = [rng.randrange(max(0, node - 3), node + 1) for node in range(n)]
        tokens = tokens_of(parents, 9, rng.randrange(1000))
        children = [[i + 1 for i in range(n) if parents[i] == node] for node in range(17)]
        state = started(9, Sampling(), eos=eos)
        grown(state, parents, tokens)
        state.counts.fill_(2)
        chosen = [
            tokens[rng.choice(below) - 1] if below and rng.random() < 0.85 else rng.randrange(9) for below in children
        ]
        made = torch.tensor(chosen, dtype=torch.int32, device=DEVICE)
        commit(made, state, state.fed.new_zeros(2), state.fed.new_zeros(16))
        path = [0]
        while after := [child for child in children[path[-1]] if tokens[child - 1] == chosen[path[-1]]]:
            path += after
        added = [chosen[node] for node in path]
        added = added[: next((i for i, t in enumerate(added) if t in eos), len(added)) + 1]
        accepted = len(path) - 1
        assert state.result[:3].tolist() == [accepted, accepted + bool(children[path[-1]]), len(added)]
        assert state.result[3:20].tolist() == [*added, *[-1] * (17 - len(added))]
        assert state.kept.tolist() == [*path, *[-1] * (17 - len(path))]
        assert int(state.length) == len(PROMPT) - 1 + len(added)
        assert int(state.fed[0]) == added[-1]
        assert state.counts.tolist() == [2 + added.count(t) for t in range(9)]
        depths.add(accepted)
    assert {0, 1, 2, 3, 4} <= depths


@pytest.mark.parametrize("places", [None, [0, 3, 2, 9, 7, 0, 12, 18, 30, 4, 0, 0, 0, 0, 0, 0, 0]], ids=["own", "other"])
def test_the_entries_of_the_path_move_together(places: list[int] | None) -> None:
    shape, start = (3, 2, 64, 24), 9
    for path in ([0], [0, 2, 4], [0, 1, 4, 6, 7, 8], [0, 9], [0, 3, 6, 10]):
        keys, values = (torch.randn(shape, device=DEVICE).to(torch.float16) for _ in range(2))
        expected = [t.clone() for t in (keys, values)]
        state = started(9, Sampling())
        state.result[0] = len(path) - 1
        # The text may end inside the path.
        state.result[2] = emitted = min(len(path), 3)
        state.length.fill_(start + emitted)
        state.kept[: len(path)] = torch.tensor(path, dtype=torch.int32)
        numbers = None if places is None else torch.tensor(places, dtype=torch.int32, device=DEVICE)
        for cache in expected:
            before = cache.clone()
            for depth, node in enumerate(path):
                place = node if places is None else places[node]
                if place:
                    cache[:, :, start + depth] = before[:, :, start + place]
        keep(keys, values, state, numbers)
        assert torch.equal(keys, expected[0])
        assert torch.equal(values, expected[1])
