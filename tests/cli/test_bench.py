"""`specchat bench` on small random models."""

import json
import re
import signal
from pathlib import Path

import pytest

from specchat.bench.contender import BenchPrompt, Material
from specchat.bench.contender import Run as Reply
from specchat.bench.ours import Ours
from specchat.cli.exit_codes import ExitCode
from specchat.engine.strategies import STRATEGIES
from tests.cli.conftest import Run
from tests.engine.tiny import checkpoint, perturbed


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    root = tmp_path_factory.mktemp("pair")
    target = checkpoint(root / "target", num_key_value_heads=2, tie_word_embeddings=False)
    draft = perturbed(root / "draft", target, 0.05)
    return ["--target", str(target), "--draft", str(draft)]


@pytest.fixture
def quick(folders: list[str], tmp_path: Path) -> list[str]:
    path = tmp_path / "prompts.jsonl"
    path.write_text(
        '{"id": "hi", "category": "chat", "messages": [{"role": "user", "content": "hi"}]}\n'
        '{"question_id": 81, "category": "writing", "turns": ["write", "again"]}\n'
    )
    return ["bench", *folders, "--prompts", str(path), "--tokens", "8", "--repeats", "1"]


def test_every_strategy_is_measured(run: Run, quick: list[str], tmp_path: Path) -> None:
    figures, picture = tmp_path / "out.json", tmp_path / "out.svg"
    result = run(*quick, "--json", str(figures), "--plot", str(picture))
    assert result.exit_code == 0, result.output
    for words in ("plain", "draft x5", "lookup x8", "mt-bench", "2 prompts, 1 reply each", "x one"):
        assert words in result.stdout
    assert result.stderr == ""
    data = json.loads(figures.read_text())
    assert {line["contender"] for line in data["contenders"]} >= {"plain", "draft x5", "lookup x8"}
    assert all(line["identical"] == line["prompts"] == 2 for line in data["contenders"])
    assert len(data["verify_cost"]) == 16
    assert picture.stat().st_size > 2000


def test_chosen_strategies_and_sampling(run: Run, quick: list[str], tmp_path: Path) -> None:
    figures = tmp_path / "out.json"
    arguments = ("--strategy", "draft:2", "--strategy", "lookup:3", "--temperature", "0.8", "--seed", "3")
    result = run(*quick, *arguments, "--json", str(figures))
    assert result.exit_code == 0, result.output
    names = [line["contender"] for line in json.loads(figures.read_text())["contenders"]]
    assert names == ["plain", "draft x2", "lookup x3"]


def test_a_prompt_is_repeated_until_it_is_known_well_enough(run: Run, quick: list[str], tmp_path: Path) -> None:
    figures = tmp_path / "out.json"
    few = ("--strategy", "lookup", "--strategy", "plain", "--repeats", "7", "--json", str(figures))
    result = run(*quick[:-2], *few, "--within", "90")
    assert result.exit_code == 0, result.output
    data = json.loads(figures.read_text())
    lookup = next(line for line in data["contenders"] if line["contender"] == "lookup x8")
    assert {one["rounds"] for one in lookup["whole_vs_plain"].values()} <= {5, 6, 7}
    assert all(reply["ran_seconds"] > 0 for reply in data["replies"])


def test_a_strategy_drafts_as_many_tokens_as_the_pair_says(run: Run) -> None:
    few = ("--limit", "1", "--repeats", "1", "--tokens", "4")
    result = run("bench", *few, "--strategy", "draft", "--strategy", "draft:3", "--strategy", "lookup")
    assert result.exit_code == 0, result.output
    for words in ("draft x15", "draft x3", "lookup x8"):
        assert words in result.stdout


def test_plain_alone_has_no_table_of_what_is_faster(run: Run, quick: list[str]) -> None:
    result = run(*quick, "--strategy", "plain")
    assert result.exit_code == 0, result.output
    assert "\nx plain" not in result.stdout


def test_drafts_judged_otherwise_need_not_write_the_plain_text(run: Run, quick: list[str], tmp_path: Path) -> None:
    figures = tmp_path / "out.json"
    cases = ("--strategy", "draft:5:block", "--strategy", "draft:5:ratio", "--strategy", "draft:5")
    result = run(*quick, *cases, "--temperature", "1.5", "--json", str(figures))
    assert result.exit_code == 0, result.output
    lines = {line["contender"]: line for line in json.loads(figures.read_text())["contenders"]}
    assert list(lines) == ["plain", "draft x5 block", "draft x5 ratio", "draft x5"]
    assert lines["draft x5"]["identical"] == lines["draft x5"]["prompts"]
    assert lines["draft x5 block"]["identical"] < lines["draft x5 block"]["prompts"]


