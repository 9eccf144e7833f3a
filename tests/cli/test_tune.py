"""`specchat tune heads` with a tiny pair: what it trains, registers, refuses, and leaves when it is stopped."""

import errno
import json
import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from filelock import FileLock

from specchat.bench.contender import BenchPrompt, Different
from specchat.cli.exit_codes import ExitCode
from specchat.cli.output import ProgressLine
from specchat.config.catalog import load_catalog
from specchat.engine.loading import load
from specchat.engine.session import Session
from specchat.tune import TUNED, files, gain, order
from specchat.tune.gain import TuneComparison
from specchat.tune.replies import Question
from tests.cli.conftest import WORDS, Rising, Run, Tiny
from tests.engine.tiny import checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("pair") / "target", num_key_value_heads=2)


@pytest.fixture(autouse=True)
def pair(folder: Path, tiny: Tiny) -> Path:
    """The user's models.toml."""
    return tiny(folder, more="[pair.sampling]\ntop_k = 4\n")


@pytest.fixture
def command(words_file: str) -> tuple[str, ...]:
    return ("tune", "heads", "tiny", "--prompts", words_file, "--replies", "4", "--steps", "3", "--family")


@pytest.mark.rotated(3)
@pytest.mark.parametrize("family", TUNED)
def test_heads_that_are_faster_are_registered(
    run: Run, pair: Path, home: Path, command: tuple[str, ...], rising: Rising, family: str
) -> None:
    rising(1.3, 1.1)
    result = run(*command, family)
    assert (result.exit_code, result.stderr) == (0, "")
    learnt, held_out, speed, where = result.stdout.splitlines()
    assert re.fullmatch(rf"{family} heads of [\d,]+ weights learnt from 4 replies of \d+ tokens in 3 steps\.", learnt)
    assert held_out.startswith("On 1 held-out replies they get ")
    assert re.match(
        rf"Held-out prompts: [\d,]+ tokens/s before the tune, by plain, [\d,]+ after it, by {family}\.", speed
    )
    assert speed.endswith("1.30 times as fast as before the tune (1.10 to 1.50).")
    place = home / "data" / "tuned" / f"tiny-{family}"
    assert where.startswith(f'The heads lie in {place}, and pair "tiny" in {pair} names it.')
    text = pair.read_text()
    assert text.startswith('schema = 1\ndefault = "tiny"\n# mine\n[[pair]]\nid = "tiny" # small\n')
    spec = load_catalog(pair).find("tiny").spec
    assert {head: source.path for head, source in spec.heads.items()} == {family: str(place)}
    assert load(spec, lambda _: None).info.strategy(family).available


def test_heads_are_listed_compared_with_those_before_and_taken_back(
    run: Run, pair: Path, home: Path, command: tuple[str, ...], rising: Rising
) -> None:
    rising(1.3, 1.1)
    before = load_catalog(pair)
    assert run(*command, "medusa").exit_code == 0
    again = run(*command, "medusa")
    assert "begun anew" not in again.stderr
    assert re.search(r"before the tune, by (plain|medusa), ", again.stdout)
    rows = json.loads(run("tune", "list", "--json").stdout)
    assert [(row["id"], row["kind"], row["used_by"]) for row in rows] == [
        ("tiny-medusa-2", "heads", ["tiny"]),
        ("tiny-medusa", "heads", []),
    ]
    assert rows[0]["bytes"] > 10_000
    listed = run("tune", "list").stdout
    assert listed.startswith("tiny-medusa-2  heads of tiny  ")
    assert "tiny-medusa  heads of tiny, not in use  " in listed
    # The first one goes: the second then leads back to the pair without heads.
    assert run("tune", "use", "tiny-medusa").exit_code == 0
    assert load_catalog(pair).find("tiny").spec.heads["medusa"].path == str(home / "data" / "tuned" / "tiny-medusa")
    assert run("tune", "use", "tiny-medusa-2").exit_code == 0
    assert run("tune", "remove", "tiny-medusa").stdout.startswith("Deleted ")
    assert run("tune", "use", "--not", "tiny-medusa-2").stdout == f'Pair "tiny" in {pair} has what it had before.\n'
    assert load_catalog(pair) == before
    assert run("tune", "use", "--not", "tiny-medusa-2").stdout.startswith("No pair in ")
    assert run("tune", "remove", "tiny-medusa-2").exit_code == 0
    assert list((home / "data" / "tuned").iterdir()) == []
    missing = run("tune", "use", "tiny-medusa")
    assert missing.exit_code == ExitCode.USAGE
    assert missing.stderr == 'Error: Nothing trained is called "tiny-medusa". Nothing that was trained is kept.\n'


