"""Log-probabilities of a reply's tokens, accepted ones too, against transformers' log-softmax."""

from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM

from specchat.config.paths import demo_model
from specchat.engine.decoding.host import logprobs
from specchat.engine.protocol.events import Finished, Started, Step, TokenLogprob
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
        assert one.utf8.decode() == demo.tokenizer.text_of(token)
        assert one.logprob == pytest.approx(float(row[token]), abs=1e-3)
        best = row.topk(3)
        assert [value for _, value in one.top] == pytest.approx(best.values.tolist(), abs=1e-3)
        if float(best.values[0] - best.values[1]) > 1e-2:
            assert one.top[0][0].decode() == demo.tokenizer.text_of(int(best.indices[0]))
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
    assert (plain[0].utf8, plain[-1].utf8) == (b"{", b"}")
    assert any(one.top[0][1] > one.logprob for one in plain)
    assert told(session, replace(request, speculation=Speculation.of("draft")))[0] == plain


def test_more_than_there_are_is_all_there_are() -> None:
    found = logprobs(torch.zeros(2, 4), [1], [2], 20)
    assert len(found[0].top) == 4
    assert found[0].value == pytest.approx(-torch.log(torch.tensor(4.0)).item())


@pytest.mark.parametrize("length", [2, 40])
def test_a_prompts_tokens_have_those_of_the_network(demo: Session, network: torch.nn.Module, length: int) -> None:
    """In parts of a pass; and what follows is as after a prompt that was read alone."""
    ids = tuple(demo.tokenizer.as_it_stands("Once there was a fox who kept a lamp. " * 4)[:length])
    asked = Generate(1, (), Sampling(), Limits(6), Speculation.of("draft"), raw=ids, logprobs=2, scored=True)
    *events, last = demo.generate(asked)
    started = next(event for event in events if isinstance(event, Started))
    assert isinstance(last, Finished)
    with torch.inference_mode():
        scores = network(torch.tensor([ids])).logits[0].double().log_softmax(-1)
    first, *others = started.logprobs
    assert (first.utf8.decode(), first.logprob, started.reused) == (demo.tokenizer.text_of(ids[0]), None, 0)
    assert [one.utf8.decode() for one in others] == [demo.tokenizer.text_of(token) for token in ids[1:]]
    for token, one, row in zip(ids[1:], others, scores[:-1], strict=True):
        assert one.logprob == pytest.approx(float(row[token]), abs=1e-3)
        assert [value for _, value in one.top] == pytest.approx(row.topk(2).values.tolist(), abs=1e-3)
    demo.forget()
    plain = list(demo.generate(replace(asked, scored=False, logprobs=None, speculation=Speculation())))[-1]
    assert isinstance(plain, Finished)
    assert plain.token_ids == last.token_ids
    scored_only = list(demo.generate(replace(asked, limits=Limits(0))))
    assert [type(event) for event in scored_only] == [Started, Finished]
    assert scored_only[0].logprobs == started.logprobs  # type: ignore[union-attr]


def test_parts_of_a_character_have_their_bytes(demo: Session) -> None:
    text = "A fox \U0001f98a. "
    request = Generate(1, (), Sampling(), Limits(1), Speculation(), raw=text, logprobs=1, scored=True)
    started = next(event for event in demo.generate(request) if isinstance(event, Started))
    assert b"".join(one.utf8 for one in started.logprobs) == text.encode()
    assert max(len(one.utf8) for one in started.logprobs[-6:]) == 1, "the demo has no token for a fox"


def test_the_end_of_a_reply_has_one_beside_the_prompts(session: Session) -> None:
    """Programs that score count it as the one token that they ask for."""
    request = Generate(1, ASKED, Sampling(logit_bias=dict.fromkeys(session.eos, 99.0)), Limits(9), logprobs=1)
    assert told(session, request)[0] == []
    (end,) = told(session, replace(request, scored=True))[0]
    assert (end.utf8.decode(), end.shown) in {(session.tokenizer.text_of(token), False) for token in session.eos}
