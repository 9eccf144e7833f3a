"""Trees of drafted tokens on the host: rows in a tree are rows in a chain, and what is kept is the accepted path."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from specchat.engine.cpu.decoder import CpuDecoder
from specchat.engine.decoding.draft import WIDTH
from specchat.engine.decoding.growth import ROOT, Growth
from specchat.engine.decoding.reply_rules import ReplyRules
from specchat.engine.decoding.step import Decoding
from specchat.engine.drafters import draft_model
from specchat.engine.model.tree_layout import Layout, Levels, chain, depth_first
from specchat.engine.protocol.options import Acceptance, Sampling
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.session import Session
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.test_decoder import one_by_one, tokens
from tests.engine.test_lossless import SAMPLINGS
from tests.engine.tiny import FAMILY, checkpoint

PARENTS = [0, 1, 2, 1, 4, 0, 6, 7, 8, 0]
"""Node i + 1 follows PARENTS[i]: paths 1 2 3, 1 4 5, 6 7 8 9 and 10."""


def path_to(node: int) -> list[int]:
    return [] if node == 0 else [*path_to(PARENTS[node - 1]), node]


@pytest.mark.cpu
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_a_row_of_a_tree_is_a_row_of_a_chain(family: str, tmp_path: Path) -> None:
    """Bit for bit; `keep` leaves the cache of the chain."""
    folder = checkpoint(tmp_path / "m", **FAMILY[family])
    decoder, alone = ReferenceDecoder(Checkpoint.open(folder)), ReferenceDecoder(Checkpoint.open(folder))
    ids, nodes = tokens(50), tokens(11, seed=1)
    whole = one_by_one(decoder, ids)
    for start in (1, 5, 40):
        alone.forward(ids[:start], 0)
        decoder.forward(ids[:start], 0)
        rows = decoder.logits(decoder.forward(nodes, start, layout=depth_first(PARENTS)))
        assert not torch.equal(rows[4], rows[2])
        for node in range(11):
            chained = [nodes[i] for i in (0, *path_to(node))]
            expected = alone.logits(alone.forward(chained, start))[-1]
            assert torch.equal(rows[node], expected), (start, node)
        decoder.keep(path_to(9), start + 1)
        alone.forward([nodes[i] for i in (0, *path_to(9))], start)
        caches = zip((decoder.cache.keys, decoder.cache.values), (alone.cache.keys, alone.cache.values), strict=True)
        for mine, theirs in ((torch.stack(one), torch.stack(other)) for one, other in caches):
            assert torch.equal(mine[:, :, : start + 5], theirs[:, :, : start + 5])
    assert torch.equal(one_by_one(decoder, ids), whole)


@pytest.mark.cpu
def test_a_tree_grown_level_by_level_is_the_tree_at_once(tmp_path: Path) -> None:
    decoder = ReferenceDecoder(Checkpoint.open(checkpoint(tmp_path / "m")))
    ids, nodes = tokens(70), tokens(11, seed=1)
    decoder.forward(ids[:59], 0)
    expected = decoder.forward(nodes, 59, layout=depth_first(PARENTS)).clone()
    found = {0: decoder.forward(nodes[:1], 59)[0]}
    levels, rows = Levels(), dict[int, int]()
    for level in ([6, 1, 10], [4, 7, 2], [8, 3, 5], [9]):
        layout = levels.layout([[rows[node] for node in path_to(node)[:-1]] for node in level])
        rows |= {node: row for row, node in enumerate(level, len(rows))}
        hidden = decoder.forward([nodes[node] for node in level], 59, layout=layout)
        found |= dict(zip(level, hidden.clone(), strict=True))
    assert all(torch.equal(found[node], expected[node]) for node in range(11))
    decoder.keep([rows[node] for node in path_to(9)], 60)
    kept = torch.stack(decoder.cache.keys)[:, :, 60:64].clone()
    decoder.forward([nodes[node] for node in (0, *path_to(9))], 59)
    assert torch.equal(torch.stack(decoder.cache.keys)[:, :, 60:64], kept)


def test_rows_follow_each_other_in_runs() -> None:
    assert chain(3) == Layout([0], [3], [[]])
    assert depth_first([0, 1, 2]) == Layout([0], [4], [[]])
    assert depth_first(PARENTS) == Layout([0, 2, 1, 1], [4, 2, 4, 1], [[], [], [], []])


def test_only_what_differs_is_put_back() -> None:
    levels = Levels()
    assert levels.layout([[], []]).ancestors == [[], []]
    assert levels.layout([[0], [0], [1]]).ancestors == [[0], [], [1]]
    assert levels.layout([[1, 4], [0, 2]]) == Layout([3, 3], [1, 1], [[], [0, 2]], 5)


def test_the_most_valuable_nodes_are_kept_with_their_parents() -> None:
    growth = Growth(least=0.05)
    growth.add(ROOT, [10, 11, 12], [0.1, 0.2, 0.3], [0.6, 0.3, 0.01])
    growth.advance(0)
    assert growth.tokens(growth.frontier) == [10, 11]
    growth.layout()
    growth.add(0, [20, 21], [0.4, 0.5], [0.9, 0.1])
    growth.add(1, [22, 23], [0.6, 0.7], [1.0, 0.1])
    growth.advance(2)
    assert growth.tokens(growth.frontier) == [20, 22, 21]
    draft, _ = growth.best(4)
    assert (draft.tokens, draft.parents, draft.confidence) == ([10, 20, 11, 22], [0, 1, 0, 3], [0.1, 0.4, 0.2, 0.6])
    assert growth.best(2)[0].tokens == [10, 20]
    assert growth.best(3)[0].parents == [0, 1, 0]
    assert growth.best(5)[0].tokens == [10, 20, 21, 11, 22]


def test_a_level_goes_on_from_the_best_of_it() -> None:
    """As many as may be, the first found of equal ones; what is worth just the least is taken up."""
    shares = [0.25, *[0.5] * WIDTH, 0.75]
    growth = Growth(least=0.25)
    growth.add(ROOT, list(range(len(shares))), shares, shares)
    assert len(growth) == WIDTH + 2
    growth.advance(0)
    assert growth.frontier == [WIDTH + 1, *range(1, WIDTH)]


def test_the_draft_model_holds_what_it_ran_over_of_the_path_that_stays(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a path all but its last token, whether the model ran over that or not; of a refused tree the pending token."""
    monkeypatch.setattr(draft_model, "LEAST", 0.01)
    prompt = session.tokenizer.backend.encode("The cat sat. The cat sat. The").ids
    session.forget()
    session.target.begin(prompt)
    decoding = Decoding(session.runner.executor, session.target, ReplyRules(Sampling(seed=1, temperature=1.5)), prompt)
    drafter, draft = session.drafters["draft-tree"], session.runner.draft
    drafter.begin(prompt)
    assert draft is not None
    model, kept = draft.model, set[bool]()
    assert isinstance(model, CpuDecoder)
    for length in (8, 1) * 10:
        outcome = decoding.step(drafter, length, "coupled")
        kept.add(bool(outcome.path))
        held = len(decoding.committed) - 1 - bool(outcome.path)
        assert draft.tokens == decoding.committed[:held]
        mine = torch.stack(model.cache.keys)[:, :, :held].clone()
        draft.keep(0)
        draft.begin([*decoding.committed[:held], 0])
        assert torch.allclose(mine, torch.stack(model.cache.keys)[:, :, :held], atol=1e-5)
        # A step without a draft of its own adds nothing.
        draft.keep(held - 3)
        drafter.observe(decoding.committed, replace(outcome, drafts=(), path=()))
        assert len(draft.tokens) == held - 3
    assert kept == {False, True}


