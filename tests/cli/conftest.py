import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from specchat.cli.root import specchat
from specchat.engine.api import Event
from specchat.engine.fake import FakeEngine

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without any files."""
    for name in [name for name in os.environ if name.startswith("SPECCHAT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SPECCHAT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def run() -> Run:
    """Runs a command line in this process; nothing is piped in unless `input` is given."""

    def invoke(*arguments: str, input: str | bytes | None = None) -> Result:
        return CliRunner().invoke(specchat, arguments, input=input)

    return invoke


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[FakeEngine]:
    """Makes `ask` use a scripted engine; the list holds it once it was made."""
    made: list[FakeEngine] = []

    def make(log: Path | None) -> FakeEngine:
        assert log is None or log.parent.is_dir()
        made.append(FakeEngine(REPLIES))
        return made[-1]

    monkeypatch.setattr("specchat.engine.client.EngineClient", make)
    return made


REPLIES: Sequence[str | Sequence[Event]] = ("Once there was a fox who \x1b[2Jkept a lamp.",)


def configure(home: Path, **files: str) -> None:
    """Write files into the config folder: `config="..."` is config.toml."""
    for name, text in files.items():
        path = home / "config" / f"{name}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
