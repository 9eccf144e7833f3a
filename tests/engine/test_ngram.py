"""What n-gram tables draft, what they hold, and what replies before give to both families that copy from them."""

import pytest

from specchat.engine.drafters import earlier as earlier_module
from specchat.engine.drafters.earlier import Earlier
from specchat.engine.drafters.ngram import NgramDrafter
from specchat.engine.drafters.occurrences import MOST, NgramPool, key_of
from specchat.engine.protocol.picture_ids import FIRST


def drafter(earlier: Earlier | None = None) -> NgramDrafter:
    return NgramDrafter(earlier or Earlier())


def copied(text: list[int], limit: int) -> list[int]:
    return drafter().propose(text, limit).tokens


def pool(*texts: list[int], slots: int = 1 << 12) -> NgramPool:
    made = NgramPool(slots)
    for text in texts:
        made.learn(text)
    return made


# The table


def test_the_majority_has_the_entry() -> None:
    """After 1 2 came 3 three times and 4 twice; the one vote that is left is 3's."""
    voted = pool(*([1, 2, token] for token in (3, 3, 4, 3, 4)))
    assert voted.after(key_of((1, 2)), 1) == 3
    assert voted.after(key_of((1, 2)), 2) is None
    assert pool([1, 2, 3], [1, 2, 4]).after(key_of((1, 2)), 1) == 4


def test_votes_stop_at_what_an_entry_holds() -> None:
    voted = pool(*([[1, 2, 3]] * (MOST + 9)))
    assert voted.after(key_of((1, 2)), MOST) == 3


def test_other_tokens_on_the_same_slot_are_told_apart() -> None:
    """One slot for all: what was entered last has it, and nothing else is found."""
    one = pool([1, 2, 3], [4, 5, 6], slots=1)
    assert one.after(key_of((4, 5)), 1) == 6
    assert one.after(key_of((1, 2)), 1) is None


def test_nothing_is_known_of_an_empty_table() -> None:
    assert NgramPool(8).after(key_of((1, 2)), 1) is None


def test_large_tokens_fit() -> None:
    assert pool([0, 1, (1 << 24) - 1]).after(key_of((0, 1)), 1) == (1 << 24) - 1


def test_no_token_of_a_picture_is_learnt() -> None:
    pools = [pool([0, before, FIRST + 5, 7]) for before in range(8)]
    assert {one.after(key_of((0, before)), 1) for before, one in enumerate(pools)} == {None}
    assert pools[1].after(key_of((1, FIRST + 5)), 1) == 7


def test_a_piece_is_learnt_with_what_stands_before_it() -> None:
    whole, pieces = pool([1, 2, 3, 4, 5]), NgramPool(1 << 12)
    pieces.learn([1, 2, 3])
    pieces.learn([1, 2, 3, 4, 5], 3)
    assert [pieces.after(key_of(n), 1) for n in ((2, 3), (1, 2, 3), (3, 4))] == [4, 4, 5]
    assert whole.after(key_of((1, 2, 3, 4)), 1) == pieces.after(key_of((1, 2, 3, 4)), 1) == 5


# What is drafted


def test_the_longest_match_decides() -> None:
    """After 2 3 came 8 last and more often, but after 1 2 3 came 9."""
    assert copied([1, 2, 3, 9, 5, 2, 3, 8, 5, 2, 3, 8, 1, 2, 3], 2)[:1] == [9]


def test_the_most_frequent_goes_on() -> None:
    assert copied([1, 2, 8, 3, 1, 2, 8, 4, 1, 2, 9, 5, 1, 2], 1) == [8]


def test_two_tokens_are_needed_and_the_end_does_not_match_itself() -> None:
    assert copied([7, 1, 7], 4) == []
    assert copied([1, 2, 3, 4], 4) == []
    assert copied([5], 4) == []
    assert copied([], 4) == []


def test_repetition_goes_on_past_the_end() -> None:
    assert copied([1, 2, 1, 2, 1, 2], 5) == [1, 2, 1, 2, 1]


def test_a_short_match_makes_a_short_draft() -> None:
    text = [1, 2, 3, *range(10, 40), 9]
    assert drafter().propose([*text, 1, 2], 15).tokens == [3, 10, 11, 12]
    found = drafter().propose([*text, 1, 2, 3, 10, 11, 12], 15)
    assert (found.matched, len(found.tokens)) == (6, 12)


