"""Logits are those of transformers' whole model, and every strategy writes what plain writes."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from specchat.engine.decoding.host_loops import HostDraft, HostLoops
from specchat.engine.pictures.album import Album
from specchat.engine.pictures.tower import Tower
from specchat.engine.prefixes import model_shelf, shelf
from specchat.engine.prefixes.bounds import FOLDER
from specchat.engine.protocol.events import Finished, Started
from specchat.engine.protocol.options import PLACE, Limits, Message, Sampling, Speculation
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.picture_ids import FIRST, of_text
from specchat.engine.protocol.requests import Count, Generate
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.session import Session
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.test_lossless import SAMPLINGS, finished
from tests.engine.test_turns import alone, same, woven
from tests.engine.tiny import VOCAB
from tests.pictures.conftest import unmeasured
from tests.pictures.whole import KINDS, MARK, picture

TWO = (picture(), picture(20, 70, 1))
TOLERANCE = {"gemma4": 5e-4}
"""Of logits, where sums of larger numbers differ by more than others': 5 of 17,160 by 2e-4 to 3.2e-4."""
ASKED = (Message("user", f"xx{PLACE}xx{PLACE}abcabcabcabc", pictures=TWO),)


def album(session: Session) -> Album:
    assert isinstance(session.album, Album)
    return session.album


def inputs_of(towers: list[Any], marked: torch.Tensor) -> dict[str, Any]:
    """Inputs of transformers' whole model with several pictures: patches one after another, or padded."""
    if "image_grid_thw" in towers[0]:
        joined = {key: torch.cat([one[key] for one in towers]) for key in ("image_grid_thw", "pixel_values")}
        return joined | {"mm_token_type_ids": (marked == MARK).int()}
    if "image_position_ids" in towers[0]:
        joined = {key: torch.cat([one[key] for one in towers]) for key in ("image_position_ids", "pixel_values")}
        return joined | {"mm_token_type_ids": (marked == MARK).int()}
    if "num_crops" in towers[0]:
        return {
            "pixel_values": torch.cat([one["pixel_values"] for one in towers]),
            "token_type_ids": (marked == MARK).int(),
        }
    sizes = torch.cat([one["image_sizes"] for one in towers])
    padded = torch.zeros(len(towers), 3, *sizes.max(0).values.tolist())
    for into, one, (high, wide) in zip(padded, towers, sizes.tolist(), strict=True):
        into[:, :high, :wide] = one["pixel_values"][0]
    return {"pixel_values": padded, "image_sizes": sizes}


def test_logits_and_text_are_those_of_transformers(pair: PairSpec, session: Session) -> None:
    counted, found = session.count(Count(1, ASKED, tokens=True)), written(session, "plain", Sampling()).token_ids
    checkpoint, marked = Checkpoint.open(Path(pair.target.path)), torch.tensor([[*counted.token_ids, *found]])
    tower, count = Tower(checkpoint, session.tokenizer.vocabulary), len(counted.token_ids)
    kind = checkpoint.settings["model_type"]
    whole = KINDS[kind][1].from_pretrained(pair.target.path, dtype=torch.float32)
    with torch.no_grad():
        theirs = whole(marked, **inputs_of([tower.processed(one.data).inputs for one in TWO], marked)).logits[0]
    assert tuple(theirs[count - 1 : -1].argmax(-1).tolist()) == found
    theirs = theirs[:count]
    assert theirs.std() > 0.3
    assert marked.shape[1] < 128
    reference = ReferenceDecoder(checkpoint)
    for model in (session.target.model, reference):
        assert isinstance(model, type(reference).__base__)
        rope = checkpoint.config.recipe.ropes[0] if tower.kind.sections else None
        seen = Album(lambda: tower, model, rope, session.tokenizer.vocabulary, album(session)._mutual)
        tokens = seen.placed(session.tokenizer.prompt(ASKED), TWO)
        assert seen.shown(tokens) == list(counted.token_ids)
        assert sum(token >= FIRST for token in tokens) > 8
        rows = list[object]()
        list(seen.look(TWO, rows))
        seen.hold(tokens)
        torch.testing.assert_close(
            model.logits(model.forward(tokens, 0)), theirs, atol=TOLERANCE.get(kind, 2e-4), rtol=1e-4
        )
        seen.hold(of_text(tokens))
        alone, usual = model.logits(model.forward(tokens[:5], 0)), theirs[:5]
        torch.testing.assert_close(alone, usual, atol=2e-4, rtol=1e-4)
        del rows
    session.target.model.pictures = album(session)
    session.forget()


