"""Pictures whose tokens attend to each other are read as a whole, whatever the widths of passes."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from specchat.engine.memory import host_need
from specchat.engine.pictures.album import Album
from specchat.engine.protocol.options import Limits, Message
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.requests import Generate
from specchat.engine.session import Session
from tests.engine.tiny import on_cpu
from tests.pictures.conftest import unmeasured
from tests.pictures.test_pictures import ASKED, TWO
from tests.pictures.test_refused import refused
from tests.pictures.whole import saved


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A model whose windows slide on within a prompt, and have more room for pictures than for text."""
    folder = saved("gemma3", tmp_path_factory.mktemp("gemma3") / "target")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(host_need, "BACK", 16)
        patched.setattr(host_need, "ROOM", 16)
        yield unmeasured(PairSpec("p", "Tiny", on_cpu(folder)))


@pytest.fixture
def tokens(session: Session) -> Iterator[list[int]]:
    """A prompt, whose pictures are there as long as a test."""
    list(session.album.look(TWO, seen := list[object]()))
    session.forget()
    yield session._prompts.prompt(Generate(1, ASKED)).tokens
    del seen


def test_rows_have_the_same_bits_in_passes_of_any_width(
    session: Session, tokens: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, model = list[Tensor](), session.target.model
    for width in (128, 5, 9, 1):
        monkeypatch.setattr(type(model), "block", width)
        session.forget()
        found.append(session.target.next_logits(tokens).clone())
    assert max(model.cache.bases) > 0
    assert all(torch.equal(logits, found[0]) for logits in found)


def test_no_prefix_ends_within_a_picture(session: Session, tokens: list[int]) -> None:
    whole = session.target.next_logits(tokens).clone()
    first = next(at for at, token in enumerate(tokens) if session.album.torn(tokens, at + 1))
    for held in (first, first + 1, first + 15, first + 16, first + 17):
        session.forget()
        session.target.begin(tokens[:first])
        session.target.tokens += tokens[len(session.target.tokens) : held]
        assert session.target.rewind(tokens) == (held if held in (first, first + 16, first + 17) else first)
    session.forget()
    assert torch.equal(session.target.next_logits(tokens), whole)


def test_a_picture_of_more_tokens_than_there_is_room_for(session: Session) -> None:
    assert isinstance(session.album, Album)
    session.album._mutual, most = 15, session.album._mutual
    session.album._firsts.clear()
    refused(session, "takes 16 tokens, and 15 at most are read at once", ASKED)
    session.album._mutual = most


def test_what_a_template_writes_for_a_picture_is_written_out(session: Session) -> None:
    text = session.tokenizer.named(session.album.shown(session._prompts.prompt(Generate(1, ASKED)).tokens))
    soft = 16 * "<image_soft_token>"
    assert f"xx(\n\n<start_of_image>{soft}<end_of_image>\n\n)xx" in text
    plain = Message("user", "<start_of_image>")
    assert "\n\n" not in session.tokenizer.named(session._prompts.prompt(Generate(1, (plain,))).tokens)
    assert list(session.generate(Generate(2, (plain,), limits=Limits(2))))
