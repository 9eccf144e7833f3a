"""Distilling a draft: gradients by truth from outside, divergences, adapters, rounds, and the files it ends in."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from specchat.engine.errors import ModelError
from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.protocol.options import Sampling
from specchat.engine.reference.tensors import Dense
from specchat.engine.session import Session
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.tune import draft as draft_module
from specchat.tune import learner as learner_module
from specchat.tune import optimisers
from specchat.tune.distilling import Distilling
from specchat.tune.draft import DIVERGENCES, LOSSES, Divergence, DraftLearner, HeldOut, activations, held_out, stepped
from specchat.tune.replies import collect, questions
from specchat.tune.rows import Batch, TrainingText
from specchat.tune.runs.draft import put_draft
from specchat.tune.target import FrozenTarget
from specchat.tune.training import Training
from tests.engine.tiny import checkpoint
from tests.tune.conftest import CHATS


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """Biases, and a head of its own."""
    folder = checkpoint(
        tmp_path_factory.mktemp("draft") / "draft",
        num_hidden_layers=2,
        num_key_value_heads=2,
        attention_bias=True,
        tie_word_embeddings=False,
    )
    return Checkpoint.open(folder)


@pytest.fixture(scope="module")
def learnt(session: Session, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("learnt")
    asked, _ = questions(CHATS, Sampling(), 12)
    model = session.target.model
    assert isinstance(model, CachedDecoder)
    return [path for path in collect(session, model, asked, (), folder) if path]


def test_logits_and_gradients_are_those_of_transformers(
    target: FrozenTarget, draft: Checkpoint, learnt: list[Path]
) -> None:
    batch = Batch.of([TrainingText.read(path) for path in learnt[:3]])
    learner = DraftLearner(target, draft, "forward", adapted=False)
    loss = learner.loss(batch, 0)
    loss.backward()
    theirs = AutoModelForCausalLM.from_pretrained(draft.folder, dtype=torch.float32)
    row, at = batch.replied()
    made = theirs(batch.tokens[:, :-1]).logits[row, at - 1]
    wanted = target.logits(batch.states[target.config.layers][row, at - 1])
    truth = torch.nn.functional.kl_div(
        made.log_softmax(-1), wanted.log_softmax(-1), log_target=True, reduction="batchmean"
    )
    truth.backward()
    torch.testing.assert_close(loss, truth, rtol=1e-4, atol=1e-6)
    slopes = {name: part.grad for name, part in theirs.named_parameters()}
    for name, part in learner.named_parameters():
        torch.testing.assert_close(part.grad, slopes[name], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("divergence", DIVERGENCES)
def test_a_divergence_is_zero_only_between_equals(divergence: Divergence) -> None:
    logits = torch.randn(5, 9, generator=torch.Generator().manual_seed(1))
    other = logits + torch.linspace(0, 1, 9)
    assert LOSSES[divergence](logits, logits + 3).abs().max() < 1e-6
    assert LOSSES[divergence](logits, other).min() > 1e-3
    if divergence == "variation":
        p, q = logits.softmax(-1), other.softmax(-1)
        torch.testing.assert_close(LOSSES[divergence](logits, other), 1 - torch.minimum(p, q).sum(-1))


def test_the_kl_divergences_are_each_others_mirror() -> None:
    p, q = torch.randn(2, 4, 9, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(LOSSES["forward"](p, q), LOSSES["reverse"](q, p))
    assert (LOSSES["forward"](p, q) - LOSSES["reverse"](p, q)).abs().min() > 1e-4


@pytest.mark.rotated(2)
@pytest.mark.parametrize("adapted", [False, True])
def test_training_brings_the_draft_nearer(
    adapted: bool, target: FrozenTarget, draft: Checkpoint, learnt: list[Path], tmp_path: Path
) -> None:
    learner = DraftLearner(target, draft, "forward", adapted)
    before = {name: part.detach().clone() for name, part in learner.weights().items()}
    batch = Batch.of([TrainingText.read(path) for path in learnt])
    first = float(learner.loss(batch, 0).detach())
    for _ in Training(learner, tmp_path / "state").run(learnt, 25, lambda: False):
        pass
    assert float(learner.loss(batch, 0).detach()) < (0.95 if adapted else 0.9) * first
    changed = {name for name, part in learner.weights().items() if not torch.equal(part, before[name])}
    everything = set(before)
    matrices = {f"{name}.weight" for matrix in draft.config.recipe.matrices for name, _ in matrix.parts}
    assert changed == (matrices if adapted else everything)


def test_a_stopped_training_of_adapters_goes_on(
    target: FrozenTarget, draft: Checkpoint, learnt: list[Path], tmp_path: Path
) -> None:
    def trained(path: Path, *ends: int) -> DraftLearner:
        for end in ends:
            torch.manual_seed(5)
            training = Training(DraftLearner(target, draft, "reverse", adapted=True), path)
            for _ in training.run(learnt, end, lambda: False, 6):
                pass
        return training.trainee

    once, twice = trained(tmp_path / "once", 6), trained(tmp_path / "twice", 2, 6)
    for name, part in once.weights().items():
        torch.testing.assert_close(part, twice.weights()[name], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("right", "length", "expected"),
    [
        ([True, True, True, False, True], 2, HeldOut(3, 5, 3, 5)),
        ([False, False], 4, HeldOut(0, 3, 2, 2)),
        ([True] * 6, 5, HeldOut(5, 5, 1, 6)),
        ([], 3, HeldOut(0, 0, 0, 0)),
    ],
)
def test_steps_over_a_reply(right: Sequence[bool], length: int, expected: HeldOut) -> None:
    assert stepped(right, length) == expected


def test_a_draft_that_is_the_target_gets_everything_right(target: FrozenTarget, learnt: list[Path]) -> None:
    learner = DraftLearner(target, target.checkpoint, "forward", adapted=False)
    found = held_out(learner, [TrainingText.read(path) for path in learnt[:4]], 3)
    assert found.rate == 1.0
    assert found.tokens == sum(len(row.tokens) - row.start for row in map(TrainingText.read, learnt[:4]))


def test_the_course_ends_in_a_draft_that_loads(
    target: FrozenTarget, draft: Checkpoint, learnt: list[Path], tmp_path: Path
) -> None:
    shop, place = tmp_path / "shop", tmp_path / "place"
    shop.mkdir()
    place.mkdir()
    judged = [TrainingText.read(path) for path in learnt[:2]]

    def course() -> Distilling:
        return Distilling(target, draft, False, shop, judged, 3)

    stops = iter([False] * 9 + [True] * 100)
    first = course()
    assert [at.divergence for at in first.run(learnt[2:], 30, lambda: next(stops))][-1] != "forward"
    assert first.result is None
    whole = course()
    seen = list(whole.run(learnt[2:], 30, lambda: False))
    assert seen[-1].step == 30
    assert whole.result is not None
    assert whole.result.after.length >= whole.result.before.length
    assert [path.name for path in sorted(shop.glob("round-*.json"))] == ["round-1.json", "round-2.json"]
    put_draft(place, whole.result.learner, draft)
    again = DraftLearner(target, Checkpoint.open(place), "forward", adapted=False)
    for name, part in whole.result.learner.weights().items():
        torch.testing.assert_close(again.weights()[name], part, rtol=1e-2, atol=1e-2)
    assert {path.name for path in place.iterdir()} >= {"config.json", "tokenizer.json", "model.safetensors"}


def test_later_rounds_repeat_what_the_draft_gets_wrong(
    target: FrozenTarget, draft: Checkpoint, learnt: list[Path], tmp_path: Path
) -> None:
    course = Distilling(target, draft, False, tmp_path, [], 3)
    learner = DraftLearner(target, draft, "forward", adapted=False)
    assert course._focused(learner, learnt, 0) == learnt
    focused = course._focused(learner, learnt, 1)
    shares = {row: float(learner.right(TrainingText.read(row)).float().mean()) for row in learnt}
    twice = [row for row in learnt if focused.count(row) == 2]
    once = [row for row in learnt if focused.count(row) == 1]
    assert (len(twice), len(once)) == (len(learnt) // 2, len(learnt) - len(learnt) // 2)
    assert max(shares[row] for row in twice) <= min(shares[row] for row in once)
    assert course._focused(DraftLearner(target, target.checkpoint, "forward", adapted=False), learnt, 1) == focused


def test_a_loss_that_is_no_number_ends_the_training(
    target: FrozenTarget, draft: Checkpoint, learnt: list[Path], tmp_path: Path
) -> None:
    learner = DraftLearner(target, draft, "forward", adapted=False)
    path = tmp_path / "state"
    list(Training(learner, path).run(learnt, 2, lambda: False))
    kept = path.read_bytes()
    with torch.no_grad():
        next(iter(learner.parameters()))[:] = float("nan")
    training = Training(learner, tmp_path / "other")
    with pytest.raises(ModelError, match="went astray at step 1: its loss is no number"):
        list(training.run(learnt, 2, lambda: False))
    assert not (tmp_path / "other").exists()
    assert path.read_bytes() == kept
    with pytest.raises(ModelError, match="holds values that are no numbers"):
        put_draft(tmp_path, learner, draft)


@pytest.mark.parametrize("texts", [1, 3])
def test_a_step_in_parts_has_the_gradients_of_the_whole(
    texts: int, target: FrozenTarget, draft: Checkpoint, learnt: list[Path], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    rows = [TrainingText.read(path) for path in learnt]
    assert len({len(row.tokens) - row.start for row in rows}) > 1  # parts of other weights
    of_a_text = activations(draft.config.recipe, max(len(row.tokens) for row in rows))
    seen: list[list[Tensor]] = []
    losses, asked = [], []
    loss_of = DraftLearner.loss

    def counted(self: DraftLearner, batch: Batch, seed: int) -> Tensor:
        asked.append(len(batch.tokens))
        return loss_of(self, batch, seed)

    def noted(parameters: Iterable[Tensor], most: float) -> None:
        del most
        seen.append([part.grad.clone() for part in parameters if part.grad is not None])

    monkeypatch.setattr(DraftLearner, "loss", counted)
    monkeypatch.setattr(optimisers, "clip_grad_norm_", noted)
    for most in (1 << 30, texts * of_a_text):
        monkeypatch.setattr(draft_module, "PART", most)
        learner = DraftLearner(target, draft, "forward", adapted=False)
        losses += [at.loss for at in Training(learner, tmp_path / str(most)).run(learnt, 1, lambda: False)]
    assert asked[0] == 8
    assert max(asked[1:]) < 8
    assert sum(asked[1:]) == 8
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    for whole, parts in zip(*seen, strict=True):
        torch.testing.assert_close(whole, parts, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("adapted", [False, True])
def test_a_text_too_long_for_memory_is_held_a_layer_at_a_time_with_the_same_gradients(
    adapted: bool, target: FrozenTarget, draft: Checkpoint, learnt: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    learner = DraftLearner(target, draft, "forward", adapted)
    batch = Batch.of([TrainingText.read(learnt[0])])
    weights = {part.untyped_storage().data_ptr() for part in learner.parameters()}
    held: list[int] = []
    slopes: list[list[Tensor]] = []

    def kept(tensor: Tensor) -> Tensor:
        """Count the bytes that are held for gradients beside the weights."""
        held[-1] += 0 if tensor.untyped_storage().data_ptr() in weights else tensor.nbytes
        return tensor

    for most in (1 << 30, 1):
        monkeypatch.setattr(draft_module, "ACTIVATIONS", most)
        held.append(0)
        learner.zero_grad()
        with torch.autograd.graph.saved_tensors_hooks(kept, lambda tensor: tensor):
            loss = learner.loss(batch, 0)
        loss.backward()
        slopes.append([part.grad.clone() for part in learner.parameters() if part.grad is not None])
    assert held[1] < 0.5 * held[0]
    for whole, again in zip(*slopes, strict=True):
        torch.testing.assert_close(whole, again, rtol=0, atol=0)


@pytest.mark.parametrize("adapted", [False, True])
def test_blocks_of_scores_change_neither_loss_nor_gradients(
    adapted: bool, target: FrozenTarget, draft: Checkpoint, learnt: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    learner = DraftLearner(target, draft, "variation", adapted)
    with torch.no_grad():
        for name, part in learner.named_parameters():
            if name.endswith(".up"):
                part.normal_(std=0.1)
    batch = Batch.of([TrainingText.read(path) for path in learnt[:4]])
    seen: list[list[Tensor]] = []
    right: list[list[bool]] = []
    for scores in (1 << 24, 3000):
        monkeypatch.setattr(learner_module, "SCORES", scores)
        monkeypatch.setattr(draft_module, "SCORES", scores)
        learner.zero_grad()
        loss = learner.loss(batch, 0)
        loss.backward()
        seen.append([loss.detach(), *(p.grad.clone() for p in learner.parameters() if p.grad is not None)])
        right.append(learner.right(TrainingText.read(learnt[0])).tolist())
    assert len(batch.replied()[0]) * draft.config.vocab > 5 * 3000
    for whole, parts in zip(*seen, strict=True):
        torch.testing.assert_close(whole, parts, rtol=1e-4, atol=1e-6)
    assert right[0] == right[1]


def test_adapters_beside_a_matrix_are_those_merged_into_it(
    target: FrozenTarget, draft: Checkpoint, learnt: list[Path]
) -> None:
    learner = DraftLearner(target, draft, "forward", adapted=True)
    with torch.no_grad():
        for name, part in learner.named_parameters():
            if name.endswith(".up"):
                part.normal_(std=0.1)
    tokens = TrainingText.read(learnt[0]).tokens[None]
    beside = learner._last(tokens, learner._tensors())
    merged = learner._last(tokens, Dense(learner.weights()))
    torch.testing.assert_close(beside, merged, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(beside, learner._last(tokens, Dense(dict(learner.named_parameters()))), atol=1e-2)