def test_it_decides(run: Run, quick: list[str], tmp_path: Path) -> None:
    figures = tmp_path / "out.json"
    result = run(*quick, "--decide", "--json", str(figures))
    assert result.exit_code == 0, result.output
    for words in ("Who should draft, and how far", "mt-bench", "all prompts", "2 prompts, 1 reply each", "In words:"):
        assert words in result.stdout
    shares = r"With bfloat16 rows, instead of float32, checks of 1, 4 and 8 tokens take (\d\.\d\d(, )?){3} of the time;"
    assert re.search(shares + r" its price in quality is not measured here", result.stdout)
    data = json.loads(figures.read_text())
    assert len(data["replies"]) == 2 * len(data["contenders"])
    assert [decision["category"] for decision in data["decide"]["decisions"]] == ["chat", "mt-bench", "all prompts"]
    assert len(data["decide"]["costs"]["checks"]) == 16


def test_nothing_is_decided_on_half_a_measurement(
    run: Run, quick: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    honest, figures = Ours.run, tmp_path / "out.json"

    def interrupted(self: Ours, *arguments: object) -> object:
        if self.name == "swift x4":
            signal.raise_signal(signal.SIGINT)
        return honest(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Ours, "run", interrupted)
    monkeypatch.setattr(Ours, "warm_up", lambda *_: None)
    result = run(*quick, "--decide", "--json", str(figures))
    assert result.exit_code == ExitCode.INTERRUPTED
    assert "interrupted: the figures are of the replies up to there" in result.stdout
    assert "nothing is decided: what checks cost was not measured" in result.stdout
    assert "Who should draft" not in result.stdout
    assert "decide" not in json.loads(figures.read_text())


class Theirs:
    """A way of another program to write, made up."""

    note = ""

    def __init__(self, name: str, rival: str) -> None:
        self.name, self.rival = name, rival

    def warm_up(self, prompt: BenchPrompt) -> None: ...

    def run(self, prompt: BenchPrompt, most: int) -> Reply:
        del prompt
        return Reply(tuple(range(most)), 2.0, 1.0, 1)

    def close(self) -> None: ...


def test_another_program_takes_part_and_may_write_something_else(
    run: Run, quick: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def contenders(material: Material) -> list[Theirs]:
        assert material.target.is_dir()
        return [Theirs("transformers", "plain"), Theirs("transformers, assisted", "draft")]

    monkeypatch.setattr("specchat.bench.peers.transformers.contenders", contenders)
    result = run(*quick, "--strategy", "plain", "--against", "transformers")
    assert result.exit_code == 0, result.output
    for words in ("transformers, assisted", "ours over it"):
        assert words in result.stdout


def test_a_prompt_that_is_left_out_is_told_without_a_terminal(run: Run, quick: list[str], tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(path.read_text() + f'{{"id": "long", "turns": ["{"x" * 5000}"]}}\n')
    result = run(*quick, "--strategy", "plain")
    assert result.exit_code == 0, result.output
    assert result.stderr == "1 of 3 prompts do not fit the context and are left out.\n"


def test_a_program_that_does_not_load_is_told_and_left_out(
    run: Run, quick: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> object:
        raise OSError("no kernel for this machine\nand more")

    monkeypatch.setattr("specchat.bench.peers.transformers.contenders", broken)
    result = run(*quick, "--strategy", "plain", "--against", "transformers")
    assert result.exit_code == 0, result.output
    note = "transformers could not be loaded and is left out: OSError: no kernel for this machine\n"
    assert note in result.stdout
    assert "plain" in result.stdout


def test_the_first_ctrl_c_ends_before_the_next_warm_up(
    run: Run, quick: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def asked_while_warming(self: Ours, *_: object) -> None:
        calls.append(self.name)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Ours, "warm_up", asked_while_warming)
    result = run(*quick)
    assert result.exit_code == ExitCode.INTERRUPTED
    assert calls == ["plain"]
    assert "Nothing was measured" in result.stdout


def test_a_different_text_is_loud(run: Run, quick: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    honest = Ours.run

    def lying(self: Ours, *arguments: object) -> object:
        made = honest(self, *arguments)  # type: ignore[arg-type]
        if self.speculation.strategy == "draft":
            object.__setattr__(made, "tokens", (*made.tokens[:-1], made.tokens[-1] + 1))
        return made

    monkeypatch.setattr(Ours, "run", lying)
    figures = tmp_path / "out.json"
    result = run(*quick, "--json", str(figures))
    assert result.exit_code == ExitCode.DIFFERENT
    assert "differs from plain decoding's: draft x5 on 2 of 2 prompts" in result.stderr
    assert figures.is_file()


def test_ctrl_c_keeps_what_was_measured(
    run: Run, quick: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    honest = Ours.run
    runs = 0

    def interrupted(self: Ours, *arguments: object) -> object:
        nonlocal runs
        runs += 1
        # A warm-up of each, then three replies of twice as many.
        if runs == sum(not info.needs_head for info in STRATEGIES.values()) + 3:
            raise KeyboardInterrupt
        return honest(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Ours, "run", interrupted)
    figures = tmp_path / "out.json"
    result = run(*quick, "--json", str(figures))
    assert result.exit_code == ExitCode.INTERRUPTED
    assert "interrupted: the figures are of the replies up to there" in result.stdout
    data = json.loads(figures.read_text())
    assert 1 <= len(data["replies"]) <= 3
    assert data["verify_cost"] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--strategy", "draft:99"], '"99" is not a draft length from 1 to 15'),
        (["--strategy", "draft:5:bloc"], '"bloc" is not one of coupled, ratio, block. Did you mean "block"?'),
        (["--strategy", "drafts"], "Did you mean"),
        (["--against", "vllm"], '"vllm" is not one of'),
        (["--decide", "--strategy", "draft"], "--strategy has no meaning with --decide"),
        (["--decide", "--against", "transformers"], "--against has no meaning with --decide"),
        (["--decide", "--shapes", "qwen3-8b"], "has no meaning with --shapes"),
        (["--decide", "--plot", "p.svg"], "--plot has no meaning with --decide"),
        (["--plot", "p.jpg"], "must end in .png or .svg"),
        (["--json", "/no/such/folder/x.json"], "there is no folder /no/such/folder"),
        (["--prompts", "/no/such.jsonl"], "/no/such.jsonl cannot be read"),
    ],
)
def test_wrong_options_are_told(run: Run, quick: list[str], arguments: list[str], words: str) -> None:
    result = run(*quick, *arguments)
    assert result.exit_code == ExitCode.USAGE
    assert words in result.stderr


def test_a_strategy_that_cannot_run_is_told(run: Run, quick: list[str]) -> None:
    without_draft = [word for word in quick if word != "--draft" and not word.endswith("draft")]
    result = run(*without_draft, "--strategy", "draft")
    assert result.exit_code == ExitCode.USAGE
    assert "draft cannot be measured: this pair has no draft model" in result.stderr


@pytest.mark.parametrize(
    "line",
    [
        '{"turns": []}',
        '{"turns": [null]}',
        '{"question": "a"}',
        '["a"]',
        '{"messages": [{"role": "robot", "content": "a"}]}',
        '{"messages": [{"role": "user", "content": ["a"]}]}',
    ],
)
def test_a_wrong_line_of_a_prompts_file_is_named(run: Run, quick: list[str], tmp_path: Path, line: str) -> None:
    path = tmp_path / "wrong.jsonl"
    path.write_text(f'{{"turns": ["a"]}}\n{line}\n')
    result = run(*quick, "--prompts", str(path))
    assert result.exit_code == ExitCode.USAGE
    assert f"{path}, line 2" in result.stderr


def test_prompts_that_do_not_fit_are_told(run: Run, quick: list[str]) -> None:
    result = run(*quick, "--tokens", "100000")
    assert result.exit_code == ExitCode.CONTEXT
    assert "Lower --tokens" in result.stderr


def test_options_before_a_sub_command_are_not_lost(run: Run) -> None:
    result = run("bench", "--limit", "3", "verify-cost")
    assert result.exit_code == ExitCode.USAGE
    assert "--limit does not go with verify-cost" in result.stderr
    assert "--decide does not go with verify-cost" in run("bench", "--decide", "verify-cost").stderr
    for before in (["bench", "--pair", "nope"], ["--pair", "nope", "bench"]):
        result = run(*before, "verify-cost")
        assert result.exit_code == ExitCode.UNUSABLE
        assert 'There is no pair "nope"' in result.stderr


def test_verify_cost_alone(run: Run, folders: list[str], tmp_path: Path) -> None:
    figures = tmp_path / "cost.json"
    result = run("bench", "verify-cost", *folders, "--json", str(figures))
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == 2 + 1 + 17
    assert [cost["rows"] for cost in json.loads(figures.read_text())["verify_cost"]] == list(range(1, 17))
