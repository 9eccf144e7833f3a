"""A step's drafts as a tree."""

import pytest

from specchat.engine.protocol.events import Drafted, Step
from specchat.engine.protocol.step_tree import PENDING, StepTree, branched, likeliest, ranks
from tests.fake_steps import steps


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
    assert found.candidates() == {PENDING: [0, 2], 0: [1, 3], 2: [4], 4: [5]}
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
        candidates, on = StepTree.of(step.drafts).candidates(), PENDING
        after_kept = candidates.get(step.accepted - 1, [])
        assert (step.drafted, step.tested) == (9, step.accepted + (step.accepted < 3))
        assert step.pieces[-1].source == ("bonus" if step.tested == step.accepted else "target")
        for _ in range(3):
            found = candidates.pop(on)
            assert len({step.drafts[draft].text for draft in found}) == 3
            on = found[0]
        assert not candidates
        assert [draft.parent for draft in step.drafts[: step.accepted]] == list(range(-1, step.accepted - 1))
        assert step.pieces[-1].text not in [step.drafts[draft].text for draft in after_kept]


def judged(accepted: int, *tree: tuple[float | None, int | None]) -> Step:
    drafted = tuple(Drafted(" x", chance, parent) for chance, parent in tree)
    return Step(1, (), len(tree), accepted, accepted, accepted + 1, 1, 1, 1, 9, "draft", drafted)


def test_the_drafts_of_a_chain_rank_as_they_stand() -> None:
    assert ranks(judged(2, (0.1, None), (0.9, None), (0.9, None))) == [1, 2]
    assert ranks(judged(0)) == []


def test_the_drafts_of_a_tree_rank_by_their_paths() -> None:
    """0.3 and, after it, 0.27 were kept; 0.6 and, after it, 0.48 and 0.06 were not."""
    assert ranks(judged(2, (0.3, -1), (0.9, 0), (0.6, -1), (0.8, 2), (0.1, 2))) == [3, 4]
    assert ranks(judged(1, (0.6, -1), (0.3, -1), (1.0, 0))) == [1]
    assert ranks(judged(2, (0.6, -1), (1.0, 0), (0.6, -1))) == [2, 3]


def test_what_tells_no_probability_ranks_by_place_and_kept_drafts_last() -> None:
    assert ranks(judged(2, (None, -1), (None, 0), (None, -1), (None, 0), (None, 2))) == [2, 5]
