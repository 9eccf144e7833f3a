"""Long texts are on disk from one start to the next, and no file that is wrong does any harm."""

import os
import shutil
import stat
from collections import namedtuple
from pathlib import Path

import pytest
import torch

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.prefixes import files, shelf
from specchat.engine.prefixes.on_disk import NOBODY, remove_all
from specchat.engine.prefixes.shelf import Shelf
from specchat.engine.protocol.pair_info import ReadTexts
from tests.prefixes.test_shelf import GIB, opened, root, state, text

__all__ = ["root"]
LONG = 150
Started = namedtuple("Started", "cached shelf")


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf, "LONG", LONG)
    monkeypatch.setattr("specchat.engine.prefixes.model_shelf.LEAST_WITH_TAIL", 32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "read"


def started(
    root: Path, folder: Path, name: str = "whole", disk: int = GIB, identity: str = "x", memory: int = GIB
) -> Started:
    """A model as an engine starts it."""
    cached: CachedModel[CachedDecoder] = opened(root, name)
    held = Shelf(ReadTexts(memory, disk, str(folder)), identity)
    held.add("target", cached)
    held.hold(NOBODY)
    return Started(cached, held)


def never() -> bool:
    return False


def written(root: Path, folder: Path, ids: list[int], name: str = "whole") -> Path:
    """The file of a text."""
    one = started(root, folder, name)
    one.cached.begin(ids)
    one.shelf.save(never)
    (path,) = folder.iterdir()
    return path


@pytest.mark.parametrize("name", ["whole", "windows", "recurrent"])
def test_a_text_of_yesterday_goes_on_bit_for_bit(name: str, root: Path, folder: Path) -> None:
    ids, again = text(400, 1), text(30, 2)
    first = started(root, folder, name)
    first.cached.begin(ids)
    first.shelf.save(never)
    later = started(root, folder, name)
    assert later.cached.begin([*ids, *again]) >= 380
    alone = opened(root, name)
    alone.begin([*ids, *again])
    assert torch.equal(state(later.cached, 429), state(alone, 429))


def test_a_shelf_tells_what_is_on_disk_and_writes_nothing_while_it_is_closed_or_told_to_stop(
    root: Path, folder: Path
) -> None:
    one = started(root, folder)
    one.cached.begin(text(LONG + 9, 1))
    one.cached.begin(text(LONG - 50, 2))
    one.shelf.save(lambda: True)
    one.shelf.hold(NOBODY, opened=False)
    one.shelf.save(never)
    assert not folder.exists()
    assert (one.shelf.taken.memory > 0, one.shelf.taken.disk) == (True, 0)
    one.shelf.hold(NOBODY)
    one.shelf.save(never)
    (file,) = folder.iterdir()
    assert 0 < one.shelf.taken.disk < file.stat().st_size, "the other text is too short"


@pytest.mark.parametrize("name", ["windows", "recurrent"])
def test_another_text_goes_on_from_what_it_begins_with_as_yesterdays(name: str, root: Path, folder: Path) -> None:
    system = text(300, 1)
    first = started(root, folder, name)
    first.shelf.hold(NOBODY, 300)
    first.cached.begin(text(200, 2, system))
    first.shelf.save(never)
    later, alone = started(root, folder, name), opened(root, name)
    for seed in (3, 4):
        other = text(200, seed, system)
        assert later.cached.begin(other) == 300
        alone.begin(other)
        assert torch.equal(state(later.cached, 499), state(alone, 499))


def test_what_a_text_gained_goes_to_a_file_of_its_own(root: Path, folder: Path) -> None:
    ids = text(200, 1)
    written(root, folder, ids)
    second = started(root, folder)
    longer = [*ids, *text(100, 2)]
    assert second.cached.begin(longer) == 199
    second.shelf.save(never)
    sizes = sorted(path.stat().st_size for path in folder.iterdir())
    assert len(sizes) == 2
    assert sizes[0] < 0.6 * sizes[1]
    assert started(root, folder).cached.begin(longer) == 299
    assert started(root, folder).cached.begin([*ids, *text(40, 3)]) >= 199


def test_files_are_private_and_short_texts_have_none(root: Path, folder: Path) -> None:
    one = started(root, folder)
    one.cached.begin(text(LONG - 10, 1))
    one.shelf.save(never)
    assert not folder.exists()
    path = written(root, folder, text(200, 1))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("at", [3, 20, 40, 200, 900, -5000, -8])
def test_a_damaged_file_is_removed_and_the_text_is_read(at: int, root: Path, folder: Path) -> None:
    ids = text(300, 1)
    path = written(root, folder, ids)
    whole = bytearray(path.read_bytes())
    whole[at] ^= 0x10
    path.write_bytes(whole)
    check_ignored(root, folder, ids)
    assert not path.exists()


@pytest.mark.parametrize("size", [0, 5, 30, 500, 10_000])
def test_a_cut_file_is_removed(size: int, root: Path, folder: Path) -> None:
    ids = text(300, 1)
    os.truncate(path := written(root, folder, ids), size)
    check_ignored(root, folder, ids)
    assert not path.exists()


def test_a_file_in_the_name_of_another_is_not_taken_for_it(root: Path, folder: Path) -> None:
    """Swapped, or of another model in this one's name."""
    ids, others = text(300, 1), text(300, 2)
    path = written(root, folder, ids)
    kept = path.read_bytes()
    shutil.rmtree(folder)
    other = written(root, folder, others)
    name = other.name
    later = started(root, folder)
    (folder / name).write_bytes(kept)
    later.cached.begin(others)
    alone = opened(root, "whole")
    alone.begin(others)
    assert torch.equal(state(later.cached, 299), state(alone, 299))
    shutil.rmtree(folder)
    stranger = started(root, folder, "windows", identity="y")
    stranger.cached.begin(ids)
    stranger.shelf.save(never)
    (path,) = folder.iterdir()
    path.rename(folder / name)
    check_ignored(root, folder, ids)


def test_another_version_or_model_does_not_see_it(root: Path, folder: Path) -> None:
    path = written(root, folder, ids := text(300, 1))
    assert started(root, folder, identity="another version").cached.begin(ids) == 0
    assert path.exists()


def check_ignored(root: Path, folder: Path, ids: list[int]) -> None:
    """The text is read from the start, and has the state that it has without a shelf."""
    later, alone = started(root, folder), opened(root, "whole")
    assert later.cached.begin(ids) == 0
    alone.begin(ids)
    assert torch.equal(state(later.cached, 299), state(alone, 299))


def test_the_oldest_files_make_room(root: Path, folder: Path) -> None:
    size = written(root, folder, text(300, 0)).stat().st_size
    one = started(root, folder, disk=int(2.5 * size))
    for turn in range(1, 5):
        one.cached.begin(text(300, turn))
        one.shelf.save(never)
        assert sum(path.stat().st_size for path in folder.iterdir()) <= 2.5 * size
    later = started(root, folder)
    assert [later.cached.begin(text(300, turn)) for turn in (0, 1, 3, 4)] == [0, 0, 299, 299]


def test_what_is_larger_than_its_room_drives_out_nothing(root: Path, folder: Path) -> None:
    path = written(root, folder, text(200, 0))
    one = started(root, folder, disk=path.stat().st_size + 1000)
    one.cached.begin(text(400, 1))
    one.shelf.save(never)
    assert list(folder.iterdir()) == [path]


def test_a_request_or_a_full_disk_ends_the_writing(
    root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(files, "PIECE", 1000)
    one = started(root, folder)
    one.cached.begin(ids := text(300, 1))
    asked = iter([False] * 5 + [True] * 99)
    one.shelf.save(lambda: next(asked))
    assert list(folder.iterdir()) == []
    Usage = namedtuple("Usage", "free")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: Usage(1000))
        one.shelf.save(never)
    assert "the disk is almost full" in caplog.text
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        one.shelf.save(never)
    assert "No space left" in caplog.text
    assert list(folder.iterdir()) == []
    one.cached.begin(text(50, 2))
    assert one.cached.begin(ids) == 299
    one.shelf.save(never)
    assert len(list(folder.iterdir())) == 1


def full(_: int) -> None:
    raise OSError(28, "No space left on device")


def test_what_was_not_finished_is_removed_later(root: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    left, new = (folder / f".{name}{files.SUFFIX}" for name in ("left", "new"))
    for path in (left, new):
        path.write_bytes(b"x")
    os.utime(left, (1.0, 1.0))
    started(root, folder)
    assert list(folder.iterdir()) == [new]


def test_memory_goes_and_the_file_stays(root: Path, folder: Path) -> None:
    ids, size = text(300, 1), written(root, folder, text(300, 1)).stat().st_size
    one = started(root, folder, memory=size)
    one.cached.begin(ids)
    one.shelf.save(never)
    for turn in (2, 3):
        one.cached.begin(text(250, turn))
    assert one.cached.begin(ids) == 299
    assert one.shelf.size <= size


def test_all_of_it_can_be_removed(root: Path, folder: Path) -> None:
    path = written(root, folder, ids := text(300, 1))
    other = folder / "notes.txt"
    other.write_text("mine")
    one = started(root, folder)
    assert one.shelf.taken.disk > 0
    one.cached.begin(ids)
    one.shelf.remove()
    assert one.shelf.taken == ReadTexts(0, 0, str(folder))
    assert not path.exists()
    assert remove_all(folder) == (0, 0)
    assert other.exists()
    assert remove_all(folder / "none") == (0, 0)
