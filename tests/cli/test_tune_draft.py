"""`specchat tune draft` with a tiny pair: what it trains, registers, refuses, lists and takes back."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from specchat.chat.store import Store
from specchat.chat.tree import Conversation
from specchat.cli.exit_codes import ExitCode
from specchat.config.catalog import load_catalog
from specchat.config.errors import ConfigError
from specchat.engine.loading import load
from specchat.engine.protocol.options import Limits, Sampling, Speculation
from specchat.tune import registry
from tests.chat.conftest import answer, flush
from tests.cli.conftest import WORDS, Rising, Run, Tiny
from tests.cli.tune_ends import assert_a_stop_registers_nothing, assert_kills_lose_nothing, interrupting
from tests.engine.test_lossless import finished, reply
from tests.engine.tiny import checkpoint


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("pair")
    return checkpoint(root / "target", num_key_value_heads=2), checkpoint(root / "draft", seed=4, num_hidden_layers=2)


@pytest.fixture(autouse=True)
def pair(folders: tuple[Path, Path], tiny: Tiny) -> Path:
    """The user's models.toml."""
    return tiny(*folders)


@pytest.fixture
def command(words_file: str) -> tuple[str, ...]:
    return ("tune", "draft", "tiny", "--prompts", words_file, "--replies", "6", "--steps", "10")


def test_a_draft_that_is_faster_is_registered_listed_and_taken_back(
    run: Run, pair: Path, home: Path, command: tuple[str, ...], rising: Rising
) -> None:
    rising(1.3, 1.1)
    before = load_catalog(pair).find("tiny").spec
    result = run(*command)
    assert (result.exit_code, result.stderr) == (0, "")
    place = home / "data" / "tuned" / "tiny-draft"
    assert f'The draft lies in {place}, and pair "tiny" in {pair} names it.' in result.stdout
    assert "1.30 times as fast as before the tune (1.10 to 1.50)" in result.stdout
    assert '# mine\n[[pair]]\nid = "tiny" # small\n' in pair.read_text()
    spec = load_catalog(pair).find("tiny").spec
    assert spec.draft is not None
    assert (spec.draft.path, spec.draft.device) == (str(place), "cpu")
    texts = [
        finished(reply(load(each, lambda _: None), "abab", Sampling(), Limits(12), Speculation.of(strategy))).token_ids
        for each, strategy in ((before, "plain"), (before, "draft"), (spec, "draft"))
    ]
    assert texts[0] == texts[1] == texts[2]
    listed = run("tune", "list").stdout
    assert listed.startswith("tiny-draft  draft of tiny  ")
    assert f"9 prompts of {command[4]}"[:40] in listed
    assert "accepted" in listed
    (row,) = json.loads(run("tune", "list", "--json").stdout)
    assert row["pair"] == "tiny"
    assert row["bytes"] > 1000
    # A second training begins at the first one's draft, and has a place of its own.
    assert run(*command).exit_code == 0
    second = home / "data" / "tuned" / "tiny-draft-2"
    removed = run("tune", "remove", "tiny-draft-2")
    assert removed.exit_code == 0
    assert f'Pair "tiny" in {pair} has what it had before.' in removed.stdout
    assert not second.exists()
    assert load_catalog(pair).find("tiny").spec.draft == spec.draft
    assert run("tune", "remove", "tiny-draft").exit_code == 0
    assert load_catalog(pair).find("tiny").spec == before
    assert run("tune", "list").stdout.startswith("Nothing that was trained is kept.")


def test_the_prompts_of_saved_chats_are_learnt_from_and_named(
    run: Run, home: Path, command: tuple[str, ...], rising: Rising
) -> None:
    rising(1.3, 1.1)
    first = talked(home, WORDS)
    few = run("tune", "draft", "tiny", "--chats")
    assert few.exit_code == ExitCode.USAGE
    assert "of the 16 prompts that it takes to learn from and to measure by. Chat a while, or give" in few.stderr
    second = talked(home, WORDS)
    result = run("tune", "draft", "tiny", "--chats", *command[5:])
    assert (result.exit_code, result.stderr) == (0, "")
    (row,) = json.loads(run("tune", "list", "--json").stdout)
    assert row["data"] == "18 prompts of 2 saved chats"
    assert set(row["used"]) == {first, second}
    assert 'tiny-draft learnt from it: "specchat tune remove tiny-draft"' in run("chats", "delete", first).stdout


