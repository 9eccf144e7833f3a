"""Trees on the device: the text is the plain one, the caches hold it, and a grown tree is the host's."""

import random
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field

import pytest
import torch

from specchat.engine.decoding.draft import Copy
from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.decoding.step import Decoding
from specchat.engine.device.graphs import Graphs
from specchat.engine.device.model import DeviceModel
from specchat.engine.drafters import draft_model
from specchat.engine.protocol.options import Acceptance, Sampling
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.runners.device import device_runner
from specchat.engine.runners.host import host_runner
from specchat.engine.runners.runner import Runner
from specchat.engine.weights.checkpoint import Checkpoint
from tests.device.conftest import CONTEXT, DEVICE, Folders, decoder
from tests.device.test_decoding import PROMPT, SAMPLINGS, write
from tests.engine.tiny import VOCAB


@dataclass
class Guesses:
    """Drafts trees and chains in turn around a text that is known: true tokens on some path, wrong ones beside it."""

    truth: Sequence[int]
    rng: random.Random
    name: str = "guesses"
    instant: bool = True
    made: list[tuple[list[int], list[int]]] = field(default_factory=list)

    def begin(self, prompt: Sequence[int], ends: Collection[int] = ()) -> None:
        pass

    def forget(self) -> None:
        pass

    def observe(self, token_ids: Sequence[int], outcome: StepOutcome) -> None:
        pass

    def propose(self, token_ids: Sequence[int], limit: int) -> Copy:
        coming = list(self.truth[len(token_ids) :])
        parents: list[int] = []
        tokens: list[int] = []
        depth, right = [0], [0]
        branches = self.rng.random() < 0.7
        for node in range(1, limit + 1):
            parent = self.rng.choice([*right[-2:], node - 1]) if branches else node - 1
            taken = {t for t, p in zip(tokens, parents, strict=True) if p == parent}
            true = coming[depth[parent]] if depth[parent] < len(coming) else 0
            good = parent in right and true not in taken and self.rng.random() < 0.75
            token = true if good else next(t for t in range(7, VOCAB) if t not in taken and t != true)
            parents.append(parent)
            tokens.append(token)
            depth.append(depth[parent] + 1)
            if good:
                right.append(node)
        self.made.append((tokens, parents))
        return Copy(tokens, parents if branches else [], strategy=self.name)


def started(runner: Runner, prompt: Sequence[int], sampling: Sampling, eos: tuple[int, ...] = ()) -> Decoding:
    runner.target.keep(0)
    runner.target.begin(prompt)
    for drafter in runner.drafters.values():
        drafter.begin(prompt)
    return runner.reply(sampling, list(prompt), eos)


def plain(runner: Runner, prompt: Sequence[int], sampling: Sampling, tokens: int) -> list[int]:
    reply = started(runner, prompt, sampling)
    while len(reply.committed) < len(prompt) + tokens and reply.room > 0:
        reply.step(runner.drafters["plain"], 0, "coupled")
    reply.close()
    return reply.committed


def assert_consistent(outcome: StepOutcome, guess: tuple[list[int], list[int]]) -> None:
    """What is told of a step is what was drafted, and its path is one."""
    tokens, parents = guess
    assert list(outcome.drafts) == tokens
    assert not outcome.parents or list(outcome.parents) == parents
    assert [tokens[node - 1] for node in outcome.path] == list(outcome.tokens[: outcome.accepted])
    above = [parents[node - 1] for node in outcome.path]
    assert above == [0, *outcome.path][: len(above)]


def assert_caches_hold(runner: Runner, reply: Decoding) -> None:
    """Bit for bit what is written of the text from the start."""
    model = runner.target.model
    assert isinstance(model, DeviceModel)
    length = len(reply.committed) - 1
    before = [t[..., :length, :].clone() for t in model.decoder.caches.by_shape.values()]
    runner.target.keep(0)
    runner.target.begin(reply.committed)
    for mine, cache in zip(before, model.decoder.caches.by_shape.values(), strict=True):
        assert torch.equal(mine, cache[..., :length, :])


