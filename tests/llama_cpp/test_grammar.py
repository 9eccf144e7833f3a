"""Grammars with models that llama.cpp runs: its tokens, and its logits on the host."""

from dataclasses import replace

import pytest

from specchat.engine.protocol.options import Limits, Sampling
from specchat.engine.session import Session
from tests.engine.grammars import GRAMMARS, fits
from tests.engine.test_grammar_lossless import last, request
from tests.llama_cpp.test_lossless import DRAFTING

pytestmark = pytest.mark.needs_llama


@pytest.mark.parametrize("name", GRAMMARS)
def test_every_strategy_writes_what_plain_writes(session: Session, name: str) -> None:
    for sampling in (Sampling(), Sampling(seed=3, temperature=0.9, top_k=30, repetition_penalty=1.1)):
        plain = last(session, request(GRAMMARS[name], sampling))
        assert fits(session, GRAMMARS[name], plain)
        for strategy in DRAFTING:
            drafting = last(session, request(GRAMMARS[name], sampling, strategy))
            assert (drafting.token_ids, drafting.text) == (plain.token_ids, plain.text), strategy


def test_the_embedded_pair_writes_valid_json(demo: Session) -> None:
    wanted = request(GRAMMARS["schema"], Sampling(), limits=Limits(90))
    plain, drafting = (
        last(demo, wanted),
        last(demo, replace(wanted, speculation=request(GRAMMARS["schema"], strategy="draft").speculation)),
    )
    assert plain.reason == "stop"
    assert fits(demo, GRAMMARS["schema"], plain)
    assert drafting.token_ids == plain.token_ids
    assert drafting.stats.num_accepted_draft_tokens > 10
