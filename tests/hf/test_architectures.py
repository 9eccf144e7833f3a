"""Every architecture writes what transformers' own `generate` writes, with each strategy that it has."""

from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch

from specchat.engine.hf import proof
from specchat.engine.hf.model import HfModel
from specchat.engine.loading.hf import target_info
from specchat.engine.protocol.options import Sampling
from specchat.engine.runners.host import assembled
from specchat.engine.runners.runner import Runner
from tests.engine.tiny import VOCAB
from tests.hf.networks import ARCHITECTURES, ONLY_PLAIN, missing, network, perturbed

PROMPT = [(7 * i * i + 3) % VOCAB for i in range(14)] + [65, 66, 67] * 3
TOKENS = 28
"""With the prompt they go three times through a window."""
COPYING = ("lookup", "suffix", "ngram")
DRAFTING = ("auto", "draft", "cascade", *COPYING)
REPEATING = dict.fromkeys((65, 66, 67), 4.0)
SAMPLED = Sampling(seed=5, temperature=0.8, top_k=30, top_p=0.95, repetition_penalty=1.1, logit_bias=REPEATING)
KINDS = [
    pytest.param(kind, marks=pytest.mark.skipif(bool(missing(kind)), reason=missing(kind))) for kind in ARCHITECTURES
]


@pytest.fixture(autouse=True, scope="module")
def _quick() -> Iterator[None]:
    """One thread, and few places at which passes are compared."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(proof, "POSITIONS", proof.POSITIONS[:2])
        yield
    torch.set_num_threads(before)


@cache
def runner(kind: str) -> tuple[Runner, Any]:
    """A pair of an architecture, and the target's network."""
    made = network(kind)
    target = HfModel(made, 256, kind)
    proved = proof.prove(target, None)
    draft = None if target.alone else HfModel(perturbed(made), 256, "draft")
    return assembled(target, draft, target_info(target, proved, "cpu")), made


def written(
    pair: Runner,
    strategy: str,
    sampling: Sampling,
    tokens: int,
    prompt: list[int] = PROMPT,
    seen: Counter[str] | None = None,
) -> list[int]:
    """A reply by a strategy, from what the caches hold of the prompt; counts what was `seen` of its steps."""
    pair.target.begin(prompt)
    for drafter in pair.drafters.values():
        drafter.begin(prompt)
    decoding = pair.reply(sampling, prompt, ())
    while len(decoding.committed) < len(prompt) + tokens:
        left = len(prompt) + tokens - len(decoding.committed)
        outcome = decoding.step(pair.drafters[strategy], 5, "coupled", left)
        if seen is not None:
            seen[strategy] += outcome.accepted
            seen["again"] += outcome.again
    return decoding.committed[len(prompt) :]


def generated(made: Any, tokens: int) -> list[int]:
    """What transformers itself writes."""
    ids = torch.tensor([PROMPT])
    with torch.inference_mode():
        out = made.generate(
            ids, max_new_tokens=tokens, do_sample=False, attention_mask=torch.ones_like(ids), pad_token_id=0
        )
    return list(out[0, len(PROMPT) :].tolist())


@pytest.mark.rotated(3)
@pytest.mark.parametrize("kind", KINDS)
def test_greedy_text_is_that_of_generate_with_every_strategy(kind: str) -> None:
    pair, made = runner(kind)
    expected = generated(made, TOKENS)
    there = {status.name for status in pair.statuses if status.available}
    if kind in ONLY_PLAIN:
        assert there == {"plain", "auto"}
        reasons = {status.reason for status in pair.statuses if not status.available}
        assert all(reason.startswith("plain only: ") for reason in reasons)
    else:
        assert there == {"plain", *DRAFTING}
    assert len(set(expected)) > 2, "a text that only repeats itself shows little"
    seen = Counter[str]()
    # The target verifies copies alike whoever finds them: one architecture in five meets each finder, or both at once.
    finder = "auto" if kind in ONLY_PLAIN else ("auto", "cascade", *COPYING)[list(ARCHITECTURES).index(kind) % 5]
    for strategy in ("plain", "draft", finder):
        if strategy in there:
            assert written(pair, strategy, Sampling(), TOKENS, seen=seen) == expected, strategy
    assert kind in ONLY_PLAIN or seen["draft"] > TOKENS // 10


@pytest.mark.rotated(3, 1)
@pytest.mark.parametrize("kind", KINDS)
def test_drawn_text_is_that_of_plain_decoding_with_every_strategy(kind: str) -> None:
    pair, _ = runner(kind)
    pair.target.keep(0)
    expected = written(pair, "plain", SAMPLED, 16)
    other = ("ngram", "cascade")[list(ARCHITECTURES).index(kind) // 2 % 2]
    for strategy in ("draft", other) if "draft" in pair.drafters else ("auto",):
        assert written(pair, strategy, SAMPLED, 16) == expected, strategy


@pytest.mark.parametrize("kind", ["gemma3_text", "qwen3_5_text", "mamba2"])
def test_choices_made_again_by_one_row_leave_the_text_as_it_is(kind: str) -> None:
    made = network(kind)
    target, draft = HfModel(made, 256, kind), HfModel(perturbed(made), 256, "draft")
    pair = assembled(target, draft, target_info(target, proof.Proof(error=0.5), "cpu"))
    seen, expected = Counter[str](), generated(made, 30)
    for strategy in ("draft", "ngram"):
        assert written(pair, strategy, Sampling(), 30, seen=seen) == expected
    assert seen["again"] > 5


@pytest.mark.rotated(2)
@pytest.mark.parametrize("kind", KINDS)
def test_going_back_leaves_nothing_behind(kind: str) -> None:
    """Another text after the first half of this one is written as from empty caches."""
    pair, _ = runner(kind)
    written(pair, "auto", Sampling(), 20)
    other = [*PROMPT[:12], 3, 9, 27]
    warm = written(pair, "plain", Sampling(), 12, other)
    pair.target.keep(0)
    assert warm == written(pair, "plain", Sampling(), 12, other)
