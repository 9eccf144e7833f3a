"""What goes to the shelf and comes back is bit for bit what the cache would hold, and no text tells the difference."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.loading import load
from specchat.engine.memory import host_need
from specchat.engine.model import copies
from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.prefixes import model_shelf, shelf
from specchat.engine.prefixes.bounds import FOLDER, MEMORY, bounds, bytes_in
from specchat.engine.prefixes.entries import PackedCopies
from specchat.engine.prefixes.on_disk import NOBODY
from specchat.engine.prefixes.shelf import Shelf
from specchat.engine.protocol.events import Finished, Started, Step
from specchat.engine.protocol.options import Limits, Message, Sampling, Speculation
from specchat.engine.protocol.pair import KvCache, PairSpec
from specchat.engine.protocol.pair_info import ReadTexts
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
    "windows": FAMILIES["gemma3"] | {"mm_tokens_per_image": 16},
    "shared entries": FAMILIES["gemma4_e"],
    "convolutions": FAMILIES["lfm2"],
    "recurrent": FAMILIES["qwen3_5"] | THREE,
}


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows slide on within the tests' texts, and these are long enough for the shelf."""
    monkeypatch.setattr(model_shelf, "LEAST_WITH_TAIL", model_shelf.LEAST)
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
    made = Shelf(ReadTexts(limit))
    made.add("target", cached)
    made.hold(NOBODY)
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


@pytest.mark.parametrize("name", [name for name in MODELS if name != "whole"])
def test_the_third_text_with_a_common_beginning_goes_on_from_there(name: str, root: Path) -> None:
    turned, alone = (opened(root, name) for _ in range(2))
    held_texts = on_shelf(turned)
    system = text(500, 0)
    texts = [text(300 + i, i, system) for i in range(1, 6)]
    for one in (*texts, texts[2] + text(50, 9), text(400, 7, system[:250]), text(420, 8, system[:250]), texts[3]):
        reused = turned.begin(one)
        alone.keep(0)
        alone.begin(one)
        held = len(one) - 1
        assert turned.tokens == alone.tokens == one[:held]
        assert torch.equal(state(turned, held), state(alone, held))
        if one in texts[2:]:
            assert reused >= 500
        elif len(one) == 420 + 250:
            assert reused == 250, "a shorter beginning that two others have"
    tails = sum(part.tail is not None for one in held_texts._models for part in one.parts)
    assert tails == 7 + 2, "of each text and of both beginnings; what alone goes on from a text replaces its tail"


@pytest.mark.parametrize("name", ["windows", "recurrent"])
def test_the_second_text_goes_on_from_a_beginning_that_is_known_as_such(name: str, root: Path) -> None:
    turned, alone = (opened(root, name) for _ in range(2))
    shelf = on_shelf(turned)
    system = text(500, 0)
    for i in range(4):
        shelf.hold(NOBODY, 480 if i % 2 == 0 else 0)
        one = text(300 + i, i, system)
        assert turned.begin(one) == (480 if i else 0)
        alone.begin(one)
        assert torch.equal(state(turned, len(one) - 1), state(alone, len(one) - 1))


def whole(root: Path, limit: int = GIB) -> tuple[CachedModel[CachedDecoder], Shelf]:
    cached = opened(root, "whole")
    return cached, on_shelf(cached, limit)


def size_of(root: Path, length: int) -> int:
    """Bytes of a part of so many tokens."""
    cached, held = whole(root)
    cached.begin(text(length + 1, 0))
    held.put_all()
    return held.size


def test_a_common_beginning_is_there_once(root: Path) -> None:
    cached, held = whole(root)
    system = text(200, 0)
    agents = [text(40, i, system) for i in range(1, 6)]
    assert [cached.begin(agent) for agent in agents] == [0, 200, 200, 200, 200]
    assert cached.begin(text(60, 7)) == 0
    assert held.size <= size_of(root, 200 + 5 * 40)
    assert [cached.begin(agent) for agent in agents] == [239] * 5


