"""Grammars with models that transformers runs."""

import pytest

from specchat.engine.protocol.options import Sampling
from specchat.engine.session import Session
from tests.engine.grammars import GRAMMARS, fits
from tests.engine.test_grammar_lossless import last, request
from tests.hf.test_loading import DRAFTING, folders, session

__all__ = ["folders", "session"]


@pytest.mark.parametrize("name", GRAMMARS)
def test_every_strategy_writes_what_plain_writes(session: Session, name: str) -> None:
    for sampling in (Sampling(), Sampling(seed=3, temperature=0.9, top_p=0.95)):
        plain = last(session, request(GRAMMARS[name], sampling))
        assert fits(session, GRAMMARS[name], plain)
        for strategy in DRAFTING[1 + (not sampling.greedy) :: 2]:
            drafting = last(session, request(GRAMMARS[name], sampling, strategy))
            assert (drafting.token_ids, drafting.text) == (plain.token_ids, plain.text), strategy
