"""ChatGPT's export: its trees, what is left out, and its zip."""

import contextlib
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from specchat.chat import chatgpt
from specchat.chat.files import ChatFileError
from specchat.chat.importing import import_file, read_chats
from specchat.chat.rows import WholeChat
from specchat.chat.store import Store

WHEN = 1_700_000_000.5


def node(id: str, parent: str | None, role: str = "", text: str = "", **message: Any) -> dict[str, Any]:
    """A node as the export writes it; without a role it holds no message."""
    said = None
    if role:
        said = {
            "id": id,
            "author": {"role": role, "name": None, "metadata": {}},
            "create_time": WHEN,
            "update_time": None,
            "content": {"content_type": "text", "parts": [text]},
            "status": "finished_successfully",
            "end_turn": True,
            "weight": 1.0,
            "metadata": {"model_slug": "gpt-4o"} if role == "assistant" else {},
            "recipient": "all",
            **message,
        }
    return {"id": id, "message": said, "parent": parent, "children": []}


def conversation(*nodes: dict[str, Any], current: str, **more: Any) -> dict[str, Any]:
    mapping = {entry["id"]: entry for entry in nodes}
    for entry in nodes:
        if entry["parent"] in mapping:
            mapping[entry["parent"]]["children"].append(entry["id"])
    head = {"title": "Foxes", "create_time": WHEN, "update_time": WHEN + 60, "conversation_id": "c-1"}
    return head | {"mapping": mapping, "current_node": current} | more


def read(*conversations: Any) -> chatgpt.Read:
    return chatgpt.from_chatgpt(json.loads(json.dumps(conversations)), "conversations.json")


def lines(chat: WholeChat) -> list[tuple[str, str, str]]:
    """Role, text and the text of what each message follows."""
    texts = {message.key: message.text for message in chat.messages}
    return [(message.role, message.text, texts.get(message.parent or "", "")) for message in chat.messages]


HIDDEN = {"metadata": {"is_visually_hidden_from_conversation": True}}
BRANCHED = conversation(
    node("root", None),
    node("system", "root", "system", "", **HIDDEN),
    node("q", "system", "user", "What is a fox?"),
    node("a1", "q", "assistant", "An animal."),
    node("a2", "q", "assistant", "A small animal."),
    node("more", "a2", "user", "More?"),
    node("end", "more", "assistant", "It is red."),
    node("edit", "system", "user", "What is an owl?"),
    node("owl", "edit", "assistant", "A bird."),
    current="end",
)


def test_branches_and_the_shown_path_are_kept(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([BRANCHED]))
    imported = import_file(store, path)
    assert imported.summary() == "1 chat imported"
    chat, row = store.load(imported.keys[0])
    assert [(turn.prompt, turn.reply.text) for turn in chat.turns if turn.reply] == [
        ("What is a fox?", "A small animal."),
        ("More?", "It is red."),
    ]
    assert [turn.prompt for turn in chat.first] == ["What is a fox?", "What is an owl?"]
    assert [reply.text for reply in chat.turns[0].replies] == ["An animal.", "A small animal."]
    assert (chat.title, row.created, row.updated) == ("Foxes", WHEN, WHEN + 60)
    assert chat.turns[0].reply is not None
    assert (chat.turns[0].reply.name, chat.turns[0].reply.created) == ("gpt-4o", WHEN)
    assert import_file(store, path).summary() == "0 chats imported; 1 already here and left as it is"


def test_tools_and_pictures_are_left_out_and_what_hangs_on_them_moves_up() -> None:
    picture = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://x"}
    parts = {"content_type": "multimodal_text", "parts": [picture, "What is this?"]}
    result = read(
        conversation(
            node("q", None, "user", content=parts),
            node("look", "q", "assistant", "Let me look."),
            node("call", "look", "assistant", content={"content_type": "code", "text": "look()"}, recipient="python"),
            node("tool", "call", "tool", content={"content_type": "execution_output", "text": "fox"}),
            node("think", "tool", "assistant", content={"content_type": "thoughts", "thoughts": []}),
            node("empty", "think", "assistant", ""),
            node("say", "empty", "assistant", "A fox."),
            node("next", "say", "user", "Code?"),
            node("code", "next", "assistant", content={"content_type": "code", "language": "python", "text": "x = 1"}),
            current="code",
        )
    )
    assert lines(result.chats[0]) == [
        ("user", "[picture left out]\n\nWhat is this?", ""),
        ("assistant", "Let me look.\n\nA fox.", "[picture left out]\n\nWhat is this?"),
        ("user", "Code?", "Let me look.\n\nA fox."),
        ("assistant", "```python\nx = 1\n```", "Code?"),
    ]
    (note,) = result.notes
    assert set(note.removeprefix("left out: ").split(", ")) == {
        "pictures (1)",
        "messages of system or tools (1)",
        "messages of other kinds (1)",
    }