def written(session: Session, strategy: str, sampling: Sampling, asked: tuple[Message, ...] = ASKED) -> Finished:
    request = Generate(1, asked, sampling, Limits(16), Speculation.of(strategy), cold=True)
    return finished(list(session.generate(request)))


def test_every_strategy_writes_what_plain_writes(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """And drafts no token of a picture, though each is what comes after "x(" in the text, which the reply has too."""
    likely = dict.fromkeys(session.tokenizer.encode("x("), 12.0)
    samplings = [replace(one, seed=3, logit_bias=likely) for one in SAMPLINGS.values()]
    drafted, make = list[int](), HostLoops.make

    def kept(loops: HostLoops, *given: Any) -> HostDraft:
        drafting = make(loops, *given)
        drafted.extend(drafting.draft.tokens)
        return drafting

    monkeypatch.setattr(HostLoops, "make", kept)
    plain = [written(session, "plain", sampling).token_ids for sampling in samplings]
    assert len(set(plain)) > 2
    accepted = Counter[str]()
    for at, status in enumerate(session.info.strategies):
        if status.available:
            for turn in (at, at + 3):
                found = written(session, status.name, samplings[turn % len(samplings)])
                assert found.token_ids == plain[turn % len(samplings)], (status.name, turn)
                accepted[status.name] += found.stats.num_accepted_draft_tokens
    assert max(drafted) < VOCAB
    assert accepted["draft"] > 0
    assert accepted["lookup"] > 0


def test_another_picture_is_answered_otherwise(session: Session) -> None:
    other = (replace(ASKED[0], pictures=(picture(seed=5), TWO[1])),)
    assert written(session, "plain", Sampling(), other).token_ids != written(session, "plain", Sampling()).token_ids


def test_a_later_turn_goes_on_from_the_picture_that_was_read(session: Session) -> None:
    first = Generate(1, ASKED, limits=Limits(8))
    said = finished(list(session.generate(first)))
    later = Generate(2, (*ASKED, said.written.message, Message("user", "abcabc", pictures=(picture(seed=7),))))
    for strategy in ("plain", "draft", "suffix"):
        request = replace(later, limits=Limits(12), speculation=Speculation.of(strategy))
        session.forget()
        list(session.generate(first))
        events = list(session.generate(request))
        assert isinstance(started := events[0], Started)
        assert started.reused > 40
        assert finished(events).token_ids == written_cold(session, request), strategy


def written_cold(session: Session, request: Generate) -> tuple[int, ...]:
    return alone(session, replace(request, cold=True)).token_ids


def test_replies_in_turns_have_their_positions_and_pictures(session: Session) -> None:
    """Some with pictures, some without, and two of the same beginning."""
    texts = (ASKED, (Message("user", "abcabcabc"),), (replace(ASKED[0], content="abc"),), ASKED)
    strategies = ("plain", "draft", "lookup", "auto")
    requests = [
        Generate(number, text, Sampling(number, temperature=1.0), Limits(14), Speculation.of(strategy))
        for number, (text, strategy) in enumerate(zip(texts, strategies, strict=True))
    ]
    found = woven(session, requests, Random(2))
    for request in requests:
        assert same(finished(found[request.id]), alone(session, request)), request.id


def test_log_probabilities_are_those_of_any_strategy(session: Session) -> None:
    asked = Generate(1, ASKED, limits=Limits(6), logprobs=2)
    plain, drafted = (
        [token for step in list(session.generate(request))[1:-1] for token in step.logprobs]
        for request in (asked, replace(asked, speculation=Speculation.of("draft")))
    )
    assert plain == drafted
    assert len(plain) == 6


def test_texts_with_pictures_do_not_go_to_disk(pair: PairSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their ids end with the session, and another one would take them for other pictures."""
    monkeypatch.setenv(FOLDER, str(tmp_path / "read"))
    monkeypatch.setattr(shelf, "LONG", 16)
    monkeypatch.setattr(model_shelf, "LEAST_WITH_TAIL", model_shelf.LEAST)
    session = unmeasured(replace(pair, draft=None, heads={}))
    for asked in (ASKED, (Message("user", "abc" * 80),)):
        list(session.generate(Generate(1, asked, limits=Limits(2))))
    assert any(token >= FIRST for one in session.shelf._models for part in one.parts for token in part.token_ids)
    session.save_read(lambda: False)
    parts = [part for one in session.shelf._models for part in one.parts]
    assert {part.file is not None for part in parts if max(part.token_ids) >= FIRST} == {False}
    assert any(part.file is not None for part in parts)
