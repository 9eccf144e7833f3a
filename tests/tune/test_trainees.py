"""Heads under training guess what the head that is read from their files guesses, and learn to guess right."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from specchat.bench.published import narrowed
from specchat.engine.decoding.cached import CachedModel, HostModel
from specchat.engine.heads.files import HeadFiles
from specchat.engine.loading import load
from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.protocol.options import Limits, Sampling, Speculation
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.session import Session
from specchat.engine.strategies import HEADS, STRATEGIES
from specchat.engine.strategy import Head, resolved
from specchat.tune import TUNED, dflash, eagle3
from specchat.tune.families import FAMILIES, untrained
from specchat.tune.replies import questions
from specchat.tune.rows import Batch, TrainingText
from specchat.tune.rows import reply as reply_of
from specchat.tune.target import FrozenTarget
from specchat.tune.trainee import Trainee, accepted_length
from specchat.tune.training import Training
from specchat.tune.workshop import put_heads
from tests.engine.test_lossless import finished, reply
from tests.engine.tiny import VOCAB
from tests.tune.conftest import CHATS, REPLY


@pytest.mark.parametrize("family", TUNED)
def test_a_size_has_the_weights_that_are_trained(family: Head, target: FrozenTarget, learnt: list[Path]) -> None:
    trainee = untrained(family, target, [reply_of(path) for path in learnt])
    trained = sum(part.numel() for part in trainee.parameters() if part.requires_grad)
    assert FAMILIES[family].size(target.config).weights == pytest.approx(trained, rel=0.02)


def rounded(trainee: Trainee) -> None:
    """Lively weights that float16 holds."""
    g = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in trainee.parameters():
            weight += 0.3 * float(weight.std() if weight.numel() > 1 else 1) * torch.randn(weight.shape, generator=g)
            weight.copy_(weight.half())


def every(batch: Batch) -> Tensor:
    """All slots from which there is something to guess."""
    rows, length = batch.tokens.shape
    return torch.ones(rows, length - 2, dtype=torch.bool)


def read(head: Head, trainee: Trainee, target: CachedModel[CachedDecoder], folder: Path) -> CachedModel[HostModel]:
    folder.mkdir()
    put_heads(folder, trainee.published())
    return CachedModel(resolved(HEADS[head].reads)(HeadFiles.open(folder), target))


def test_each_family_that_is_told_of_can_be_trained() -> None:
    assert set(TUNED) == set(FAMILIES)


@pytest.mark.parametrize("head", TUNED)
def test_guesses_are_those_of_the_head_that_is_read(
    head: Head, target: FrozenTarget, learnt: list[Path], tmp_path: Path
) -> None:
    trainee = untrained(head, target, [])
    rounded(trainee)
    row = TrainingText.read(learnt[0])
    text = row.tokens.tolist()
    own_target = CachedModel(target.model)
    own = read(head, trainee, own_target, tmp_path / "head")
    own_target.begin(text)
    # The states of the pass, not those that a file rounds.
    states = {layer: target.model.states(layer, 0, len(text) - 1).clone() for layer in row.states}
    batch = Batch.of([replace(row, states=states)])
    hidden = [made[0].detach() for made in trainee.hidden(batch, every(batch))]
    assert len(hidden) == trainee.places
    for slot in (row.start - 2, row.start + 3):
        own_target.begin(text[: slot + 2])
        own.begin(text[: slot + 1])
        # All but the pending token has been read, and is read with it.
        fed = text[len(own.tokens) : slot + 2]
        made = own.model.forward(fed, len(own.tokens))
        for place in range(trainee.places):
            mine = trainee.scores(place, hidden[place][slot : slot + 1])[0].detach()
            theirs = own.model.logits(made[-1:])[0]
            assert mine.std() > 0.3  # lively scores, or agreement would mean nothing
            torch.testing.assert_close(mine, theirs[trainee.tokens], atol=2e-3, rtol=2e-3)
            if place + 1 < trainee.places:
                made = own.model.forward([text[slot + 2 + place]], slot + 2 + place)
        own.keep(0)


@pytest.mark.parametrize("head", TUNED)
def test_a_text_counts_the_same_beside_longer_ones(head: Head, target: FrozenTarget, learnt: list[Path]) -> None:
    trainee = untrained(head, target, [])
    rounded(trainee)
    rows = sorted((TrainingText.read(path) for path in learnt), key=lambda row: len(row.tokens))
    short, long = rows[0], rows[-1]
    short = replace(short, tokens=short.tokens[:-5], states={at: x[:-5] for at, x in short.states.items()})
    assert len(short.tokens) < len(long.tokens)
    alone, both = trainee.right(Batch.of([short]))[0], trainee.right(Batch.of([short, long]))[0]
    # From the last slots there is less to guess than places.
    inside = len(short.tokens) - 2 - trainee.places
    assert torch.equal(alone[:inside], both[:inside])
    counts = torch.tensor([len(row.tokens) - row.start for row in (short, long)], dtype=torch.float)
    if head == "medusa":
        first = [_first_place(trainee, [row]).item() for row in (short, long)]
        mean = float((torch.tensor(first) * counts).sum() / counts.sum())
        assert _first_place(trainee, [short, long]).item() == pytest.approx(mean, rel=1e-4)


def _first_place(trainee: Trainee, rows: list[TrainingText]) -> Tensor:
    """The loss of the first place alone."""
    trainee.places = 1
    batch = Batch.of(rows)
    made = next(iter(trainee.hidden(batch, every(batch))))
    row, at = batch.replied()
    guesses = trainee.scores(0, made[row, at - 2]).log_softmax(-1)
    return -(trainee.wanted(batch) * guesses).sum() / len(row)


def test_only_what_stands_in_a_reply_is_learnt(target: FrozenTarget, learnt: list[Path]) -> None:
    trainee = untrained("medusa", target, [])
    rounded(trainee)
    row = TrainingText.read(learnt[0])
    changed = row.tokens.clone()
    changed[1 : row.start - 1] = 5
    same = trainee.loss(Batch.of([replace(row, tokens=changed)]), 0)
    assert same.item() == trainee.loss(Batch.of([row]), 0).item()
    changed = row.tokens.clone()
    changed[row.start] = (changed[row.start] + 1) % VOCAB
    assert trainee.loss(Batch.of([replace(row, tokens=changed)]), 0).item() != same.item()


@pytest.mark.parametrize("head", TUNED)
def test_the_loss_is_the_mean_of_what_a_reply_would_draft(head: Head, target: FrozenTarget, learnt: list[Path]) -> None:
    trainee = untrained(head, target, [])
    rounded(trainee)
    batch = Batch.of([TrainingText.read(path) for path in learnt[:3]])
    wanted = dict(
        zip(zip(*(part.tolist() for part in batch.replied()), strict=True), trainee.wanted(batch), strict=True)
    )
    total = mass = 0.0
    with torch.no_grad():
        for place, hidden in enumerate(trainee.hidden(batch, every(batch))):
            apart = []
            for (row, at), shares in wanted.items():
                # The first step of a reply drafts what comes after its first token's place.
                if (slot := at - 2 - place) >= int(batch.starts[row]) - 2:
                    guess = trainee.scores(place, hidden[row, slot : slot + 1])[0].log_softmax(-1)
                    apart.append(torch.nn.functional.kl_div(guess, shares, reduction="sum").item())
            total += 0.8**place * sum(apart) / len(apart)
            mass += 0.8**place
    assert trainee.loss(batch, 0).item() == pytest.approx(total / mass, rel=1e-3)


def test_a_step_draws_its_anchors_from_replies(learnt: list[Path]) -> None:
    rows = sorted((TrainingText.read(path) for path in learnt), key=lambda row: len(row.tokens))
    batch = Batch.of([rows[0], rows[-1]])
    whole = batch.anchors(None, 0)
    assert whole.shape == (2, batch.tokens.shape[1] - 2)
    assert [found.nonzero().flatten().tolist() for found in whole] == [
        list(range(row.start - 2, len(row.tokens) - 2)) for row in (rows[0], rows[-1])
    ]
    seen = torch.zeros_like(whole)
    for seed in range(60):
        drawn = batch.anchors(5, seed)
        assert drawn.sum(1).tolist() == [5, 5]
        seen |= drawn
    assert torch.equal(seen, whole)
    assert torch.equal(batch.anchors(5, 1), batch.anchors(5, 1))
    assert torch.equal(batch.anchors(REPLY, 1), whole)


def test_blocks_that_are_drawn_are_guessed_as_all_are(target: FrozenTarget, learnt: list[Path]) -> None:
    trainee = untrained("dflash", target, [])
    rounded(trainee)
    batch = Batch.of([TrainingText.read(path) for path in learnt[:3]])
    anchors = batch.anchors(4, 3)
    for some, whole in zip(trainee.hidden(batch, anchors), trainee.hidden(batch, every(batch)), strict=True):
        inside = anchors[:, : some.shape[1]]
        torch.testing.assert_close(some[inside], whole[inside])


def test_only_drawn_anchors_are_learnt_from(target: FrozenTarget, learnt: list[Path]) -> None:
    trainee = untrained("dflash", target, [])
    rounded(trainee)
    batch = Batch.of([TrainingText.read(path) for path in learnt[:3]])
    trainee.anchors, trainee.places = 4, 1
    (row, slot), (replied, at) = batch.anchors(4, 9).nonzero(as_tuple=True), batch.replied()
    places = {place: i for i, place in enumerate(zip(replied.tolist(), at.tolist(), strict=True))}
    shares = trainee.wanted(batch)[[places[r, s + 2] for r, s in zip(row.tolist(), slot.tolist(), strict=True)]]
    guess = trainee.scores(0, next(iter(trainee.hidden(batch, every(batch))))[row, slot]).log_softmax(-1)
    apart = torch.nn.functional.kl_div(guess, shares, reduction="batchmean").item()
    assert trainee.loss(batch, 9).item() == pytest.approx(apart, rel=1e-3)
    assert trainee.loss(batch, 9).item() != trainee.loss(batch, 10).item()


def test_no_place_is_guessed_from_before_a_text(target: FrozenTarget, learnt: list[Path]) -> None:
    row = TrainingText.read(learnt[0])
    cut = row.start - 2
    states = {layer: states[cut:] for layer, states in row.states.items()}
    bare = replace(row, tokens=row.tokens[cut:], start=2, states=states)
    trainee = untrained("medusa", target, [])
    rounded(trainee)
    # Of a slot the heads see no more than its own state.
    assert trainee.loss(Batch.of([bare]), 0).item() == pytest.approx(trainee.loss(Batch.of([row]), 0).item(), rel=1e-4)


def test_dflash_looks_at_layers_spread_as_in_its_paper() -> None:
    assert dflash.read_layers(36) == (2, 10, 18, 26, 34)
    assert dflash.read_layers(8) == (2, 6)
    for layers in range(1, 100):
        # The reader refuses the last layer's.
        assert all(0 <= number < layers for number in dflash.read_layers(layers))


def test_a_masked_token_is_one_that_no_text_has(target: FrozenTarget) -> None:
    settings = untrained("dflash", target, []).published().settings
    assert isinstance(told := settings["dflash_config"], dict)
    # All tokens have names here; the last of the added ones, which are the roles and the end of a reply.
    assert told["mask_token_id"] == VOCAB - 1
    checkpoint = target.checkpoint
    filled = replace(checkpoint, config=narrowed(target.config, vocab=VOCAB + 4))
    assert dflash.mask_token(filled) == VOCAB + 3
    ended = replace(checkpoint, config=replace(target.config, eos=frozenset({VOCAB - 1, VOCAB - 2})))
    assert dflash.mask_token(ended) == VOCAB - 3
    nothing_left = replace(checkpoint, config=replace(target.config, eos=frozenset(range(256, VOCAB))))
    assert dflash.mask_token(nothing_left) == VOCAB - 1


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the vocabulary, all of whose tokens are always in, hardly any are."""
    monkeypatch.setattr(eagle3, "always", lambda *_: {256, 3})