def cite(*fields: str) -> str:
    """A mark as the export has it in the text."""
    return "\ue200" + "\ue202".join(fields) + "\ue201"


@pytest.mark.parametrize(
    ("text", "references", "read_as"),
    [
        (
            f"Foxes sleep. {cite('cite', 'turn0search1')}",
            [{"matched_text": cite("cite", "turn0search1"), "alt": "([foxes](https://foxes.example/))"}],
            "Foxes sleep. ([foxes](https://foxes.example/))",
        ),
        (f"Foxes sleep. {cite('cite', 'turn0search1')} Owls wake.", None, "Foxes sleep. Owls wake."),
        (
            f"In {cite('entity', json.dumps(['city', 'Paris', 'capital']))}.",
            [{"matched_text": " ", "alt": ""}],
            "In Paris.",
        ),
        (f"See {cite('url', 'the page', 'turn0search2')}!", "odd", "See the page!"),
        ("Foxes sleep【4†source】. 【draft】 stays.", [], "Foxes sleep. 【draft】 stays."),
        (f"odd {cite('entity', '[')} {cite('entity', '[1, 2]')} end", [7, {"matched_text": 1}], "odd end"),
        ("an end \ue201 alone", None, "an end \ue201 alone"),
    ],
)
def test_citations_are_read_as_links_or_not_at_all(text: str, references: object, read_as: str) -> None:
    meta = {"metadata": {"model_slug": "gpt-4o", "content_references": references}}
    chat = conversation(
        node("root", None),
        node("q", "root", "user", "What do foxes do?"),
        node("a", "q", "assistant", text, **meta),
        current="a",
    )
    assert read(chat).chats[0].messages[-1].text == read_as


def test_the_shown_path_may_end_in_the_middle_or_at_something_left_out() -> None:
    nodes = (
        node("q", None, "user", "hi"),
        node("a", "q", "assistant", "one"),
        node("b", "a", "assistant", "two"),
        node("t", "a", "tool", "x"),
    )
    chat = read(conversation(*nodes, current="t")).chats[0]
    shown = next(message for message in chat.messages if message.key == chat.row.view["leaf"])
    assert shown.text == "one"
    assert [text for _, text, _ in lines(chat)] == ["hi", "one", "one\n\ntwo"]


def test_a_chat_that_begins_with_a_reply_gets_an_empty_prompt() -> None:
    chat = read(conversation(node("a", None, "assistant", "hello"), current="a")).chats[0]
    assert lines(chat) == [("user", "", ""), ("assistant", "hello", "")]


def test_loops_and_odd_values_do_no_harm() -> None:
    odd = conversation(
        node("q", None, "user", "hi", create_time=None),
        node("x", "y", "user", "lost"),
        node("y", "x", "user", "lost"),
        current="x",
        title=None,
        create_time="then",
        update_time=1e300,
    )
    odd["mapping"]["q"]["children"] += [{}, "q", "nowhere"]
    result = read(odd)
    assert lines(result.chats[0]) == [("user", "hi", "")]
    assert (result.chats[0].row.title, result.chats[0].row.updated, result.chats[0].row.view) == ("", 0.0, {"leaf": ""})
    assert result.notes == ("left out: messages that hang on nothing (2)",)


def test_a_date_that_no_number_can_hold_is_left_out() -> None:
    chat = read(conversation(node("q", None, "user", "hi", create_time=10**400), current="q", create_time=10**400))
    assert chat.chats[0].row.created == 0.0


def test_branches_of_a_reply_at_the_start_share_its_empty_prompt(store: Store, tmp_path: Path) -> None:
    branched = conversation(
        node("a", None, "assistant", "hello"),
        node("b", "a", "assistant", "there"),
        node("c", "a", "assistant", "you"),
        node("q", "a", "user", "hm"),
        current="b",
    )
    assert lines(read(branched).chats[0]) == [
        ("user", "", ""),
        ("assistant", "hello", ""),
        ("assistant", "hello\n\nthere", ""),
        ("assistant", "hello\n\nyou", ""),
        ("user", "hm", "hello"),
    ]
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([branched]))
    import_file(store, path)
    assert import_file(store, path).known == 1


def test_halves_of_characters_are_the_same_chat_again(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([conversation(node("q", None, "user", "hi \ud83d"), current="q")]))
    import_file(store, path)
    assert import_file(store, path).known == 1


def test_an_empty_conversation_is_counted() -> None:
    result = read(conversation(node("root", None), current="root"), BRANCHED)
    assert len(result.chats) == 1
    assert result.notes == ("left out: empty chats (1)",)


ODD: list[Any] = [5, {"mapping": []}, {"mapping": {"q": 7}}]


@pytest.mark.parametrize(
    ("bad", "words"), zip(ODD, ["this is no conv", "this is no conv", r"\.q: this is no message"], strict=True)
)
def test_a_file_of_something_else_is_refused_with_its_place(store: Store, tmp_path: Path, bad: Any, words: str) -> None:
    (tmp_path / "conversations.json").write_text(json.dumps([bad]))
    for path in (tmp_path / "conversations.json", zipped(tmp_path / "export.zip", conversations=json.dumps([bad]))):
        with pytest.raises(ChatFileError, match=rf"\[0\].*{words}"):
            import_file(store, path)


