"""Tokenizers with more tokens than the model has rows: only a prompt that uses such a token is a fault."""

import json
from pathlib import Path

import pytest

from specchat.engine.errors import EngineError
from specchat.engine.loading import load
from specchat.engine.protocol.events import Finished
from specchat.engine.protocol.options import Limits, Message, Sampling, Speculation
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.requests import Generate, Remember
from specchat.engine.session import Session
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.tiny import TEMPLATE, VOCAB, checkpoint, on_cpu

pytestmark = pytest.mark.usefixtures("unmeasured")

BACKENDS = ("native", "hf")


def larger(folder: Path, *, word: str = "<pad>", template: str = TEMPLATE, seed: int = 0) -> Path:
    """A checkpoint whose tokenizer knows a token `word` behind its last row."""
    checkpoint(folder, seed, tie_word_embeddings=False)
    data = json.loads((folder / "tokenizer.json").read_text())
    pad = {"id": VOCAB, "content": word, "special": word == "<pad>"}
    data["added_tokens"].append(dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False) | pad)
    (folder / "tokenizer.json").write_text(json.dumps(data))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "<|end|>", "pad_token": "<pad>", "chat_template": template})
    )
    return folder


def loaded(backend: str, target: Path, draft: Path | None = None) -> Session:
    small = None if draft is None else on_cpu(draft)
    return load(PairSpec("p", "P", on_cpu(target), small, backend), lambda _: None)


def said(session: Session, text: str, strategy: str = "plain") -> Finished:
    request = Generate(1, (Message("user", text),), Sampling(), Limits(24), Speculation.of(strategy))
    last = [*session.generate(request)][-1]
    assert isinstance(last, Finished)
    return last


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_token_without_a_row_changes_nothing(backend: str, tmp_path: Path) -> None:
    usual = loaded(backend, checkpoint(tmp_path / "usual", tie_word_embeddings=False))
    session = loaded(backend, larger(tmp_path / "larger"))
    assert said(session, "hello").token_ids == said(usual, "hello").token_ids
    assert said(session, "<pad> hello").token_ids == said(usual, "<\u200bpad> hello").token_ids
    assert max(session.tokenizer.vocabulary.values()) == VOCAB - 1


@pytest.mark.rotated(3)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("which", ["target", "draft", "both"])
def test_models_of_one_tokenizer_draft_without_translation(backend: str, which: str, tmp_path: Path) -> None:
    folders = [
        larger(tmp_path / name, seed=seed)
        if which in (name, "both")
        else checkpoint(tmp_path / name, seed, tie_word_embeddings=False)
        for name, seed in (("target", 0), ("draft", 0))
    ]
    session = loaded(backend, *folders)
    assert "differ" not in session.info.notes.note
    drafted = said(session, "hello", "draft")
    assert drafted.token_ids == said(session, "hello").token_ids
    assert drafted.stats.num_accepted_draft_tokens > 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_prompt_with_such_a_token_is_refused_by_its_name(backend: str, tmp_path: Path) -> None:
    session = loaded(backend, larger(tmp_path / "m", template=f"<pad>{TEMPLATE}"))
    with pytest.raises(EngineError, match=rf"'<pad>', token {VOCAB}, for which the model has no row") as caught:
        said(session, "hello")
    assert caught.value.kind == "model"


def test_texts_of_earlier_chats_leave_it_out(tmp_path: Path) -> None:
    session = loaded("native", larger(tmp_path / "m", word="zap"))
    session.cross_chat.remember(Remember("old", ("azapb" * 40,)))
    while session.cross_chat.digest():
        pass
    assert VOCAB not in session.tokenizer.encode("azapb")
    assert said(session, "ababab", "ngram").token_ids == said(session, "ababab").token_ids
    with pytest.raises(EngineError, match="'zap', token"):
        said(session, "azapb")


def test_ends_without_a_row_end_nothing(tmp_path: Path) -> None:
    folder = larger(tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": [256, VOCAB, -1]}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [257, VOCAB]}))
    assert Checkpoint.open(folder).config.eos == {256, 257}
    assert Checkpoint.open(folder).tokenizer().size == VOCAB