def test_the_least_recently_used_goes_first_and_the_bytes_are_bounded(root: Path) -> None:
    limit = size_of(root, 250)
    cached, held = whole(root, limit)
    first, second, third = (text(101, i) for i in range(3))
    for one in (first, second, first, third, text(101, 4)):
        cached.begin(one)
        assert held.size <= limit
    assert cached.begin(first) == 100  # it was used after the second
    assert cached.begin(second) == 0


def test_of_a_text_that_is_too_long_the_beginning_is_held(root: Path) -> None:
    cached, held = whole(root, size_of(root, 100))
    long = text(301, 0)
    cached.begin(long)
    cached.begin(text(20, 1))
    assert 60 < cached.begin(long) <= 100
    assert held.size <= size_of(root, 100)


def test_what_a_text_goes_on_from_outlives_what_follows_it(root: Path) -> None:
    cached, held = whole(root, size_of(root, 260))
    system = text(151, 0)
    for turn in range(4):
        cached.begin(text(80, turn + 1, system))
    assert cached.begin(text(80, 9, system)) == 151
    assert cached.begin(text(90, 10)) == 0
    assert cached.begin(text(80, 3, system)) >= 151
    assert held.size <= size_of(root, 260)


def test_little_is_read_again_rather_than_copied(root: Path) -> None:
    cached, held = whole(root)
    begun = text(60, 0)
    cached.begin(text(20, 1, begun))
    assert cached.begin(text(30, 2, begun)) == 60
    assert held.size == 0