@pytest.mark.parametrize("name", ["greedy", pytest.param("penalised", marks=pytest.mark.slow)])
def test_trees_and_chains_in_turn_write_what_plain_writes(runner: Runner, name: str) -> None:
    """From before a boundary of attention's blocks, with the cache that plain leaves."""
    prompt = [*PROMPT, *range(40, 91)]
    truth = plain(runner, prompt, SAMPLINGS[name], 9)
    reply = started(runner, prompt, SAMPLINGS[name])
    guesses = Guesses(truth, random.Random(3))
    kinds, number = set(), 0
    while len(reply.committed) < len(truth):
        outcome = reply.step(guesses, 7, "coupled")
        assert_consistent(outcome, guesses.made[number])
        kinds.add((bool(outcome.parents), outcome.accepted > 1))
        number += 1
    reply.close()
    assert reply.committed[: len(truth)] == truth
    assert {(True, True), (False, True)} & kinds
    assert_caches_hold(runner, reply)


def test_a_tree_at_the_end_of_the_context(runner: Runner) -> None:
    prompt = list(range(40, 40 + CONTEXT - 9))
    truth = plain(runner, prompt, Sampling(), 9)
    reply = started(runner, prompt, Sampling())
    guesses = Guesses(truth, random.Random(1))
    while reply.room > 0:
        # A tree that is grown has slots for more nodes than it keeps.
        reply.step(guesses if reply.room > 4 else runner.drafters["draft-tree"], 15, "coupled")
    reply.close()
    assert reply.committed == truth
    assert len(truth) == CONTEXT


def test_the_text_ends_inside_a_path(runner: Runner) -> None:
    truth = plain(runner, PROMPT, Sampling(), 8)
    end = truth[len(PROMPT) + 2]
    reply = started(runner, PROMPT, Sampling(), (end,))
    runner.executor.start("coupled")
    coming = truth[len(PROMPT) :]
    runner.executor.verify(Copy([7, *coming[:5]], [0, 0, 2, 3, 4, 5]))
    outcome = runner.executor.outcome()
    until = coming.index(end) + 1
    assert list(outcome.tokens) == coming[:until]
    assert outcome.path == tuple(range(2, 2 + until))
    reply.close()


@pytest.mark.parametrize("name", ["penalised", pytest.param("filtered", marks=pytest.mark.slow)])
def test_a_grown_tree_writes_what_plain_writes(runner: Runner, name: str) -> None:
    expected = write(runner, "plain", 0, SAMPLINGS[name], tokens=6)
    reply = started(runner, PROMPT, SAMPLINGS[name])
    branched = 0
    for length in (5, 3):
        outcome = reply.step(runner.drafters["draft-tree"], length, "coupled")
        assert_consistent(outcome, (list(outcome.drafts), list(outcome.parents)))
        assert len(outcome.parents) == len(outcome.confidence) == outcome.drafted == length
        branched += any(parent != i for i, parent in enumerate(outcome.parents))
    reply.close()
    made = reply.committed[len(PROMPT) :]
    assert made[:6] == expected[: len(made)]
    assert branched


def named(outcome: StepOutcome) -> dict[tuple[int, ...], float]:
    """The nodes of a tree by the tokens on their paths, with their probabilities."""
    paths: list[tuple[int, ...]] = [()]
    for token, parent in zip(outcome.drafts, outcome.parents, strict=True):
        paths.append((*paths[parent], token))
    return dict(zip(paths[1:], outcome.confidence, strict=True))


@pytest.mark.parametrize("acceptance", ["ratio", pytest.param("coupled", marks=pytest.mark.slow)])
def test_a_grown_tree_is_the_hosts(runner: Runner, shallow: Folders, acceptance: Acceptance) -> None:
    """And so are the verdicts, as far as logits agree."""
    host = host_runner(
        ReferenceDecoder(Checkpoint.open(shallow.target)), ReferenceDecoder(Checkpoint.open(shallow.draft))
    )
    sampling = SAMPLINGS["filtered"]
    made = []
    for pair in (runner, host):
        reply = started(pair, PROMPT, sampling)
        made.append([reply.step(pair.drafters["draft-tree"], length, acceptance) for length in (5, 4)])
        reply.close()
    for ours, theirs in zip(*made, strict=True):
        assert ours.tokens == theirs.tokens
        assert ours.tested == theirs.tested
        assert named(ours) == pytest.approx(named(theirs), rel=1e-3)


