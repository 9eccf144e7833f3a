"""A draft that looks at pictures by its own tower: it sees what transformers' whole model sees, and changes no text."""

from pathlib import Path

import pytest
import torch

from specchat.engine.errors import EngineError
from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.pictures.draft_album import DraftAlbum
from specchat.engine.pictures.tower import Tower
from specchat.engine.protocol.options import Limits, Sampling, Speculation
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.requests import Count, Generate
from specchat.engine.protocol.stats import Stats
from specchat.engine.session import Session
from specchat.engine.strategies import STRATEGIES
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.test_lossless import SAMPLINGS, finished
from tests.pictures.test_pictures import ASKED, TOLERANCE, TWO, album, inputs_of
from tests.pictures.whole import KINDS


def seeing(session: Session, looks: bool = True) -> DraftAlbum:
    """The draft's album as in a new session that looks at pictures, or does not."""
    drawn = album(session).draft
    assert isinstance(drawn, DraftAlbum)
    drawn.took = {looks: (1.0, 8), not looks: (9.0, 8)}
    drawn._looks.clear()
    drawn._rows.clear()
    drawn._grids, drawn._unfit = {}, False
    drawn.forget()
    session.forget()
    return drawn


def written(session: Session, strategy: str, sampling: Sampling, limit: int = 16) -> tuple[tuple[int, ...], Stats]:
    request = Generate(1, ASKED, sampling, Limits(limit), Speculation.of(strategy), cold=True)
    found = finished(list(session.generate(request)))
    return found.token_ids, found.stats


def test_its_logits_are_those_of_transformers(pair: PairSpec, session: Session) -> None:
    seeing(session)
    written(session, "draft", Sampling(), limit=1)
    assert pair.draft is not None
    assert session.runner.draft is not None
    model, checkpoint = session.runner.draft.model, Checkpoint.open(Path(pair.draft.path))
    assert isinstance(model, CachedDecoder)
    tokens = album(session).placed(session.tokenizer.prompt(ASKED), TWO)
    marked = torch.tensor([session.count(Count(1, ASKED, tokens=True)).token_ids])
    kind, tower = checkpoint.settings["model_type"], Tower(checkpoint, session.tokenizer.vocabulary)
    whole = KINDS[kind][1].from_pretrained(pair.draft.path, dtype=torch.float32)
    with torch.no_grad():
        theirs = whole(marked, **inputs_of([tower.processed(one.data).inputs for one in TWO], marked)).logits[0]
    rows = list[object]()
    list(album(session).look(TWO, rows, "draft"))
    album(session).hold(tokens)
    ours = model.logits(model.forward(tokens, 0))
    torch.testing.assert_close(ours, theirs, atol=TOLERANCE.get(kind, 2e-4), rtol=1e-4)
    session.forget()


def test_every_strategy_that_drafts_by_it_writes_what_plain_writes(pair: PairSpec, session: Session) -> None:
    """And more of its tokens are accepted than where it does not see the pictures, if it is the target but for noise.

    Of Gemma's and Qwen3.5's random weights it guesses about as much in either form.
    """
    plain = {name: written(session, "plain", sampling)[0] for name, sampling in SAMPLINGS.items()}
    usable = [one.name for one in session.info.strategies if one.available and STRATEGIES[one.name].needs_draft]
    assert len(usable) > 2
    accepted = {True: 0, False: 0}
    for looks in accepted:
        for at, strategy in enumerate(usable):
            drawn = seeing(session, looks)
            name = [*SAMPLINGS][at % len(SAMPLINGS)]
            assert written(session, strategy, SAMPLINGS[name])[0] == plain[name], (strategy, looks)
            assert [*drawn._looks.values()] == [looks] * 2
            accepted[looks] += written(session, "draft", SAMPLINGS[name], limit=48)[1].num_accepted_draft_tokens
    assert accepted[False] > 0
    kind = Checkpoint.open(Path(pair.target.path)).settings["model_type"]
    if kind not in ("gemma3", "gemma4", "qwen3_5"):
        assert accepted[True] > 1.3 * accepted[False]


def test_the_form_that_takes_less_time_a_token_is_chosen(session: Session) -> None:
    drawn = seeing(session)
    drawn.took = {False: (0.0, 0), True: (0.0, 0)}
    assert not drawn.choice
    rows = list[object]()
    list(drawn.look(TWO, rows, "draft"))
    assert rows == []
    drawn.wrote(Stats(verify_ms=500.0, completion_tokens=10))
    assert drawn.took == {False: (pytest.approx(0.5, abs=0.1), 10), True: (0.0, 0)}
    assert drawn.choice
    list(drawn.look(TWO, rows, "draft"))  # known pictures keep their form
    assert rows == []
    drawn._looks.clear()
    list(drawn.look((), rows, "draft"))
    list(drawn.look(TWO, rows, "lookup"))
    drawn.wrote(Stats(verify_ms=500.0, completion_tokens=10))
    assert (rows, drawn.took[True]) == ([], (0.0, 0))
    list(drawn.look(TWO, rows, "draft"))
    assert len(rows) == 2
    drawn.wrote(Stats(verify_ms=300.0, completion_tokens=10))
    assert drawn.took[True][0] > 0.3
    for seconds, choice in ((0.4, True), (0.6, False)):
        drawn.took = {False: (0.5, 10), True: (seconds, 10)}
        assert drawn.choice is choice


@pytest.mark.parametrize("lost", ["rows", "memory"])
def test_what_the_draft_cannot_look_at_it_drafts_without(
    lost: str, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, drawn = written(session, "plain", Sampling())[0], seeing(session)
    if lost == "rows":
        drawn._wanted = {first: grid._replace(rows=grid.rows + 1) for first, grid in drawn._wanted.items()}
    else:

        def full(*_: object) -> None:
            raise EngineError("memory", "full")

        monkeypatch.setattr(drawn._tower_now(), "_check_fits", full)
    assert written(session, "draft", Sampling())[0] == plain
    rows = list[object]()
    list(drawn.look(TWO, rows, "draft"))
    assert (drawn._unfit, rows) == (True, [])
    drawn._wanted = album(session)._grids