def test_heads_that_are_not_faster_are_not(
    run: Run, pair: Path, home: Path, command: tuple[str, ...], rising: Rising, monkeypatch: pytest.MonkeyPatch
) -> None:
    rising(1.2, 0.99)
    before = pair.read_bytes()
    monkeypatch.setattr(gain, "BUSY", -1.0)
    busy = run(*command, "medusa").stdout
    assert "The machine was busy: replies waited " in busy
    assert "More --replies" not in busy
    monkeypatch.setattr(gain, "BUSY", 1.0)
    result = run(*command, "medusa")
    assert result.exit_code == 0
    *_, no_gain, _, empty, line = result.stdout.splitlines()
    assert no_gain.startswith(f"That is no sure gain, so {pair} stays as it is.")
    assert pair.read_bytes() == before
    assert not (home / "data" / "tuned").exists()
    # What is told to be written by hand works.
    assert empty == ""
    pair.write_text(before.decode().replace('id = "tiny" # small', f'id = "tiny"\n{line}'))
    assert load(load_catalog(pair).find("tiny").spec, lambda _: None).info.strategy("medusa").available


def test_a_text_that_differs_is_told_and_nothing_registered(
    run: Run, pair: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = pair.read_bytes()

    def different(*_: object) -> TuneComparison:
        raise Different("medusa")

    monkeypatch.setattr(gain, "compared", different)
    result = run(*command, "medusa")
    assert result.exit_code == ExitCode.DIFFERENT
    assert "The text by medusa differs from plain decoding's. Nothing was registered." in result.stderr
    assert pair.read_bytes() == before


STAGES = {
    "the target answers prompt 1 of 1": "Stopped after 1 of 1 replies.",
    "the target answers prompt 2 of 4": "Stopped after 2 of 4 replies.",
    "step 1 of 3": "Stopped after step 1 of 3.",
    "step 3 of 3": "Stopped after step 3 of 3.",
    "held-out prompts by plain": "Stopped before the end was measured.",
}


def test_a_stop_at_any_moment_registers_nothing_and_the_command_goes_on(
    run: Run,
    pair: Path,
    home: Path,
    command: tuple[str, ...],
    rising: Rising,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rising(1.3, 1.1)
    before, seen, at = pair.read_bytes(), list[str](), [""]

    def show(self: ProgressLine, what: str, fraction: float | None = None) -> None:
        del self, fraction
        seen.append(what)
        if at[0] and what.startswith(at[0]):
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(ProgressLine, "show", show)
    for at[0], words in STAGES.items():
        result = run(*command, "medusa")
        assert (result.exit_code, result.stdout) == (ExitCode.INTERRUPTED, "")
        assert f"{words} The same command goes on from there." in result.stderr
        assert pair.read_bytes() == before
        assert not (home / "data" / "tuned").exists()
    # What was done was not done again.
    steps = [what.split(",")[0] for what in seen if what.startswith("step ")]
    assert steps == ["step 1 of 3", "step 2 of 3", "step 3 of 3"]
    at[0] = ""
    assert run(*command, "medusa").exit_code == 0
    assert "medusa" in load_catalog(pair).find("tiny").spec.heads


@pytest.mark.rotated(3, 1)
@pytest.mark.parametrize("name", ["000000.safetensors", "training.safetensors", "medusa_lm_head.safetensors"])
def test_a_full_disk_is_told_and_leaves_nothing_half(
    run: Run, pair: Path, command: tuple[str, ...], name: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, save = pair.read_bytes(), files.save_file

    def full(tensors: object, new: Path, metadata: object) -> None:
        if new.name == f".{name}.new":
            raise OSError(errno.ENOSPC, "No space left on device", str(new))
        save(tensors, new, metadata)  # type: ignore[arg-type]

    monkeypatch.setattr(files, "save_file", full)
    result = run(*command, "medusa")
    assert result.exit_code == ExitCode.USAGE
    assert "cannot be written (No space left on device)" in result.stderr
    assert "Nothing was registered." in result.stderr
    assert pair.read_bytes() == before
    work = home / "data" / "tune" / "tiny-medusa"
    assert not list(work.rglob(".*.new"))
    assert not list(work.rglob(name))
    monkeypatch.setattr(files, "save_file", save)
    assert run(*command, "medusa").exit_code == 0


def test_a_training_says_what_it_takes_and_begins_only_where_memory_holds_it(
    run: Run, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(ProgressLine, "line", lambda _, text: told.append(text))
    for begin in ([*command, "medusa"], ["tune", "exit", *command[2:-1]]):
        monkeypatch.setattr("specchat.engine.hardware.free_memory.free_memory", lambda: 1 << 40)
        result = run(*begin)
        assert result.exit_code == 0, result.stderr
        assert re.fullmatch(r"This takes about [\d.]+ \w+ here, and [\d.]+ \w+ of memory at most\.", told.pop())
        assert not told
        monkeypatch.setattr("specchat.engine.hardware.free_memory.free_memory", lambda: 1 << 20)
        result = run(*begin)
        assert result.exit_code == ExitCode.MEMORY
        assert re.match(r"Error: This takes [\d.]+ \w+ of memory, and \d+ MB are there\. Close other", result.stderr)
        assert not told


def test_memory_that_ran_out_is_told(run: Run, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> TuneComparison:
        raise MemoryError

    monkeypatch.setattr(gain, "compared", none)
    result = run(*command, "medusa")
    assert result.exit_code == ExitCode.MEMORY
    assert "Memory ran out while training." in result.stderr


def test_a_damaged_file_is_told(run: Run, command: tuple[str, ...], home: Path) -> None:
    assert run(*command, "medusa").exit_code == 0
    state = home / "data" / "tune" / "tiny-medusa" / "training.safetensors"
    state.write_bytes(b"x" * 100)
    result = run(*command, "medusa")
    assert result.exit_code == ExitCode.USAGE
    assert f"{state} cannot be read (it is damaged" in result.stderr
    state.unlink()
    assert run(*command, "medusa").exit_code == 0


def test_another_target_is_begun_anew(run: Run, command: tuple[str, ...], pair: Path, tmp_path: Path) -> None:
    assert "begun anew" not in run(*command, "medusa").stderr
    other = checkpoint(tmp_path / "other", seed=5, num_key_value_heads=2)
    table = f'[[pair]]\nid = "tiny"\ntarget = {{ path = "{other}", device = "cpu" }}\n[pair.sampling]\ntop_k = 4\n'
    pair.write_text(f"schema = 1\n{table}")
    result = run(*command, "medusa")
    assert result.exit_code == 0
    assert "tiny-medusa was of other models or of other prompts; it is begun anew." in result.stderr


def test_the_same_heads_are_trained_once_at_a_time(run: Run, command: tuple[str, ...], home: Path) -> None:
    work = home / "data" / "tune" / "tiny-medusa"
    work.mkdir(parents=True)
    with FileLock(work / ".lock"):
        result = run(*command, "medusa")
    assert result.exit_code == ExitCode.USAGE
    assert "The same is being trained already." in result.stderr


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (("--family", "dflash9"), ExitCode.USAGE, '"dflash9" is not one of dflash, eagle3, medusa.'),
        (("--steps", "0"), ExitCode.USAGE, "0 is not in the range x>=1"),
        (("--prompts", "one"), ExitCode.USAGE, "holds fewer than 2 prompts: one to learn from and one to be held out."),
        (("--prompts", "gone"), ExitCode.USAGE, "gone cannot be read"),
        (("--prompts", "long"), ExitCode.USAGE, "There is nothing to learn from: of 1 prompts, tiny answers none"),
    ],
)
def test_what_cannot_be_is_refused(
    run: Run, pair: Path, command: tuple[str, ...], tmp_path: Path, change: tuple[str, str], code: int, words: str
) -> None:
    before = pair.read_bytes()
    (tmp_path / "one").write_text('{"turns": ["a"]}\n')
    (tmp_path / "long").write_text(2 * (json.dumps({"turns": ["x" * 500]}) + "\n"))
    option, value = change
    result = run(*command, "medusa", option, str(tmp_path / value) if option == "--prompts" else value)
    assert result.exit_code == code
    assert words in result.stderr
    assert pair.read_bytes() == before


def test_targets_that_are_not_of_our_own_decoder_are_refused(
    run: Run, pair: Path, command: tuple[str, ...], tmp_path: Path
) -> None:
    foreign = checkpoint(tmp_path / "foreign")
    settings = json.loads((foreign / "config.json").read_text())
    (foreign / "config.json").write_text(json.dumps(settings | {"model_type": "stablelm"}))
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    for table, words in (
        (f'target = {{ path = "{foreign}" }}', "model_type 'stablelm' is not one that specchat's decoder runs"),
        (f'backend = "gguf"\ntarget = {{ path = "{tmp_path}/x.gguf" }}', "it is run by gguf"),
        (f'backend = "hf"\ntarget = {{ path = "{foreign}" }}', "it is run by hf"),
    ):
        pair.write_text(f'schema = 1\n[[pair]]\nid = "tiny"\n{table}\n')
        result = run(*command, "medusa")
        assert result.exit_code == ExitCode.UNUSABLE
        assert result.stderr.startswith('Error: No heads for pair "tiny": ')
        assert words in result.stderr
        assert order.NEEDS in result.stderr


def test_held_out_prompts_are_measured_whole(
    run: Run, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is made up: the real measuring runs, and finds the texts the same."""
    asked: list[Question] = []
    prompts = gain.held_out_prompts

    def seen(session: Session, questions: Sequence[Question]) -> list[BenchPrompt]:
        asked.extend(questions)
        return prompts(session, questions)

    monkeypatch.setattr(gain, "held_out_prompts", seen)
    result = run(*command, "eagle3")
    assert result.exit_code == 0, result.stderr
    assert [question.chat[0].content for question in asked] == [WORDS[7]]
    assert "after it, by eagle3" in result.stdout
