"""Log-probabilities of a reply's tokens, accepted ones too, against transformers' log-softmax."""

from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM

from specchat.config.paths import demo_model
from specchat.engine.decoding.host import logprobs
from specchat.engine.protocol.events import Finished, Step, TokenLogprob
from specchat.engine.protocol.options import Limits, Message, Sampling, Speculation
from specchat.engine.protocol.requests import Generate
from specchat.engine.session import Session
from tests.engine.grammars import GRAMMARS

ASKED = (Message("user", "Tell me a story about a cat."),)


def told(session: Session, request: Generate) -> tuple[list[TokenLogprob], Finished]:
    events = list(session.generate(request))
    assert isinstance(events[-1], Finished)
    return [each for event in events if isinstance(event, Step) for each in event.logprobs], events[-1]


@pytest.fixture(scope="module")
def network() -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(demo_model("target"), dtype=torch.float32).eval()


@pytest.mark.parametrize("strategy", ["plain", "draft", "draft-tree", "eagle3", "lookup"])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(seed=3, temperature=1.2, top_k=20, repetition_penalty=1.2)])
def test_each_token_has_the_log_probability_of_the_network(
    demo: Session, network: torch.nn.Module, strategy: str, sampling: Sampling
) -> None:
    """Before all sampling options, whatever drafted it."""
    request = Generate(1, ASKED, sampling, Limits(24), Speculation.of(strategy), logprobs=3)
    found, last = told(demo, request)
    prompt = demo.tokenizer.prompt(ASKED)
    with torch.inference_mode():
        logits = network(torch.tensor([[*prompt, *last.token_ids]])).logits[0].double()
    scores = logits[len(prompt) - 1 : -1].log_softmax(-1)
    assert len(found) == len(last.token_ids) == 24
    for token, one, row in zip(last.token_ids, found, scores, strict=True):
        assert one.text == demo.tokenizer.text_of(token)
        assert one.logprob == pytest.approx(float(row[token]), abs=1e-3)
        best = row.topk(3)
        assert [value for _, value in one.top] == pytest.approx(best.values.tolist(), abs=1e-3)
        if float(best.values[0] - best.values[1]) > 1e-2:
            assert one.top[0][0] == demo.tokenizer.text_of(int(best.indices[0]))
    assert last.stats.num_accepted_draft_tokens > 0 or strategy in ("plain", "lookup")


def test_they_are_told_only_if_asked_for(session: Session) -> None:
    request = Generate(1, ASKED, Sampling(), Limits(9))
    assert told(session, request)[0] == []
    assert {one.top for one in told(session, replace(request, logprobs=0))[0]} == {()}
    # The last one's options are not the next one's.
    assert told(session, request)[0] == []


def test_a_grammar_changes_none_of_them(session: Session) -> None:
    """They are the network's, to which tokens that are not allowed belong."""
    request = Generate(1, ASKED, Sampling(), Limits(90), logprobs=1, grammar=GRAMMARS["schema"])
    plain, last = told(session, request)
    assert last.reason == "stop"
    assert len(plain) == len(last.token_ids) - 1, "the end has none"
    assert (plain[0].text, plain[-1].text) == ("{", "}")
    assert any(one.top[0][1] > one.logprob for one in plain)
    assert told(session, replace(request, speculation=Speculation.of("draft")))[0] == plain


def test_more_than_there_are_is_all_there_are() -> None:
    found = logprobs(torch.zeros(2, 4), [1], [2], 20)
    assert len(found[0].top) == 4
    assert found[0].value == pytest.approx(-torch.log(torch.tensor(4.0)).item())
