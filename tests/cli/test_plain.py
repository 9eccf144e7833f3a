"""`specchat --plain`: a chat by lines."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from specchat.cli.exit_codes import ExitCode
from specchat.cli.lines import LONGEST
from specchat.cli.plain_chat import PlainChat
from specchat.cli.plain_commands import COMMANDS
from specchat.config.paths import user_paths
from specchat.config.saved_prompts import SavedPrompts
from specchat.engine.protocol.events import Event
from specchat.engine.protocol.options import Message, Speculation
from specchat.engine.protocol.pair_info import DraftFacts
from specchat.engine.protocol.requests import Generate, Load
from specchat.tui.actions.table import ACTIONS
from tests import fake
from tests.cli.conftest import Run, configure
from tests.cli.test_processes import PATIENCE_S, ROOT, SCRIPTED, Terminal, wait_for, wait_until_pressed, workers
from tests.drawn import drawn
from tests.fake import FakeEngine

REPLIES = ("One.", "Two \x1b[2Jtwo.", "Three.")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """The engine that the chat gets, with three replies in turn."""
    return use(monkeypatch, REPLIES)


def use(monkeypatch: pytest.MonkeyPatch, replies: Sequence[str | Sequence[Event]]) -> FakeEngine:
    made = FakeEngine(replies)
    monkeypatch.setattr("specchat.resident.shared.open_engine", lambda *_: made)
    return made


def asked(engine: FakeEngine) -> list[Generate]:
    return [request for request in engine.requests if isinstance(request, Generate)]


def prompts(engine: FakeEngine) -> list[str]:
    return [request.messages[-1].content for request in asked(engine)]


def test_each_line_is_answered_with_all_before_it(run: Run, engine: FakeEngine) -> None:
    result = run("--plain", "--system", "Be brief.", input="a\n\n  \nb\nc")
    assert result.exit_code == 0
    assert result.stdout == "One.\nTwo ␛[2Jtwo.\nThree.\n"
    assert result.stderr == ""
    assert asked(engine)[-1].messages == (
        Message("system", "Be brief."),
        Message("user", "a"),
        Message("assistant", "One."),
        Message("user", "b"),
        Message("assistant", "Two \x1b[2Jtwo."),
        Message("user", "c"),
    )
    assert len({request.id for request in asked(engine)}) == 3
    assert not engine.alive


@pytest.mark.parametrize(
    ("typed", "messages"),
    [
        ("a\\\nb\n", ["a\nb"]),
        ("a\\\n\\\nb\nc\n", ["a\n\nb", "c"]),
        ("a\\", ["a"]),
        ('"""\na\n\n/new\n"""\nb\n', ["a\n\n/new", "b"]),
        ('"""a\nb"""\nc\n', ["a\nb", "c"]),
        ('"""a b"""\n', ["a b"]),
        ('"""\na', ["a"]),
        ('"""\n"""\n', []),
        (" /new\r\n", [" /new"]),
        ("/new\n", []),
        ("\ufeff/new\na\n", ["a"]),
    ],
)
def test_messages_may_go_over_lines(run: Run, engine: FakeEngine, typed: str, messages: list[str]) -> None:
    assert run("--plain", input=typed).exit_code == 0
    assert prompts(engine) == messages


def test_commands_change_the_next_replies(run: Run, engine: FakeEngine) -> None:
    commands = "/strategy lookup\na\n/length 3\n/seed 7\n/temperature 0,25\nb\n/seed\n/strategy plain\nc\n"
    assert run("--plain", "--draft-length", "5", "--top-p", "0.9", input=commands).exit_code == 0
    first, second, third = asked(engine)
    assert first.speculation == Speculation("lookup", 8)
    assert second.speculation == Speculation("lookup", 3)
    assert (second.sampling.seed, second.sampling.temperature, second.sampling.top_p) == (7, 0.25, 0.9)
    assert third.speculation == Speculation("plain", 0)
    assert third.sampling.seed != 7


