"""`specchat tune swift` with a tiny pair: what it writes, lists, takes back and refuses, and a stop at any moment."""

import json
from pathlib import Path

import pytest

from specchat.cli.exit_codes import ExitCode
from specchat.config.catalog import load_catalog
from specchat.engine.strategy import SkippedLayers
from specchat.tune import skips
from specchat.tune.runs import swift
from tests.cli.conftest import Rising, Run, Tiny
from tests.cli.tune_ends import assert_a_stop_registers_nothing, assert_kills_lose_nothing
from tests.engine.tiny import checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("pair") / "target", num_key_value_heads=2, num_hidden_layers=6)


@pytest.fixture(autouse=True)
def pair(folder: Path, tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's models.toml."""
    monkeypatch.setattr(skips, "VERIFY", -0.5)  # so that a choice promises something with a random target
    return tiny(folder)


@pytest.fixture
def command(words_file: str) -> tuple[str, ...]:
    return ("tune", "swift", "tiny", "--prompts", words_file, "--replies", "6", "--sets", "30")


def test_a_faster_choice_is_written_listed_and_taken_back(
    run: Run, pair: Path, home: Path, command: tuple[str, ...], rising: Rising
) -> None:
    rising(1.3, 1.1)
    before = load_catalog(pair)
    result = run(*command)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("Drafting skips ")
    assert f'It is skip of pair "tiny" in {pair}. "specchat tune remove tiny-swift" takes it back.' in result.stdout
    skip = load_catalog(pair).find("tiny").spec.skip
    assert isinstance(skip, SkippedLayers)
    assert {*skip.attention, *skip.mlp} <= {1, 2, 3, 4}
    (row,) = json.loads(run("tune", "list", "--json").stdout)
    assert (row["kind"], row["key"], row["used_by"]) == ("swift", "skip", ["tiny"])
    assert (tuple(row["value"]["attention"]), tuple(row["value"]["mlp"])) == (skip.attention, skip.mlp)
    assert run("tune", "remove", "tiny-swift").exit_code == 0
    assert load_catalog(pair) == before
    assert list((home / "data" / "tuned").iterdir()) == []


def test_a_choice_that_promises_nothing_is_not_measured(
    run: Run, pair: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = pair.read_bytes()
    monkeypatch.setattr(skips, "VERIFY", 9.0)
    monkeypatch.setattr(swift, "measured", None)
    result = run(*command)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("Skipping layers would not beat plain decoding here: the best of ")
    assert pair.read_bytes() == before


def test_a_stop_registers_nothing_and_the_command_goes_on(
    run: Run, pair: Path, home: Path, command: tuple[str, ...], rising: Rising, monkeypatch: pytest.MonkeyPatch
) -> None:
    rising(1.3, 1.1)
    tuned = home / "data" / "tuned"
    assert_a_stop_registers_nothing(lambda: run(*command), "choice ", pair, tuned, monkeypatch)
    assert load_catalog(pair).find("tiny").spec.skip is not None


def test_what_cannot_skip_is_refused(run: Run, pair: Path, command: tuple[str, ...], tmp_path: Path) -> None:
    small = checkpoint(tmp_path / "small", num_hidden_layers=3)
    text = pair.read_text()
    for table, words in (
        (f'target = {{ path = "{small}", device = "cpu" }}', "the target has only 3 layers: too few to skip some"),
        (f'target = {{ path = "{small}" }}\nbackend = "hf"', "it is run by hf"),
    ):
        pair.write_text(f'schema = 1\n[[pair]]\nid = "tiny"\n{table}\n')
        result = run(*command)
        assert result.exit_code == ExitCode.UNUSABLE
        assert result.stderr.startswith('Error: No skip set for pair "tiny": ')
        assert words in result.stderr
    pair.write_text(text)


@pytest.mark.slow
def test_twenty_kills_lose_nothing(pair: Path, home: Path, command: tuple[str, ...]) -> None:
    """Killed at random moments, the command goes on each time, and the pair is as it was until the end."""
    assert_kills_lose_nothing(command[:-1], "100000", "200", pair, home / "data" / "tuned")