@pytest.mark.usefixtures("few")
def test_the_frequent_tokens_are_proposed(target: FrozenTarget) -> None:
    proposed = eagle3.Eagle3Trainee(target, [[9, 9, 9, 200, 200, 70]], 4).tokens
    assert proposed.tolist() == [3, 9, 200, 256]
    assert eagle3.Eagle3Trainee(target, [], VOCAB).tokens.tolist() == list(range(VOCAB))


@pytest.mark.usefixtures("few")
def test_eagle3_wants_the_targets_shares_of_what_it_may_propose(target: FrozenTarget, learnt: list[Path]) -> None:
    row = TrainingText.read(learnt[0])
    text = row.tokens.tolist()
    trainee = eagle3.Eagle3Trainee(target, [text[row.start + 8 :]], 12)
    wanted = trainee.wanted(Batch.of([row]))
    cached, proposed = CachedModel(target.model), trainee.tokens.tolist()
    counted = 0
    for place, shares in zip(range(row.start, len(text)), wanted, strict=True):
        logits = cached.next_logits(text[:place])
        if int(logits.argmax()) in proposed:
            expected = logits[trainee.tokens].softmax(-1)
            torch.testing.assert_close(shares, expected, atol=0.05, rtol=0.1)  # states are kept as bfloat16
            counted += 1
        else:
            assert not shares.any()
    assert 0 < counted < len(wanted)


