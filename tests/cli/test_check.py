"""`specchat check` on small random models."""

import re
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from specchat.cli.check import _advice
from specchat.cli.exit_codes import ExitCode
from specchat.config.paths import user_paths
from specchat.engine import check, check_ratio
from specchat.engine.check import CheckPrompt, CheckResult
from specchat.engine.decoding.row_invariance import Proof
from specchat.engine.session import Session
from specchat.engine.strategies import HEADED, STRATEGIES
from specchat.models.measured import known
from tests.cli.conftest import Run, configure
from tests.engine.packed import packed
from tests.engine.test_packed import INT4, SHAPE
from tests.engine.tiny import checkpoint, perturbed


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    root = tmp_path_factory.mktemp("pair")
    target = checkpoint(root / "target", num_key_value_heads=2, tie_word_embeddings=False)
    draft = perturbed(root / "draft", target, 0.05)
    return ["--target", str(target), "--draft", str(draft)]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_ratio, "MOST_REPLIES", 20)


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    path = tmp_path / "prompts.jsonl"
    path.write_text(
        '{"id": "hi", "messages": [{"role": "user", "content": "hi"}]}\n\n'
        '{"question_id": 81, "turns": ["write", "again"]}\n'
    )
    return str(path)


def test_what_was_not_checked_is_said(
    run: Run, folders: list[str], prompts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = check.run

    def interrupted(session: Session, chats: Sequence[CheckPrompt], full: bool) -> Iterator[CheckResult]:
        for count, result in enumerate(honest(session, chats, full)):
            if count == 3:
                signal.raise_signal(signal.SIGINT)
            yield result

    monkeypatch.setattr(check, "run", interrupted)
    monkeypatch.setattr(check, "QUICK_TOKENS", 12)
    result = run("check", *folders, "--prompts", prompts)
    assert result.exit_code == ExitCode.INTERRUPTED
    first, compared, last = result.stdout.splitlines()[-3:]
    assert re.fullmatch(r"Compared: .+, drafting 5; greedy; [12] turns? of up to \d+ tokens, which .*\.", compared)
    assert [first, last] == [
        "4 of 4 replies are identical to plain decoding's.",
        "Interrupted: 1 of 2 prompts were begun, and ratio and block were not checked.",
    ]


def test_every_prompt_is_reported(run: Run, folders: list[str], prompts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "QUICK_TOKENS", 12)
    result = run("check", *folders, "--prompts", prompts)
    assert result.exit_code == 0, result.output
    drafting = [name for name in STRATEGIES if name != "plain" and name not in HEADED]
    *lines, last, compared, by_ratio, by_block, advice = result.stdout.splitlines()
    assert [re.sub(r"\d+ replies", "N replies", line) for line in lines] == [
        "hi  identical: yes  (N replies)",
        "81  identical: yes  (N replies)",
    ]
    same, of = map(int, re.findall(r"\d+", last))
    assert same == of == 2 * (2 * len(drafting) + 1)
    assert compared.startswith(
        f"Compared: {', '.join(drafting)}, drafting 5; greedy, T=0.7 top-p 0.9; 2 turns of up to 12 "
    )
    for line, acceptance in ((by_ratio, "ratio"), (by_block, "block")):
        assert line == f"{acceptance}, draft  matches the model's own distribution: yes  (20 replies)"
    assert advice.startswith("There is nothing to do: drafting does not change the text here; specchat check --full")
    assert result.stderr == ""


def test_a_difference_is_told_and_has_its_own_code(
    run: Run, folders: list[str], prompts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def different(session: Session, prompts: Sequence[CheckPrompt], full: bool) -> Iterator[CheckResult]:
        assert full
        assert session.info.name == "target + draft"
        for prompt in prompts:
            yield CheckResult(prompt.id, "greedy", 1, "draft", 5, 10, True, 2.0)
            yield CheckResult(prompt.id, "greedy", 2, "swift", 4, 10, prompt.id == "hi", 2.0, 3, 0.00125)

    monkeypatch.setattr(check, "run", different)
    result = run("check", "--full", *folders, "--prompts", prompts)
    assert result.exit_code == ExitCode.DIFFERENT
    assert result.stdout.splitlines()[:5] == [
        "hi  identical: yes  (2 replies)",
        "81  identical: no  (2 replies)",
        "  swift x4, greedy, second turn: first difference at token 3, margin 0.00125",
        "3 of 4 replies are identical to plain decoding's.",
        "Compared: draft, swift, drafting 4, 5; greedy; 2 turns of up to 10 tokens, which the model or that limit "
        "ended. Not compared: stop strings and grammars. Exactness: row-invariant by construction.",
    ]
    assert result.stdout.splitlines()[-1].startswith("Do not use swift with this pair until that is fixed")


def test_another_distribution_has_the_same_code(
    run: Run, folders: list[str], prompts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "run", lambda *_: iter(()))
    monkeypatch.setattr(check_ratio, "run", lambda *_: iter([check_ratio.RatioResult("block", "draft", 9, 60.0, 50.0)]))
    result = run("check", *folders, "--prompts", prompts)
    assert result.exit_code == ExitCode.DIFFERENT
    why = "chi-square 60.0 where chance gives at most 50.0"
    line = f"block, draft  matches the model's own distribution: no  (9 replies, {why})"
    assert result.stdout.splitlines()[-2:] == [
        line,
        "Leave acceptance at coupled with this pair until that is fixed, and report the lines above.",
    ]


def test_the_limit_spreads_over_the_file(
    run: Run, folders: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(f'{{"id": "p{i}", "turns": ["hi"]}}\n' for i in range(9)))
    taken: list[str] = []

    def none(_: Session, prompts: Sequence[CheckPrompt], full: bool) -> Iterator[CheckResult]:
        assert not full
        taken.extend(prompt.id for prompt in prompts)
        return iter(())

    monkeypatch.setattr(check, "run", none)
    assert run("check", *folders, "--prompts", str(path), "--limit", "3").exit_code == 0
    assert taken == ["p0", "p3", "p6"]


def test_prompts_that_do_not_fit_are_left_out(
    run: Run, folders: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "QUICK_TOKENS", 4)
    path = tmp_path / "prompts.jsonl"
    path.write_text(f'{{"id": "long", "turns": ["{"x" * 5000}"]}}\n{{"id": "short", "turns": ["hi"]}}\n')
    result = run("check", *folders, "--prompts", str(path))
    assert result.stderr == "1 of 2 prompts do not fit the context and are left out.\n"
    assert result.stdout.startswith("short  identical: yes")


def test_a_check_of_nothing_is_an_error(run: Run, folders: list[str], tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(f'{{"turns": ["{"x" * 5000}"]}}\n')
    result = run("check", *folders, "--prompts", str(path))
    assert result.exit_code == ExitCode.CONTEXT
    assert result.stdout == ""
    assert "No prompt fits the context of 256 tokens" in result.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be read"),
        ("", "holds no prompts"),
        ('{"id": 1}\n', "line 1"),
        ('{"turns": ["a"]}\n[1]\n', "line 2"),
        ('{"turns": []}\n', "line 1"),
        ("not JSON\n", "line 1"),
    ],
)
def test_wrong_prompt_files_are_told(run: Run, tmp_path: Path, text: str | None, words: str) -> None:
    path = tmp_path / "prompts.jsonl"
    if text is not None:
        path.write_text(text)
    result = run("check", "--prompts", str(path))
    assert result.exit_code == ExitCode.USAGE
    assert words in result.stderr
    assert str(path) in result.stderr


def test_a_model_that_cannot_be_loaded_is_told(run: Run, home: Path, tmp_path: Path, prompts: str) -> None:
    result = run("check", "--target", str(tmp_path / "nowhere"), "--prompts", prompts)
    assert result.exit_code == ExitCode.USAGE
    assert "--target: there is no folder or file" in result.stderr
    configure(home, models='schema = 1\n[[pair]]\nid = "mine"\nbackend = "gguf"\ntarget.path = "/t"\n')
    assert run("check", "--pair", "mine").exit_code == ExitCode.UNUSABLE


@pytest.mark.parametrize(
    ("different", "exactness", "words"),
    [
        (["auto", "lookup"], Proof().exactness, "Do not use auto, lookup"),
        (["auto", "lookup"], Proof(1.0).exactness, "No strategy is at fault: with this pair rounding depends"),
        (["auto", "plain"], Proof(1.0).exactness, "Plain decoding itself writes otherwise after an earlier turn"),
    ],
)
def test_no_strategy_is_blamed_for_what_passes_round_otherwise(
    different: list[str], exactness: str, words: str
) -> None:
    assert _advice(different, True, True, exactness).startswith(words)


def test_what_rows_in_8_bits_do_is_measured_and_shown_later(run: Run, tmp_path: Path, prompts: str) -> None:
    folder, _ = packed(tmp_path, *INT4["compressed-tensors, 32"], **SHAPE)
    before = run("models", "show", str(folder)).stdout
    unknown = "not measured here (specchat check --activations)"
    assert f"activations   float32; int8: {unknown}; bfloat16: {unknown}" in before
    result = run("check", "--target", str(folder), "--prompts", prompts, "--activations")
    assert result.exit_code == 0, result.output
    assert re.search(r"KL divergence of \d\.\de-0\d nats from that with float32 rows, 99 % below", result.stdout)
    kept = known(user_paths().roundings, str(folder))
    assert [*kept] == ["int8", "bfloat16"]
    shown = run("models", "show", str(folder)).stdout
    for form, price in kept.items():
        assert 0 < price.divergence < 0.05
        assert price.alike > 0.8
        assert f"{form}: KL divergence {price.divergence:.1e} nats" in shown


def test_rows_in_8_bits_are_refused_where_nothing_takes_them(run: Run, folders: list[str], prompts: str) -> None:
    result = run("check", *folders[:2], "--prompts", prompts, "--activations", "int8")
    assert result.exit_code == ExitCode.UNUSABLE
    assert "for matrices of whole numbers (int8, int4, GGUF types, MXFP4), and this model has none" in result.stderr


def test_replies_are_compared_with_rows_in_8_bits(
    run: Run, tmp_path: Path, prompts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "QUICK_TOKENS", 6)
    folder, _ = packed(tmp_path, *INT4["compressed-tensors, 32"], **SHAPE)
    result = run("check", "--target", str(folder), "--prompts", prompts, "--limit", "1", "--activations", "int8")
    assert result.exit_code == 0, result.output
    words = "row-invariant by construction(, whole numbers by [A-Za-z0-9 -]+)?; activations in 8 bits"
    assert re.search(f"Exactness: {words}[.]", result.stdout)
