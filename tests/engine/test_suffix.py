"""What suffix decoding copies: the likeliest continuation, from this text or from replies before it."""

import pytest

from specchat.engine.drafters.earlier import Earlier
from specchat.engine.drafters.occurrences import Occurrences
from specchat.engine.drafters.suffix import CANDIDATES, LEAST, Copy, SuffixDrafter, best_copy


def drafter() -> SuffixDrafter:
    return SuffixDrafter(Occurrences(), Earlier())


def copied(text: list[int], limit: int) -> list[int]:
    one = drafter()
    one.begin(text)
    return one.propose(text, limit).tokens


def test_the_most_frequent_continuation_is_followed() -> None:
    """Of what followed 1 2 before: 3 twice and 4, the latest, once."""
    text = [1, 2, 3, 5, 1, 2, 3, 6, 1, 2, 4, 7, 1, 2]
    assert copied(text, 1) == [3]
    found = drafter().propose(text, 3)
    assert found.tokens[:1] == [3]
    assert found.confidence[0] == pytest.approx(2 / 3)


def test_what_followed_less_often_is_a_branch() -> None:
    """After 1 2 came 3 5, 3 6 and 4 7: the likeliest paths first, in depth-first order."""
    found = drafter().propose([1, 2, 3, 5, 1, 2, 3, 6, 1, 2, 4, 7, 1, 2], 15)
    nodes = list(zip(found.tokens, found.parents, found.confidence, strict=True))
    assert nodes[0] == (3, 0, pytest.approx(2 / 3))
    assert nodes[1][:2] == (6, 1)
    paths = {0: ()}
    for node, (token, parent, _) in enumerate(nodes, 1):
        assert parent < node
        paths[node] = (*paths[parent], token)
    assert {(3, 5), (3, 6), (4, 7)} <= set(paths.values())
    assert found.score == pytest.approx(sum(_probability(found, node) for node in paths if node))


def _probability(copy: Copy, node: int) -> float:
    return copy.confidence[node - 1] * _probability(copy, copy.parents[node - 1]) if node else 1.0


def test_where_one_thing_alone_followed_the_draft_is_a_chain() -> None:
    text = [7, 8, 9, 10, 11, 12, 7, 8]
    assert drafter().propose(text, 4).parents == [0, 1, 2, 3]


def test_the_likeliest_nodes_are_kept() -> None:
    """Of the tree above two tokens are left: 3, and of what follows it or stands beside it the likelier one."""
    found = drafter().propose([1, 2, 3, 5, 1, 2, 3, 5, 1, 2, 3, 6, 1, 2, 4, 7, 1, 2], 2)
    assert (found.tokens, found.parents) == ([3, 5], [0, 1])


def test_a_longer_match_is_preferred_where_it_is_surer() -> None:
    """After 9 1 2 came 8; after 1 2 alone came 8, 3 and, the latest, 4."""
    assert copied([9, 1, 2, 8, 8, 1, 2, 3, 1, 2, 4, 5, 9, 1, 2], 2)[:1] == [8]


def test_an_unlikely_path_is_not_followed() -> None:
    """Twenty tokens followed 1 2, each once: no path has a tenth of the probability."""
    text = [token for n in range(20) for token in (1, 2, 30 + n, 60 + n)]
    assert LEAST > 1 / 20
    assert copied([*text, 1, 2], 4) == []


def test_a_short_match_makes_a_short_draft() -> None:
    text = [1, 2, *range(10, 30), 1, 2]
    assert copied(text, 15) == [10, 11, 12, 13]


def test_repetition_goes_on_past_the_end() -> None:
    assert copied([1, 2, 1, 2, 1, 2], 5) == [1, 2, 1, 2, 1]


def test_nothing_is_copied_without_a_match() -> None:
    assert copied([1, 2, 3, 4], 4) == []
    assert copied([5], 4) == []


def test_replies_before_are_copied_and_not_across_their_ends() -> None:
    earlier = Earlier()
    one = SuffixDrafter(Occurrences(), earlier)
    earlier.add("a chat", [40, 41, 42])
    earlier.add("a chat", [50, 51])
    one.begin([7, 8])
    assert one.propose([7, 8, 40, 41], 4).tokens == [42]


def test_only_the_latest_places_are_looked_at() -> None:
    """However often a text repeats itself, a step takes no longer."""
    found = Occurrences()
    found.extend([1, 2, 8] * 1000 + [1, 2, 9] * CANDIDATES)
    assert (best_copy(found, [1, 2], 1).tokens, best_copy(found, [1, 2], 1).confidence) == ([9], [1.0])
