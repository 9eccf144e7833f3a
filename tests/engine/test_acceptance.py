"""Acceptance is exact: by enumeration where the law can be worked out, by chi-square where it is drawn."""

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from specchat.engine.decoding import acceptance, noise, sampler
from specchat.engine.decoding.acceptance import judge
from specchat.engine.decoding.cached import CachedModel
from specchat.engine.decoding.costs import StepCosts
from specchat.engine.decoding.draft import Chain, Draft
from specchat.engine.decoding.host_loops import HostLoops
from specchat.engine.decoding.length_policy import LengthPolicies
from specchat.engine.decoding.reply_rules import ReplyRules
from specchat.engine.decoding.sampler import History, Sampler
from specchat.engine.kernels.streams import GOLDEN
from specchat.engine.protocol.options import ACCEPTANCES, Acceptance, Sampling
from specchat.engine.reference.decoder import ReferenceDecoder
from tests.engine.branches import Branches

V = 4
SAMPLING = Sampling(temperature=1.0)
Law = Callable[[tuple[int, ...]], torch.Tensor]


@cache
def law(seed: int, context: tuple[int, ...], peaked: float = 1.0) -> torch.Tensor:
    """A distribution float64 [V] that depends on the whole context."""
    generator = torch.Generator().manual_seed(hash((seed, *context)) % (1 << 31))
    return (peaked * torch.randn(V, generator=generator, dtype=torch.float64)).softmax(-1)


def target(context: tuple[int, ...]) -> torch.Tensor:
    return law(1, context)


def drafter(context: tuple[int, ...]) -> torch.Tensor:
    return law(2, context, 2.0)


@cache
def rows(tokens: tuple[int, ...]) -> torch.Tensor:
    """Target logits float32 after each prefix of a draft."""
    return torch.stack([target(tokens[:i]).log().float() for i in range(len(tokens) + 1)])


def of_fewer_tokens(context: tuple[int, ...]) -> torch.Tensor:
    """Of a draft vocabulary that lacks a token."""
    kept = drafter(context) * torch.tensor([1.0, 0.0, 1.0, 1.0], dtype=torch.float64)
    return kept / kept.sum()


def enumerated(
    length: int, deterministic: bool, mode: Acceptance, branches: Branches, drafter: Law = drafter
) -> tuple[dict[tuple[int, ...], float], list[float]]:
    """The law of the first length + 1 tokens, plain decoding going on after a step; how likely 0, 1, ... of it stay."""
    sampler = Sampler(SAMPLING)
    reached: Counter[tuple[int, ...]] = Counter()
    stay = [0.0] * (length + 1)
    for tokens in itertools.product(range(V), repeat=length):
        if deterministic:
            if tokens != (2, 1, 3)[:length]:
                continue
            drawn, laws = 1.0, []
        else:
            laws = [drafter(tokens[:i]) for i in range(length)]
            drawn = float(np.prod([float(p[t]) for p, t in zip(laws, tokens, strict=True)]))
            if drawn == 0:
                continue
        draft = Draft(list(tokens), q=laws)
        run = lambda draft=draft: judge(rows(tuple(draft.tokens)), draft, 0, sampler, History([]), mode)  # noqa: E731
        for judged, probability in branches.outcomes(run):
            assert judged.tested == min(len(judged.path) + 1, length)
            emitted = (*tokens[: len(judged.path)], judged.token)
            stay[len(judged.path)] += drawn * probability
            for rest in itertools.product(range(V), repeat=length + 1 - len(emitted)):
                reached[emitted + rest] += drawn * probability * plainly(rest, emitted)
    return dict(reached), stay


@cache
def plainly(tokens: tuple[int, ...], context: tuple[int, ...] = ()) -> float:
    """The probability that plain decoding goes on so, with the rounding that float32 logits bring."""
    if not tokens:
        return 1.0
    p = rows(context + tokens[:-1])[-1].double().softmax(-1)
    return plainly(tokens[:-1], context) * float(p[tokens[-1]])


