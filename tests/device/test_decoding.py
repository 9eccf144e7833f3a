"""Replies written on the device: the same tokens whatever drafts, and the host's where arithmetic cannot differ."""

import json
from collections.abc import Callable, Hashable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from specchat.engine.decoding.length_policy import LengthPolicy
from specchat.engine.decoding.step import Decoding
from specchat.engine.device.decoder import Exit
from specchat.engine.device.drafting import CapturedDrafts
from specchat.engine.device.graphs import Graphs
from specchat.engine.device.model import DeviceModel
from specchat.engine.device.verify import Verifier
from specchat.engine.drafters.draft_model import DraftModelDrafter
from specchat.engine.drafters.swift import SwiftDrafter
from specchat.engine.model.passes import Skip
from specchat.engine.protocol.options import Acceptance, Sampling
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.runners.device import device_runner
from specchat.engine.runners.host import host_runner
from specchat.engine.runners.runner import DraftingLayers, Runner
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.exit_adapter import KIND
from tests.device.conftest import DEVICE, SHAPE, Folders, decoder
from tests.engine.tiny import VOCAB, checkpoint

PROMPT = [72, 101, 108, 108, 111, 32, 72, 101, 108]
TOKENS = 9

SAMPLINGS = {
    "greedy": Sampling(),
    "sampled": Sampling(seed=7, temperature=0.9),
    "filtered": Sampling(seed=8, temperature=1.1, top_k=30, top_p=0.9, min_p=0.02),
    "penalised": Sampling(
        seed=9,
        temperature=0.8,
        repetition_penalty=1.3,
        presence_penalty=0.4,
        frequency_penalty=0.3,
        logit_bias={5: 2.0},
    ),
}


def write(
    runner: Runner,
    strategy: str,
    length: int,
    sampling: Sampling,
    acceptance: Acceptance = "coupled",
    eos: tuple[int, ...] = (),
    tokens: int = TOKENS,
    refused: bool = True,
    repeats: int = 0,
) -> list[int]:
    runner.target.keep(0)
    runner.target.begin(PROMPT)
    drafter = runner.drafters[strategy]
    for one in runner.drafters.values():
        one.begin(PROMPT)
    reply = runner.reply(sampling, list(PROMPT), eos)
    made: list[int] = []
    while len(made) < tokens and not set(made) & set(eos):
        outcome = reply.step(drafter, min(length, tokens - len(made) - 1), acceptance)
        assert 1 <= len(outcome.tokens) <= outcome.drafted + 1
        assert outcome.accepted <= outcome.tested <= outcome.drafted
        assert refused or outcome.accepted == outcome.drafted
        assert tuple(outcome.drafts[node - 1] for node in outcome.path) == outcome.tokens[: outcome.accepted]
        parents, last = outcome.parents or range(outcome.drafted), (0, *outcome.path)[-1]
        after = [token for token, parent in zip(outcome.drafts, parents, strict=True) if parent == last]
        assert outcome.tested == outcome.accepted + bool(after) or set(outcome.tokens) & set(eos)
        assert outcome.tokens[-1] not in after or set(outcome.tokens) & set(eos)
        made += outcome.tokens
        for _ in range(repeats):
            assert reply.repeat().drafted == 0
    reply.close()
    assert reply.committed == PROMPT + made
    assert runner.target.tokens == reply.committed[:-1]
    return made


@pytest.fixture(scope="module")
def plain_texts(runner: Runner) -> dict[str, list[int]]:
    """What plain steps write with each of SAMPLINGS."""
    return {name: write(runner, "plain", 0, sampling) for name, sampling in SAMPLINGS.items()}


