"""Commands that load a pair whose models are not here: nothing is downloaded unasked."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from specchat.cli import download
from specchat.cli.exit_codes import ExitCode
from specchat.engine.protocol.requests import Load
from tests.cli.conftest import BIG, SMALL, Run, configure
from tests.fake import FakeEngine
from tests.hub.server import LoopbackHub

WEIGHTS = "model.safetensors"
COMMANDS = (
    ("ask", "--pair", "far", "hello"),
    ("--plain", "--pair", "far"),
    ("bench", "--pair", "far", "--limit", "1"),
    ("bench", "verify-cost", "--pair", "far"),
    ("check", "--pair", "far"),
    ("tune", "vocabulary", "far"),
    ("convert", "far", "--to", "gguf"),
)


pytestmark = pytest.mark.usefixtures("hub")


@pytest.fixture(autouse=True)
def _declared(home: Path) -> None:
    pair = f'id = "far"\ntarget = {{ repo = "{BIG}" }}\ndraft = {{ repo = "{SMALL}" }}\n'
    configure(home, models=f"schema = 1\n[[pair]]\n{pair}")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A terminal whose user answers as the list says, which then holds what was asked."""
    answers: list[str] = []

    def confirm(question: str, **_: object) -> bool:
        answers.append(question)
        return answers[0] == "yes"

    monkeypatch.setattr(download, "can_ask", lambda: True)
    monkeypatch.setattr(click, "confirm", confirm)
    return answers


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_without_a_terminal_the_command_that_downloads_is_named(
    run: Run, hub: LoopbackHub, engines: list[FakeEngine], arguments: tuple[str, ...]
) -> None:
    result = run(*arguments)
    assert result.exit_code == ExitCode.DOWNLOAD
    told = " ".join(result.stderr.split())
    assert f'{BIG} and {SMALL} of pair "far" are not here, and nothing is downloaded unasked.' in told
    assert told.endswith("This downloads them: specchat models pull far --yes")
    assert not hub.asked
    assert not any(isinstance(request, Load) for engine in engines for request in engine.requests)


def test_the_command_names_the_users_file(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = home / "config" / "models.toml"
    told = run("ask", "--models", str(file), "--pair", "far", "hello").stderr
    assert f"specchat models pull --models {file} far --yes" in told
    monkeypatch.setenv("SPECCHAT_MODELS_FILE", str(file))
    assert "specchat models pull far --yes" in run("ask", "--pair", "far", "hello").stderr


def test_on_a_terminal_it_is_said_how_much_and_a_no_downloads_nothing(
    run: Run, hub: LoopbackHub, engines: list[FakeEngine], terminal: list[str], tmp_path: Path
) -> None:
    terminal.append("no")
    result = run("ask", "--pair", "far", "hello")
    assert result.exit_code == ExitCode.DOWNLOAD
    size = sum(len(data) for repo in (BIG, SMALL) for data in hub.repos[repo].values())
    assert f"{BIG} and {SMALL}: {size / 1e6:.1f} MB to download." in result.stderr
    assert f"It goes to {tmp_path / 'cache'}, where " in result.stderr
    assert "Nothing was downloaded. specchat models pull far does it later." in result.stderr
    assert terminal == ["no", "Download it?"]
    assert WEIGHTS not in hub.sent
    assert not engines


def test_a_yes_downloads_and_the_command_goes_on(
    run: Run, hub: LoopbackHub, engines: list[FakeEngine], terminal: list[str]
) -> None:
    terminal.append("yes")
    result = run("ask", "--pair", "far", "hello")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("Once there was a fox")
    assert hub.sent[WEIGHTS] == sum(len(hub.repos[repo][WEIGHTS]) for repo in (BIG, SMALL))
    assert run("ask", "--pair", "far", "again").exit_code == 0
    assert terminal == ["yes", "Download it?"]
    assert [request.pair.id for engine in engines for request in engine.requests if isinstance(request, Load)] == [
        "far",
        "far",
    ]


def test_a_chat_by_lines_keeps_its_pair_where_another_is_not_wanted(
    run: Run, hub: LoopbackHub, engines: list[FakeEngine]
) -> None:
    result = run("--plain", input="/model far\nhello\n")
    assert result.exit_code == ExitCode.DOWNLOAD
    (engine,) = engines
    assert [request.pair.id for request in engine.requests if isinstance(request, Load)] == ["demo"]
    assert WEIGHTS not in hub.sent


@pytest.mark.parametrize(("status", "words"), [(404, "has no someone/big"), (429, "was asked too often")])
def test_what_the_hub_says_ends_with_its_exit_code(
    run: Run, hub: LoopbackHub, terminal: list[str], status: int, words: str
) -> None:
    terminal.append("yes")
    hub.status = status
    result = run("ask", "--pair", "far", "hello")
    assert result.exit_code == ExitCode.DOWNLOAD
    assert f'{BIG} and {SMALL} of pair "far" are not here: ' in result.stderr
    assert words in result.stderr
