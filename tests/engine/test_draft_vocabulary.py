"""A draft of fewer tokens: its file, its head, and what becomes of a pair whose file cannot be used."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from specchat.engine.loading import load
from specchat.engine.memory.devices import Machine, place
from specchat.engine.memory.need import need
from specchat.engine.protocol.events import Finished
from specchat.engine.protocol.options import Limits, Message, Sampling, Speculation
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.requests import Generate
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.session import Session
from specchat.engine.text.draft_vocabulary import Unusable, fingerprint, read, write
from specchat.engine.text.tokenizer import Tokenizer
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.conftest import EVEN
from tests.engine.tiny import SPECIAL, VOCAB, checkpoint, on_cpu

END = 256


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.read(checkpoint(tmp_path_factory.mktemp("tokens") / "m"))


def test_a_file_is_read_as_it_was_written(tokenizer: Tokenizer, tmp_path: Path) -> None:
    write(tmp_path / "v.json", tokenizer, [9, END, 3])
    assert read(tmp_path / "v.json", tokenizer, {END}) == (3, 9, END)
    assert json.loads((tmp_path / "v.json").read_text())["tokens"] == [9, END, 3]


Damage = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: data.update(format=2), "is of format 2, which this version of specchat does not know"),
        (lambda data: data.update(format="new"), "is damaged, or no draft vocabulary"),
        (lambda data: data.pop("tokens"), "is damaged, or no draft vocabulary"),
        (lambda data: data.update(tokens=[1.0, END]), "is damaged, or no draft vocabulary"),
        (lambda data: data.update(tokens=[True, END]), "is damaged, or no draft vocabulary"),
        (lambda data: data.update(vocabulary=VOCAB - 1), "was counted with another tokenizer"),
        (lambda data: data.update(tokenizer="ab"), "was counted with another tokenizer"),
        (lambda data: data.update(tokens=[]), "is damaged: it names no tokens"),
        (lambda data: data.update(tokens=[END, 3, 3]), "is damaged: it names no tokens, one of them twice"),
        (lambda data: data.update(tokens=[END, VOCAB]), "is damaged: it names no tokens"),
        (lambda data: data.update(tokens=[END, -1]), "is damaged: it names no tokens"),
        (lambda data: data.update(tokens=[3]), "is damaged: it has no token that ends a reply"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(damage: Damage, reason: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "v.json"
    write(path, tokenizer, [3, END])
    data = json.loads(path.read_text())
    damage(data)
    path.write_text(json.dumps(data))
    with pytest.raises(Unusable, match=reason):
        read(path, tokenizer, {END})


@pytest.mark.parametrize("content", [b"", b"[1]", b"\xff\xfe", b"[" * 100_000, b'{"format": 1'])
def test_a_file_of_something_else_is_refused(content: bytes, tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "v.json").write_bytes(content)
    with pytest.raises(Unusable, match="is damaged, or no draft vocabulary"):
        read(tmp_path / "v.json", tokenizer, {END})


def test_what_is_no_file_is_not_opened(tokenizer: Tokenizer, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, reason in (("nowhere", "is missing"), ("pipe", "is not a file"), (".", "is not a file")):
        with pytest.raises(Unusable, match=reason):
            read(tmp_path / name, tokenizer, {END})
    with pytest.raises(Unusable, match=r"cannot be read|is missing"):  # the second by Python 3.14
        read(tmp_path / ("long" * 100), tokenizer, {END})


def test_another_tokenizer_has_another_fingerprint(tokenizer: Tokenizer, tmp_path: Path) -> None:
    same = Tokenizer.read(checkpoint(tmp_path / "same"))
    other = Tokenizer.read(checkpoint(tmp_path / "other", special=[SPECIAL[0], SPECIAL[2], SPECIAL[1], SPECIAL[3]]))
    assert fingerprint(same) == fingerprint(tokenizer) != fingerprint(other)


@pytest.mark.parametrize("tied", [True, False])
def test_the_head_has_the_rows_of_its_tokens(tied: bool, tmp_path: Path) -> None:
    opened = Checkpoint.open(checkpoint(tmp_path / "m", tie_word_embeddings=tied))
    whole, few = ReferenceDecoder(opened, 64), ReferenceDecoder(replace(opened, drafts=(3, 9, END)), 64)
    fed = [5, 200, 7]  # 200 is fed though it is never proposed
    expected, logits = (model.logits(model.forward(fed, 0)) for model in (whole, few))
    assert logits.shape == expected.shape
    torch.testing.assert_close(logits[:, [3, 9, END]], expected[:, [3, 9, END]])
    others = [token for token in range(VOCAB) if token not in (3, 9, END)]
    assert bool((logits[:, others] == float("-inf")).all())
    assert tied or few.memory() < whole.memory()


def test_a_draft_proposes_only_what_its_vocabulary_has(restricted: Session) -> None:
    assert restricted.info.draft.tokens == len(EVEN)
    assert restricted.info.notes.warning == ""
    texts = {restricted.tokenizer.text_of(token) for token in EVEN}
    drafted: set[str] = set()
    for strategy in ("draft", "draft-tree"):
        for temperature in (0.0, 1.5):
            request = Generate(
                1,
                (Message("user", "abcabc"),),
                Sampling(temperature=temperature),
                Limits(40),
                Speculation(strategy, 5),
            )
            *steps, last = list(restricted.generate(request))[1:]
            assert isinstance(last, Finished)
            assert not set(last.token_ids) <= set(EVEN), "the target is not held to it"
            drafted |= {draft.text for step in steps for draft in step.drafts}  # type: ignore[union-attr]
    assert drafted
    assert drafted <= texts


def test_a_pair_whose_file_cannot_be_used_loads_without_it(tiny_pair: PairSpec, tmp_path: Path) -> None:
    path = str(tmp_path / "v.json")
    info = load(replace(tiny_pair, draft_vocabulary=path), lambda _: None).info
    assert info.draft.tokens is None
    assert info.notes.warning == (
        f'tiny drafts with its whole vocabulary: {path} is missing. "specchat tune vocabulary tiny" makes it anew.'
    )
    assert info.strategy("draft").available


@pytest.mark.parametrize("tied", [True, False])
def test_what_it_takes_is_planned(tied: bool, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", tie_word_embeddings=tied, hidden_size=256)
    opened = replace(Checkpoint.open(folder), drafts=tuple(range(END)))
    pair = PairSpec("p", "P", on_cpu(folder), on_cpu(folder))
    planned = place(pair, Checkpoint.open(folder), opened, 64, Machine("no GPU", None)).plan.draft
    assert planned is not None
    assert planned.head_rows == END
    whole, few = need(replace(planned, head_rows=None), 64), need(planned, 64)
    assert (
        whole.weights - few.weights
        == ReferenceDecoder(Checkpoint.open(folder), 64).memory() - ReferenceDecoder(opened, 64).memory()
    )
