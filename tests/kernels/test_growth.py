"""A tree that a model drafts, level by level on the device, against the rule in Python on the host's sampler."""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from specchat.engine.decoding import noise
from specchat.engine.decoding.sampler import History, Sampler
from specchat.engine.kernels.candidates import gather
from specchat.engine.kernels.choose import choose
from specchat.engine.kernels.growth import expand, settle
from specchat.engine.kernels.growth_state import GrowthState
from specchat.engine.kernels.scores import process
from specchat.engine.kernels.verify_state import BLOCK, Scored, VerifyState
from specchat.engine.protocol.options import Acceptance, Sampling
from tests.kernels import compiled
from tests.kernels.test_trees import paths
from tests.kernels.test_verify import DEVICE, EVERYTHING, GPU, PROMPT, SAMPLED, TOP_K, Model, started

WIDTH = 4


@dataclass
class Candidate:
    value: float
    probability: float
    token: int
    parent: int
    text: list[int]


def laws(logits: Tensor, text: list[int], sampling: Sampling, acceptance: Acceptance) -> tuple[Tensor, Tensor]:
    """Probabilities of what may follow, and the same with the noise of the position."""
    sampler, history = Sampler(sampling), History(PROMPT)
    for token in text:
        history.push(token)
    scores = sampler.scores(logits, history).double()
    plain = scores.softmax(-1)
    if sampler.greedy or acceptance == "ratio":
        return plain, plain
    position = len(PROMPT) + len(text)
    extra = noise.gumbel(sampling.seed, position, noise.TOKEN, np.arange(len(logits), dtype=np.int64))
    return plain, (scores + torch.from_numpy(extra)).softmax(-1)


def pool_of(model: Model, sampling: Sampling, acceptance: Acceptance, levels: int) -> list[Candidate]:
    pool: list[Candidate] = []
    frontier = [(-1, Candidate(1.0, 1.0, 0, -1, []))]
    for _ in range(levels):
        first = len(pool)
        for at, node in frontier:
            plain, shares = laws(model([*PROMPT, *node.text]), node.text, sampling, acceptance)
            for token in shares.topk(WIDTH).indices.tolist():
                value = node.value * float(shares[token])
                pool.append(Candidate(value, float(plain[token]), token, at, [*node.text, token]))
        order = sorted(range(first, len(pool)), key=lambda i: (-pool[i].value, i))[:WIDTH]
        frontier = [(at, pool[at]) for at in order]
    return pool


def best_of(pool: list[Candidate], limit: int, least: float) -> tuple[list[Candidate], list[int]]:
    """The nodes that stay and their parents."""
    worth = [i for i in range(len(pool)) if pool[i].value >= max(least, 1e-30)]
    stay = sorted(sorted(worth, key=lambda i: (-pool[i].value, i))[:limit])
    return [pool[i] for i in stay], [stay.index(pool[i].parent) + 1 if pool[i].parent >= 0 else 0 for i in stay]


def grow(state: VerifyState, growth: GrowthState, model: Model, levels: int) -> None:
    """As an executor does, with logits of `model` in the place of a pass."""
    scored = Scored.create(WIDTH, model.vocab, DEVICE)
    chosen = torch.zeros(WIDTH, dtype=torch.int32, device=DEVICE)
    growth.begin()
    for level in range(levels):
        rows = WIDTH if level else 1
        assert not level or int(growth.frontier.start) == int(state.length) + 1 + WIDTH * (level - 1)
        texts = [[int(growth.step.fed[j]) for j in range(1, 63) if int(bits) >> j & 1] for bits in growth.step.path]
        if level:
            assert (growth.frontier.start - state.length + growth.frontier.offset).tolist() == [
                len(text) for text in texts
            ]
            assert growth.frontier.token.tolist() == [text[-1] for text in texts]
        logits = torch.stack([model([*PROMPT, *text]) for text in texts[:rows]])
        process(logits.to(DEVICE), growth.step, 0, scored, rows, model.vocab)
        choose(scored, growth.step, 0, rows, chosen)
        gather(scored, growth, rows)
        expand(growth, rows)


@pytest.mark.parametrize("acceptance", ["coupled", "ratio"])
@pytest.mark.parametrize("sampling", [Sampling(), SAMPLED, EVERYTHING], ids=["greedy", "T", "all"])
def test_a_tree_grows_by_its_best_candidates(sampling: Sampling, acceptance: Acceptance) -> None:
    levels = 4 if sampling is SAMPLED else 3
    check(Model(BLOCK + 50 if sampling is SAMPLED else 60, 7), sampling, acceptance, levels)


