"""Chats go to JSON and come back whole; files of all kinds are read, or refused with a sentence."""

import json
import time
from collections.abc import Callable
from contextlib import closing
from functools import reduce
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specchat.attachments.files import Attachment
from specchat.chat.exporting import export
from specchat.chat.files import ChatFileError, write_new
from specchat.chat.importing import import_file, read_chats
from specchat.chat.store import Store
from specchat.chat.tree import Conversation
from specchat.chat.turn import Turn
from specchat.clean import clean
from specchat.engine.protocol.events import Failed, Finished
from specchat.engine.protocol.options import Beginning
from specchat.engine.protocol.stats import Stats

from .conftest import a_chat, answer, flush, save


def exported(store: Store, *keys: str) -> str:
    return "".join(export(store, keys, "json"))


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8", newline="")
    return path


@pytest.fixture
def other(tmp_path: Path) -> Store:
    return Store(tmp_path / "other.db")


def test_a_chat_comes_back_identical(store: Store, other: Store, tmp_path: Path) -> None:
    chat = a_chat()
    hard = chat.turns[-1]
    answer(chat, hard, "\x1b]52;c;aGk=\x07 狐狸\r\n\u2028\0 🦊 <!-- \ufeff")
    chat.show(chat.find(hard.key) or hard)
    save(store, chat)
    store.pin(chat.key, True)
    store.rename(chat.key, "foxes")
    store.tag(chat.key, ("animals/foxes", "Later"))
    flush(store)
    path = written(tmp_path / "chats.json", exported(store, chat.key))
    imported = import_file(other, path)
    assert imported.keys == [chat.key]
    assert other.whole(chat.key) == store.whole(chat.key)
    assert other.row(chat.key) == store.row(chat.key)
    assert other.tags() == ["animals/foxes", "Later"]
    assert other.load(chat.key)[0].turns[1].reply is not None
    assert exported(other, chat.key) == path.read_bytes().decode()
    assert len(other.search("fox")) >= 2


def test_files_of_the_first_version_have_no_tags(store: Store, other: Store, tmp_path: Path) -> None:
    chat = a_chat()
    save(store, chat)
    flush(store)
    data = json.loads(exported(store, chat.key))
    assert (data["version"], data["chats"][0].pop("tags")) == (2, [])
    imported = import_file(other, written(tmp_path / "chats.json", json.dumps(data | {"version": 1})))
    assert imported.keys == [chat.key]


def test_what_is_there_already_is_left_alone(store: Store, other: Store, tmp_path: Path) -> None:
    chats = [a_chat(), a_chat()]
    for chat in chats:
        save(store, chat)
    path = written(tmp_path / "chats.json", exported(store, *(chat.key for chat in chats)))
    save(other, a_chat())
    assert import_file(other, path).summary() == "2 chats imported"
    other.rename(chats[0].key, "mine")
    flush(other)
    assert import_file(other, path).summary() == "0 chats imported; 2 already here and left as they are"
    turn = chats[1].ask("more")
    other.add_turn(chats[1], turn, {})
    again = import_file(other, path)
    assert again.summary() == "1 chat imported; 1 already here and left as it is"
    assert again.keys != [chats[1].key]
    copy = other.load(again.keys[0])[0]
    assert [turn.prompt for turn in copy.turns] == ["Tell me about a fox", "And a lamp?"]
    assert copy.turns[1].reply is not None
    assert copy.turns[1].reply.steps


def test_a_chat_deleted_here_comes_back(store: Store, tmp_path: Path) -> None:
    chat = a_chat()
    save(store, chat)
    path = written(tmp_path / "a.json", exported(store, chat.key))
    store.delete(chat.key)
    flush(store)
    (key,) = import_file(store, path).keys
    assert [turn.prompt for turn in store.load(key)[0].turns] == ["Tell me about a fox", "And a lamp?"]


def change(*path: str | int, to: Any) -> Callable[[Any], None]:
    def apply(data: Any) -> None:
        for part in path[:-1]:
            data = data[part]
        data[path[-1]] = to

    return apply


def extend(*path: str | int, to: Any) -> Callable[[Any], None]:
    def apply(data: Any) -> None:
        for part in path:
            data = data[part]
        data.append(to)

    return apply