def test_it_follows_the_text_and_another_branch_of_it() -> None:
    one = drafter()
    text = [1, 2, 3, 4]
    for token in (9, 1, 2):
        one.propose(text, 3)
        text.append(token)
    assert one.propose(text, 3).tokens == [3, 4, 9]
    one.begin([1, 2, 3, 4, 5, 1])
    assert one.propose([1, 2, 3, 4, 5, 1, 2], 3).tokens == [3, 4, 5]
    one.begin([8])
    assert one.propose([8, 1, 2], 3).tokens == []


def test_each_token_is_taken_in_once() -> None:
    """Of what followed 1 2 the token seen twice has the entry, though the other was there while the text grew."""
    one, text = drafter(), [1, 2, 3]
    for token in (5, 6, 7, 1, 2, 4, 8, 9, 1, 2, 4, 5, 1, 2):
        one.propose(text, 1)
        text.append(token)
    assert one.propose(text, 1).tokens == copied(text, 1) == [4]


# Replies before


def test_replies_before_are_drafted_from_once_they_are_sure() -> None:
    earlier = Earlier()
    one = drafter(earlier)
    earlier.add("a", [40, 41, 42, 43])
    assert one.propose([7, 40, 41], 4).tokens == []
    assert one.propose([7, 40, 41, 42], 4).tokens == [43]
    earlier.add("b", [40, 41, 42, 43])
    assert one.propose([7, 40, 41], 4).tokens == [42, 43]


def test_this_chat_goes_before_others() -> None:
    earlier = Earlier()
    earlier.add("a", [1, 2, 3, 8])
    assert drafter(earlier).propose([1, 2, 3, 9, 1, 2, 3], 1).tokens == [9]


def test_nothing_is_found_nor_kept_while_replies_before_are_hidden() -> None:
    earlier = Earlier()
    earlier.add("a", [40, 41, 42, 43])
    earlier.hidden = True
    earlier.add("a", [50, 51, 52, 53])
    assert not list(earlier.places.matches([40, 41], 9, 9))
    assert drafter(earlier).propose([40, 41, 42], 1).tokens == []
    earlier.hidden = False
    assert drafter(earlier).propose([40, 41, 42], 1).tokens == [43]
    assert drafter(earlier).propose([50, 51, 52], 1).tokens == []


def found(earlier: Earlier, *before: int) -> tuple[bool, bool]:
    """Whether the places and the n-grams have something after `before`."""
    return bool(list(earlier.places.matches(before, 9, 9))), bool(drafter(earlier).propose(before, 1).tokens)


def test_a_chat_is_forgotten_at_once_and_others_are_found_again() -> None:
    earlier = Earlier()
    earlier.add("a", [1, 2, 3, 4])
    earlier.add("b", [5, 6, 7, 8])
    earlier.add_old("a", [11, 12, 13, 14])
    earlier.forget("a")
    assert not earlier.knows("a")
    assert found(earlier, 1, 2, 3) == found(earlier, 11, 12, 13) == (False, False)
    while earlier.waiting:
        earlier.digest()
    assert found(earlier, 1, 2, 3) == found(earlier, 11, 12, 13) == (False, False)
    assert found(earlier, 5, 6, 7) == (True, True)
    earlier.forget("nobody")
    assert found(earlier, 5, 6, 7) == (True, True)


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(earlier_module, "REMEMBERED", 100)
    earlier = Earlier()
    for turn in range(40):
        earlier.add(str(turn), range(10 * turn, 10 * turn + 10))
    while earlier.waiting:
        earlier.digest()
    assert found(earlier, 395, 396, 397) == (True, True)
    assert found(earlier, 5, 6, 7) == (False, False)
    assert 50 <= len(earlier.places.token_ids) <= 130
    assert earlier.knows("39")
    assert not earlier.knows("0")


def test_old_replies_are_left_out_where_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(earlier_module, "REMEMBERED", 10)
    earlier = Earlier()
    earlier.add("new", range(20, 28))
    earlier.add_old("old", range(40, 44))
    assert earlier.full
    earlier.add_old("older", range(60, 64))
    assert found(earlier, 40, 41, 42) == (True, True)
    assert not earlier.knows("older")