def test_json_lines_report_the_phases_what_is_accepted_and_the_result(
    run: Run, command: tuple[str, ...], rising: Rising
) -> None:
    rising(1.3, 1.1)
    result = run(*command, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    *progress, last = [json.loads(line) for line in result.stdout.splitlines()]
    phases = list(dict.fromkeys(line.get("phase") for line in progress if line["kind"] == "progress"))
    assert [phase for phase in phases if phase not in (None, "loading")] == ["replies", "training", "measuring"]
    trained = [line for line in progress if line.get("phase") == "training"]
    assert all(0 <= line["accepted"] <= 1 and 0 <= line["accepted_before"] <= 1 for line in trained[1:])
    assert [line["fraction"] for line in trained[1:]] == sorted(line["fraction"] for line in trained[1:])
    assert last["kind"] == "result"
    assert (last["taken"], last["id"], last["pair"], last["times"]) == (True, "tiny-draft", "tiny", [1.3, 1.1, 1.5])
    assert last["before"].keys() == last["after"].keys() == {"accepted", "tokens_per_second"}
    rising(1.3, 0.9)
    last = json.loads(run(*command, "--json").stdout.splitlines()[-1])
    assert (last["kind"], last["taken"]) == ("result", False)


def test_an_unfinished_tune_goes_on_with_the_prompts_it_began_with(
    run: Run, home: Path, command: tuple[str, ...], rising: Rising, monkeypatch: pytest.MonkeyPatch
) -> None:
    rising(1.3, 1.1)
    talked(home, WORDS), talked(home, WORDS)
    tune = ("tune", "draft", "tiny", "--chats", *command[5:])

    def stopped() -> None:
        with monkeypatch.context() as patch:
            interrupting(patch, "step 7 of 10")
            assert run(*tune).exit_code == ExitCode.INTERRUPTED

    stopped()
    later = talked(home, WORDS)
    result = run(*tune)
    assert (result.exit_code, result.stderr) == (0, "")  # nothing on beginning anew
    (row,) = json.loads(run("tune", "list", "--json").stdout)
    assert row["data"] == "18 prompts of 2 saved chats"
    stopped()  # the next one begins with all chats
    assert run("chats", "delete", later).exit_code == 0
    assert "is begun anew" in run(*tune).stderr
    assert json.loads(run("tune", "list", "--json").stdout)[0]["data"] == "18 prompts of 2 saved chats"


def talked(home: Path, words: Sequence[str]) -> str:
    """Save a chat in which all `words` are answered, and one prompt is not; returns its key."""
    (home / "data").mkdir(exist_ok=True)
    store = Store(home / "data" / "chats.db")
    chat = Conversation()
    for text in words:
        turn = chat.ask(text)
        store.add_turn(chat, turn, {})
        store.save_reply(chat, answer(chat, turn, f"{text} indeed"))
    store.add_turn(chat, chat.ask("not answered"), {})
    store.save_chat(chat, {})
    flush(store)
    store.close()
    return chat.key


def test_a_stop_registers_nothing_and_the_command_goes_on(
    run: Run, pair: Path, home: Path, command: tuple[str, ...], rising: Rising, monkeypatch: pytest.MonkeyPatch
) -> None:
    rising(1.3, 1.1)
    tuned = home / "data" / "tuned"
    assert_a_stop_registers_nothing(lambda: run(*command), "step 7 of 10", pair, tuned, monkeypatch)
    assert (tuned / "tiny-draft" / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ("draft = {", ExitCode.UNUSABLE, 'Pair "tiny" has no draft model to train.'),
        ("device", ExitCode.UNUSABLE, 'No trained draft for pair "tiny": it is run by hf'),
    ],
)
def test_what_cannot_be_trained_is_refused(
    run: Run, pair: Path, command: tuple[str, ...], change: str, code: ExitCode, words: str
) -> None:
    text = pair.read_text()
    lines = [line for line in text.splitlines() if not line.startswith(change)]
    pair.write_text("\n".join(lines) + ('\nbackend = "hf"\n' if change == "device" else "\n"))
    result = run(*command)
    assert result.exit_code == code
    assert words in result.stderr


def test_a_models_file_that_cannot_be_written_leaves_nothing(
    run: Run, pair: Path, home: Path, command: tuple[str, ...], rising: Rising,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    rising(1.3, 1.1)

    def refused(*_: object) -> None:
        raise ConfigError("models.toml cannot be written (No space left on device).")

    monkeypatch.setattr(registry, "set_setting", refused)
    before = pair.read_bytes()
    result = run(*command)
    assert result.exit_code != 0
    assert "No space left on device" in result.stderr
    assert pair.read_bytes() == before
    assert list((home / "data" / "tuned").iterdir()) == []


@pytest.mark.slow
def test_twenty_kills_lose_nothing(pair: Path, home: Path, command: tuple[str, ...]) -> None:
    """Killed at random moments, the command goes on each time, and the pair is as it was until the end."""
    assert_kills_lose_nothing(command[:-1], "600", "600", pair, home / "data" / "tuned")
