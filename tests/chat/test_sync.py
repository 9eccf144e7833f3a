"""Two machines with a folder in common: what is written on either is on both, and nothing is lost."""

import json
import math
import os
from pathlib import Path

import pytest

from specchat.attachments.files import Attachment
from specchat.attachments.pictures import attached
from specchat.chat.sql import tidy
from specchat.chat.store import Store
from specchat.chat.sync import Synced, sync
from specchat.chat.tree import Conversation
from tests.drawn import drawn

from .conftest import answer, flush


class Machine:
    """A store, and the folder that it is synced with."""

    def __init__(self, root: Path, name: str) -> None:
        (root / name).mkdir()
        self.store = Store(root / name / "chats.db")
        self._folder, self._state = root / "common", root / name / "synced.json"

    def sync(self) -> Synced:
        flush(self.store)
        for file in self._folder.glob("*.json"):  # clocks of file systems may be coarser than these tests
            os.utime(file, ns=(hash(file.read_bytes()) & 0xFFFFFFFF, hash(file.read_bytes()) & 0xFFFFFFFF))
        return sync(self.store, self._folder, self._state)

    def ask(self, chat: Conversation, prompt: str, *attachments: Attachment) -> None:
        turn = chat.ask(prompt, attachments)
        self.store.add_turn(chat, turn, {})
        answer(chat, turn, f"{prompt}!")
        self.store.save_reply(chat, turn.replies.shown or next(iter(turn.replies)))
        self.store.save_chat(chat, {})

    def prompts(self) -> list[str]:
        flush(self.store)
        return sorted(
            turn.prompt for entry in self.store.chats() for turn in self.store.load(entry.key)[0].every_turn()
        )


@pytest.fixture
def machines(tmp_path: Path) -> tuple[Machine, Machine]:
    return Machine(tmp_path, "one"), Machine(tmp_path, "two")


def begun(one: Machine, two: Machine) -> Conversation:
    """A chat that both have."""
    chat = Conversation()
    one.ask(chat, "a fox")
    one.sync()
    two.sync()
    return chat


