"""Pictures of chats: saved once, loaded when asked for, exported, and removed with the last chat that has them."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from specchat.attachments.files import Attachment
from specchat.attachments.pictures import SMALL, attached
from specchat.chat import sql
from specchat.chat.exporting import as_page, export
from specchat.chat.files import ChatFileError
from specchat.chat.importing import import_file
from specchat.chat.store import Store
from specchat.chat.tree import Conversation
from specchat.engine.protocol.options import Message, Picture
from tests.drawn import drawn

from .conftest import answer, flush, save

DATA = drawn("JPEG", (600, 300))


def a_chat(*texts: str) -> Conversation:
    """A chat with the same picture in each prompt."""
    chat = Conversation()
    for text in texts:
        answer(chat, chat.ask(text, (Attachment("fox.jpg", picture=attached(DATA)), Attachment("a", "b"))), "Red.")
    return chat


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "other.db")
    yield opened
    opened.close()


def held(store: Store) -> list[bytes]:
    flush(store)
    assert store.path is not None
    with closing(sqlite3.connect(store.path)) as db:
        return [data for (data,) in db.execute("SELECT data FROM picture")]


def test_a_picture_lying_on_its_side_is_measured_upright() -> None:
    found = attached(drawn("JPEG", (600, 300), orientation=6))
    assert (found.format, found.width, found.height) == ("JPEG", 300, 600)
    assert 0 < len(found.small) < 6_000
    small = attached(found.small)
    assert (small.width, small.height) == (SMALL // 2, SMALL)


def test_one_comes_back_and_is_held_once(store: Store) -> None:
    chat = a_chat("What is this?", "And this?")
    save(store, chat)
    assert held(store) == [DATA]
    again, _ = store.load(chat.key)
    assert again.turns[0].attachments == chat.turns[0].attachments
    picture = again.turns[1].attachments[0].picture
    assert picture is not None
    before = chat.turns[1].attachments[0].picture
    assert before is not None
    assert picture.small == before.small
    first = again.messages(again.turns[0])
    assert first == (Message("user", "What is this?\n\nFile a:\n```\nb\n```", pictures=(Picture(DATA),)),)


def test_what_is_lost_is_said_to_the_model(store: Store) -> None:
    chat = a_chat("What is this?")
    save(store, chat)
    store._writer.put(lambda db: db.execute("DELETE FROM picture") and None)
    flush(store)
    again, _ = store.load(chat.key)
    (message,) = again.messages(again.turns[0])
    assert message.pictures == ()
    assert message.content.endswith("(The picture fox.jpg is lost.)")


def test_it_goes_with_the_last_chat_that_has_it(store: Store) -> None:
    chats = [a_chat("What is this?"), a_chat("And this?")]
    for number, chat in enumerate(chats):
        save(store, chat)
        store.delete(chat.key)
        store._writer.put(lambda db: sql.tidy(db, 1e12))
        assert held(store) == []
        if not number:
            save(store, chats[1])
            assert held(store) == [DATA]
    save(store, chats[0])
    save(store, chats[1])
    store.delete(chats[0].key)
    store._writer.put(lambda db: sql.tidy(db, 1e12))
    assert held(store) == [DATA]


def test_json_has_them_whole(store: Store, other: Store, tmp_path: Path) -> None:
    chat = a_chat("What is this?")
    save(store, chat)
    path = tmp_path / "chat.json"
    path.write_text("".join(export(store, [chat.key], "json")), encoding="utf-8")
    assert len(import_file(other, path).keys) == 1
    assert held(other) == [DATA]
    again, _ = other.load(chat.key)
    assert again.messages(again.turns[0]) == chat.messages(chat.turns[0])
    data = json.loads(path.read_text(encoding="utf-8"))
    for wrong in ("AAAA", "no base64!"):
        data["chats"][0]["pictures"] = dict.fromkeys(data["chats"][0]["pictures"], wrong)
        path.write_text(json.dumps(data), encoding="utf-8")
        with pytest.raises(ChatFileError, match="it is no base64 of the picture with this digest"):
            import_file(other, path)


def test_pages_show_or_name_them() -> None:
    chat = a_chat("What is this?")
    page = "".join(as_page(chat, "html"))
    assert '<img alt="fox.jpg" src="data:image/jpeg;base64,' in page
    assert "Picture fox.jpg (600 × 300)" in "".join(as_page(chat, "md"))
