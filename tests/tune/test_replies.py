"""Replies to learn from are the target's own, with its own states; held-out prompts are never among them."""

from pathlib import Path

import pytest
import torch

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.protocol.events import Finished
from specchat.engine.protocol.options import Limits, Message, Sampling, Speculation
from specchat.engine.protocol.requests import Generate
from specchat.engine.session import Session
from specchat.tune.replies import LEAST_REPLY, Chat, Question, collect, questions
from specchat.tune.rows import TrainingText, reply
from tests.engine.test_lossless import finished
from tests.engine.test_lossless import reply as replied
from tests.tune.conftest import CHATS, REPLY, chats


@pytest.mark.parametrize("count", [1, 8, 40])
@pytest.mark.parametrize("prompts", [2, 7, 8, 30])
def test_no_prompt_is_both_learnt_and_held_out(prompts: int, count: int) -> None:
    asked = chats([f"p{i}" for i in range(prompts)])
    learnt, judged = questions(asked, Sampling(temperature=0.3), count)
    assert len(learnt) == count
    assert len(judged) == max(1, prompts // 8)
    assert not {question.chat for question in learnt} & {question.chat for question in judged}
    assert len({(question.chat, repr(question.sampling)) for question in learnt}) == count
    assert all(question.sampling.temperature == 0.3 for question in learnt[: prompts - len(judged)])
    assert all(question.sampling == Sampling() for question in judged)
    more, _ = questions(asked, Sampling(temperature=0.3), count + 5)
    assert more[:count] == learnt


def test_of_many_prompts_few_are_held_out() -> None:
    asked = chats([f"p{i}" for i in range(1000)])
    learnt, judged = questions(asked, Sampling(), 1000)
    assert 60 <= len(judged) <= 64
    assert judged[-1].chat in asked[-20:]
    assert not {question.chat for question in learnt} & {question.chat for question in judged}


def test_a_row_is_the_targets_reply_with_its_states(session: Session, model: CachedDecoder, learnt: list[Path]) -> None:
    asked, _ = questions(CHATS, Sampling(), 8)
    assert len(learnt) == 8
    for path, question in zip(learnt, asked, strict=True):
        plain = finished(replied(session, question.chat[0].content, Sampling(), Limits(REPLY), Speculation()))
        row = TrainingText.read(path)
        assert tuple(reply(path)) == plain.token_ids == tuple(row.tokens[row.start :].tolist())
        fresh = CachedModel(model)
        fresh.begin(row.tokens.tolist())
        for layer, states in row.states.items():
            assert torch.equal(states, model.states(layer, 0, len(row.tokens) - 1).bfloat16().float())


def test_what_was_answered_is_not_asked_again(
    session: Session, model: CachedDecoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, _ = questions(CHATS, Sampling(), 4)
    some = collect(session, model, asked, (1,), tmp_path)
    first = [next(some), next(some)]
    some.close()
    assert sorted(tmp_path.iterdir()) == first
    seen: list[object] = []
    answer = session.generate
    monkeypatch.setattr(session, "generate", lambda request: (seen.append(request.messages), answer(request))[1])
    assert [path.name for path in collect(session, model, asked, (1,), tmp_path) if path] == [
        f"{i:06}.safetensors" for i in range(4)
    ]
    assert seen == [question.chat for question in asked[2:]]


def test_a_prompt_without_an_answer_is_passed_over(session: Session, model: CachedDecoder, tmp_path: Path) -> None:
    long = (Message("user", "x" * session.info.context),)
    first = tuple(session.target.next_logits(session.tokenizer.prompt(CHATS[0])).topk(1).indices.tolist())
    ends = Sampling(logit_bias={next(iter(session.eos)): 1e6})
    asked = [Question("a", long, Sampling()), Question("b", CHATS[0], ends), Question("c", CHATS[0], Sampling())]
    assert [path.name if path else None for path in collect(session, model, asked, (1,), tmp_path)] == [
        None,
        None,
        "c.safetensors",
    ]
    assert tuple(reply(tmp_path / "c.safetensors")[:1]) == first
    assert len(reply(tmp_path / "c.safetensors")) >= LEAST_REPLY


def test_a_chat_that_fills_the_context_is_answered_whole(
    session: Session, model: CachedDecoder, tmp_path: Path
) -> None:
    # Shortened, as chats are by default, its reply would be another chat's, and the two might not fit together.
    turn = (Message("user", "x"), Message("assistant", "y"))
    chat: Chat = CHATS[0]
    while len(session.tokenizer.prompt((*turn, *chat))) + LEAST_REPLY <= session.info.context:
        chat = (*turn, *chat)
    (path,) = collect(session, model, [Question("a", chat, Sampling())], (1,), tmp_path)
    assert path is not None
    answer = Generate(0, chat, Sampling(), Limits(REPLY, context="refuse"), Speculation())
    whole = [event.token_ids for event in session.generate(answer) if isinstance(event, Finished)]
    assert tuple(reply(path)) == whole[0]