def test_off_takes_the_seed_away_as_in_the_app(run: Run, engine: FakeEngine) -> None:
    assert run("--plain", "--seed", "7", input="a\n/seed off\nb\n").exit_code == 0
    assert [request.sampling.seed == 7 for request in asked(engine)] == [True, False]


def test_a_new_chat_forgets_and_regenerating_asks_again(run: Run, engine: FakeEngine) -> None:
    assert run("--plain", "--seed", "7", input="a\nb\n/again\nc\n/new\nd\n/quit\ne\n").exit_code == 0
    assert prompts(engine) == ["a", "b", "b", "c", "d"]
    again, after, new = asked(engine)[2:]
    assert again.messages == asked(engine)[1].messages
    assert again.sampling.seed != 7
    assert after.messages[-2] == Message("assistant", "Three.")
    assert new.messages == (Message("user", "d"),)


def test_another_pair_can_be_loaded(run: Run, home: Path, engine: FakeEngine) -> None:
    pair = 'schema = 1\n[[pair]]\nid = "mine"\ntarget.path = "/t"\nsampling.temperature = 0.125\n'
    configure(home, models=pair)
    assert run("--plain", "--strategy", "draft", input="a\n/model mine\nb\n").exit_code == 0
    assert [request.pair.id for request in engine.requests if isinstance(request, Load)] == ["demo", "mine"]
    assert asked(engine)[1].speculation.strategy == "auto"
    assert asked(engine)[1].sampling.temperature == 0.125
    assert len(asked(engine)[1].messages) == 3


def test_the_last_message_is_answered_again_by_another_pair(run: Run, home: Path, engine: FakeEngine) -> None:
    configure(home, models='schema = 1\n[[pair]]\nid = "mine"\ntarget.path = "/t"\n')
    assert run("--plain", input="a\n/again mine\nb\n").stdout == "One.\nTwo ␛[2Jtwo.\nThree.\n"
    assert [request.pair.id for request in engine.requests if isinstance(request, Load)] == ["demo", "mine"]
    assert prompts(engine) == ["a", "a", "b"]
    assert asked(engine)[2].messages[1] == Message("assistant", "Two \x1b[2Jtwo.")


@pytest.mark.parametrize(("kept", "pairs"), [("1", ["demo", "mine", "demo"]), ("2", ["demo", "mine"])])
def test_two_pairs_answer_and_one_reply_is_kept(
    run: Run, home: Path, engine: FakeEngine, kept: str, pairs: list[str]
) -> None:
    configure(home, models='schema = 1\n[[pair]]\nid = "mine"\ntarget.path = "/t"\n')
    result = run("--plain", input=f"/compare mine a\n{kept}\nb\n")
    assert result.stdout == "One.\nTwo ␛[2Jtwo.\nThree.\n"
    assert "1 is the reply of demo, 2 that of mine" in result.stderr
    assert [request.pair.id for request in engine.requests if isinstance(request, Load)] == pairs
    assert prompts(engine) == ["a", "a", "b"]
    assert asked(engine)[2].messages[1].content == ("One." if kept == "1" else "Two \x1b[2Jtwo.")


def test_commands_are_called_as_in_the_app() -> None:
    assert COMMANDS.keys() - {action.slash for action in ACTIONS} == {"stats"}, "the app shows figures all the time"