def test_a_chat_goes_to_the_other_machine_and_comes_back_longer(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    chat = begun(one, two)
    assert two.store.whole(chat.key) == one.store.whole(chat.key)
    two.ask(two.store.load(chat.key)[0], "an owl")
    assert (two.sync().sent, one.sync().received) == (1, 1)
    assert one.prompts() == two.prompts() == ["a fox", "an owl"]
    for machine in (one, two, one, two):
        again = machine.sync()
    assert (again.received, again.sent, again.problems) == (0, 0, [])


def test_pictures_travel_with_their_chats(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    chat = begun(one, two)
    for text, format in (("an owl", "PNG"), ("a lamp", "JPEG")):
        one.ask(chat, text, Attachment(text, picture=attached(drawn(format))))
        one.sync()
        two.sync()
        picture = two.store.load(chat.key)[0].turns[-1].attachments[0].picture
        assert picture is not None
        assert picture.load() == drawn(format)


def test_what_both_wrote_meanwhile_are_branches_of_one_chat(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    chat = begun(one, two)
    for machine, prompt in ((one, "an owl"), (two, "a lamp")):
        machine.ask(machine.store.load(chat.key)[0], prompt)
    for machine in (one, two, one):
        machine.sync()
    for machine in machines:
        loaded = machine.store.load(chat.key)[0]
        reply = loaded.turns[0].reply
        assert reply is not None
        assert sorted(turn.prompt for turn in reply.turns) == ["a lamp", "an owl"]


def test_titles_pins_and_tags_are_those_of_the_side_that_changed_them(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    chat = begun(one, two)
    two.store.rename(chat.key, "Foxes")
    two.store.tag(chat.key, ("animals",))
    two.sync()
    one.store.pin(chat.key, True)
    flush(one.store)
    one.store.pin(chat.key, False)
    one.sync()
    (entry,) = one.store.chats()
    assert (entry.title, entry.tags) == ("Foxes", ("animals",))
    one.store.rename(chat.key, "Owls")
    one.sync()
    two.sync()
    assert [machine.store.chats()[0].title for machine in machines] == ["Owls", "Owls"]


def a_day_later(machine: Machine) -> None:
    machine.store._writer.put(lambda db: tidy(db, math.inf))
    flush(machine.store)


def test_what_is_deleted_is_deleted_there_too_and_leaves_no_words(
    machines: tuple[Machine, Machine], tmp_path: Path
) -> None:
    one, two = machines
    chat = begun(one, two)
    one.store.rename(chat.key, "Foxes")
    one.sync()
    two.sync()
    one.store.delete(chat.key)
    one.sync()
    outcome = two.sync()
    assert (outcome.deleted, outcome.summary()) == ([chat.key], "0 chats received, 0 chats written, 1 chat deleted")
    for machine in (one, two, one, two):
        a_day_later(machine)
        again = machine.sync()
        assert (again.received, again.sent, again.deleted) == (0, 0, [])
        assert machine.prompts() == []
    (left,) = (tmp_path / "common").iterdir()
    for words in ("fox", "Fox"):
        assert words not in left.read_text()
        assert words not in (tmp_path / "one" / "synced.json").read_text()


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("change", ["message", "title", "tag"])
def test_what_was_changed_there_comes_back(change: str, later: bool, machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    chat = begun(one, two)
    one.store.delete(chat.key)
    one.sync()
    if later:
        a_day_later(one)
    match change:
        case "message":
            two.ask(two.store.load(chat.key)[0], "an owl")
        case "title":
            two.store.rename(chat.key, "Foxes")
        case "tag":
            two.store.tag(chat.key, ("animals",))
    for machine in (two, one, two, one):
        machine.sync()
    expected = ["a fox", "an owl"] if change == "message" else ["a fox"]
    assert one.prompts() == two.prompts() == expected
    assert one.store.chats()[0].title == two.store.chats()[0].title
    assert one.store.chats()[0].tags == two.store.chats()[0].tags == (("animals",) if change == "tag" else ())


def test_what_was_written_before_the_deletion_is_not_lost(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    chat = begun(one, two)
    two.ask(two.store.load(chat.key)[0], "an owl")
    two.sync()
    one.store.delete(chat.key)
    one.sync()
    assert one.prompts() == ["a fox", "an owl"]
    two.sync()
    assert one.prompts() == two.prompts() == ["a fox", "an owl"]


@pytest.mark.parametrize("at", [0, 1])
def test_a_restored_chat_is_restored_everywhere(at: int, machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    chat = begun(one, two)
    one.store.delete(chat.key)
    one.sync()
    two.sync()
    machines[at].store.restore(chat.key)
    for machine in (machines[at], one, two, one, two):
        machine.sync()
    assert one.prompts() == two.prompts() == ["a fox"]
    two.store.delete(chat.key)
    two.sync()
    one.sync()
    assert one.prompts() == two.prompts() == []


def test_a_file_that_an_older_program_wrote_again_changes_nothing(
    machines: tuple[Machine, Machine], tmp_path: Path
) -> None:
    one, two = machines
    chat = begun(one, two)
    file = tmp_path / "common" / f"{chat.key}.json"
    written = file.read_bytes()
    one.store.delete(chat.key)
    one.sync()
    two.sync()
    file.write_bytes(written)
    for machine in (one, two):
        assert machine.sync().received == 0
        assert machine.prompts() == []


def test_a_copy_made_of_a_conflict_is_taken_in(machines: tuple[Machine, Machine], tmp_path: Path) -> None:
    one, two = machines
    chat = begun(one, two)
    file = tmp_path / "common" / f"{chat.key}.json"
    two.ask(two.store.load(chat.key)[0], "an owl")
    two.sync()
    file.rename(file.with_name(f"{chat.key}.sync-conflict-2026.json"))
    one.ask(one.store.load(chat.key)[0], "a lamp")
    one.sync()
    two.sync()
    assert one.prompts() == two.prompts() == ["a fox", "a lamp", "an owl"]


def test_files_that_cannot_be_used_are_told_and_left_alone(machines: tuple[Machine, Machine], tmp_path: Path) -> None:
    one, two = machines
    begun(one, two)
    bad = tmp_path / "common" / "bad.json"
    bad.write_text('{"format": "specchat", "version": 99}')
    outcome = one.sync()
    assert "bad.json was written by a newer specchat" in " ".join(outcome.problems)
    assert bad.read_text() == '{"format": "specchat", "version": 99}'


def test_messages_of_another_chat_are_never_written_over(machines: tuple[Machine, Machine], tmp_path: Path) -> None:
    one, two = machines
    chat = begun(one, two)
    data = json.loads((tmp_path / "common" / f"{chat.key}.json").read_text())
    data["chats"][0]["key"] = "other"
    data["chats"][0]["messages"][0]["text"] = "changed"
    (tmp_path / "common" / "other.json").write_text(json.dumps(data))
    one.sync()
    assert "changed" not in one.prompts()
    assert one.store.load(chat.key)[0].turns[0].prompt == "a fox"