def test_memory_that_runs_out_ends_no_reply(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def out(*_: object) -> PackedCopies:
        raise RuntimeError("can't allocate memory: you tried to allocate 9 bytes")

    cached, held = whole(root)
    with monkeypatch.context() as patch:
        patch.setattr(PackedCopies, "of", out)
        cached.begin(text(100, 0))
        assert cached.begin(text(50, 1)) == 0
    assert held.size == 0
    monkeypatch.setattr("specchat.engine.prefixes.shelf.free_memory", lambda: 100)
    cached.begin(text(100, 0))
    assert held.size == 0


def test_a_text_that_was_copied_back_in_part_is_read_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached, _ = whole(root)
    first, other = text(100, 0), text(90, 1)
    for one in (first, other):
        cached.begin(one)

    def out(into: Sequence[Tensor], source: Sequence[Tensor]) -> None:
        into[0].copy_(source[0])
        raise torch.OutOfMemoryError("CUDA out of memory.")

    with monkeypatch.context() as patch:
        patch.setattr(model_shelf, "copy_parts", out)
        with pytest.raises(torch.OutOfMemoryError):
            cached.rewind(first)
    assert cached.tokens == [], "not what it held, which is in part overwritten"


def test_copies_are_made_in_pieces_that_are_contiguous(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a copy of others torch holds as much again on a GPU that they go to or from."""
    sizes = list[int]()

    class Watched(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten.copy_.default:
                sizes.append(args[0].nbytes)
                assert args[0].is_contiguous()
                assert args[1].is_contiguous()
            return func(*args, **(kwargs or {}))

    monkeypatch.setattr(copies, "PIECE", 64)
    cache, into = torch.rand(6, 9, 4), torch.zeros(6, 9, 4)
    with Watched():
        copies.copy_parts([into[:, 2:7]], [cache[:, 2:7]])
    assert torch.equal(into[:, 2:7], cache[:, 2:7])
    assert sizes == [5 * 4 * 4] * 6


def test_what_is_lent_to_copies_of_a_cache_is_no_room_for_texts(root: Path) -> None:
    hundred = size_of(root, 100)
    cached, held = whole(root, 3 * hundred)
    for one in (text(101, 0), text(101, 1), text(101, 2)):
        cached.begin(one)
    held.put_all()
    assert (held.size, held.largest) == (3 * hundred, 3 * hundred)
    assert not held.lend(3 * hundred + 1)
    assert held.lend(2 * hundred)
    assert (held.size, held.largest) == (3 * hundred, hundred), "the two texts that were used least lately are gone"
    assert not held.lend(hundred + 1)
    assert held.lend(-2 * hundred)
    assert (held.size, held.largest) == (hundred, 3 * hundred)


def test_replies_with_empty_caches_see_no_shelf_and_cost_none(root: Path) -> None:
    cached, held = whole(root)
    chat = text(100, 0)
    cached.begin(chat)
    held.hold(NOBODY, opened=False)
    cached.keep(0)
    assert cached.begin(chat) == 0
    assert cached.begin(text(100, 1)) == 0
    held.hold(NOBODY)
    assert cached.begin(chat) == 99


def test_a_model_that_cannot_be_copied_reads_again() -> None:
    class Other:
        context, block = 100, 100

        def write(self, *_: object) -> None: ...

    cached: CachedModel[Any] = CachedModel(Other())  # type: ignore[type-var]
    held = on_shelf(cached)
    assert [cached.begin(text(50, i)) for i in (1, 2, 1)] == [0, 0, 0]
    assert held.size == 0


@pytest.mark.parametrize(
    ("size", "count"), [("0", 0), ("2 GiB", 2 << 30), ("1.5gib", 3 << 29), ("512 MiB", 512 << 20), ("7", 7)]
)
def test_sizes_are_read(size: str, count: int) -> None:
    assert bytes_in(size) == count
    assert bounds({MEMORY: size}).memory == count
    assert bounds({MEMORY: size, FOLDER: "there"}).folder == ("there" if count else "")


@pytest.mark.parametrize("size", ["", "-1", "2 GB", "GiB", "1e9", "99999999 TiB", "2 GiB GiB", "٢"])
def test_what_is_no_size_is_refused_and_does_not_count(size: str) -> None:
    with pytest.raises(ValueError, match="should be a size"):
        bytes_in(size)
    assert bounds({MEMORY: size}).memory == 2 << 30


# Replies


@pytest.fixture(scope="module", params=["whole", "windows", "recurrent"])
def pair(request: pytest.FixtureRequest, root: Path) -> PairSpec:
    """A pair with all heads that its target may have."""
    target = checkpoint(root / "pair" / request.param, seed=5, **MODELS[request.param] | LONG)
    draft = perturbed(root / "pair" / f"{request.param} draft", target, 0.05)
    trained = heads(root / "pair" / f"{request.param} heads", HEADS)
    return PairSpec("tiny", "Tiny", on_cpu(target), on_cpu(draft), heads=trained, context=2048)


@pytest.mark.usefixtures("unmeasured")
def test_a_chat_goes_on_from_the_system_message_of_another(pair: PairSpec) -> None:
    session, system = load(pair, lambda _: None), Message("system", "Answer as the fox of the sea would. " * 12)
    shared = len(session.tokenizer.prompt([system])) // 2
    for turn, asked in enumerate(("who", "once upon a time", "the crab")):
        request = Generate(turn, (system, Message("user", f"{asked} " * 40)), limits=Limits(4))
        reused = [event.reused for event in session.generate(request) if isinstance(event, Started)]
        assert (reused[0] > shared) == (turn > 0)


@pytest.mark.usefixtures("unmeasured")
def test_a_chat_goes_on_from_disk_in_another_context(
    pair: PairSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is as long as fits, it differs from start to start."""
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.setattr(shelf, "LONG", 300)
    request = Generate(1, (Message("user", "once upon a time " * 40),), limits=Limits(4))
    read = list[tuple[int, int]]()
    for context in (2048, 1024):
        session = load(replace(pair, context=context), lambda _: None)
        read += [(one.prompt_tokens, one.reused) for one in session.generate(request) if isinstance(one, Started)]
        session.save_read(lambda: False)
    assert read[0][1] == 0
    assert read[1][1] > read[1][0] - 20


@pytest.mark.usefixtures("unmeasured")
def test_no_reply_tells_the_shelf_from_reading_again(pair: PairSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    with_shelf = load(pair, lambda _: None)
    monkeypatch.setenv(MEMORY, "0")
    without = load(pair, lambda _: None)
    assert not without.shelf.size
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