@pytest.mark.parametrize("acceptance", ["coupled", "ratio"])
def test_trees_branch_and_their_branches_stay(
    session: Session, acceptance: Acceptance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a path that is no chain in the draft, what is tested of trees elsewhere would be tested of chains."""
    monkeypatch.setattr(draft_model, "LEAST", 0.01)
    kinds: Counter[str] = Counter()
    prompt = session.tokenizer.backend.encode("The cat sat. The cat sat. The").ids
    for seed, sampling in enumerate(SAMPLINGS.values()):
        options = Sampling(**{**vars(sampling), "seed": seed})
        session.forget()
        session.target.begin(prompt)
        decoding = Decoding(session.runner.executor, session.target, ReplyRules(options), prompt)
        drafter = session.drafters["draft-tree"]
        drafter.begin(prompt)
        for _ in range(12):
            outcome = decoding.step(drafter, 8, acceptance)
            kinds["step"] += 1
            kinds["tree"] += any(parent != i for i, parent in enumerate(outcome.parents))
            kinds["other branch"] += any(b != a + 1 for a, b in pairwise((0, *outcome.path)))
            assert [outcome.drafts[node - 1] for node in outcome.path] == list(outcome.tokens[: outcome.accepted])
            # The draft model goes on from the path that stayed: what its cache holds is the text.
            held = session.runner.draft
            assert held is not None
            assert held.tokens == decoding.committed[: len(held.tokens)]
            assert not outcome.drafts or len(held.tokens) >= len(decoding.committed) - 2
    assert kinds["tree"] > kinds["step"] / 3
    assert kinds["other branch"] > 5
