import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from specchat.cli.root import specchat
from specchat.engine.fetch import source, transfer
from specchat.engine.fetch.source import Hub
from specchat.engine.protocol.events import Event
from tests.engine.tiny import SPECIAL, checkpoint
from tests.fake import FakeEngine
from tests.hub.server import LoopbackHub, loopback_hub, of_folder
from tests.models.made import no_home

Run = Callable[..., Result]
Rising = Callable[[float, float], None]
Tiny = Callable[..., Path]
WORDS = ("abc", "to be", "say it", "a b a b", "no", "xyz", "why", "ten", "how far")
"""Prompts that tunes learn from."""
BIG, SMALL, OTHER = "someone/big", "someone/small", "someone/other"
"""Repositories of the hub on loopback."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without any files."""
    for name in [name for name in os.environ if name.startswith("SPECCHAT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SPECCHAT_ENGINE_MINUTES", "0")
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
    """Makes commands use a scripted engine; the list holds it once it was made."""
    made: list[FakeEngine] = []

    def make(_: Path, log: Path | None, *__: object) -> FakeEngine:
        assert log is None or log.parent.is_dir()
        made.append(FakeEngine(REPLIES))
        return made[-1]

    monkeypatch.setattr("specchat.resident.shared.open_engine", make)
    monkeypatch.setattr("specchat.engine.process.client.EngineClient", lambda log: make(Path(), log))
    return made


REPLIES: Sequence[str | Sequence[Event]] = ("Once there was a fox who \x1b[2Jkept a lamp.",)


def configure(home: Path, **files: str) -> None:
    """Write files into the config folder: `config="..."` is config.toml."""
    for name, text in files.items():
        path = home / "config" / f"{name}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def repos(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    root = tmp_path_factory.mktemp("repos")
    big = checkpoint(root / "big", num_hidden_layers=12)
    small = checkpoint(root / "small", num_hidden_layers=1)
    other = checkpoint(root / "other", special=[*SPECIAL[:-1], "<|else|>"], num_hidden_layers=1)
    return {BIG: of_folder(big), SMALL: of_folder(small), OTHER: of_folder(other)}


@pytest.fixture
def hub(tmp_path: Path, repos: dict[str, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackHub]:
    """A hub on loopback, for a user without any models."""
    no_home(monkeypatch, tmp_path / "user")
    monkeypatch.setattr(transfer, "RETRY_S", 0.01)
    with loopback_hub(repos) as served:
        monkeypatch.setattr(source, "usual_hub", lambda: Hub(served.endpoint, tmp_path / "cache"))
        yield served


def own(home: Path) -> Path:
    """The user's models.toml."""
    return home / "config" / "models.toml"


def prompts_file(folder: Path, texts: Iterable[str]) -> Path:
    """A file of prompts, one a text."""
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps({"turns": [text]}) + "\n" for text in texts))
    return path


@pytest.fixture
def words_file(tmp_path: Path) -> str:
    """The file of the prompts that tunes learn from."""
    return str(prompts_file(tmp_path, WORDS))


@pytest.fixture
def tiny(home: Path, monkeypatch: pytest.MonkeyPatch) -> Tiny:
    """Writes the user's models.toml with the pair "tiny", for tunes on short replies, and gives the file."""
    from specchat.tune import gain, replies

    def write(target: Path, draft: Path | None = None, more: str = "") -> Path:
        drafting = f'draft = {{ path = "{draft}", device = "cpu" }} # the small one\n' if draft else ""
        models = f'target = {{ path = "{target}", device = "cpu" }}\n{drafting}'
        configure(home, models=f'schema = 1\ndefault = "tiny"\n# mine\n[[pair]]\nid = "tiny" # small\n{models}{more}')
        return own(home)

    monkeypatch.setattr(replies, "LONGEST_REPLY", 12)
    monkeypatch.setattr(gain, "TOKENS", 12)
    monkeypatch.setattr(gain, "BUSY", 1.0)
    return write


@pytest.fixture
def rising(monkeypatch: pytest.MonkeyPatch) -> Rising:
    """Make what was tuned seem `times` as fast as what was before, the lower end of its interval at `low`."""
    from specchat.tune import gain
    from specchat.tune.gain import HeldOutSpeed

    def rise(times: float, low: float) -> None:
        def measured(before: HeldOutSpeed, after: HeldOutSpeed) -> gain.Gain:
            assert before.times.keys() == after.times.keys()
            return gain.Gain(times, low, 2 * times - low)

        monkeypatch.setattr(gain, "gain", measured)

    return rise