CHAT = ("chats", 0)
FIRST = (*CHAT, "messages", 0)
SECOND = (*CHAT, "messages", 1)
DEEP: Any = reduce(lambda inner, _: {"a": inner}, range(400), 0)
MESSAGE = {"key": "x", "parent": "y", "role": "user", "text": "", "created": 0, "state": "sent", "meta": {}}


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (change("version", to=3), r"newer specchat \(version 3"),
        (change("version", to="1"), r"version is '1'"),
        (change("format", to="other"), 'its "format" is not "specchat"'),
        (change("more", to=1), r"more: Extra inputs"),
        (change(*CHAT, "title", to=5), r"chats\[0\]\.title: Input should be a valid string"),
        (change(*CHAT, "key", to="../x"), r"chats\[0\]\.key"),
        (change(*CHAT, "created", to=1e300), r"chats\[0\]\.created"),
        (change(*CHAT, "view", to=[]), r"chats\[0\]\.view"),
        (change(*FIRST, "role", to="system"), r"chats\[0\]\.messages\[0\]\.role"),
        (change(*FIRST, "state", to="odd"), r"messages\[0\]\.state"),
        (change(*FIRST, "text", to="\ud800"), r"messages\[0\]\.text"),
        (change(*FIRST, "role", to="assistant"), r"messages\[0\]: prompts follow replies"),
        (change(*FIRST, "meta", to={"attachments": [{"name": 1}]}), r"messages\[0\]\.meta: attachments\[0\]\.name"),
        (change(*SECOND, "meta", to={"sampling": {"seed": "x"}}), r"messages\[1\]\.meta: sampling\.seed"),
        (change(*SECOND, "parent", to="nowhere"), r'messages\[1\]: its parent "nowhere" does not stand before it'),
        (extend(*CHAT, "messages", to=MESSAGE | {"parent": "x"}), r'its parent "x" does not stand before it'),
        (lambda data: data["chats"][0]["messages"].append(data["chats"][0]["messages"][0]), "is used twice"),
        (change(*CHAT, "view", "more", to=DEEP), r"chats\[0\]\.view: it is nested too deeply"),
        (change(*FIRST, "meta", to={"more": DEEP}), r"messages\[0\]\.meta: it is nested too deeply"),
        (lambda data: next(iter(data["chats"][0]["traces"].values())).update(x=DEEP), r"traces\..*: it is nested too"),
        (change(*CHAT, "traces", "nobody", to={}), r'chats\[0\]\.traces: there is no reply "nobody"'),
    ],
)  # fmt: skip
def test_a_damaged_chat_is_refused_with_its_place(
    store: Store, tmp_path: Path, damage: Callable[[Any], None], words: str
) -> None:
    chat = a_chat()
    save(store, chat)
    data = json.loads(exported(store, chat.key))
    damage(data)
    path = written(tmp_path / "bad.json", json.dumps(data))
    with pytest.raises(ChatFileError, match=words) as caught:
        import_file(store, path)
    assert str(path) in str(caught.value)
    assert len(store.chats()) == 1


