"""Grammars and log-probabilities on the device: the host writes such replies pass by pass."""

from dataclasses import replace
from pathlib import Path
from time import perf_counter

import pytest
import torch

from specchat.engine.device.stepwise import StepwiseExecutor
from specchat.engine.protocol.events import Finished, Step
from specchat.engine.protocol.options import Grammar, Limits, Message, Sampling, Speculation
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.protocol.requests import Generate
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.reply import measure
from specchat.engine.runners.device import device_runner
from specchat.engine.runners.runner import Runner
from specchat.engine.session import Session
from specchat.engine.text.tokenizer import Tokenizer
from specchat.engine.weights.checkpoint import Checkpoint
from tests.device.conftest import DEVICE, Folders, decoder
from tests.device.test_recurrent import FULL, LINEAR, changes, made
from tests.engine.grammars import GRAMMARS, fits
from tests.engine.tiny import VOCAB, checkpoint, perturbed

MESSAGES = (Message("user", "abcabc"),)
SHORT = Grammar("lark", 'start: "{\\"name\\": \\"" /[a-f]{3}/ "\\"}"')


def session_of(runner: Runner, folders: Folders) -> Session:
    spec = PairSpec("tiny", "Tiny", ModelSource(path=str(folders.target)), ModelSource(path=str(folders.draft)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "BUDGET_S", 0.01)
        patch.setattr(measure, "STEPS", 1)
        return Session(spec, Tokenizer.read(folders.target), runner, perf_counter())


@pytest.fixture(scope="module")
def session(runner: Runner, shallow: Folders) -> Session:
    return session_of(runner, shallow)


@pytest.fixture(scope="module")
def beside(shallow: Folders) -> Session:
    """A draft on the host."""
    draft = ReferenceDecoder(Checkpoint.open(shallow.draft))
    return session_of(device_runner(decoder(shallow.target), draft, VOCAB, DEVICE), shallow)


def written(session: Session, request: Generate) -> tuple[Finished, list[Step]]:
    *events, last = session.generate(request)
    assert isinstance(last, Finished)
    return last, [event for event in events if isinstance(event, Step)]


@pytest.mark.rotated(2)
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(seed=2, temperature=0.8, top_k=9, presence_penalty=0.4)])
def test_every_strategy_writes_what_plain_writes(session: Session, sampling: Sampling) -> None:
    request = Generate(1, MESSAGES, sampling, Limits(30), grammar=SHORT)
    plain, steps = written(session, request)
    assert plain.reason == "stop"
    assert fits(session, SHORT, plain)
    assert not any(step.drafted for step in steps)
    for strategy in session.info.strategies:
        if strategy.available and strategy.name != "plain":
            speculation = Speculation.of(strategy.name)
            last, steps = written(session, replace(request, speculation=speculation))
            assert (last.token_ids, last.text) == (plain.token_ids, plain.text), strategy.name
            assert any(step.accepted for step in steps)


@pytest.mark.slow
def test_recurrent_states_are_rolled_back(tmp_path: Path) -> None:
    target = checkpoint(tmp_path / "target", seed=5, **changes(LINEAR, FULL))
    folders = Folders(target, perturbed(tmp_path / "draft", target, 0.6))
    session = session_of(device_runner(made(target), made(folders.draft), VOCAB, DEVICE), folders)
    request = Generate(1, MESSAGES, Sampling(seed=2, temperature=2.0), grammar=Grammar("regex", "[a-p]{12}"))
    plain, _ = written(session, request)
    last, steps = written(session, replace(request, speculation=Speculation("draft", 3)))
    assert last.token_ids == plain.token_ids
    assert any(step.accepted < step.drafted for step in steps)
    assert any(step.accepted for step in steps)


def test_replies_before_and_after_are_as_ever(session: Session) -> None:
    """The captured step goes on with the cache that the host has left."""
    free = Generate(1, MESSAGES, Sampling(seed=2, temperature=0.8), Limits(8), Speculation("draft", 3))
    before, _ = written(session, free)
    held, _ = written(session, replace(free, grammar=GRAMMARS["schema"]))
    after, _ = written(session, free)
    assert fits(session, GRAMMARS["schema"], held)
    assert after.token_ids == before.token_ids
    assert after.stats.reused_tokens > 0


def test_a_draft_on_the_host_drafts(beside: Session) -> None:
    request = Generate(1, MESSAGES, Sampling(), Limits(30), grammar=SHORT)
    plain, _ = written(beside, request)
    last, steps = written(beside, replace(request, speculation=Speculation("draft", 3)))
    assert last.token_ids == plain.token_ids
    assert any(step.strategy == "draft" and step.accepted for step in steps)


def test_log_probabilities_are_those_of_the_passes(session: Session) -> None:
    request = Generate(1, MESSAGES, Sampling(), Limits(6), logprobs=2)
    plain, steps = written(session, request)
    told = [each for step in steps for each in step.logprobs]
    prompt = session.tokenizer.prompt(MESSAGES)
    for at, (token, one) in enumerate(zip(plain.token_ids, told, strict=True)):
        scores = session.target.next_logits([*prompt, *plain.token_ids[:at]]).double().log_softmax(-1)
        assert one.logprob == pytest.approx(float(scores[token]), abs=1e-6)
        assert [value for _, value in one.top] == pytest.approx(scores.topk(2).values.tolist(), abs=1e-6)
    drafting, steps = written(session, replace(request, speculation=Speculation("draft", 3)))
    assert drafting.token_ids == plain.token_ids
    assert [each for step in steps for each in step.logprobs] == told
    free, _ = written(session, replace(request, logprobs=None))
    assert free.token_ids == plain.token_ids, "the host chooses as the device does"


def test_rows_of_a_pass_are_rows_alone(runner: Runner) -> None:
    executor = runner.stepwise
    assert isinstance(executor, StepwiseExecutor)
    cached = executor.loops._models["target"]
    assert cached.tokens is runner.target.tokens
    model = cached.model
    tokens = [token % VOCAB for token in range(7, 60, 3)]
    model.write(tokens[:-1], 0)
    alone = [model.forward([token], at)[-1].clone() for at, token in enumerate(tokens)]
    for first in (0, 3, 9):
        rows = model.forward(tokens[first:], first)
        assert torch.equal(rows, torch.stack(alone[first:])[-len(rows) :])
