"""`ask --save`, `ask --continue` and `specchat --plain`: chats kept as the app keeps them."""

import json
import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from specchat.attachments.files import Attachment
from specchat.chat import connection
from specchat.chat.rows import INTERRUPTED
from specchat.chat.store import Store
from specchat.chat.tree import Conversation
from specchat.cli.exit_codes import ExitCode
from specchat.config.catalog import folder_source, local_pair
from specchat.engine.protocol.options import Message
from specchat.engine.protocol.requests import Generate, Load, Request
from tests.chat.conftest import a_chat, save
from tests.cli.conftest import Run, configure
from tests.cli.test_imports import imported
from tests.cli.test_processes import PATIENCE_S, ROOT, SCRIPTED, wait_for, wait_until_logged
from tests.fake import FakeEngine
from tests.models.made import gguf, no_home

REPLIES = ("One.", "Two.", "Three.")


def use(monkeypatch: pytest.MonkeyPatch, replies: Sequence[str] = REPLIES) -> FakeEngine:
    """One engine for all commands of a test, which answers in turn."""
    made = FakeEngine(replies)
    monkeypatch.setattr("specchat.resident.shared.open_engine", lambda *_: made)
    return made


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    return use(monkeypatch)


def generated(engine: FakeEngine) -> list[Generate]:
    return [request for request in engine.requests if isinstance(request, Generate)]


def opened(home: Path) -> Store:
    (home / "data").mkdir(parents=True, exist_ok=True)
    return Store(home / "data" / "chats.db")


def chats(home: Path) -> list[Conversation]:
    """The latest first."""
    store = opened(home)
    found = [store.load(entry.key)[0] for entry in store.chats()]
    for chat in found:
        for turn in chat.every_turn():
            assert all(reply.record is not None for reply in turn.replies)
    store.close()
    return found


def said(chat: Conversation) -> list[tuple[str, str]]:
    return [(turn.prompt, turn.reply.raw if turn.reply else "") for turn in chat.turns]


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("way", ["option", "setting", "broken"])
def test_nothing_is_kept_where_that_is_wanted_or_cannot_be(run: Run, home: Path, way: str) -> None:
    if way == "setting":
        configure(home, config="keep_last_question = false\n")
    if way == "broken":
        (home / "data").mkdir(parents=True)
        (home / "data" / "chats.db").write_text("no database")
    result = run("ask", "--json", *(["--no-save"] if way == "option" else []), "hello")
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout)["chat"] is None
    assert (home / "data").exists() == (way == "broken")


def test_a_question_is_gone_on_with_and_in_no_list(run: Run, home: Path, engine: FakeEngine) -> None:
    assert json.loads(run("ask", "--json", "Foxes?").stdout)["chat"] is None
    assert json.loads(run("ask", "--continue", "--json", "And owls?").stdout)["chat"] is None
    assert [message.content for message in generated(engine)[1].messages] == ["Foxes?", "One.", "And owls?"]
    assert chats(home) == []
    assert run("chats", "search", "owls").stdout == ""
    store = opened(home)
    assert store.replies(1000) == []
    store.close()
    saved = json.loads(run("ask", "--continue", "--save", "--json", "And bats?").stdout)["chat"]
    (chat,) = chats(home)
    assert chat.key == saved
    assert [prompt for prompt, _ in said(chat)] == ["Foxes?", "And owls?", "And bats?"]


def test_the_next_question_takes_the_place_of_the_last(run: Run, home: Path, engine: FakeEngine) -> None:
    run("ask", "--save", "Kept?")
    for question in ("Foxes?", "Owls?"):
        run("ask", question)
    run("ask", "--continue", "And bats?")
    assert [message.content for message in generated(engine)[3].messages][::2] == ["Owls?", "And bats?"]
    with closing(sqlite3.connect(home / "data" / "chats.db")) as db:
        texts = {text for (text,) in db.execute("SELECT text FROM message WHERE role = 'user'")}
    assert texts == {"Kept?", "Owls?", "And bats?"}


def test_a_question_that_is_not_kept_continues_nothing(run: Run) -> None:
    result = run("ask", "--no-save", "--continue", "hello")
    assert result.exit_code == ExitCode.USAGE
    assert "--no-save does not go with a chat that goes on" in result.stderr