@pytest.mark.usefixtures("engine")
def test_help_and_figures_go_to_standard_error(run: Run) -> None:
    result = run("--plain", input="/help\n/stats\na\n/stats\n")
    assert result.stdout == "One.\n"
    for name in COMMANDS:
        assert re.search(rf"^/{name}\b", result.stderr, re.MULTILINE)
    assert "There is no reply yet." in result.stderr
    assert re.search(r"Last reply: 2 tokens, [\d,]+ a second\.", result.stderr)
    assert "Strategy auto, up to 15 tokens a step." in result.stderr


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("/sed 3", 2, 'There is no command "/sed". Did you mean "/seed"?'),
        ("/seed x", 2, "/seed needs a whole number from 0 to"),
        ("/length 16", 2, "/length needs a whole number from 1 to 15, not 16."),
        ("/temperature nan", 2, "/temperature needs a number from 0 to 10, not nan."),
        ("/strategy lokup", 2, 'Did you mean "lookup"?'),
        ("/regenerate", 2, "no reply to make again"),
        ("/compare", 2, "/compare needs the id of a pair"),
        ("/compare mine", 2, "no reply to compare with"),
        ("/model dmo", 3, 'Did you mean "demo"?'),
    ],
)
def test_in_a_pipe_the_first_mistake_ends_it(run: Run, engine: FakeEngine, command: str, code: int, words: str) -> None:
    result = run("--plain", input=f"{command}\na\n")
    assert result.exit_code == code
    assert words in result.stderr
    assert asked(engine) == []


def test_in_a_pipe_a_failed_reply_ends_it_with_its_code(run: Run, engine: FakeEngine) -> None:
    engine.fail_reply("context", "It is too long.")
    result = run("--plain", input="a\nb\n")
    assert (result.exit_code, result.stderr) == (ExitCode.CONTEXT, "Error: It is too long.\n")
    assert len(asked(engine)) == 1


def test_a_pair_that_cannot_be_loaded_ends_it(run: Run, engine: FakeEngine) -> None:
    engine.fail_load("memory", "It does not fit.")
    assert run("--plain", input="a\n").exit_code == ExitCode.MEMORY
    assert asked(engine) == []


def test_messages_that_are_left_out_are_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine(REPLIES, info=replace(fake.INFO, context=8))
    monkeypatch.setattr("specchat.resident.shared.open_engine", lambda *_: engine)
    result = run("--plain", input="a b c d\ne f g h\n")
    assert result.stderr == "2 earlier messages did not fit the context and were left out.\n"


