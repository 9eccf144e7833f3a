"""A deleted chat leaves nothing that was read for it alone, in memory or on disk; what others share stays."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch

from specchat.engine.prefixes.bounds import FOLDER
from specchat.engine.prefixes.on_disk import NOBODY, UNKNOWN, remove_chat
from specchat.engine.prefixes.shelf import Shelf
from specchat.engine.protocol.events import Finished
from specchat.engine.protocol.options import Limits, Message, Speculation
from specchat.engine.protocol.requests import Generate
from specchat.engine.session import Session
from tests.engine.test_turns import alone, same, woven
from tests.prefixes.test_files import LONG, Started, never, started
from tests.prefixes.test_shelf import on_shelf, opened, root, short, state, text

__all__ = ["root", "short"]
SYSTEM = text(90, 0)
DELETED, STAYS = text(160, 1, SYSTEM), text(140, 2, SYSTEM)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER, str(tmp_path / "read"))
    monkeypatch.setattr("specchat.engine.prefixes.shelf.LONG", LONG)
    return tmp_path / "read"


def has(token_ids: Sequence[int], own: Sequence[int]) -> bool:
    """True if a text has some tokens of another in a row, after what all begin with."""
    part = list(own)[len(SYSTEM) : len(SYSTEM) + 8]
    return any(list(token_ids[at : at + 8]) == part for at in range(len(token_ids)))


def held(shelf: Shelf, own: Sequence[int]) -> bool:
    return any(has(part.token_ids, own) for one in shelf._models for part in one.parts)


def on_disk(folder: Path, own: Sequence[int]) -> bool:
    wanted = np.array(own[len(SYSTEM) : len(SYSTEM) + 8], "<i4").tobytes()
    return any(wanted in path.read_bytes() for path in folder.iterdir())


@pytest.mark.parametrize("name", ["whole", "windows", "recurrent"])
@pytest.mark.parametrize("order", [("x", "y"), ("y", "x"), ("x", "y", "x"), ("y", "x", "y")])
def test_what_others_begin_with_stays(order: tuple[str, ...], name: str, root: Path) -> None:
    cached = opened(root, name)
    shelf, texts = on_shelf(cached), {"x": DELETED, "y": STAYS}
    for chat in order:
        shelf.hold(chat)
        cached.begin(texts[chat])
    shelf.forget("x")
    cached.keep(0)
    assert not held(shelf, DELETED)
    shelf.hold("y")
    assert cached.begin(STAYS) >= len(STAYS) - 50
    again, length = opened(root, name), len(STAYS) - 1
    again.begin(STAYS)
    assert torch.equal(state(cached, length), state(again, length))
    assert cached.begin(DELETED) <= len(SYSTEM)


def test_a_beginning_of_two_that_are_deleted_goes(root: Path) -> None:
    cached = opened(root, "whole")
    shelf = on_shelf(cached)
    for chat, one in (("x", DELETED), ("y", STAYS), ("x", DELETED)):
        shelf.hold(chat)
        cached.begin(one)
    for chat in ("x", "y"):
        shelf.forget(chat)
        cached.keep(0)
    assert shelf.size == 0


def test_a_text_of_an_unknown_owner_goes_and_one_of_no_chat_stays(root: Path) -> None:
    cached = opened(root, "whole")
    shelf = on_shelf(cached)
    for owner, one in ((UNKNOWN, text(99, 7)), (NOBODY, STAYS)):
        shelf.hold(owner)
        cached.begin(one)
    shelf.forget("x")
    assert [part.token_ids for part in shelf._models[0].parts] == [STAYS[:-1]]


def test_a_reply_that_still_runs_puts_nothing_in(root: Path) -> None:
    cached = opened(root, "whole")
    shelf = on_shelf(cached)
    shelf.hold("x")
    cached.begin(DELETED)
    shelf.forget("x")
    cached.tokens += DELETED[len(cached.tokens) :]
    shelf.hold("y")
    cached.begin(STAYS)
    shelf.put_all()
    assert not held(shelf, DELETED)


def both_on_disk(root: Path, folder: Path, owners: Sequence[str] = ("x", "y")) -> Started:
    one = started(root, folder)
    for owner, ids in zip(owners, (DELETED, STAYS), strict=True):
        one.shelf.hold(owner)
        one.cached.begin(ids)
        one.shelf.save(never)
    assert on_disk(folder, DELETED)
    assert on_disk(folder, STAYS)
    return one


def test_files_go_with_their_chat_and_others_stay(root: Path, folder: Path) -> None:
    one = both_on_disk(root, folder)
    one.shelf.forget("x")
    assert not on_disk(folder, DELETED)
    assert on_disk(folder, STAYS)
    one.shelf.save(never)
    assert not on_disk(folder, DELETED)


@pytest.mark.parametrize("owner", ["x", UNKNOWN])
def test_without_an_engine_too(owner: str, root: Path, folder: Path) -> None:
    both_on_disk(root, folder, (owner, NOBODY))
    (folder / "older.read").write_bytes(b"specchat read 1\n" + np.array(DELETED, "<i4").tobytes())
    remove_chat("x")
    assert not on_disk(folder, DELETED)
    assert on_disk(folder, STAYS)


def test_a_file_tells_its_chat_to_the_next_engine(root: Path, folder: Path) -> None:
    both_on_disk(root, folder)
    later = started(root, folder)
    later.shelf.forget("x")
    assert not held(later.shelf, DELETED)
    assert not on_disk(folder, DELETED)
    assert later.cached.begin(STAYS) >= len(STAYS) - len(SYSTEM) - 1 or held(later.shelf, STAYS)


def test_a_text_of_two_goes_with_the_second_after_a_new_start(root: Path, folder: Path) -> None:
    one = started(root, folder)
    one.shelf.hold("x")
    one.cached.begin(DELETED)
    one.shelf.save(never)
    one.shelf.hold("fork")
    one.cached.begin(DELETED)
    one.shelf.forget("x")
    assert held(one.shelf, DELETED)
    one.shelf.save(never)
    later = started(root, folder)
    later.shelf.forget("fork")
    assert not on_disk(folder, DELETED)
    assert not held(later.shelf, DELETED)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_chat_that_is_deleted_among_replies(session: Session, seed: int) -> None:
    """No model has its text, and the others write what they write alone."""
    random = Random(seed)
    names = [status.name for status in session.info.strategies if status.available]
    secret = "Zq7 vault 4-9-1 " * 3
    said = {"x": secret, "y": "The cat sat on the mat. " * 2, "": "one two three four " * 2}
    system = Message("system", "Answer in short sentences, and never twice the same. ")
    for turn in range(3):
        requests = [
            Generate(
                10 * turn + number,
                (system, Message("user", f"{words}{turn}")),
                limits=Limits(8),
                speculation=Speculation.of(random.choice(names)),
                chat=chat,
            )
            for number, (chat, words) in enumerate(said.items())
        ]
        found = woven(session, requests, random)
    last = iter(session.generate(requests[0]))
    next(last), next(last)
    session.runner.earlier.forget("x")
    session.forget_read("x")
    assert isinstance([*last][-1], Finished)
    assert not session.runner.earlier.knows("x")
    for request in requests[1:]:
        assert same(alone(session, request), found[request.id][-1])  # type: ignore[arg-type]
    session.shelf.put_all()
    hidden = session.tokenizer.encode(secret)[4:12]
    parts = [part for one in session.shelf._models for part in one.parts]
    assert parts
    for part in parts:
        ids = part.token_ids
        assert all(ids[at : at + len(hidden)] != hidden for at in range(len(ids)))