@pytest.mark.gpu
@pytest.mark.skipif(not GPU, reason="needs a CUDA device")
@pytest.mark.parametrize("sampling", [Sampling(), SAMPLED, TOP_K], ids=["greedy", "T", "k"])
def test_a_tree_of_qwen3_on_the_device(sampling: Sampling) -> None:
    check(Model(151_936, 9), sampling, "coupled", 6)


def check(model: Model, sampling: Sampling, acceptance: Acceptance, levels: int) -> None:
    """The pool, and the trees that are made of it."""
    state = started(model.vocab, sampling, acceptance)
    growth = GrowthState.create(state, WIDTH, 6)
    grow(state, growth, model, levels)
    pool = pool_of(model, sampling, acceptance, levels)
    assert int(growth.pool.filled) == len(pool)
    assert growth.pool.value[: len(pool)].tolist() == pytest.approx([node.value for node in pool], rel=1e-4, abs=1e-9)
    starts = [0, *range(WIDTH, len(pool) + 1, WIDTH * WIDTH)]
    most = [max(node.value for node in pool[a:b]) for a, b in pairwise(starts)]
    assert growth.sure[:levels].tolist() == pytest.approx(most, rel=1e-4)
    for limit, least in ((1, 0.0), (7, 0.0), (15, 0.0), (15, 0.05)):
        growth.limit.fill_(limit)
        growth.least.fill_(least)
        settle(growth, state)
        nodes, parents = best_of(pool, limit, least)
        n, tokens = len(nodes), [node.token for node in nodes]
        assert int(state.drafted) == n
        assert state.sure[:n].tolist() == pytest.approx([node.probability for node in nodes], rel=1e-4)
        assert state.fed[1 : n + 1].tolist() == tokens
        assert state.parents[: n + 1].tolist() == [-1, *parents]
        assert state.depth[: n + 1].tolist() == [len(path) - 1 for path in paths(parents)]
        assert state.path[: n + 1].tolist() == [sum(1 << j for j in path) for path in paths(parents)]
        assert state.parents[n + 1 :].tolist() == list(range(n, 16))
        for node, path in enumerate(paths(parents)):
            place = int(growth.places[node])
            assert 0 <= place <= WIDTH * (levels - 1)
            assert not place or int(growth.step.fed[place]) == tokens[node - 1]
            assert all(int(growth.places[above]) for above in path[1:-1]), "what has children was expanded"


def test_tokens_that_may_not_follow_are_no_nodes() -> None:
    """Top-k leaves fewer tokens than a node may have children."""
    state = started(50, replace(TOP_K, top_k=2))
    growth, model = GrowthState.create(state, WIDTH, 3), Model(50, 3)
    grow(state, growth, model, 2)
    growth.limit.fill_(15)
    settle(growth, state)
    assert int(state.drafted) == 2 + 2 * 2
    parents = state.parents[1:7].tolist()
    assert sorted(parents.count(node) for node in set(parents)) == [2, 2, 2]


def test_of_equals_the_earlier_stays() -> None:
    """So a node that is as probable as its child stays with it."""
    state = started(40, Sampling())
    growth = GrowthState.create(state, WIDTH, 3)
    growth.pool.filled.fill_(20)
    growth.pool.value[:20] = torch.tensor([1.0, 0.0, 0.0, 0.0, *[0.0] * 4, *[0.0] * 4, 1.0, 0.5, *[0.0] * 6])
    growth.pool.above[:20] = torch.tensor([-1] * 4 + [3] * 4 + [2] * 4 + [0] * 4 + [1] * 4)
    growth.pool.token[:20] = torch.arange(20)
    for limit, tokens, parents in ((1, [0], [0]), (2, [0, 12], [0, 1]), (5, [0, 12, 13], [0, 1, 1])):
        growth.limit.fill_(limit)
        settle(growth, state)
        n = int(state.drafted)
        assert (state.fed[1 : n + 1].tolist(), state.parents[1 : n + 1].tolist()) == (tokens, parents)


@pytest.mark.slow
@compiled.NEWEST
def test_compiled_for_gpus_that_are_not_here(architectures: tuple[int, ...]) -> None:
    ceilings = {"gather": (80, 256), "append": (64, 256), "expand": (56, 256), "settle": (88, 1024)}
    found = compiled.reports("tests.kernels.cases_growth", architectures)
    assert {r.name for r in found} == set(ceilings)
    for report in found:
        compiled.check_limits(report, *ceilings[report.name])
