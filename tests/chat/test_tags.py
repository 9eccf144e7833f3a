"""Tags of chats: named, changed, kept and looked for."""

import pytest

from specchat.chat.exporting import Format, export
from specchat.chat.store import Store
from specchat.chat.tags import MOST, asked_for, changed, has_all, tags_in
from specchat.chat.tree import Conversation

from .conftest import a_chat, flush, save


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("work/reports, #urgent", ("work/reports", "urgent")),
        (" /work/ Work # , ,", ("Work",)),
        ("a\x1b[2J", ("a␛[2J",)),
        ("x" * 50, ("x" * 39 + "…",)),
        (" ".join(map(str, range(30))), tuple(map(str, range(MOST)))),
        ("", ()),
    ],
)
def test_tags_in_a_text(text: str, tags: tuple[str, ...]) -> None:
    assert tags_in(text) == tags


def test_tags_are_added_and_taken_away() -> None:
    assert changed(("work", "old"), "new -OLD #work") == ("work", "new")
    assert changed(("work",), "-work") == ()


def test_a_search_asks_for_tags_and_words() -> None:
    assert asked_for("fox #Work a#b # lamp") == (("Work",), "fox a#b lamp")
    assert has_all(("work/reports",), ("Work",))
    assert not has_all(("work/reports",), ("reports",))
    assert not has_all((), ("work",))
    assert has_all((), ())


def named(store: Store, prompt: str, *tags: str) -> str:
    chat = Conversation()
    store.add_turn(chat, chat.ask(prompt), {})
    store.tag(chat.key, tags)
    flush(store)
    return chat.key


def test_chats_are_found_by_their_tags(store: Store) -> None:
    reports = named(store, "a fox", "work/reports")
    plans = named(store, "another fox", "work/plans", "urgent")
    named(store, "a third fox")
    assert store.tags() == ["urgent", "work/plans", "work/reports"]
    assert {hit.chat for hit in store.search("fox #work")} == {reports, plans}
    assert {hit.chat for hit in store.search("#work #urgent fox")} == {plans}
    assert {hit.chat for hit in store.search("#work")} == {reports, plans}
    assert [hit.chat for hit in store.search("another #work/reports")] == []
    assert len(store.search("fox", limit=2)) == 2
    assert len({hit.chat for hit in store.search("fox #urgent", limit=1)}) == 1


def test_tags_stay_when_the_chat_goes_on_and_go_with_a_copy(store: Store) -> None:
    key = named(store, "a fox", "animals")
    chat = store.load(key)[0]
    store.save_chat(chat, {})
    copy, _ = store.duplicate(key)
    flush(store)
    assert [entry.tags for entry in store.chats() if entry.key in (key, copy)] == [("animals",)] * 2


@pytest.mark.parametrize(("format", "words"), [("md", "| demo | #work/a #b |"), ("html", ", demo, #work/a, #b</p>")])
def test_pages_name_them(store: Store, format: Format, words: str) -> None:
    chat = a_chat()
    save(store, chat)
    store.tag(chat.key, ("work/a", "b"))
    flush(store)
    assert words in "".join(export(store, [chat.key], format))