@pytest.mark.parametrize("name", SAMPLINGS)
def test_every_strategy_writes_what_plain_writes(runner: Runner, plain_texts: dict[str, list[int]], name: str) -> None:
    plain = plain_texts[name]
    assert len(set(plain)) > 2
    # The interpreter is slow: `auto` and `cascade` draft by the others, `ngram` hands its tokens over as `lookup` does,
    # and trees have tests of their own. The others meet two samplings each, one of them greedy or penalised.
    once = {"auto": "sampled", "draft-tree": "greedy", "ngram": "filtered", "cascade": "greedy"}
    turned = list(SAMPLINGS).index(name)
    for at, strategy in enumerate(sorted(runner.drafters.keys() - {"plain"})):
        if once[strategy] == name if strategy in once else (at + turned + turned // 2) % 2:
            assert write(runner, strategy, 3, SAMPLINGS[name]) == plain, strategy


@pytest.mark.parametrize("strategy", ["plain", "draft", "draft-tree"])
def test_repeated_steps_leave_the_text_as_it_was(
    runner: Runner, plain_texts: dict[str, list[int]], strategy: str
) -> None:
    repeats = 2 if strategy == "plain" else 1
    for name in ("greedy", "penalised"):
        assert write(runner, strategy, 3, SAMPLINGS[name], repeats=repeats) == plain_texts[name]


@pytest.mark.parametrize("adapted", [False, True])
def test_an_early_exit_drafts_what_the_hosts_does(adapted: bool, tmp_path: Path) -> None:
    """By the first two of four layers, and an adapter after them; the text is plain's."""
    folder, extra = checkpoint(tmp_path / "m", **SHAPE | {"num_hidden_layers": 4}), tmp_path / "exit"
    if adapted:
        extra.mkdir()
        size, generator = Checkpoint.open(folder).config.hidden, torch.Generator().manual_seed(1)
        tensors = {name: torch.randn(size, size, generator=generator) for name in ("down", "up")}
        save_file(tensors, extra / "model.safetensors")
        settings = {"model_type": KIND, "exit_layer": 2, "hidden_size": size}
        (extra / "config.json").write_text(json.dumps(settings))
    chosen = DraftingLayers(None if adapted else 2, str(extra) if adapted else None)
    device = device_runner(decoder(folder), None, VOCAB, DEVICE, chosen=chosen)
    host = host_runner(ReferenceDecoder(Checkpoint.open(folder)), None, chosen)
    sampling, steps = SAMPLINGS["sampled"], []
    for pair in (device, host):
        pair.target.begin(PROMPT)
        reply = pair.reply(sampling, list(PROMPT), ())
        steps.append([reply.step(pair.drafters["early-exit"], 3, "coupled") for _ in range(2)])
        reply.close()
    ours, theirs = steps
    assert [(step.drafts, step.tokens) for step in ours] == [(step.drafts, step.tokens) for step in theirs]
    sure = [[one for step in made for one in step.confidence] for made in steps]
    assert sure[0] == pytest.approx(sure[1], rel=1e-3)
    assert write(device, "early-exit", 3, sampling, tokens=6) == write(device, "plain", 0, sampling, tokens=6)


def test_an_exit_is_the_whole_pass_cut(deep: Runner) -> None:
    """After all layers its logits are a whole pass's, bit for bit; it writes the entries of its own layers alone."""
    model = deep.target.model
    assert isinstance(model, DeviceModel)
    device, start = model.decoder, torch.zeros(1, dtype=torch.int32, device=DEVICE)
    token = torch.full_like(start, 7)
    device.forward(token, start, 1)
    whole, entries = device.logits(0, 1)[0].clone(), [keys.clone() for keys, _ in device.entries]
    device.forward(token, start, 1, early=Exit(device.config.layers))
    assert torch.equal(device.logits(0, 1)[0], whole)
    for keys, _ in device.entries:
        keys[:, 0] = 0
    device.forward(token, start, 1, early=Exit(1))
    assert not torch.equal(device.logits(0, 1)[0], whole)
    assert [torch.equal(keys, before) for (keys, _), before in zip(device.entries, entries, strict=True)] == [
        layer < 1 for layer in range(device.config.layers)
    ]


def test_swift_writes_what_plain_writes(deep: Runner) -> None:
    sampling = Sampling(seed=7, temperature=0.9)
    assert write(deep, "swift", 2, sampling, tokens=6) == write(deep, "plain", 0, sampling, tokens=6)


@pytest.mark.parametrize("fails", [False, True])
def test_a_trial_of_skipping_leaves_the_cache_as_it_was(
    deep: Runner, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """Also where memory runs out in the middle of it: the next reply begins with this cache."""
    text = list(range(40, 60))
    deep.target.keep(0)
    deep.target.begin(text)
    model = deep.target.model
    assert isinstance(model, DeviceModel)
    before = [k.clone() for k, _ in model.decoder.entries]
    skip = Skip(attention=frozenset({1}), mlp=frozenset({2}))
    if fails:
        monkeypatch.setattr(torch, "argmax", out_of_memory)
        with pytest.raises(torch.OutOfMemoryError):
            # A number of rows that was not captured before.
            model.likeliest(text[5:14], 5, skip)
    else:
        assert model.likeliest(text[5:15], 5, skip) != model.likeliest(text[5:15], 5, Skip())
    assert all(torch.equal(a[:, :19], b[:, :19]) for a, (b, _) in zip(before, model.decoder.entries, strict=True))


def out_of_memory(*_: object, **__: object) -> Tensor:
    raise torch.OutOfMemoryError


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(seed=4, temperature=0.9)], ids=["greedy", "sampled"])
def test_text_is_the_hosts(runner: Runner, shallow: Folders, sampling: Sampling) -> None:
    """The logits differ in their last bits, the noise does not."""
    pair = host_runner(ReferenceDecoder(Checkpoint.open(shallow.target)), None)
    pair.target.begin(PROMPT)
    host = pair.reply(sampling, list(PROMPT), ())
    while len(host.committed) < len(PROMPT) + TOKENS:
        host.step(pair.drafters["plain"], 0, "coupled")
    assert write(runner, "plain", 0, sampling) == host.committed[len(PROMPT) :]


