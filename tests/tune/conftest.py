from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from specchat.engine.loading import load
from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.protocol.options import Message, Sampling
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.session import Session
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.tune import replies
from specchat.tune.families import FAMILIES
from specchat.tune.replies import Chat, collect, questions
from specchat.tune.target import FrozenTarget
from tests.engine.tiny import checkpoint, on_cpu

REPLY = 24
"""Tokens of the longest reply in these tests."""


def chats(texts: Sequence[str]) -> list[Chat]:
    return [(Message("user", text),) for text in texts]


CHATS = chats(["abc", "to be", "say it", "a b a b", "no", "xyz", "why", "ten", "how far", "one"])


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "LONGEST_REPLY", REPLY)


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> PairSpec:
    root = tmp_path_factory.mktemp("tune")
    target = checkpoint(root / "target", num_key_value_heads=2, tie_word_embeddings=False, num_hidden_layers=6)
    return PairSpec("tiny", "Tiny", on_cpu(target))


@pytest.fixture(scope="module")
def session(pair: PairSpec) -> Session:
    return load(replace(pair, heads={}), lambda _: None)


@pytest.fixture
def model(session: Session) -> CachedDecoder:
    assert isinstance(session.target.model, CachedDecoder)
    return session.target.model


@pytest.fixture
def target(pair: PairSpec, model: CachedDecoder) -> FrozenTarget:
    return FrozenTarget(Checkpoint.open(Path(pair.target.path or "")), model)


@pytest.fixture
def learnt(session: Session, model: CachedDecoder, tmp_path: Path) -> list[Path]:
    """The target's replies to some prompts, with the states that any family looks at."""
    folder = tmp_path / "learnt"
    folder.mkdir()
    asked, _ = questions(CHATS, Sampling(), 8)
    layers = {layer for family in FAMILIES.values() for layer in family.layers(model.config.layers)}
    return [path for path in collect(session, model, asked, sorted(layers), folder) if path is not None]