@pytest.mark.parametrize("bad", ODD)
def test_an_odd_conversation_keeps_no_other_out(store: Store, tmp_path: Path, bad: Any) -> None:
    parts = {"conversations-000": json.dumps([bad]), "conversations-001": json.dumps([bad, BRANCHED])}
    imported = import_file(store, zipped(tmp_path / "export.zip", **parts))
    assert len(imported.keys) == 1
    assert imported.notes == ("left out: unusable chats (2)",)


@pytest.mark.parametrize("title", [None, "", "  "])
def test_an_untitled_chat_gets_a_title_also_when_it_is_here(store: Store, tmp_path: Path, title: str | None) -> None:
    nodes = [node("root", None), node("a", "root", "user", "Can you explain tides to me?"), node("b", "a", "assistant")]
    (tmp_path / "c.json").write_text(json.dumps([conversation(*nodes, current="b", title=title)]))
    (known,), _ = read_chats(tmp_path / "c.json")
    key, done = store.insert(known.row, known.messages, {})  # as it was imported before
    assert store.saved(done)
    assert import_file(store, tmp_path / "c.json").known == 1
    assert [(entry.key, entry.title) for entry in store.chats()] == [(key, "Tides")]
    assert [hit.chat for hit in store.search("tides")] == [key, key]


def test_a_title_that_was_given_meanwhile_stays(store: Store, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(
        json.dumps([conversation(node("a", None, "user", "Tides?"), current="a", title="")])
    )
    (key,) = import_file(store, tmp_path / "c.json").keys
    store.saved(store.rename(key, "Mine"))
    import_file(store, tmp_path / "c.json")
    assert [entry.title for entry in store.chats()] == ["Mine"]


def test_very_deep_chats_are_read() -> None:
    nodes = [node("0", None, "user", "0")]
    nodes += [node(str(n), str(n - 1), "assistant" if n % 2 else "user", str(n)) for n in range(1, 5000)]
    assert len(read(conversation(*nodes, current="4999")).chats[0].messages) == 5000


def test_a_message_of_a_long_chat_without_an_id_costs_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = []
    monkeypatch.setattr(chatgpt, "_bytes", lambda text: hashed.append(len(text)) or text.encode())
    nodes = [node("0", None, "user", "0")]
    nodes += [node(str(n), str(n - 1), "assistant" if n % 2 else "user", str(n)) for n in range(1, 1000)]
    chat = conversation(*nodes, current="999")
    del chat["conversation_id"]
    assert len(read(chat).chats[0].messages) == 1000
    assert sum(hashed) < 100 * len(nodes)


def test_a_chat_whose_branches_repeat_too_much_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chatgpt, "_MOST", 1000)
    nodes = [node("0", None, "assistant", "x" * 20)]
    for n in range(1, 20):
        nodes += [node(str(n), str(n - 1), "assistant", "x" * 20), node(f"u{n}", str(n - 1), "user", "hi")]
    result = read(conversation(*nodes, current="19"), BRANCHED)
    assert len(result.chats) == 1
    assert "repeat more text" in result.problem


def zipped(path: Path, **files: str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(f"{name}.json", text)
    return path


def test_the_zip_is_read_as_it_is(store: Store, tmp_path: Path) -> None:
    path = zipped(tmp_path / "export.zip", user="{}", conversations=json.dumps([BRANCHED]))
    assert import_file(store, path).summary() == "1 chat imported"


def test_parts_of_a_large_export_are_read_together(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(2):
            archive.writestr(f"x/conversations-00{number}.json", json.dumps([BRANCHED | {"conversation_id": number}]))
    assert import_file(store, path).summary() == "2 chats imported"


def test_a_zip_bomb_stops_early(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = zipped(tmp_path / "export.zip", conversations=" " * 2_000_000)
    monkeypatch.setattr(chatgpt, "MAX_BYTES", 1_000_000)
    with pytest.raises(ChatFileError, match="unpacks to over"):
        import_file(store, path)


@pytest.mark.parametrize("packing", [zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_zip_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packing: int) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w", packing) as archive:
        archive.writestr("conversations.json", json.dumps([BRANCHED]))
        archive.writestr("é.txt", "x")
    data = path.read_bytes()
    for place in range(4, len(data)):
        damaged = data[:place] + bytes([data[place] ^ 0xC3]) + data[place + 1 :]
        monkeypatch.setattr("specchat.chat.importing.read", lambda _, damaged=damaged: damaged)
        with contextlib.suppress(ChatFileError):
            read_chats(path)


def test_another_zip_is_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(ChatFileError, match=r"holds no conversations\.json"):
        import_file(store, zipped(tmp_path / "other.zip", notes="{}"))
