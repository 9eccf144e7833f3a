"""`specchat tune exit` with a tiny pair: what it trains, lists, takes back and refuses, and a stop at any moment."""

import json
import re
from pathlib import Path

import pytest

from specchat.cli.exit_codes import ExitCode
from specchat.config.catalog import load_catalog
from specchat.engine.loading import load
from specchat.engine.protocol.options import Limits, Sampling, Speculation
from tests.cli.conftest import Rising, Run, Tiny
from tests.cli.tune_ends import assert_a_stop_registers_nothing, assert_kills_lose_nothing
from tests.engine.test_lossless import finished, reply
from tests.engine.tiny import checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("pair") / "target", num_key_value_heads=2, num_hidden_layers=6)


@pytest.fixture(autouse=True)
def pair(folder: Path, tiny: Tiny) -> Path:
    """The user's models.toml."""
    return tiny(folder)


@pytest.fixture
def command(words_file: str) -> tuple[str, ...]:
    return ("tune", "exit", "tiny", "--prompts", words_file, "--replies", "6", "--steps", "10")


def test_a_faster_adapter_is_written_listed_and_taken_back(
    run: Run, pair: Path, home: Path, command: tuple[str, ...], rising: Rising
) -> None:
    rising(1.3, 1.1)
    before = load_catalog(pair)
    result = run(*command)
    assert (result.exit_code, result.stderr) == (0, "")
    assert re.match(r"After [13] of 6 layers \d+% of the tokens of held-out replies are right with the", result.stdout)
    place = home / "data" / "tuned" / "tiny-exit"
    assert f'The adapter lies in {place}, and pair "tiny" in {pair} names it.' in result.stdout
    spec = load_catalog(pair).find("tiny").spec
    assert spec.exit == str(place)
    texts = [
        finished(reply(load(one, lambda _: None), "abab", Sampling(), Limits(12), Speculation.of(name))).token_ids
        for one, name in ((before.find("tiny").spec, "plain"), (spec, "plain"), (spec, "early-exit"))
    ]
    assert texts[0] == texts[1] == texts[2]
    (row,) = json.loads(run("tune", "list", "--json").stdout)
    assert (row["kind"], row["key"], row["used_by"]) == ("exit", "exit", ["tiny"])
    assert row["before"].keys() == row["after"].keys() == {"right", "tokens_per_second"}
    assert run("tune", "remove", "tiny-exit").exit_code == 0
    assert load_catalog(pair) == before
    assert list((home / "data" / "tuned").iterdir()) == []


def test_a_stop_registers_nothing_and_the_command_goes_on(
    run: Run, pair: Path, home: Path, command: tuple[str, ...], rising: Rising, monkeypatch: pytest.MonkeyPatch
) -> None:
    rising(1.3, 1.1)
    tuned = home / "data" / "tuned"
    assert_a_stop_registers_nothing(lambda: run(*command), "step 1 of 10", pair, tuned, monkeypatch)
    assert load_catalog(pair).find("tiny").spec.exit is not None


def test_what_cannot_be_trained_is_refused(run: Run, pair: Path, command: tuple[str, ...], tmp_path: Path) -> None:
    small = checkpoint(tmp_path / "small", num_hidden_layers=1)
    for table, words in (
        (f'target = {{ path = "{small}", device = "cpu" }}', "the target has only 1 layer"),
        (f'target = {{ path = "{small}" }}\nbackend = "hf"', "it is run by hf"),
    ):
        pair.write_text(f'schema = 1\n[[pair]]\nid = "tiny"\n{table}\n')
        result = run(*command)
        assert result.exit_code == ExitCode.UNUSABLE
        assert result.stderr.startswith('Error: No adapter for pair "tiny": ')
        assert words in result.stderr


@pytest.mark.slow
def test_twenty_kills_lose_nothing(pair: Path, home: Path, command: tuple[str, ...]) -> None:
    """Killed at random moments, the command goes on each time, and the pair is as it was until the end."""
    assert_kills_lose_nothing(command[:-1], "2000", "40", pair, home / "data" / "tuned")
