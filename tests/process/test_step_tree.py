"""A step's drafts as a tree."""

import pytest

from specchat.engine.api import Drafted
from specchat.engine.fake_steps import steps
from specchat.engine.step_tree import PENDING, StepTree, branched, likeliest


def drafts(*parents: int | None) -> tuple[Drafted, ...]:
    return tuple(Drafted(f" {number}", None, parent) for number, parent in enumerate(parents))


def test_a_chain_is_the_tree_with_one_branch() -> None:
    chain, told = StepTree.of(drafts(None, None, None)), drafts(-1, 0, 1)
    assert chain == StepTree.of(told) == StepTree((-1, 0, 1), (1, 2, 3))
    assert not branched(told)
    assert not branched(drafts(None, None))
    assert StepTree.of(()) == StepTree((), ())


def test_branches_have_their_parents_and_places() -> None:
    tree = drafts(-1, 0, -1, 0, 2, None)
    found = StepTree.of(tree)
    assert (found.parents, found.places) == ((-1, 0, -1, 0, 2, 4), (1, 2, 1, 2, 2, 3))
    assert [found.after(draft) for draft in (PENDING, 0, 1)] == [[0, 2], [1, 3], []]
    assert list(found.path(5)) == [5, 4, 2]
    assert branched(tree)


@pytest.mark.parametrize("parents", [(0,), (-2,), (None, 1), (None, 5)])
def test_a_draft_follows_one_before_it(parents: tuple[int | None, ...]) -> None:
    with pytest.raises(ValueError, match="follows"):
        StepTree.of(drafts(*parents))


def test_the_likeliest_is_the_first_of_equal_ones() -> None:
    some = [Drafted("a"), Drafted("b", 0.2), Drafted("c", 0.7), Drafted("d", 0.7)]
    assert likeliest(some, range(4)) == 2
    assert likeliest(some, [0, 1]) == 1
    assert likeliest([Drafted("a"), Drafted("b")], [1, 0]) == 1


def test_scripted_trees_have_their_candidates() -> None:
    for step in steps("one two three four five six seven eight", (2, 0, 3), length=10, candidates=3):
        tree, on = StepTree.of(step.drafts), PENDING
        assert (step.drafted, step.tested) == (9, step.accepted + (step.accepted < 3))
        assert step.pieces[-1].source == ("bonus" if step.tested == step.accepted else "target")
        for _ in range(3):
            found = tree.after(on)
            assert len({step.drafts[draft].text for draft in found}) == 3
            on = found[0]
        assert tree.after(on) == []
        assert list(tree.path(step.accepted - 1)) == list(range(step.accepted - 1, -1, -1))
        refused = [step.drafts[draft].text for draft in tree.after(step.accepted - 1)]
        assert step.pieces[-1].text not in refused