def test_the_demo_pair_chats_through_a_pipe() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "specchat", "--plain", "--seed", "1", "--temperature", "0", "--max-tokens", "12"],
        cwd=ROOT,
        input="hi, computer\n/strategy plain\n/regenerate\n",
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert len(lines) % 2 == 0
    assert lines[: len(lines) // 2] == lines[len(lines) // 2 :]
    assert lines[0]


# On a terminal


def test_a_terminal_gets_prompts_and_figures_and_no_codes() -> None:
    terminal = Terminal(*SCRIPTED, "--plain", "--seed", "5")
    terminal.until(b"is loaded, on none. /help lists the commands.\r\n> ")
    terminal.type(b"hello\n")
    terminal.until(b"Once there was a fox.\r\n")
    terminal.until(b" s to first.\r\n> ")
    terminal.type(b"codes\n")
    terminal.until("Once ␛]52;c;aGk=there".encode())
    terminal.until(b" s to first.\r\n> ")
    terminal.type(b"\x04")
    assert terminal.end() == 0
    assert b"\x1b" not in terminal.output
    assert terminal.output.endswith(b"> \r\n")


def test_a_line_that_the_terminal_cuts_is_told_and_not_sent() -> None:
    terminal = Terminal(*SCRIPTED, "--plain")
    terminal.until(b"> ")
    terminal.type(b"x" * (LONGEST - 1) + b"\n")
    terminal.until(b"Once there was a fox.\r\n")
    terminal.until(b"> ")
    for message in (b"y" * 6000 + b"\n", b'"""\na\n' + b"y" * 6000 + b'\nb"""\n'):
        terminal.type(message)
        terminal.until(b"The message was not sent")
        terminal.until(b"> ")
    terminal.type(b"/quit\n")
    assert terminal.end() == 0
    assert terminal.output.count(b"Once there was a fox.") == 1


def test_ctrl_c_stops_a_reply_and_at_the_prompt_leaves() -> None:
    terminal = Terminal(*SCRIPTED, "--plain")
    terminal.until(b"> ")
    terminal.type(b"endless\n")
    terminal.until(b"word word")
    terminal.type(b"\x03")
    terminal.until(b".\r\n> ")
    terminal.type(b"/stats\n")
    terminal.until(b"Last reply:")
    terminal.type(b"\x03")
    assert terminal.end() == ExitCode.INTERRUPTED


def test_a_second_ctrl_c_does_not_wait() -> None:
    terminal = Terminal(*SCRIPTED, "--plain")
    terminal.until(b"> ")
    (worker,) = workers(terminal.pid)
    log = Path(os.environ["SPECCHAT_HOME"]) / "state" / "engine.log"
    terminal.type(b"stuck\n")
    wait_for(lambda: "stuck" in log.read_text())
    os.kill(terminal.pid, signal.SIGINT)
    wait_until_pressed()
    os.kill(terminal.pid, signal.SIGINT)
    assert terminal.end() == ExitCode.INTERRUPTED
    wait_for(lambda: not Path(f"/proc/{worker}").exists())


def test_mistakes_and_failures_leave_the_chat_open() -> None:
    terminal = Terminal(*SCRIPTED, "--plain")
    terminal.until(b"> ")
    terminal.type(b"/sed 3\n")
    terminal.until(b'Did you mean "/seed"?')
    terminal.type(b"too long\n")
    terminal.until(b"Error: It does not fit.\r\n> ")
    terminal.type(b"exit\n")
    terminal.until(b"exit code 7")
    terminal.until(b"is loaded, on none.")
    terminal.type(b"hello\n")
    terminal.until(b"Once there was a fox.\r\n")
    terminal.type(b"/quit\n")
    assert terminal.end() == 0


@pytest.mark.parametrize(("strategy", "told"), [("draft", 1), ("lookup", 0)])
def test_a_draft_that_is_too_short_for_a_chat_is_told_once(
    run: Run, engine: FakeEngine, strategy: str, told: int
) -> None:
    engine.info = replace(fake.INFO, draft=DraftFacts(1_000_000, context=2))
    words = "The draft model holds 2 tokens: in a longer chat it drafts nothing.\n"
    assert run("--plain", "--strategy", strategy, input="a b c\nd\n").stderr == words * told
    assert run("ask", "--strategy", strategy, "a b c").stderr == words * told


def test_files_that_are_typed_go_along_and_those_of_a_pipe_do_not(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = FakeEngine(REPLIES, info=replace(fake.INFO, sees=True))
    monkeypatch.setattr("specchat.resident.shared.open_engine", lambda *_: engine)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photo.png").write_bytes(drawn("PNG"))
    (tmp_path / "a.txt").write_text("owls")
    line = "What? @photo.png @a.txt"
    run("--plain", input=line)
    assert asked(engine)[-1].messages[-1] == Message("user", line)

    def typed(chat: PlainChat) -> None:
        chat.load()
        chat.lines.is_terminal = True
        chat.ask(line)
        chat.ask("@none.png")

    monkeypatch.setattr("specchat.cli.plain.converse", typed)
    result = run("--plain")
    assert "With photo.png, a.txt." in result.stderr
    assert "There is no file none.png" in result.stderr
    first = asked(engine)[-2].messages[-1]
    assert [picture.data for picture in first.pictures] == [drawn("PNG")]
    assert first.content.startswith(line)
    assert "owls" in first.content


def test_saved_prompts_are_sent_and_ask_for_their_blanks(run: Run, engine: FakeEngine) -> None:
    SavedPrompts(user_paths().prompts).save("review", "Look at {file} for {what}.")
    result = run("--plain", input="/review a.py\nbugs\n/help\n/revie")
    assert prompts(engine) == ["Look at a.py for bugs."]
    assert "{what}:" in result.stderr
    assert "Your saved prompts: /review." in result.stderr
    assert 'Did you mean "/review"?' in result.stderr