@pytest.mark.usefixtures("few")
def test_a_head_that_proposes_few_tokens_is_read(target: FrozenTarget, learnt: list[Path], tmp_path: Path) -> None:
    text = TrainingText.read(learnt[0]).tokens.tolist()
    trainee = eagle3.Eagle3Trainee(target, [text], 12)
    own = read("eagle3", trainee, CachedModel(target.model), tmp_path / "head")
    scores = own.model.logits(torch.zeros(1, target.config.hidden))[0]
    assert scores.isfinite().nonzero().flatten().tolist() == trainee.tokens.tolist()


class Known(Trainee):
    """Guesses right where it is told."""

    def __init__(self, right: list[list[int]]) -> None:
        super().__init__()
        self._right = torch.tensor(right, dtype=torch.bool)

    hidden = scores = wanted = published = None  # type: ignore[assignment]
    device = torch.device("cpu")

    def right(self, batch: Batch) -> Tensor:
        return self._right.unsqueeze(0)


Known.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]


def test_accepted_length_goes_from_step_to_step() -> None:
    # A reply of 6 tokens at 3, ..., 8: slots 1, ..., 6 guess them.
    right = [[0, 0]] * 9
    row = TrainingText(torch.zeros(9, dtype=torch.long), 3, {})
    assert accepted_length(Known(right), [row]) == 1.0
    right = [[0, 0], [1, 1], [1, 1], [1, 1], [0, 1], [1, 0], [0, 0], [0, 0], [0, 0]]
    # From slot 1 two are right and the target adds one; from 4 none, since the first is wrong; from 5 one.
    assert accepted_length(Known(right), [row]) == 6 / 3