def test_a_saved_answer_is_gone_on_with(run: Run, home: Path, engine: FakeEngine) -> None:
    first = json.loads(run("ask", "--save", "--system", "Be brief.", "--seed", "7", "--json", "Foxes?").stdout)
    result = run("ask", "--continue", "And owls?")
    assert (result.exit_code, result.stdout) == (0, "Two.\n")
    assert generated(engine)[1].messages == (
        Message("system", "Be brief."),
        Message("user", "Foxes?"),
        Message("assistant", "One."),
        Message("user", "And owls?"),
    )
    (chat,) = chats(home)
    assert chat.key == first["chat"]
    assert said(chat) == [("Foxes?", "One."), ("And owls?", "Two.")]
    reply = chat.turns[0].reply
    assert reply is not None
    assert (reply.name, reply.seed, reply.end.reason, bool(reply.end.stats), bool(reply.steps)) == (
        "demo",
        7,
        "stop",
        True,
        True,
    )
    assert chat.title == "Foxes"


def test_files_go_along_as_attachments(run: Run, home: Path, engine: FakeEngine, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    run("ask", "--save", "--file", str(tmp_path / "a.py"), "Why?")
    (chat,) = chats(home)
    assert (chat.turns[0].prompt, chat.turns[0].attachments) == ("Why?", (Attachment(f"{tmp_path}/a.py", "x = 1\n"),))
    assert chat.turns[0].content == generated(engine)[0].messages[-1].content


def test_a_named_chat_goes_on_at_the_end_of_its_shown_path(run: Run, home: Path, engine: FakeEngine) -> None:
    store = opened(home)
    chat = a_chat()
    save(store, chat)
    store.save_chat(chat, {"pair": "mine", "settings": {"kept": True}, "scroll": {"at": 1}})
    store.add_turn(later := Conversation(), later.ask("later"), {})
    store.close()
    configure(home, models='schema = 1\n[[pair]]\nid = "mine"\ntarget.path = "/t"\n')
    assert run("ask", "--chat", "tell me about a fox", "more").exit_code == 0
    assert [message.content for message in generated(engine)[0].messages][-2:] == ["Lamps are for the night.", "more"]
    assert [request.pair.id for request in engine.requests if isinstance(request, Load)] == ["mine"]
    store = opened(home)
    loaded, row = store.load(chat.key)
    assert said(loaded)[-1] == ("more", "One.")
    assert len(list(loaded.every_turn())) == 4
    assert row.view["settings"] == {"kept": True}
    assert not row.view["scroll"]
    store.close()
    run("ask", "--chat", chat.key, "--pair", "demo", "again")
    assert [request.pair.id for request in engine.requests if isinstance(request, Load)] == ["mine", "demo"]


def test_a_chat_whose_pair_is_gone_is_not_answered_by_another(run: Run, home: Path, engine: FakeEngine) -> None:
    store = opened(home)
    store.add_turn(chat := Conversation(), chat.ask("hi"), {"pair": "gone"})
    store.close()
    for arguments, input in ((("ask", "--continue", "more"), None), (("--plain", "--continue"), "more\n")):
        result = run(*arguments, input=input)
        assert result.exit_code == ExitCode.UNUSABLE
        assert 'This chat\'s pair cannot answer. There is no pair "gone"' in result.stderr
        assert "--pair or --target names another." in result.stderr
    assert engine.requests == []


def test_a_chat_with_a_model_of_another_program_goes_on_with_it(
    run: Run, home: Path, engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_home(monkeypatch, tmp_path / "user")
    gguf(tmp_path / "user" / ".lmstudio" / "models" / "maker" / "tiny" / "m.gguf")
    store = opened(home)
    store.add_turn(chat := Conversation(), chat.ask("hi"), {"pair": "maker-tiny-m.gguf"})
    store.close()
    result = run("ask", "--continue", "more")
    assert (result.exit_code, result.stderr) == (0, "")
    assert [request.pair.id for request in engine.requests if isinstance(request, Load)] == ["maker-tiny-m.gguf"]


def test_a_chat_with_a_folder_of_weights_goes_on_with_it_or_not_at_all(
    run: Run, engine: FakeEngine, tmp_path: Path
) -> None:
    folder = tmp_path / "weights"
    folder.mkdir()
    run("ask", "--save", "--target", str(folder), "hi")
    assert run("ask", "--continue", "more").stderr == ""
    folder.rename(tmp_path / "elsewhere")
    gone = run("ask", "--continue", "more")
    assert gone.exit_code == ExitCode.UNUSABLE
    assert f"This chat's pair cannot answer. {folder} is not there any more" in gone.stderr
    assert run("ask", "--continue", "--pair", "demo", "more").stderr == run("ask", "--continue", "more").stderr == ""
    names = [request.pair.id for request in engine.requests if isinstance(request, Load)]
    here = local_pair(folder_source(folder), None).id
    assert names == [here, here, "demo", "demo"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("ask", "--chat", "owls", "hi"), 'There is no chat "owls"'),
        (("ask", "--continue", "hi"), "There are no chats yet"),
        (("--plain", "--continue"), "There are no chats yet"),
        (("--continue",), "There are no chats yet"),
        (("--continue", "ask", "hi"), "There are no chats yet"),
    ],
)
def test_what_cannot_go_on_is_refused_before_an_engine_starts(
    run: Run, engine: FakeEngine, arguments: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specchat.cli.app._terminal", lambda: True)
    result = run(*arguments, input="hi\n")
    assert result.exit_code == ExitCode.USAGE
    assert words in result.stderr
    assert engine.requests == []


def test_the_system_prompt_of_a_chat_stays(run: Run, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    run("ask", "--save", "hi")
    result = run("ask", "--continue", "--system", "other", "hi")
    assert result.exit_code == ExitCode.USAGE
    monkeypatch.setenv("SPECCHAT_SYSTEM", "other")
    run("ask", "--continue", "hi")
    assert [message.role for message in generated(engine)[-1].messages] == ["user", "assistant", "user"]


def test_a_failed_reply_keeps_the_question(run: Run, home: Path, engine: FakeEngine) -> None:
    engine.fail_reply("memory", "Memory ran out.")
    assert run("ask", "--save", "hi").exit_code == ExitCode.MEMORY
    (chat,) = chats(home)
    reply = chat.turns[0].reply
    assert reply is not None
    assert (reply.state, reply.end.error) == ("failed", "Memory ran out.")


def test_a_model_that_does_not_load_leaves_no_chat(run: Run, home: Path, engine: FakeEngine) -> None:
    engine.fail_load("memory", "Memory ran out.")
    assert run("ask", "--save", "hi").exit_code == ExitCode.MEMORY
    assert chats(home) == []


def test_arguments_of_another_encoding_are_kept_readable(run: Run, home: Path, engine: FakeEngine) -> None:
    run("ask", "--save", "na\udcefve")
    assert len(generated(engine)) == 1
    assert chats(home)[0].turns[0].prompt == "na\ufffdve"


@pytest.fixture
def refusing(home: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeEngine]:
    """The chats, with one in them, are locked by another program once the engine loads."""
    monkeypatch.setattr(connection, "BUSY_S", 0.5)
    store = opened(home)
    save(store, a_chat())
    store.close()
    other = sqlite3.connect(home / "data" / "chats.db", isolation_level=None, check_same_thread=False)
    send = engine.send

    def locked(request: Request) -> None:
        if isinstance(request, Load):
            other.execute("BEGIN IMMEDIATE")
        send(request)

    monkeypatch.setattr(engine, "send", locked)
    yield engine
    other.close()


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize("arguments", [("ask", "--save"), ("ask", "--continue"), ("ask", "--chat", "1"), ("--plain",)])
def test_what_the_database_did_not_take_is_told_by_code_and_json(run: Run, arguments: tuple[str, ...]) -> None:
    asks = arguments[0] == "ask"
    result = run(*arguments, *(("--json", "hi") if asks else ()), input=None if asks else "hi\n")
    assert result.exit_code == ExitCode.UNUSABLE
    assert "could not be saved. The chats are locked by another program." in result.stderr
    assert "slow" not in result.stderr
    if asks:
        found = json.loads(result.stdout)
        assert (found["text"], found["chat"]) == ("One.", None)


@pytest.mark.usefixtures("refusing")
def test_another_end_keeps_its_code_where_nothing_was_saved(run: Run, engine: FakeEngine) -> None:
    engine.fail_reply("memory", "Memory ran out.")
    result = run("ask", "--save", "hi")
    assert result.exit_code == ExitCode.MEMORY
    assert "could not be saved" in result.stderr


def damage(path: Path) -> None:
    """Break the first pages of a database behind its head."""
    data = bytearray(path.read_bytes())
    pages = slice(4096 * 2, 4096 * 6)
    data[pages] = bytes(at * 7 % 256 for at in range(len(data))[pages])
    path.write_bytes(data)


@pytest.mark.usefixtures("engine")
def test_a_damaged_database_is_told_by_what_reads_and_what_writes(run: Run, home: Path) -> None:
    run("ask", "--save", "hi")
    damage(home / "data" / "chats.db")
    result = run("ask", "--save", "--json", "hi")
    assert (result.exit_code, json.loads(result.stdout)["chat"]) == (ExitCode.UNUSABLE, None)
    listed = run("chats", "list")
    assert listed.exit_code == ExitCode.UNUSABLE
    assert listed.stderr.startswith("Error: The chats' file is damaged")
    assert "could not be saved" not in listed.stderr


def test_a_chat_by_lines_is_kept(run: Run, home: Path, engine: FakeEngine) -> None:
    assert run("--plain", input="a\nb\n/regenerate\n/new\nc\n").exit_code == 0
    second, first = chats(home)
    assert said(first) == [("a", "One."), ("b", "Three.")]
    assert [reply.raw for reply in first.turns[1].replies] == ["Two.", "Three."]
    assert said(second) == [("c", "One.")]
    result = run("--plain", "--chat", "a", input="d\n/regenerate\n")
    assert result.exit_code == 0
    assert [message.content for message in generated(engine)[-1].messages] == ["a", "One.", "b", "Three.", "d"]
    assert said(chats(home)[0])[-1] == ("d", "Three.")


def test_where_chats_cannot_be_kept_a_chat_by_lines_says_so(run: Run, home: Path, engine: FakeEngine) -> None:
    (home / "data").mkdir(parents=True)
    (home / "data" / "chats.db").write_bytes(b"no database" * 1000)
    result = run("--plain", input="a\nb\n")
    assert (result.exit_code, result.stdout) == (0, "One.\nTwo.\n")
    assert "is damaged or no database of specchat" in result.stderr
    assert len(generated(engine)[1].messages) == 3
    assert run("--plain", "--continue", input="a\n").exit_code == ExitCode.UNUSABLE


def test_keeping_a_chat_imports_nothing_heavy() -> None:
    assert imported("ask", "--save", "hello") == set()
    assert imported("ask", "--continue", "hello") == {"pydantic"}


# Real processes


def begin(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*SCRIPTED, "ask", *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def latest() -> Conversation:
    return chats(Path(os.environ["SPECCHAT_HOME"]))[0]


def test_a_stopped_reply_is_kept() -> None:
    process = begin("--save", "endless")
    wait_until_logged("well under way")
    os.killpg(process.pid, signal.SIGINT)
    out, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors) == (ExitCode.INTERRUPTED, "")
    reply = latest().turns[0].reply
    assert reply is not None
    assert (reply.raw.rstrip(), reply.outcome, bool(reply.steps)) == (out.rstrip(), "stopped", True)


def test_a_killed_process_leaves_what_was_written() -> None:
    process = begin("--save", "endless")

    def half_written() -> str:
        path = Path(os.environ["SPECCHAT_HOME"]) / "data" / "chats.db"
        reply = latest().turns[0].reply if path.exists() and chats(path.parents[1]) else None
        return reply.raw if reply else ""

    wait_for(half_written)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=PATIENCE_S)
    reply = latest().turns[0].reply
    assert reply is not None
    assert reply.raw.startswith("word word")
    assert reply.end.error == INTERRUPTED