def test_what_the_target_drafts_for_itself_is_accepted(twins: Runner) -> None:
    """So the draft's cache never misses a token, whether the step before was accepted whole or not drafted at all."""
    sampling = Sampling(seed=7, temperature=0.9)
    twins.target.keep(0)
    twins.target.begin(PROMPT)
    drafter = twins.drafters["draft"]
    drafter.begin(PROMPT)
    reply = twins.reply(sampling, list(PROMPT), ())
    for length in (3, 1, 0, 4):
        outcome = reply.step(drafter, length, "coupled")
        assert outcome.accepted == outcome.drafted == length
    reply.close()


def test_an_unsure_draft_ends_one_token_later(
    runner: Runner, plain_texts: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host looks at a pass while the next one runs; the text is the same."""
    monkeypatch.setattr(LengthPolicy, "ends", lambda _, probability: probability < 0.7)
    runner.target.keep(0)
    runner.target.begin(PROMPT)
    drafter = runner.drafters["draft"]
    drafter.begin(PROMPT)
    reply = runner.reply(Sampling(), list(PROMPT), ())
    outcomes = [reply.step(drafter, 5, "coupled") for _ in range(3)]
    reply.close()
    for step in outcomes:
        assert min(step.confidence) < 0.7
        assert step.drafted == 2
    assert reply.committed[len(PROMPT) :] == plain_texts["greedy"][: len(reply.committed) - len(PROMPT)]


@pytest.mark.parametrize("name", SAMPLINGS)
def test_a_draft_is_as_sure_as_on_the_host(runner: Runner, shallow: Folders, name: str) -> None:
    host = host_runner(
        ReferenceDecoder(Checkpoint.open(shallow.target)), ReferenceDecoder(Checkpoint.open(shallow.draft))
    )
    first = []
    for pair in (runner, host):
        pair.target.keep(0)
        pair.target.begin(PROMPT)
        drafter = pair.drafters["draft"]
        drafter.begin(PROMPT)
        reply = pair.reply(SAMPLINGS[name], list(PROMPT), ())
        first.append(reply.step(drafter, 3, "coupled"))
        reply.close()
    ours, theirs = first
    assert ours.drafts == theirs.drafts
    assert ours.confidence == pytest.approx(theirs.confidence, rel=1e-3)
    assert len(ours.confidence) == 3


def test_text_ends_with_an_end_token_inside_a_block(runner: Runner, plain_texts: dict[str, list[int]]) -> None:
    plain = plain_texts["greedy"]
    end = plain[5]
    cut = plain[: plain.index(end) + 1]
    for strategy, length in (("plain", 0), ("draft", 4)):
        assert write(runner, strategy, length, Sampling(), eos=(end,)) == cut


def test_a_drafter_that_forgot_begins_anew(twins: Runner, deep: Runner) -> None:
    draft, swift = twins.drafters["draft"], deep.drafters["swift"]
    assert isinstance(draft, DraftModelDrafter)
    assert isinstance(swift, SwiftDrafter)
    write(twins, "draft", 1, Sampling(), tokens=2)
    assert draft.draft.tokens[:2] == PROMPT[:2]
    draft.forget()
    assert draft.draft.tokens == []
    assert write(twins, "draft", 1, Sampling(), tokens=2, refused=False)
    swift.search.try_set(lambda _: 0.5)
    swift.forget()
    assert swift.search.trials == 0


def test_a_draft_made_on_the_host_says_how_sure_it_is(shallow: Folders) -> None:
    pair = device_runner(decoder(shallow.target), ReferenceDecoder(Checkpoint.open(shallow.draft)), VOCAB, DEVICE)
    pair.target.begin(PROMPT)
    reply = pair.reply(Sampling(), list(PROMPT), ())
    outcome = reply.step(pair.drafters["draft"], 3, "coupled")
    reply.close()
    assert len(outcome.confidence) == outcome.drafted > 0


def test_ratio_writes_text_and_repeats_it_for_a_seed(runner: Runner) -> None:
    sampling = Sampling(seed=3, temperature=1.0)
    first, second = (write(runner, "draft", 3, sampling, "ratio", tokens=6) for _ in range(2))
    assert first == second


def test_blocks_are_judged_as_on_the_host(runner: Runner, shallow: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same tokens step by step, as far as logits agree: steps overlap, so that the noise of blocks counts."""
    launched: set[Hashable] = set()
    run = Graphs.run

    def watched(graphs: Graphs, key: Hashable, body: Callable[[], None]) -> None:
        launched.add(key)
        run(graphs, key, body)

    monkeypatch.setattr(Graphs, "run", watched)
    host = host_runner(
        ReferenceDecoder(Checkpoint.open(shallow.target)), ReferenceDecoder(Checkpoint.open(shallow.draft))
    )
    sampling, made = Sampling(seed=4, temperature=1.6), []
    for pair in (runner, host):
        drafter = pair.drafters["draft"]
        pair.target.keep(0)
        pair.target.begin(PROMPT)
        drafter.begin(PROMPT)
        reply = pair.reply(sampling, list(PROMPT), ())
        made.append([reply.step(drafter, 4, "block") for _ in range(4)])
        reply.close()
    assert [(s.tokens, s.path, s.tested, s.drafts) for s in made[0]] == [
        (s.tokens, s.path, s.tested, s.drafts) for s in made[1]
    ]
    assert {s.accepted for s in made[0]} & {1, 2, 3}
    assert ("judge", 8, "sampled block") in launched


def test_a_greedy_block_is_a_greedy_chain(runner: Runner) -> None:
    assert write(runner, "draft", 3, Sampling(), "block", tokens=6) == write(runner, "plain", 0, Sampling(), tokens=6)


@pytest.mark.parametrize("tokens", [1, 4])
def test_a_plain_step_is_begun_before_the_host_reads_the_last_one(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, tokens: int
) -> None:
    """The last one is dropped, and where the context has no room for it it is not begun."""
    calls = list[str]()
    judge, report = Verifier.judge, Verifier.report
    monkeypatch.setattr(Verifier, "judge", lambda *of: (calls.append("run"), judge(*of))[1])
    monkeypatch.setattr(Verifier, "report", lambda *of: (calls.append("read"), report(*of))[1])
    monkeypatch.setattr(Graphs, "run", lambda _, __, body: body())
    whole = write(runner, "plain", 0, Sampling(), tokens=TOKENS)
    calls.clear()
    assert write(runner, "plain", 0, Sampling(), tokens=tokens) == whole[:tokens]
    assert calls == ["run", *["run", "read"] * tokens, "read"]
    monkeypatch.setattr(Decoding, "room", property(lambda reply: len(PROMPT) + tokens - len(reply.committed)))
    calls.clear()
    assert write(runner, "plain", 0, Sampling(), tokens=tokens) == whole[:tokens]
    assert calls == ["run", *["run", "read"] * (tokens - 1), "read"]


def test_a_chain_is_begun_before_the_host_reads_the_last_ones_report(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where both fit the context; what was begun and does not come next is dropped. A tree waits for the report."""
    calls = list[str]()
    start, report = CapturedDrafts.start, Verifier.report
    monkeypatch.setattr(CapturedDrafts, "start", lambda *of: (calls.append("draft"), start(*of))[1])
    monkeypatch.setattr(Verifier, "report", lambda *of: (calls.append("read"), report(*of))[1])
    sampling = SAMPLINGS["sampled"]
    whole = write(runner, "plain", 0, sampling)
    for strategy, length, before in (("draft", 3, True), ("draft-tree", 3, False)):
        reply, drafter = begun(runner, sampling), runner.drafters[strategy]
        calls.clear()
        for _ in range(2):
            reply.step(drafter, length, "coupled")
        assert calls == (["draft", *["draft", "read"] * 2] if before else ["draft", *["read", "draft"] * 2])
        reply.close()
        assert_as(reply, whole)
    reply, drafter = begun(runner, sampling), runner.drafters["draft"]
    for length in (3, 3, 2, 2):
        reply.step(drafter, length, "coupled")
    reply.step(runner.drafters["plain"], 0, "coupled")
    assert_as(reply, whole)
    reply.close()
    reply = begun(runner, sampling)
    monkeypatch.setattr(Decoding, "room", property(lambda reply: len(PROMPT) + 7 - len(reply.committed)))
    calls.clear()
    reply.step(drafter, 3, "coupled")
    assert calls[:2] == ["draft", "read"], "for the next one there may be no room"
    reply.close()


def test_a_chain_that_cannot_come_again_is_dropped(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the draft model's context ends before the target's."""
    whole = write(runner, "plain", 0, SAMPLINGS["sampled"])
    reply, drafter = begun(runner, SAMPLINGS["sampled"]), runner.drafters["draft"]
    reply.step(drafter, 3, "coupled")
    propose = drafter.propose
    monkeypatch.setattr(drafter, "propose", lambda text, limit: propose(text, min(limit, 1)))
    monkeypatch.setattr(LengthPolicy, "ends", lambda *_: False)
    assert [reply.step(drafter, 3, "coupled").drafted for _ in range(3)] == [3, 1, 1]
    reply.close()
    assert_as(reply, whole)


def test_a_chain_is_not_begun_where_a_plain_probe_comes_next(runner: Runner) -> None:
    """It is asked for once a step, and comes when it is due."""
    whole = write(runner, "plain", 0, SAMPLINGS["sampled"])
    due = iter([False, False, True, False, False, False])
    reply, drafter = begun(runner, SAMPLINGS["sampled"], lambda: next(due)), runner.drafters["draft"]
    strategies = [reply.step(drafter, 3, "coupled").strategy for _ in range(4)]
    assert strategies == ["draft", "draft", "plain", "draft"]
    reply.close()
    assert_as(reply, whole)


def begun(runner: Runner, sampling: Sampling, probe: Callable[[], bool] = lambda: False) -> Decoding:
    """A reply to PROMPT of which nothing is written."""
    runner.target.keep(0)
    runner.target.begin(PROMPT)
    for drafter in runner.drafters.values():
        drafter.begin(PROMPT)
    return runner.reply(sampling, list(PROMPT), (), probe)


def assert_as(reply: Decoding, whole: list[int]) -> None:
    """Assert that a reply has the plain one's tokens so far."""
    made = reply.committed[len(PROMPT) :]
    assert made[:TOKENS] == whole[: len(made)]


def test_strategy_and_length_change_between_steps(runner: Runner) -> None:
    sampling = Sampling(seed=11, temperature=0.7)
    plain = write(runner, "plain", 0, sampling)
    runner.target.keep(0)
    runner.target.begin(PROMPT)
    for drafter in runner.drafters.values():
        drafter.begin(PROMPT)
    reply = runner.reply(sampling, list(PROMPT), ())
    for strategy, length in (
        ("draft", 2),
        ("draft-tree", 3),
        ("plain", 0),
        ("lookup", 3),
        ("draft-tree", 4),
        ("draft", 4),
    ):
        reply.step(runner.drafters[strategy], length, "coupled")
    reply.close()
    made = reply.committed[len(PROMPT) :]
    assert made[:TOKENS] == plain[: len(made)]


def test_the_next_turn_reuses_the_cache(runner: Runner) -> None:
    sampling = Sampling(seed=5, temperature=0.8)
    made = write(runner, "draft", 3, sampling)
    text = [*PROMPT, *made, 33, 34]

    def turn(fresh: bool) -> list[int]:
        if fresh:
            runner.target.keep(0)
        reused = runner.target.begin(text)
        assert (reused == 0) == fresh
        drafter = runner.drafters["draft"]
        drafter.begin(text)
        reply = runner.reply(sampling, list(text), ())
        for _ in range(3):
            reply.step(drafter, 2, "coupled")
        reply.close()
        return reply.committed

    runner.target.keep(len(PROMPT) + len(made) - 1)
    again = turn(fresh=False)
    anew = turn(fresh=True)
    assert again[: len(anew)] == anew[: len(again)]
