"""Replies that share passes on a device: rows, texts and tokens of each are those that it has alone."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

import pytest
import torch
from torch import Tensor

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.decoding.step import Decoding
from specchat.engine.decoding.together import Companion
from specchat.engine.device.company import DeviceSeat, DeviceTexts
from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.device.graphs import Graphs
from specchat.engine.device.model import DeviceModel
from specchat.engine.device.weights import load
from specchat.engine.kernels import gpu_shapes
from specchat.engine.memory import gpu_need
from specchat.engine.memory.need import Model, need
from specchat.engine.model.cache_copy import CacheCopy, move
from specchat.engine.prefixes import model_shelf
from specchat.engine.protocol.events import Event, Step
from specchat.engine.protocol.options import Grammar, Limits, Message, Sampling, Speculation
from specchat.engine.protocol.pair import KvCache, ModelSource, PairSpec
from specchat.engine.protocol.requests import Generate
from specchat.engine.reply import company as company_module
from specchat.engine.reply import measure
from specchat.engine.runners.device import device_runner
from specchat.engine.runners.runner import Runner
from specchat.engine.session import Session
from specchat.engine.text.tokenizer import Tokenizer
from specchat.engine.weights.checkpoint import Checkpoint
from tests.device import test_recurrent, test_rings
from tests.device.conftest import CONTEXT, DEVICE, SHAPE, Folders, decoder
from tests.device.test_decoder import ids, run
from tests.device.test_families import changes
from tests.engine.test_company import choosing, left, logprobs, now_and_then, shared
from tests.engine.test_lossless import finished
from tests.engine.test_turns import same, woven
from tests.engine.tiny import FAMILY, VOCAB, checkpoint

STEPS = 2


def room(model: DeviceDecoder, texts: int) -> int:
    """Bytes for so many texts."""
    return texts * (need(Model(model.config, "cuda"), model.context).cache + gpu_need.choosing(model.config))


def texts_of(model: DeviceDecoder, most: int = 1 << 30) -> tuple[DeviceModel, DeviceTexts]:
    graphs = Graphs(DEVICE, [])
    made = DeviceModel(model, "target", VOCAB, graphs, DEVICE)
    return made, DeviceTexts(CachedModel(made), VOCAB, most, lambda state: Graphs(DEVICE, state))


def holding(model: DeviceModel, apart: DeviceTexts, text: list[int], used: list[CacheCopy]) -> CacheCopy:
    copy, held = apart.copied(used), list[int]()
    assert copy is not None
    model.write(text, 0)
    move(apart.entries(), text, copy.entries, held)
    return copy


@pytest.mark.parametrize(
    ("family", "cache"),
    [("llama-gqa-untied", None), ("qwen3", "int8"), ("gemma4_e", None), ("lfm2", None), ("gpt_oss", None)],
)
def test_rows_of_several_texts_are_those_of_each_alone(family: str, cache: KvCache | None, tmp_path: Path) -> None:
    found = Checkpoint.open(checkpoint(tmp_path / "m", seed=3, **changes(family)))
    found = replace(found, config=found.config.with_cache(cache))
    own = DeviceDecoder(found.config, load(found, None, DEVICE, torch.float32), CONTEXT, DEVICE, torch.float32)
    model, apart = texts_of(own)
    texts = [ids(length, seed=length) for length in (5, 30, 17)]
    expected = []
    for text in texts:
        model.write(text[:-STEPS], 0)
        expected.append([run(own, [text[at]], at)[0] for at in range(len(text) - STEPS, len(text))])
    copies: list[CacheCopy] = []
    for text in texts:
        copies.append(holding(model, apart, text[:-STEPS], copies))
    for part in apart.entries().tensors:
        part.fill_(97)
    for step, order in enumerate(((2, 0, 1), (1, 2))):
        there = [len(text) - STEPS + step for text in texts]
        rows = apart.logits_apart(
            [texts[i][there[i]] for i in order], [there[i] for i in order], [copies[i] for i in order]
        )
        apart.finish()
        for i, row in zip(order, rows, strict=True):
            assert torch.equal(row.cpu(), expected[i][step][: len(row)]), (step, i)
    assert all((part == 97).all() for part in apart.entries().tensors)


def test_a_seat_is_free_again_once_it_is_not_used(shallow: Folders) -> None:
    model = decoder(shallow.target, torch.bfloat16)
    _, apart = texts_of(model, room(model, 3) - 1)
    first = apart.copied([])
    assert first is not None
    second = apart.copied([first])
    assert isinstance(second, DeviceSeat)
    assert apart.copied([first, second]) is None
    assert apart.copied([second]) is first
    assert apart.memory() == 2 * second.memory()


def test_a_seat_takes_what_was_planned(shallow: Folders) -> None:
    """All but a few numbers of the state of a step."""
    of_gpu = decoder(shallow.target, torch.bfloat16)
    seat = texts_of(of_gpu)[1].copied([])
    assert isinstance(seat, DeviceSeat)
    assert 0 <= seat.memory() - room(of_gpu, 1) < 3000


@pytest.fixture(scope="module")
def seated(shallow: Folders) -> Runner:
    return device_runner(decoder(shallow.target), decoder(shallow.draft), VOCAB, DEVICE, room=1 << 30)


def session_of(runner: Runner, target: Path, draft: Path | None = None) -> Session:
    spec = PairSpec("tiny", "Tiny", ModelSource(path=str(target)), ModelSource(path=str(draft)) if draft else None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "BUDGET_S", 0.01)
        patch.setattr(measure, "STEPS", 1)
        return Session(spec, Tokenizer.read(target), runner, perf_counter())


@pytest.fixture(scope="module")
def session(seated: Runner, shallow: Folders) -> Session:
    return session_of(seated, shallow.target, shallow.draft)


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """A pair whose texts have tails."""
    folder = checkpoint(tmp_path_factory.mktemp("r") / "m", seed=3, **test_recurrent.changes(*test_recurrent.KINDS))
    return session_of(device_runner(test_recurrent.made(folder), None, VOCAB, DEVICE, room=1 << 30), folder)


SAMPLINGS = (
    Sampling(),
    Sampling(temperature=0.8),
    Sampling(temperature=1.1, top_k=30, top_p=0.9, min_p=0.02, repetition_penalty=1.3, logit_bias={5: 2.0}),
)
STRATEGIES = ("plain", "draft", "lookup", "draft-tree", "suffix", "draft", "plain", "ngram", "auto")


def requests_of(strategies: tuple[str, ...]) -> list[Generate]:
    """Of all kinds: the host chooses the tokens under a grammar, and those with log-probabilities."""
    return [
        Generate(
            number,
            (Message("user", "ab" * (number + 1)),),
            replace(SAMPLINGS[number % 3], seed=number),
            Limits(6 + number % 4),
            Speculation(strategy, 3 * (strategy != "plain")),
            logprobs=2 if number == 4 else None,
            grammar=Grammar("regex", "[a-z ]{3,30}") if number == 5 else None,
        )
        for number, strategy in enumerate(strategies)
    ]


def assert_as_alone(session: Session, choose: Callable[..., list[Any]], strategies: tuple[str, ...]) -> int:
    """Steps that were shared by replies whose texts are those that they have alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(company_module, "worthwhile", choosing(choose))
        requests = requests_of(strategies)
        found = woven(session, requests, Random(1))
        for request in requests:
            events: list[Event] = list(session.generate(replace(request, cold=True)))
            assert same(finished(found[request.id]), finished(events)), request
            assert logprobs(found[request.id]) == logprobs(events)
        assert left(session)
    assert max(step.together for one in found.values() for step in one if isinstance(step, Step)) > 1
    return shared(found)


