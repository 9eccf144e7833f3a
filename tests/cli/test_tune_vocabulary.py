"""`specchat tune vocabulary` with a tiny pair: what it counts, writes and refuses."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from specchat.chat.store import Store
from specchat.chat.tree import Conversation
from specchat.cli.exit_codes import ExitCode
from specchat.config.catalog import load_catalog
from specchat.engine import check, check_ratio
from specchat.engine.loading import load
from specchat.tune.runs import vocabulary
from tests.chat.conftest import answer, flush, save
from tests.cli.conftest import Run, configure
from tests.engine.published_heads import qwen_mtp
from tests.engine.tiny import SPECIAL, checkpoint, perturbed

BYTES = 256
PAIRED = "abcdefgh"
"""Letters of which any two that are alike are a token."""
SIZE = BYTES + len(PAIRED) + len(SPECIAL)


def backend() -> Backend:
    spelling = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *(2 * letter for letter in PAIRED)]
    merges = [(letter, letter) for letter in PAIRED]
    made = Backend(models.BPE(vocab={text: token for token, text in enumerate(spelling)}, merges=merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(SPECIAL)
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pair")
    perturbed(root / "draft", checkpoint(root / "target", backend=backend(), eos_token_id=SIZE - 1), 0.05)
    return root


@pytest.fixture
def pair(folder: Path, home: Path) -> Path:
    """The user's models.toml."""
    table = f'[[pair]]\nid = "tiny"\ntarget.path = "{folder}/target"\ndraft.path = "{folder}/draft"\n'
    alone = f'[[pair]]\nid = "alone"\ntarget.path = "{folder}/target"\n'
    configure(home, models=f'schema = 1\ndefault = "tiny"\n{table}{alone}')
    return home / "config" / "models.toml"


@pytest.fixture
def saved(home: Path) -> None:
    (home / "data").mkdir(parents=True)
    store = Store(home / "data" / "chats.db")
    for text in ("hhhh", "hhhhgg", "hh"):
        chat = Conversation()
        answer(chat, chat.ask("say"), text)
        save(store, chat)
    flush(store)
    store.close()


def prompts(folder: Path) -> Path:
    """Three, of which the second does not fit the context."""
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps({"turns": [text]}) + "\n" for text in ("ab", "x" * 500, "abc")))
    return path


def test_saved_replies_are_counted(run: Run, pair: Path, saved: None, monkeypatch: pytest.MonkeyPatch) -> None:
    del saved
    monkeypatch.setattr(vocabulary, "ENOUGH", 5)
    result = run("tune", "vocabulary", "tiny", "--size", str(BYTES + len(SPECIAL) + 2))
    assert (result.exit_code, result.stderr) == (0, "")
    counted, covered, where, _, line = result.stdout.splitlines()
    assert counted == "Counted 6 tokens, 2 different ones, in 3 saved replies and 0 that were written for it."
    assert covered == "262 of 268 tokens make up 83.3% of replies that were not counted."
    assert where.startswith(f"Written to {pair.parent}/tiny.vocabulary.json. ")
    assert f'the pair "tiny" in {pair} ' in where
    assert line == 'draft_vocabulary = "tiny.vocabulary.json"'
    tokens = json.loads((pair.parent / "tiny.vocabulary.json").read_text())["tokens"]
    assert tokens[:2] == [BYTES + 7, BYTES + 6]
    assert set(tokens) == {*range(BYTES), BYTES + 6, BYTES + 7, *range(SIZE - len(SPECIAL), SIZE)}
    pair.write_text(pair.read_text().replace('id = "tiny"', f'id = "tiny"\n{line}'))
    info = load(load_catalog(pair).find("tiny").spec, lambda _: None).info
    assert (info.draft.tokens, info.notes.warning) == (262, "")


def test_the_target_writes_where_few_replies_are_saved(
    run: Run, pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vocabulary, "shipped_prompts", lambda _: prompts(tmp_path))
    monkeypatch.setattr(vocabulary, "LONGEST", 20)
    out = tmp_path / "v.json"
    result = run("tune", "vocabulary", "tiny", "--size", str(SIZE - 1), "--out", str(out))
    assert result.exit_code == 0
    assert "in 0 saved replies and 2 that were written for it." in result.stdout
    assert result.stdout.splitlines()[-1] == f'draft_vocabulary = "{out}"'
    assert len(json.loads(out.read_text())["tokens"]) == SIZE - 1
    assert not list(pair.parent.glob("*.json"))


def test_a_target_s_own_layer_has_one_too(
    run: Run, pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vocabulary, "shipped_prompts", lambda _: prompts(tmp_path))
    monkeypatch.setattr(vocabulary, "LONGEST", 20)
    table = f'[[pair]]\nid = "own"\ntarget.path = "{qwen_mtp(tmp_path / "qwen", backend=backend())}"\n'
    pair.write_text(pair.read_text() + table)
    result = run("tune", "vocabulary", "own", "--size", str(SIZE - 6))
    assert (result.exit_code, result.stderr) == (0, "")
    line = result.stdout.splitlines()[-1]
    pair.write_text(pair.read_text().replace('id = "own"', f'id = "own"\n{line}'))
    info = load(load_catalog(pair).find("own").spec, lambda _: None).info
    assert (info.draft.tokens, info.notes.warning) == (SIZE - 6, "")


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("alone",), ExitCode.USAGE, 'Pair "alone" has neither a draft model nor a layer of its target that drafts.'),
        (
            ("tiny", "--size", "259"),
            ExitCode.USAGE,
            "must be at least the 260 tokens that are always in, and less than the 268",
        ),
        (("tiny", "--size", "268"), ExitCode.USAGE, "268 is not."),
        (("tiny",), ExitCode.USAGE, "134 is not."),
        (("tiny", "--out", "/nowhere/v.json"), ExitCode.USAGE, "there is no folder /nowhere"),
        (("other",), ExitCode.UNUSABLE, 'There is no pair "other"'),
    ],
)
def test_what_cannot_be_is_refused(run: Run, pair: Path, options: tuple[str, ...], code: int, words: str) -> None:
    result = run("tune", "vocabulary", *options)
    assert result.exit_code == code
    assert words in result.stderr
    assert not list(pair.parent.glob("*.json"))


@pytest.mark.parametrize("command", ["bench", "check"])
def test_a_vocabulary_that_cannot_be_used_is_told(
    run: Run, pair: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.write_text(pair.read_text().replace('id = "tiny"', 'id = "tiny"\ndraft_vocabulary = "gone.json"'))
    monkeypatch.setattr(check, "run", lambda *_: iter(()))
    monkeypatch.setattr(check_ratio, "run", lambda *_: iter(()))
    only = ("--strategy", "plain", "--repeats", "1", "--tokens", "2") if command == "bench" else ()
    result = run(command, "--limit", "1", "--prompts", str(prompts(pair.parent)), *only)
    assert (result.exit_code, result.stderr.splitlines()[0]) == (
        0,
        f"tiny drafts with its whole vocabulary: {pair.parent}/gone.json is missing. "
        '"specchat tune vocabulary tiny" makes it anew.',
    )


def test_a_file_that_cannot_be_written_is_told(
    run: Run, pair: Path, saved: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    del saved
    monkeypatch.setattr(vocabulary, "ENOUGH", 5)
    (pair.parent / "tiny.vocabulary.json").mkdir()
    result = run("tune", "vocabulary", "tiny", "--size", "262")
    assert result.exit_code == ExitCode.USAGE
    assert "tiny.vocabulary.json cannot be written (Is a directory). Give another --out." in result.stderr