@pytest.mark.parametrize("mode", ["ratio", "block"])
@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("deterministic", [False, True])
def test_a_chain_follows_the_target_exactly(
    length: int, deterministic: bool, mode: Acceptance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The law of the first length + 1 tokens equals the target's, up to 1e-12."""
    law, _ = enumerated(length, deterministic, mode, Branches(monkeypatch))
    assert len(law) == V ** (length + 1)
    for tokens, probability in law.items():
        assert abs(probability - plainly(tokens)) < 1e-12


@pytest.mark.parametrize("mode", ["ratio", "block"])
def test_a_chain_of_fewer_tokens_follows_the_target_exactly(mode: Acceptance, monkeypatch: pytest.MonkeyPatch) -> None:
    law, _ = enumerated(2, False, mode, Branches(monkeypatch), of_fewer_tokens)
    assert len(law) == V**3
    for tokens, probability in law.items():
        assert abs(probability - plainly(tokens)) < 1e-12


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_block_keeps_no_fewer_tokens_than_one_test_each(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On average; the same for one token, and more where there are several (Sun et al. 2024, theorem 2)."""
    branches = Branches(monkeypatch)
    kept = {}
    for mode in ("ratio", "block"):
        _, stay = enumerated(length, False, mode, branches)  # type: ignore[arg-type]
        kept[mode] = sum(i * share for i, share in enumerate(stay))
    if length == 1:
        assert abs(kept["block"] - kept["ratio"]) < 1e-12
    else:
        assert kept["block"] > kept["ratio"] + 1e-3


def test_what_was_not_drawn_has_nothing_to_gain_by_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """With q = 1 both tests have one law of what stays, worked out here from the formulas of the block."""
    _, stay = enumerated(3, True, "ratio", Branches(monkeypatch))
    p = [1.0]
    for i, token in enumerate((2, 1, 3)):
        p.append(p[-1] * plainly((token,), (2, 1, 3)[:i]))
    h = [1.0, *[(p[i] - p[i + 1]) / (p[i] - p[i + 1] + 1 - p[i]) for i in (1, 2)], p[3]]
    block = [h[i] * float(np.prod([1 - later for later in h[i + 1 :]])) for i in range(4)]
    assert stay == pytest.approx(block)


def test_a_token_that_cannot_have_been_drawn_does_not_stay() -> None:
    logits = torch.zeros(3, V)
    q = torch.tensor([0.5, 0.5, 0.0, 0.0], dtype=torch.float64)
    for seed in range(8):
        sampler = Sampler(Sampling(seed=seed, temperature=1.0))
        judged = judge(logits, Draft([2, 0], q=[q, q]), 3, sampler, History([]), "block")
        assert (judged.path, judged.tested) == ((), 1)
        assert judged.token in (2, 3)


@pytest.mark.parametrize("mode", ["ratio", "block"])
def test_a_tie_with_the_noise_is_a_rejection(mode: Acceptance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a token with p = 1/4 and q = 1/2, and of each candidate of a tree against what the ones before left of p."""
    ties = {1: [1 / 2], 2: [1 / 4, 1 / 3]}
    q = torch.tensor([0.5, 0.5, 0.0, 0.0], dtype=torch.float64)
    for draft in (Draft([1], q=[q]), Draft([0, 1], [0, 0])):
        count = len(draft.tokens)
        of = ties[count]
        monkeypatch.setattr(noise, "uniform", lambda *key, of=of: of[key[3] % len(of)])
        judged = judge(torch.zeros(count + 1, V), draft, 3, Sampler(SAMPLING), History([]), mode)
        assert (judged.path, judged.tested) == ((), 1)


@pytest.mark.parametrize("sampling", [Sampling(), SAMPLING, replace(SAMPLING, presence_penalty=1e-9)])
def test_a_token_that_ties_with_the_targets_choice_is_rejected(
    sampling: Sampling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Coupled: logits and noise of two tokens are equal, and the target takes the first one."""
    monkeypatch.setattr(sampler, "_fast", lambda: None)
    monkeypatch.setattr(noise, "gumbel", lambda *key: np.zeros(len(key[-1])))
    logits = torch.tensor([[0.0, 2.0, 2.0, 1.0]])
    for draft in (Draft([2]), Draft([2, 3], [0, 0])):
        target = Sampler(sampling)
        judged = judge(logits.repeat(3, 1), draft, 3, target, target.history([]), "coupled")
        assert judged == acceptance.AcceptedPath((), 1, 1)


def test_where_rounding_leaves_nothing_the_token_is_a_sample_of_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """No token has more of p than of q, and a draft of probability almost 1 is refused all the same."""
    monkeypatch.setattr(noise, "uniform", lambda *_: 1 - 1e-9)
    logits = torch.zeros(2, V)
    q = torch.full((V,), 0.25 * (1 + 1e-6), dtype=torch.float64)
    judged = judge(logits, Draft([2], q=[q]), 3, Sampler(SAMPLING), History([]), "block")
    assert (judged.path, judged.tested) == ((), 1)


TREE = Draft([2, 1, 3, 0, 1, 3], [0, 1, 1, 0, 4, 0])
"""Three candidates for the first place, two after the first of them, one after the second."""


def test_ratio_on_a_tree_follows_the_target_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The law of the first three tokens equals the target's, up to 1e-12, and every node is reached."""
    paths = {0: ()}
    for node, parent in enumerate(TREE.parents, 1):
        paths[node] = (*paths[parent], TREE.tokens[node - 1])
    logits = torch.stack([target(path).log().float() for path in paths.values()])
    exact = {c: rows(c)[-1].double().softmax(-1) for n in range(3) for c in itertools.product(range(V), repeat=n)}
    reached: Counter[tuple[int, ...]] = Counter()
    kept: Counter[tuple[int, ...]] = Counter()
    run = lambda: judge(logits, TREE, 0, Sampler(SAMPLING), History([]), "ratio")  # noqa: E731
    for judged, probability in Branches(monkeypatch).outcomes(run):
        emitted = (*(TREE.tokens[node - 1] for node in judged.path), judged.token)
        assert judged.tested == len(judged.path) + bool(TREE.children()[(0, *judged.path)[-1]])
        kept[judged.path] += probability
        for rest in itertools.product(range(V), repeat=3 - len(emitted)):
            tail = np.prod([float(exact[emitted + rest[:i]][token]) for i, token in enumerate(rest)])
            reached[emitted + rest] += probability * tail
    for tokens in itertools.product(range(V), repeat=3):
        plain = float(np.prod([float(exact[tokens[:i]][t]) for i, t in enumerate(tokens)]))
        assert abs(reached[tokens] - plain) < 1e-12
    assert kept.keys() == {(), (1,), (4,), (6,), (1, 2), (1, 3), (4, 5)}
    # No better test of drafts that are no samples is possible: a candidate stays as often as the target would take it.
    first = 1 - kept[()]
    assert abs(first - float(exact[()][[2, 0, 3]].sum())) < 1e-12


def test_rounds_of_one_place_have_noise_of_their_own() -> None:
    """Frequencies of a place with three candidates, drawn with the keyed noise, are the target's."""
    size, steps = 6, 6_000
    row = torch.randn(size, generator=torch.Generator().manual_seed(5)) * 1.5
    logits, p = row.repeat(4, 1), row.double().softmax(-1)
    sampler, history, draft = Sampler(Sampling(seed=9, temperature=1.0)), History([]), Draft([3, 1, 4], [0, 0, 0])
    first: Counter[int] = Counter()
    for step in range(steps):
        judged = judge(logits, draft, 2 * step, sampler, history, "ratio")
        first[draft.tokens[judged.path[0] - 1] if judged.path else judged.token] += 1
    assert chisquare([first[i] for i in range(size)], (p * steps).numpy()).pvalue > 1e-3


def test_several_samples_for_one_place_follow_the_target_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three candidates drawn from one distribution, each tried against what the ones before left of the target's."""
    logits, q = rows(()).repeat(4, 1), drafter(())
    exact = logits[0].double().softmax(-1)
    branches = Branches(monkeypatch)
    reached = [0.0] * V
    for tokens in itertools.product(range(V), repeat=3):
        draft = Draft(list(tokens), [0, 0, 0], [q] * 3)
        drawn = float(np.prod([float(q[t]) for t in tokens]))
        choose = lambda d=draft: acceptance._ratio(logits[0], d, [1, 2, 3], 0, Sampler(SAMPLING), History([]))  # noqa: E731
        for token, probability in branches.outcomes(choose):
            reached[token] += drawn * probability
    assert reached == pytest.approx(exact.tolist(), abs=1e-12)


def test_what_cannot_have_been_drawn_is_refused() -> None:
    """And does not come back as what follows the refusal, unless the target knows nothing else."""
    never = float("-inf")
    draft = Draft([1], q=[torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64)])
    for sure, expected in ((0.0, acceptance.AcceptedPath((), 1, 2)), (never, acceptance.AcceptedPath((1,), 1, 1))):
        logits = torch.tensor([[never, 2.0, sure, never]]).repeat(2, 1)
        for position in range(50):
            assert judge(logits, draft, position, Sampler(SAMPLING), History([]), "ratio") == expected


def test_a_refusal_has_other_noise_than_the_draft() -> None:
    """The noise that the draft was drawn with says what it refused: frequencies show where it is used again."""
    p, q = torch.tensor([0.1, 0.4, 0.25, 0.25]), torch.tensor([0.6, 0.3, 0.05, 0.05])
    logits, sampler, steps = p.log().repeat(2, 1), Sampler(Sampling(seed=3, temperature=1.0)), 4000
    first: Counter[int] = Counter()
    for step in range(steps):
        token = sampler.pick(q.log(), 2 * step)
        judged = judge(logits, Draft([token], q=[q.double()]), 2 * step, sampler, History([]), "ratio")
        first[token if judged.path else judged.token] += 1
    assert chisquare([first[i] for i in range(V)], (p.double() / p.double().sum() * steps).numpy()).pvalue > 1e-3


@pytest.mark.parametrize("mode", ACCEPTANCES)
def test_a_tree_is_walked_by_the_targets_own_choices(mode: Acceptance) -> None:
    logits = torch.full((7, V), 0.0)
    logits[0, 0] = logits[4, 1] = logits[5, 2] = 50.0
    judged = judge(logits, TREE, 3, Sampler(SAMPLING), History([]), mode)
    assert judged == acceptance.AcceptedPath((4, 5), 2, 2)
    greedy = judge(logits, TREE, 3, Sampler(Sampling()), History([]), mode)
    assert greedy == judged


@pytest.mark.parametrize("mode", ["ratio", "coupled"])
@pytest.mark.parametrize("deterministic", [False, True])
def test_long_runs_have_the_targets_frequencies(mode: str, deterministic: bool) -> None:
    """The keyed noise, which the enumeration above leaves out, over 6,000 steps: drafts, tests and residuals."""
    size, steps = 6, 6_000
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(2, size, generator=generator) * 1.5
    q_logits = logits[0] + torch.randn(size, generator=generator)
    p, q = logits[0].double().softmax(-1), q_logits.double().softmax(-1)
    sampler = Sampler(Sampling(seed=9, temperature=1.0))
    first: Counter[int] = Counter()
    history = History([])
    kept = 0
    for step in range(steps):
        position = 2 * step
        token = 3 if deterministic else sampler.pick(q_logits, position)
        draft = Draft([token], q=[] if deterministic else [q])
        judged = judge(logits, draft, position, sampler, history, mode)  # type: ignore[arg-type]
        first[token if judged.path else judged.token] += 1
        kept += len(judged.path)
    assert chisquare([first[i] for i in range(size)], (p * steps).numpy()).pvalue > 1e-3
    best = float(p[3]) if deterministic else 1 - 0.5 * float((p - q).abs().sum())
    if mode == "ratio" or deterministic:
        assert abs(kept / steps - best) < 0.026  # 4 standard errors
    else:
        # Coupled keeps at least (1 - TV) / (1 + TV) and never more than 1 - TV.
        assert (best / (2 - best)) - 0.026 < kept / steps < best + 0.026


class Fixed:
    """A draft model whose logits are always the same."""

    context = 1 << 30

    def __init__(self, logits: torch.Tensor) -> None:
        self.row = logits[None]

    def forward(self, *_: object) -> torch.Tensor:
        return self.row

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden


def written_by_blocks(logits: torch.Tensor, draft: torch.Tensor, tokens: int) -> tuple[list[int], int]:
    """A text whose every place has one law, drafted four tokens at a time from another one; and its steps."""
    model: CachedModel[ReferenceDecoder] = CachedModel(Fixed(draft))  # type: ignore[arg-type]
    policies = LengthPolicies(StepCosts())
    policies.off = True
    drafts = HostLoops({"draft": model}, len(logits), policies)
    drafts.begin(ReplyRules(Sampling(seed=5, temperature=1.0)), [0])
    steps = 0
    while len(drafts.token_ids) < tokens:
        drafts.start("block")
        draft = drafts.make(Chain("draft", "draft", 4)).draft
        position = len(drafts.token_ids)
        judged = judge(logits.repeat(5, 1), draft, position, drafts.sampler, drafts.history, "block")
        drafts.commit([*draft.tokens[: len(judged.path)], judged.token], ())
        steps += 1
    return drafts.token_ids[1:], steps


def test_no_block_draws_what_another_has_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block looks at all its tokens, kept or not: what decided on them must not come again."""
    drawn: Counter[tuple[object, ...]] = Counter()
    words = noise.words

    def counted(seed: int, position: int, stream: int, tokens: np.ndarray) -> np.ndarray:
        drawn[position, stream, *tokens.tolist()] += 1
        return words(seed, position, stream, tokens)

    monkeypatch.setattr(noise, "words", counted)
    _, steps = written_by_blocks(torch.tensor([0.2, 0.1, -0.5]), torch.tensor([1.0, -1.0, 0.2]), 200)
    assert 1.5 < 200 / steps < 4, "no position was looked at twice"
    assert set(drawn.values()) == {1}


def test_what_blocks_write_has_the_targets_frequencies() -> None:
    generator = torch.Generator().manual_seed(1)
    logits = 0.5 * torch.randn(3, generator=generator)
    text, steps = written_by_blocks(logits, logits + 1.5 * torch.randn(3, generator=generator), 6000)
    assert 2 < 6000 / steps < 4
    pairs = Counter(zip(text[::2], text[1::2], strict=False))
    p = logits.double().softmax(-1)
    expected = torch.outer(p, p).flatten() * pairs.total()
    assert chisquare([pairs[i, j] for i in range(3) for j in range(3)], expected.numpy()).pvalue > 1e-3


def test_coupled_emits_the_same_token_whatever_was_drafted() -> None:
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(1))
    sampler = Sampler(Sampling(seed=4, temperature=1.0, top_p=0.8))
    alone = [sampler.choose(logits[i], 10 + i, History([])) for i in range(3)]
    assert judge(logits, Draft(alone[:2]), 10, sampler, History([]), "coupled") == acceptance.AcceptedPath(
        (1, 2), 2, alone[2]
    )
    wrong = (alone[1] + 1) % 50
    judged = judge(logits, Draft([alone[0], wrong]), 10, sampler, History([]), "coupled")
    assert judged == acceptance.AcceptedPath((1,), 2, alone[1])


def test_history_is_returned_as_it_was() -> None:
    logits = torch.randn(4, 50, generator=torch.Generator().manual_seed(1))
    sampler = Sampler(Sampling(frequency_penalty=0.5))
    history = History([1, 2])
    history.push(7)
    greedy = [int(row.argmax()) for row in logits[:3]]
    judge(logits, Draft(greedy), 3, sampler, history, "coupled")
    assert history.generated == Counter({7: 1})


def test_noise_is_the_published_generator() -> None:
    """SplitMix64's first outputs for the state 1234567, as its author's code prints them."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    state = (1234567 + np.arange(1, 5, dtype=np.uint64) * np.uint64(GOLDEN)).astype(np.uint64)
    assert [noise.mix(int(s)) for s in state] == published


def test_noise_is_uniform_independent_and_addressed() -> None:
    tokens = np.arange(200_000)
    u = np.exp(-np.exp(-noise.gumbel(1, 2, noise.TOKEN, tokens)))
    counts, _ = np.histogram(u, bins=100, range=(0, 1))
    assert chisquare(counts).pvalue > 1e-3
    for other in (noise.gumbel(2, 2, 0, tokens), noise.gumbel(1, 3, 0, tokens), noise.gumbel(1, 2, 1, tokens)):
        v = np.exp(-np.exp(-other))
        assert abs(np.corrcoef(u, v)[0, 1]) < 0.01
    assert abs(np.corrcoef(u[1:], u[:-1])[0, 1]) < 0.01
    some = np.array([5, 77, 3000])
    assert np.array_equal(noise.gumbel(1, 2, 0, some), noise.gumbel(1, 2, 0, tokens)[some])
    across = np.array([noise.uniform(3, position, noise.ACCEPT) for position in range(20_000)])
    assert chisquare(np.histogram(across, bins=50, range=(0, 1))[0]).pvalue > 1e-3