def test_each_has_the_text_that_it_has_alone(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens under a grammar, and those with log-probabilities, are the host's to choose, as alone."""
    chosen, choose = list[int](), DeviceSeat.choose
    monkeypatch.setattr(DeviceSeat, "choose", lambda seat, row: (chosen.append(seat.number), choose(seat, row)))
    assert assert_as_alone(session, lambda replies: replies, STRATEGIES) > 10
    assert len(chosen) > 10
    assert set(chosen) == {0, 1, 2, 3}


def test_each_that_joins_and_leaves_has_the_text_that_it_has_alone(session: Session) -> None:
    assert assert_as_alone(session, now_and_then(Random(3)), STRATEGIES) > 2


def test_texts_with_tails_join_and_leave(recurrent: Session) -> None:
    assert assert_as_alone(recurrent, now_and_then(Random(4)), ("plain", "lookup", "plain", "ngram")) > 2


@pytest.mark.parametrize("pair", ["session", "recurrent"])
def test_a_text_that_was_written_in_company_is_not_read_again(
    pair: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    session: Session = request.getfixturevalue(pair)
    monkeypatch.setattr(company_module, "worthwhile", choosing(lambda replies: replies))
    for least in ("LEAST", "LEAST_WITH_TAIL"):  # how far a text had come where it joined is chance
        monkeypatch.setattr(model_shelf, least, 1)
    session.forget_read()
    requests = [Generate(i, (Message("user", f"{i} {'b' * 30}"),), limits=Limits(8)) for i in range(2)]
    found = woven(session, requests, Random(1))
    assert shared(found) > 4
    for one in requests:
        text = [*session._prompts.prompt(one).tokens, *finished(found[one.id]).token_ids]
        assert session.target.rewind(text) > len(text) - 3


def begun(runner: Runner, prompt: list[int], sampling: Sampling) -> Decoding:
    runner.target.begin(prompt)
    return runner.reply(sampling, list(prompt), ())


def go_on(runner: Runner, reply: Decoding, length: int) -> None:
    """Let a reply have so many tokens by plain steps."""
    while len(reply.committed) < length:
        reply.step(runner.drafters["plain"], 0, "coupled")
    reply.close()


def joined(runner: Runner, reply: Decoding) -> tuple[Companion, Decoding]:
    """A reply's part in company, as `reply.company` has it join."""
    passes = runner.passes
    assert passes is not None
    copy = passes.model.copied([one.copy for one in passes.companions])
    assert copy is not None
    companion = passes.kind(passes, copy, reply.committed, lambda: False)
    held = companion.cached.tokens
    move(passes.model.entries(), reply.committed[:-1], copy.entries, held)
    copy.resume(passes.model.tail(len(held)))
    passes.companions.append(companion)
    return companion, reply.continued(companion, companion.cached)


def alone(runner: Runner, prompts: list[list[int]], more: int = 6) -> list[list[int]]:
    """Each prompt with plain steps after it, by a sampling of its own."""
    found = []
    for prompt, sampling in zip(prompts, SAMPLINGS, strict=False):
        runner.target.keep(0)
        reply = begun(runner, prompt, sampling)
        go_on(runner, reply, len(prompt) + more)
        found.append(reply.committed)
    return found


def in_company(runner: Runner, prompts: list[list[int]]) -> list[tuple[Decoding, Companion, Decoding]]:
    """The same replies, a step alone and four in company: each alone, its companion, and it there."""
    found = []
    for prompt, sampling in zip(prompts, SAMPLINGS, strict=False):
        reply = begun(runner, prompt, sampling)
        go_on(runner, reply, len(prompt) + 1)
        found.append((reply, *joined(runner, reply)))
    for _ in range(4):
        for *_, there in found:
            there.step(runner.drafters["plain"], 0, "coupled")
    return found


def assert_texts(runner: Runner, prompts: list[list[int]]) -> None:
    """Texts in company are those that are written alone, and go on alone from what is left of it."""
    expected, model = alone(runner, prompts), runner.target.model
    assert isinstance(model, DeviceModel)
    for (reply, companion, _), text in zip(in_company(runner, prompts), expected, strict=True):
        held = companion.cached.tokens
        assert [*held, reply.committed[-1]] == reply.committed == text[:-1]
        runner.target.keep(0)
        runner.target.begin([0] * 40)
        move(companion.copy.entries, held, model.entries(), runner.target.tokens)
        model.resume(held, len(held), companion.copy.tail(len(held)))
        reply.resume()
        go_on(runner, reply, len(text))
        assert reply.committed == text


def test_a_choice_that_fails_leaves_the_others_theirs(shallow: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the device has made them; the row of the one without a choice is computed again."""
    runner, prompts = device_runner(decoder(shallow.target), None, VOCAB, DEVICE, room=1 << 30), [[3, 4, 5], [7, 8]]
    expected, passes = alone(runner, prompts), runner.passes
    assert passes is not None
    (one, first, there), (other, second, here) = in_company(runner, prompts)
    finished, finish, choose = list[bool](), passes.model.finish, DeviceSeat.choose

    def fail(seat: DeviceSeat, row: Tensor) -> None:
        if seat is second.copy:
            raise torch.OutOfMemoryError
        choose(seat, row)

    monkeypatch.setattr(passes.model, "finish", lambda: finished.append(first.waits) or finish())
    with monkeypatch.context() as patch:
        patch.setattr(DeviceSeat, "choose", fail)
        with pytest.raises(torch.OutOfMemoryError):
            there.step(runner.drafters["plain"], 0, "coupled")
    assert (finished, second.waits) == ([False], True)
    for text in (there, here):
        text.step(runner.drafters["plain"], 0, "coupled")
    assert [one.committed, other.committed] == expected


def test_texts_in_rings_are_those_of_each_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Across their edge; one text is before it."""
    monkeypatch.setattr(gpu_shapes, "BACK", 0)
    shape = SHAPE | FAMILY["qwen3"] | {"head_dim": 16}
    folder = checkpoint(tmp_path / "m", seed=3, **shape)
    ring = test_rings.decoder(test_rings.opened(folder))
    runner = device_runner(ring, None, VOCAB, DEVICE, room=1 << 30)
    assert_texts(runner, [ids(test_rings.HELD - 3), ids(20, seed=1)])
    assert runner.passes is not None
    copy, tail = runner.passes.model.copied([]), runner.passes.model.tail(0)
    assert copy is not None
    assert tail is not None
    copy.resume(tail._replace(numbers=(250,)))
    told = copy.tail(9)
    assert told is not None
    assert told.numbers == (250,), "entries of a longer text are there"


def test_texts_of_recurrent_layers_are_those_of_each_alone(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", seed=3, **test_recurrent.changes(*test_recurrent.KINDS))
    runner = device_runner(test_recurrent.made(folder), None, VOCAB, DEVICE, room=1 << 30)
    assert_texts(runner, [ids(70), ids(9, seed=1), ids(30, seed=2)])


def test_states_that_heads_read_go_with_a_text(shallow: Folders) -> None:
    model = decoder(shallow.target)
    model.record_states((0, 1))
    runner = device_runner(model, None, VOCAB, DEVICE, room=1 << 30)
    prompts = [ids(12), ids(7, seed=1)]
    assert_texts(runner, prompts)
    target = runner.target.model
    assert isinstance(target, DeviceModel)
    text = runner.target.tokens.copy()
    found = target.states(1, 0, len(text)).clone()
    runner.target.keep(0)
    runner.target.begin([*text, 0])
    assert torch.equal(target.states(1, 0, len(text)), found)
