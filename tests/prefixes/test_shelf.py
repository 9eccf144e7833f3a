"""What goes to the shelf and comes back is bit for bit what the cache would hold, and no text tells the difference."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.loading import load
from specchat.engine.memory import host_need
from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.prefixes import shelf
from specchat.engine.prefixes.bounds import MEMORY
from specchat.engine.prefixes.shelf import Shelf
from specchat.engine.protocol.events import Finished, Step
from specchat.engine.protocol.options import Limits, Message, Sampling, Speculation
from specchat.engine.protocol.pair import KvCache, PairSpec
from specchat.engine.protocol.requests import Generate
from specchat.engine.runners.host import host_model
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.conftest import HEADS, heads
from tests.engine.test_decoder import tokens
from tests.engine.tiny import FAMILIES, QWEN35, checkpoint, on_cpu, perturbed

GIB = 1 << 30
LONG = {"max_position_embeddings": 2048}
THREE = {"num_hidden_layers": 3, "layer_types": QWEN35["layer_types"][:3]}
MODELS: dict[str, dict[str, Any]] = {
    "whole": FAMILIES["qwen3"],
    "windows": FAMILIES["gemma3"],
    "shared entries": FAMILIES["gemma4_e"],
    "convolutions": FAMILIES["lfm2"],
    "recurrent": FAMILIES["qwen3_5"] | THREE,
}


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows slide on within the tests' texts, and these are long enough for the shelf."""
    monkeypatch.setattr(shelf, "LEAST_WITH_TAIL", shelf.LEAST)
    monkeypatch.setattr(host_need, "BACK", 32)
    monkeypatch.setattr(host_need, "ROOM", 192)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shelf")


def opened(root: Path, name: str, cache: KvCache | None = None) -> CachedModel[CachedDecoder]:
    folder = root / name
    if not folder.exists():
        checkpoint(folder, seed=5, **MODELS[name] | LONG)
    found = Checkpoint.open(folder)
    model = host_model(replace(found, config=found.config.with_cache(cache)), 1024)
    assert isinstance(model, CachedDecoder)
    return CachedModel(model)


def on_shelf(cached: CachedModel[Any], limit: int = GIB) -> Shelf:
    made = Shelf(limit)
    made.add(cached)
    made.open = True
    return made


def text(length: int, seed: int, begun: Sequence[int] = ()) -> list[int]:
    return [*begun, *tokens(length, seed=seed)]


def state(cached: CachedModel[CachedDecoder], length: int) -> Tensor:
    """What the next tokens are computed from."""
    after = tokens(3, seed=99)
    return cached.model.logits(cached.model.forward(after, length)).clone()


@pytest.mark.parametrize(
    ("name", "cache"), [*((name, None) for name in MODELS), ("whole", "int8"), ("windows", "int8")]
)
def test_texts_in_turn_are_as_if_each_was_read_alone(name: str, cache: KvCache | None, root: Path) -> None:
    turned, alone = (opened(root, name, cache) for _ in range(2))
    held_texts = on_shelf(turned)
    system = text(90, 0)
    texts = [text(40 + 60 * i, i, system[: 90 * (i % 2)]) for i in range(1, 5)]
    reused = 0
    for turn, which in enumerate([0, 1, 2, 3, 1, 0, 3, 2, 0, 1, 3, 1, 2]):
        texts[which] += text(3 + turn, turn)
        reused += turned.begin(texts[which])
        alone.keep(0)
        alone.begin(texts[which])
        held = len(texts[which]) - 1
        assert turned.tokens == alone.tokens == texts[which][:held]
        assert torch.equal(state(turned, held), state(alone, held)), (turn, which)
    assert reused > 1000
    assert held_texts.size > 0


# Replies


@pytest.fixture(scope="module", params=["whole", "windows", "recurrent"])
def pair(request: pytest.FixtureRequest, root: Path) -> PairSpec:
    """A pair with all heads that its target may have."""
    target = checkpoint(root / "pair" / request.param, seed=5, **MODELS[request.param] | LONG)
    draft = perturbed(root / "pair" / f"{request.param} draft", target, 0.05)
    trained = heads(root / "pair" / f"{request.param} heads", HEADS)
    return PairSpec("tiny", "Tiny", on_cpu(target), on_cpu(draft), heads=trained, context=2048)


@pytest.mark.usefixtures("unmeasured")
def test_no_reply_tells_the_shelf_from_reading_again(pair: PairSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    with_shelf = load(pair, lambda _: None)
    monkeypatch.setenv(MEMORY, "0")
    without = load(pair, lambda _: None)
    assert without.shelf.limit == 0
    chats, drafted = ["once", "upon", "a time"], set[str]()
    begun = [0, 0]
    names = [one.name for one in with_shelf.info.strategies if one.available]
    for turn, name in enumerate([*names, *names]):
        which = turn % 3 if turn % 4 else 0
        chats[which] += f" {turn} the fox {'abc' * (turn % 4)}, the crab {'of the sea ' * (turn % 3)}"
        request = Generate(
            turn,
            (Message("user", chats[which]),),
            Sampling(turn, temperature=0.5 * (turn % 3)),
            Limits(8),
            Speculation.of(name),
        )
        told = [list(session.generate(request)) for session in (with_shelf, without)]
        first, second = (events[-1] for events in told)
        assert isinstance(first, Finished)
        assert isinstance(second, Finished)
        assert first.token_ids == second.token_ids, name
        chats[which] += first.text
        begun = [sum_of + events[0].reused for sum_of, events in zip(begun, told, strict=True)]
        drafted |= {event.strategy for event in told[0] if isinstance(event, Step) and event.accepted}
    assert begun[0] > 2 * begun[1]
    assert len(drafted) > 8
    shelved = {role for role, one in with_shelf.runner.caches.items() if one.shelf and one.shelf.parts}
    assert shelved >= {"target", "draft", "eagle3"}
