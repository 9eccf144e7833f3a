"""`specchat recommend` with a tiny pair: what it measures, says and writes."""

import json
import re
from pathlib import Path

import pytest

from specchat.bench import race
from specchat.bench.race import ContenderRace, ContenderSpeed
from specchat.cli.exit_codes import ExitCode
from specchat.config.catalog import load_catalog
from specchat.config.errors import ConfigError
from tests.cli.conftest import Run, configure, own, prompts_file
from tests.engine.tiny import checkpoint

WORDS = ("abc", "to be", "say it", "a b a b", "no", "xyz")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("pair") / "target", num_key_value_heads=2)


@pytest.fixture(autouse=True)
def pair(folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's models.toml."""
    table = f'# mine\n[[pair]]\nid = "tiny" # small\ntarget = {{ path = "{folder}", device = "cpu" }}\n'
    configure(home, models=f'schema = 1\ndefault = "tiny"\n{table}\n# the end\n')
    monkeypatch.setattr(race, "TOKENS", 12)
    return own(home)


@pytest.fixture
def command(tmp_path: Path) -> tuple[str, ...]:
    path = prompts_file(tmp_path, WORDS)
    return ("recommend", "tiny", "--prompts", str(path))


def measured(monkeypatch: pytest.MonkeyPatch, *found: ContenderSpeed) -> None:
    monkeypatch.setattr(ContenderRace, "run", lambda *_: list(found))


def test_all_strategies_are_measured(run: Run, pair: Path, command: tuple[str, ...]) -> None:
    before = pair.read_bytes()
    result = run(*command, "--dry-run", "--minutes", "0.01")
    assert (result.exit_code, result.stderr) == (0, "")
    names = [line.split()[0] for line in result.stdout.splitlines() if line and "%" not in line]
    assert {"auto", "lookup", "ngram", "suffix", "swift", "lookahead"} <= set(names)
    assert "Measured on 6 prompts of " in result.stdout
    # The pair has no draft: only its target could be quantised, and that the time was too short for.
    assert "Not measured: target in int8 (the time was over)." in result.stdout
    assert pair.read_bytes() == before


def test_the_fastest_is_written(
    run: Run, pair: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(monkeypatch, ContenderSpeed("lookup x4", 1.4, 1.3, 1.5, 9), ContenderSpeed("swift x4", 1.38, 1.25, 1.5, 9),
             ContenderSpeed("auto", 1.1, 1.0, 1.2, 3))  # fmt: skip
    dry = run(*command, "--dry-run")
    assert "lookup x4 writes 1.40 times as fast as plain decoding. The pair has auto, with 1.10." in dry.stdout
    assert "More measuring could still choose swift x4 (1.25-1.50)." in dry.stdout
    assert load_catalog(pair).find("tiny").strategy == "auto"
    result = run(*command)
    assert f'Pair "tiny" in {pair} now has it.' in result.stdout
    found = load_catalog(pair).find("tiny")
    assert (found.strategy, found.draft_length) == ("lookup", 4)
    text = pair.read_text()
    assert text.startswith('schema = 1\ndefault = "tiny"\n# mine\n[[pair]]\nid = "tiny" # small\n')
    assert text.endswith("\n# the end\n")


def test_a_models_file_that_cannot_be_written_leaves_the_table_to_read(
    run: Run, pair: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise ConfigError("models.toml cannot be written (Read-only file system).")

    before = pair.read_bytes()
    monkeypatch.setattr("specchat.models.declare.set_strategy", refused)
    measured(monkeypatch, ContenderSpeed("lookup x4", 1.4, 1.3, 1.5, 9), ContenderSpeed("auto", 1.1, 1.0, 1.2, 3))
    result = run(*command)
    assert result.exit_code == ExitCode.UNUSABLE
    assert "lookup x4 writes 1.40 times as fast" in result.stdout
    assert "now has it" not in result.stdout
    assert "Read-only file system" in result.stderr
    result = run(*command, "--json")
    assert result.exit_code == ExitCode.UNUSABLE
    last = json.loads(result.stdout.splitlines()[-1])
    assert (last["written"], last["choice"]["strategy"]) == (False, "lookup")
    assert pair.read_bytes() == before


def test_one_prompt_gives_no_interval(run: Run, command: tuple[str, ...], tmp_path: Path) -> None:
    prompts_file(tmp_path, ["abc", "x" * 5000])  # the second does not fit
    result = run(*command, "--dry-run", "--minutes", "0.01")
    assert result.exit_code == 0, result.stderr
    assert re.search(r"^lookup x4 +\d+\.\d\d +unsure +1$", result.stdout, re.MULTILINE)
    lines = run(*command, "--dry-run", "--minutes", "0.01", "--json").stdout.splitlines()
    last = json.loads(lines[-1], parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert {tuple(row[2:]) for row in last["rows"]} == {(0.0, None, 1)}


@pytest.mark.parametrize(
    ("times", "words"),
    [(1.12, "That is no clear gain, so "), (0.9, "No strategy is faster than plain decoding here")],
)
def test_no_clear_gain_changes_nothing(
    run: Run, pair: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, times: float, words: str
) -> None:
    before = pair.read_bytes()
    measured(
        monkeypatch, ContenderSpeed("lookup x4", times, 0.8, 1.2, 9), ContenderSpeed("auto", times - 0.02, 0.8, 1.2, 9)
    )
    result = run(*command)
    assert result.exit_code == 0
    assert words in result.stdout
    assert pair.read_bytes() == before


def test_a_pair_on_a_server_is_refused(run: Run, pair: Path, command: tuple[str, ...]) -> None:
    pair.write_text('schema = 1\n[[pair]]\nid = "tiny"\nbackend = "remote"\nurl = "http://127.0.0.1:9"\n')
    result = run(*command)
    assert result.exit_code == ExitCode.UNUSABLE
    assert "runs on a server" in result.stderr