@pytest.mark.rotated(3, 1)
@pytest.mark.parametrize("head", TUNED)
def test_loss_falls_and_the_written_heads_draft_what_is_kept(
    head: Head, pair: PairSpec, target: FrozenTarget, session: Session, learnt: list[Path], tmp_path: Path
) -> None:
    trainee = untrained(head, target, [])
    rows = [TrainingText.read(path) for path in learnt]
    before = accepted_length(trainee, rows)
    losses = [at.loss for at in Training(trainee, tmp_path / "state").run(learnt, 60, lambda: False)]
    assert losses[-1] < 0.7 * losses[0]
    assert accepted_length(trainee, rows) > before + 0.3
    folder = tmp_path / "head"
    folder.mkdir()
    put_heads(folder, trainee.published())
    headed = load(replace(pair, heads={head: ModelSource(path=str(folder))}), lambda _: None)
    assert headed.info.notes.warning == ""
    headed.runner.executor.policies.off = True  # whether it pays depends on the machine
    for name in (name for name, info in STRATEGIES.items() if info.needs_head == head):
        accepted = 0
        for question in questions(CHATS, Sampling(), 4)[0]:
            text = question.chat[0].content
            plain = finished(reply(session, text, Sampling(), Limits(REPLY), Speculation()))
            drafted = finished(reply(headed, text, Sampling(), Limits(REPLY), Speculation(name, 5)))
            assert drafted.token_ids == plain.token_ids
            accepted += drafted.stats.num_accepted_draft_tokens
        # A tree is left where nothing is likely, as it is with the flat shares of a random target.
        assert accepted > REPLY / 2 or name == "eagle3-tree"