def test_what_is_likeliest_after_each_node_is_told_as_on_the_host(runner: Runner, shallow: Folders) -> None:
    """So that lookahead drafts the same there, n-grams that were read in the step before among it."""
    host = host_runner(ReferenceDecoder(Checkpoint.open(shallow.target)), None)
    made = []
    for pair in (runner, host):
        reply = started(pair, list(range(40, 49)), SAMPLINGS["penalised"])
        steps = [reply.step(pair.drafters["lookahead"], 7, "coupled") for _ in range(4)]
        made.append([(s.tokens, s.drafts, s.parents, s.likeliest) for s in steps])
        reply.close()
    assert made[0] == made[1]
    # Of chains, too.
    assert {parents == tuple(range(len(parents))) for _, _, parents, _ in made[0]} == {False, True}


def test_an_unlikely_tree_ends_early(runner: Runner, shallow: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host looks at a level while the next one is found; what is worth too little is left out."""
    monkeypatch.setattr(draft_model, "LEAST", 0.1)
    levels, run = [], Graphs.run

    def watched(graphs: Graphs, key: Hashable, body: Callable[[], None]) -> None:
        if isinstance(key, tuple) and key[0] == "draft-tree":
            levels.append(key)
        run(graphs, key, body)

    monkeypatch.setattr(Graphs, "run", watched)
    host = host_runner(
        ReferenceDecoder(Checkpoint.open(shallow.target)), ReferenceDecoder(Checkpoint.open(shallow.draft))
    )
    made = []
    for pair in (runner, host):
        reply = started(pair, PROMPT, SAMPLINGS["filtered"])
        made.append(reply.step(pair.drafters["draft-tree"], 15, "coupled"))
        reply.close()
    ours, theirs = map(named, made)
    assert ours == pytest.approx(theirs, rel=1e-3)
    assert 0 < len(ours) < 15
    depth = max(len(path) for path in ours)
    # The level without a node of enough value, and the one that was under way by then; the next step may be too.
    passes = [*levels, ("draft-tree", 0)].index(("draft-tree", 0), 1)
    assert depth < passes <= depth + 2


def test_a_draft_model_goes_on_from_the_path_that_stays(twins: Runner) -> None:
    """What it drafts of a text that its cache holds right is what the target, its twin, likes."""
    reply = started(twins, PROMPT, SAMPLINGS["sampled"])
    lengths = [reply.step(twins.drafters["draft-tree"], 5, "coupled").accepted for _ in range(3)]
    # A chain from the same cache.
    lengths.append(reply.step(twins.drafters["draft"], 3, "coupled").accepted)
    lengths.append(reply.step(twins.drafters["draft-tree"], 4, "coupled").accepted)
    reply.close()
    assert min(lengths) > 0
    assert lengths[3] == 3
    assert twins.draft is not None
    model, length = twins.draft.model, len(twins.draft.tokens)
    assert isinstance(model, DeviceModel)
    assert twins.draft.tokens == reply.committed[:length]
    assert length >= len(reply.committed) - 2
    before = [t[..., :length, :].clone() for t in model.decoder.caches.by_shape.values()]
    twins.draft.keep(0)
    twins.draft.begin(reply.committed)
    for mine, cache in zip(before, model.decoder.caches.by_shape.values(), strict=True):
        assert torch.equal(mine, cache[..., :length, :])


def test_a_tree_made_on_the_host_is_verified_here(shallow: Folders) -> None:
    pair = device_runner(decoder(shallow.target), ReferenceDecoder(Checkpoint.open(shallow.draft)), VOCAB, DEVICE)
    expected = write(pair, "plain", 0, SAMPLINGS["sampled"], tokens=4)
    reply = started(pair, PROMPT, SAMPLINGS["sampled"])
    steps = [reply.step(pair.drafters["draft-tree"], 7, "coupled") for _ in range(3)]
    reply.close()
    assert all(len(outcome.parents) == outcome.drafted == 7 for outcome in steps)
    made = reply.committed[len(PROMPT) :]
    assert made[:4] == expected[: len(made)]