def test_a_record_that_would_not_fit_memory_is_refused(store: Store, tmp_path: Path) -> None:
    chat = a_chat()
    save(store, chat)
    data = json.loads(exported(store, chat.key))
    key = next(iter(data["chats"][0]["traces"]))
    data["chats"][0]["traces"][key]["steps"]["accepted"][0] = 10**12
    with pytest.raises(ChatFileError, match=rf"traces\.{key}: .*out of range"):
        import_file(store, written(tmp_path / "bad.json", json.dumps(data)))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "holds no chat"),
        (b"\xff\xfe", r"is not UTF-8 text \(byte 0\)"),
        (b'{"format": "specchat", "ver', r"damaged or not complete \(line 1, column"),
        (b'{"a": NaN}', r"a number that cannot be used \(NaN\)"),
        (b'{"a": 1e999}', r"a number that cannot be used \(1e999\)"),
        (b"[" * 200_000, "nested too deeply|not complete"),
        (b'{"messages": [{"role": "user", "content": "hi"}]}', "can come as Markdown"),
        (b'[{"id": "a", "chat": {}}, {"id": "b"}]', "can come as Markdown"),
        (b"[1, 2]", "no conversation of ChatGPT"),
        (b"PK\x03\x04rubbish", "cannot be unpacked"),
    ],
)
def test_other_files_are_refused(store: Store, tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(data)
    with pytest.raises(ChatFileError, match=words):
        import_file(store, path)
    assert store.chats() == []


def test_a_missing_file_and_a_folder_are_reported(store: Store, tmp_path: Path) -> None:
    with pytest.raises(ChatFileError, match=r"cannot be read \(No such file"):
        import_file(store, tmp_path / "none.json")
    with pytest.raises(ChatFileError, match="is not a regular file"):
        import_file(store, tmp_path)


def test_a_file_that_is_too_large_is_not_read(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specchat.chat.files.MAX_BYTES", 10)
    with pytest.raises(ChatFileError, match="is over"):
        import_file(store, written(tmp_path / "a.json", "[" + " " * 20 + "]"))


def test_markdown_is_known_by_its_key(store: Store, tmp_path: Path) -> None:
    path = written(tmp_path / "a.md", "## You\nhi\n## Assistant\nhello\n## You\nand?\n")
    now = time.time()
    (key,) = import_file(store, path).keys
    chat, row = store.load(key)
    assert [turn.prompt for turn in chat.turns] == ["hi", "and?"]
    assert now <= row.created <= time.time()


def test_a_prompt_after_an_unanswered_one_keeps_the_chat() -> None:
    chat = Conversation()
    first = chat.ask("hi")
    answer(chat, first, "hello")
    chat.ask("lost")
    assert [message.content for message in chat.messages(prompt="next")] == ["hi", "hello", "next"]
    turn = chat.ask("next")
    assert chat.turns == [first, turn]
    assert len(chat.siblings(turn)) == 2


def test_names_and_errors_from_a_file_are_safe_to_show(store: Store, tmp_path: Path) -> None:
    chat = a_chat()
    save(store, chat)
    data = json.loads(exported(store, chat.key))
    data["chats"][0]["key"] = "other"
    data["chats"][0]["messages"][1]["meta"] |= {
        "name": "a\x1b[2J\nb",
        "error": "\x1b[2J",
        "marks": [{"offset": 0, "step": 0, "tokens": 0, "text": "\x1b[2J"}],
    }
    (key,) = import_file(store, written(tmp_path / "a.json", json.dumps(data))).keys
    reply = next(reply for turn in store.load(key)[0].every_turn() for reply in turn.replies if "␛" in reply.name)
    for shown in (reply.name, reply.end.error, *(mark.text for mark in reply.marks)):
        assert shown == clean(shown)
    assert "\n" not in reply.name


def test_files_are_private_and_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    write_new(path, ["one\r\n", "two"])
    assert path.read_bytes() == b"one\r\ntwo"
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ChatFileError, match="exists already and is kept"):
        write_new(path, ["three"])
    with pytest.raises(ChatFileError, match="No such file"):
        write_new(tmp_path / "no" / "a.md", [])
    assert path.read_bytes() == b"one\r\ntwo"


def test_a_file_that_fails_half_way_is_taken_away(tmp_path: Path) -> None:
    with pytest.raises(ChatFileError, match="No space left"):
        write_new(tmp_path / "a.md", (_full() if n == 3 else "text" for n in range(9)))
    assert not (tmp_path / "a.md").exists()


def _full() -> str:
    raise OSError(28, "No space left on device")


def test_halves_of_characters_are_replaced_rather_than_lost(store: Store) -> None:
    chat = Conversation("\udcff")
    assert store.add_turn(chat, chat.ask("a \udcff b"), {})
    assert store.load(chat.key)[0].turns[0].prompt == "a \ufffd b"


def test_the_format_may_be_named(tmp_path: Path) -> None:
    path = written(tmp_path / "a.json", "## You\nhi\n")
    assert read_chats(path, "md")[0][0].messages[0].text == "hi"
    with pytest.raises(ChatFileError, match="damaged or not complete"):
        read_chats(path, "json")


PIECES = (
    "a",
    "word ",
    "\n",
    "\r\n",
    "<!-- specchat: user -->",
    "\\",
    "\x00",
    "\x1b[2J",
    "狐",
    "🦊",
    "\u202e",
    "\u2028",
    "```",
    '"',
)


def grown(random: Random) -> Conversation:
    """A tree of prompts with files, and of replies in every state."""

    def text(most: int = 6) -> str:
        return "".join(random.choices(PIECES, k=random.randrange(most)))

    chat = Conversation(text())
    turns: list[Turn] = []
    for _ in range(random.randrange(1, 7)):
        files = tuple(Attachment(text(), text()) for _ in range(random.randrange(2)))
        if turns and random.random() < 0.4:
            turns.append(chat.edit(random.choice(turns), text(), files))
        else:
            turns.append(chat.ask(text(), files))
        for _ in range(random.randrange(3)):
            reply = answer(chat, turns[-1], text(12) or "x", ended=False)
            reply.start = Beginning(text())
            end: Any = random.choice((None, "stop", "length", "context", "cancelled", "failed"))
            if end == "failed":
                reply.failed(Failed(1, "memory", text()))
            elif end:
                reply.finished(Finished(1, end, reply.raw, (), Stats()))
    chat.show(random.choice(turns))
    return chat


@settings(max_examples=40)
@given(st.randoms(use_true_random=False))
def test_any_chat_comes_back_identical(random: Random) -> None:
    here, there = Store(), Store()
    with TemporaryDirectory() as folder, closing(here), closing(there):
        chat = grown(random)
        save(here, chat)
        if random.random() < 0.5:
            here.rename(chat.key, "mine")
            here.pin(chat.key, True)
            flush(here)
        text = exported(here, chat.key)
        path = written(Path(folder) / "chat.json", text)
        assert import_file(there, path).keys == [chat.key]
        assert exported(there, chat.key) == text
        assert import_file(there, path).known == 1
        shown = there.load(chat.key)[0]
        assert [turn.key for turn in shown.turns] == [turn.key for turn in chat.turns]
