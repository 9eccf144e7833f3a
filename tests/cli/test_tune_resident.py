"""`specchat tune draft` takes the target's replies from the resident engine where the pair is loaded."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from specchat.config.catalog import load_catalog
from specchat.config.paths import private_folder
from specchat.engine.protocol.events import Loaded
from specchat.engine.protocol.options import Message
from specchat.engine.protocol.requests import Generate, Load
from specchat.resident.control import engines
from specchat.resident.shared import SharedEngine, open_engine
from specchat.tune import replies
from tests.cli.conftest import Rising, Run, Tiny
from tests.engine.tiny import checkpoint
from tests.process.conftest import gone, until


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user without any files, in a folder whose path is short enough for sockets."""
    with TemporaryDirectory(prefix="sc") as folder:
        monkeypatch.setenv("SPECCHAT_HOME", folder)
        yield Path(folder)


@pytest.fixture
def resident(home: Path, tmp_path: Path, tiny: Tiny) -> Iterator[SharedEngine]:
    """An engine that has the user's pair loaded."""
    target = checkpoint(tmp_path / "target", num_key_value_heads=2)
    draft = checkpoint(tmp_path / "draft", seed=4, num_hidden_layers=2)
    toml = tiny(target, draft)
    engine = open_engine(private_folder(home / "run"), tmp_path / "engine.log", "app", 0)
    assert isinstance(engine, SharedEngine)
    engine.send(Load(load_catalog(toml).find("tiny").spec))
    until(engine, lambda event: isinstance(event, Loaded))
    yield engine
    pids = [found["pid"] for found in engines(home / "run", "stop")]
    engine.close()
    for pid in pids:
        gone(pid)


def test_replies_of_the_resident_engine_are_the_same_and_its_own_session_writes_none(
    run: Run, home: Path, words_file: str, resident: SharedEngine, rising: Rising, monkeypatch: pytest.MonkeyPatch
) -> None:
    rising(1.3, 1.1)
    command = ("tune", "draft", "tiny", "--prompts", words_file, "--replies", "6", "--steps", "4")
    sources: list[bool] = []
    answered = replies._answered

    def noted(*arguments: Any) -> Any:
        """Note whether another engine answers."""
        sources.append(arguments[-1](Generate(1, (Message("user", "abc"),))) is not None)
        return answered(*arguments)

    monkeypatch.setattr(replies, "_answered", noted)
    assert run(*command).exit_code == 0
    folder = home / "data" / "tune" / "tiny-draft" / "learnt"
    through = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert len(through) == 6
    assert len(sources) > 6
    assert all(sources)
    resident.close()
    monkeypatch.setattr(replies, "join_background", lambda *_: None)
    for path in folder.iterdir():
        path.unlink()
    assert run("tune", "remove", "tiny-draft").exit_code == 0
    assert run(*command).exit_code == 0
    assert not any(sources[-6:])
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == through
