"""A chain drafted in one go is the chain drafted token by token."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from specchat.config.paths import demo_model
from specchat.engine.cpu.decoder import CpuDecoder
from specchat.engine.cpu.drafting.nested_speculation import MIN_ACCEPTANCE
from specchat.engine.decoding.cached import CachedModel
from specchat.engine.decoding.costs import StepCosts
from specchat.engine.decoding.draft import Chain, Copy, Follow, Then
from specchat.engine.decoding.host_loops import HostLoops
from specchat.engine.decoding.length_policy import LengthPolicies
from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.decoding.reply_rules import ReplyRules
from specchat.engine.errors import ModelError
from specchat.engine.model.passes import NOTHING, ChainParameters, Skip
from specchat.engine.protocol.options import Acceptance, Sampling
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.tiny import checkpoint

pytestmark = pytest.mark.cpu
PROMPT = [5, 9, 200, 31, 7, 7, 12]
LIMIT = 15
DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
Made = tuple[list[int], list[float]]
Copies = Callable[[Sequence[int], Callable[[], float]], Sequence[int]]


class Counting(CpuDecoder):
    """Counts the chains and the passes that Python asked for."""

    chains = passes = 0

    def draft_chain(
        self, tokens: Sequence[int], start: int, chain: ChainParameters, skip: Skip
    ) -> list[tuple[int, float]]:
        found = super().draft_chain(tokens, start, chain, skip)
        self.chains += bool(found)
        return found

    def forward(self, *arguments, **named):  # type: ignore[no-untyped-def]
        self.passes += 1
        return super().forward(*arguments, **named)


class TokenByToken(Counting):
    """What is compared with."""

    def draft_chain(
        self, tokens: Sequence[int], start: int, chain: ChainParameters, skip: Skip
    ) -> list[tuple[int, float]]:
        return []


def made(
    decoder: CpuDecoder,
    sampling: Sampling,
    limit: int = LIMIT,
    acceptance: Acceptance = "coupled",
    unread: int = 1,
    taught: StepOutcome | None = None,
    copied: Sequence[int] = (),
    copy: Copies | None = None,
    skip: Skip = NOTHING,
    eos: Collection[int] = (),
    prompt: Sequence[int] = PROMPT,
) -> Made:
    """A draft after a prompt, of which the model has yet to read `unread` tokens."""
    policies = LengthPolicies(StepCosts())
    drafts = HostLoops({"draft": CachedModel(decoder)}, decoder.vocab, policies)
    drafts.begin(ReplyRules(sampling, eos), prompt)
    cached = drafts._models["draft"]
    cached.model.write(prompt[:-unread], 0)
    cached.tokens = list(prompt[:-unread])
    if taught is None:
        policies.off = True
    else:
        for _ in range(40):
            policies.begin("draft", True)
            policies.observe(taught)
    drafts.start(acceptance)
    follow = None if copy is None else Follow("lookup", "auto", copy)
    chain = Chain("draft", "draft", limit, skip, follow=follow)
    draft = drafts.make(Then("cascade", Copy(list(copied)), chain) if copied else chain).draft
    assert not drafts.history.generated
    return list(draft.tokens), list(draft.confidence)


def pair(folder: Path, **more: Any) -> tuple[Counting, TokenByToken]:
    opened = replace(Checkpoint.open(folder), **more)
    return Counting(opened, 64, threads=1), TokenByToken(opened, 64, threads=1)


@pytest.fixture(scope="module", params=[*product(DTYPES, ("tied", "apart")), ("float32", "tied to a head in 8 bits")])
def decoders(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Counting, TokenByToken]:
    """With embeddings of each form, tied and not."""
    folder, (dtype, head) = tmp_path_factory.mktemp("chain"), request.param
    written = checkpoint(folder / "m", tie_word_embeddings=head != "apart") / "model.safetensors"
    cast = {name: weight.to(DTYPES[dtype]) for name, weight in load_file(written).items()}
    save_file(cast, written, metadata={"format": "pt"})
    return pair(folder / "m", head="int8" if "8 bits" in head else None)


@pytest.mark.parametrize(
    "sampling",
    [Sampling(), Sampling(temperature=1.0, seed=3), Sampling(temperature=0.3, seed=2**63 + 11)],
    ids=["greedy", "T=1", "T=0.3"],
)
@pytest.mark.parametrize("unread", [1, 2, 5])
def test_tokens_and_probabilities_are_those_of_one_after_another(
    decoders: tuple[Counting, TokenByToken], sampling: Sampling, unread: int
) -> None:
    quick, slow = decoders
    quick.chains = quick.passes = 0
    found = made(quick, sampling, unread=unread)
    assert found == made(slow, sampling, unread=unread)
    assert len(found[0]) == 15
    assert (quick.chains, quick.passes) == (1, 1), "the prompt's pass, and the chain"


def test_after_copied_tokens_and_with_layers_left_out(decoders: tuple[Counting, TokenByToken]) -> None:
    quick, slow = decoders
    sampling, skip = Sampling(temperature=0.8, seed=5), Skip(frozenset({1}), frozenset({0}))
    whole = made(quick, sampling)
    for settings in ({"copied": [8, 8, 30]}, {"skip": skip}, {"copied": [4], "skip": skip, "unread": 3}):
        found = made(quick, sampling, **settings)
        assert found == made(slow, sampling, **settings)
        assert found != whole
    assert made(quick, sampling) == whole, "what was left out before is back"


def test_a_token_that_the_model_has_no_row_for_is_its_last(decoders: tuple[Counting, TokenByToken]) -> None:
    quick, slow = decoders
    chain = ChainParameters(3, quick.vocab, 0.0, 0, np.array(((np.inf,), (1.0,), (1.0,))), 1.0, -1.0)
    for decoder in decoders:
        decoder.write(PROMPT, 0)
    found, last = (quick.draft_chain([token], len(PROMPT), chain, NOTHING) for token in (10**9, quick.vocab - 1))
    assert found == last
    logits = slow.logits(slow.forward([10**9], len(PROMPT)))
    assert found[0][0] == int(logits[0].argmax())


def test_a_chain_beyond_the_context_is_not_begun(decoders: tuple[Counting, TokenByToken]) -> None:
    quick, _ = decoders
    shares = np.array(((np.inf,), (1.0,), (1.0,)))
    for limit in (4, 5):
        made = quick.draft_chain([5], 60, ChainParameters(limit, quick.vocab, 0.0, 0, shares, 1.0, -1.0), NOTHING)
        assert len(made) == (4 if limit == 4 else 0)


@pytest.mark.parametrize("acceptance", ["coupled", "ratio"])
def test_nothing_is_drafted_after_the_end_of_a_reply(
    acceptance: Acceptance, decoders: tuple[Counting, TokenByToken]
) -> None:
    for decoder in decoders:
        tokens, sure = made(decoder, Sampling(temperature=1.0, seed=3), acceptance=acceptance)
        last = tokens[5]
        kept = 1 + tokens.index(last)
        found = made(decoder, Sampling(temperature=1.0, seed=3), acceptance=acceptance, eos=(10**6, last))
        assert found == (tokens[:kept], sure[:kept])


def test_a_chain_in_one_go_ends_there_itself(decoders: tuple[Counting, TokenByToken]) -> None:
    quick, _ = decoders
    shares = np.array(((np.inf,), (1.0,), (1.0,)))
    quick.write(PROMPT, 0)
    whole = ChainParameters(12, quick.vocab, 1.0, 3, shares, 1.0, -1.0)
    tokens = [token for token, _ in quick.draft_chain([5], len(PROMPT), whole, NOTHING)]
    last = tokens[5]
    ended = whole._replace(ends=np.array([10**6, last]))
    found = [token for token, _ in quick.draft_chain([5], len(PROMPT), ended, NOTHING)]
    assert found == tokens[: 1 + tokens.index(last)]


def taught(stayed: int) -> StepOutcome:
    """A judged draft whose tokens had all kinds of probabilities."""
    sure = (0.2, 0.4, 0.65, 0.75, 0.85, 0.93, 0.97, 0.985, 0.9999)
    path = tuple(range(1, stayed + 1))
    return StepOutcome((1,) * (stayed + 1), (3,) * len(sure), sure, min(stayed + 1, len(sure)), path, 0.0, 0.0)


def test_it_ends_where_the_next_token_is_unlikely_to_pay(decoders: tuple[Counting, TokenByToken]) -> None:
    quick, slow = decoders
    lengths = set()
    for seed, stayed in product(range(30), (2, 9)):
        sampling = Sampling(temperature=0.1, seed=seed)
        found = made(quick, sampling, taught=taught(stayed))
        assert found == made(slow, sampling, taught=taught(stayed))
        lengths.add(len(found[0]))
    assert len(lengths) > 3, "of various lengths, or the end was not tested"


@pytest.mark.parametrize(
    ("sampling", "acceptance"),
    [
        (Sampling(temperature=1.0, top_k=5), "coupled"),
        (Sampling(temperature=1.0, top_p=0.9), "coupled"),
        (Sampling(temperature=1.0, min_p=0.1), "coupled"),
        (Sampling(repetition_penalty=1.3), "coupled"),
        (Sampling(frequency_penalty=0.5), "coupled"),
        (Sampling(logit_bias={3: 2.0}), "coupled"),
        (Sampling(temperature=1.0), "ratio"),
        (Sampling(temperature=1.0), "block"),
        (Sampling(), "ratio"),
    ],
)
def test_other_samplings_and_tests_go_token_by_token(
    decoders: tuple[Counting, TokenByToken], sampling: Sampling, acceptance: Acceptance
) -> None:
    quick, slow = decoders
    quick.chains = 0
    assert made(quick, sampling, acceptance=acceptance) == made(slow, sampling, acceptance=acceptance)
    assert not quick.chains


def test_a_copy_is_asked_for_where_a_chain_ends() -> None:
    """One that is drafted in one go; else after each token, each of which is a pass that the copy would save."""
    quick, slow = pair(demo_model("draft"))
    for at in (1, 5, LIMIT):
        asked: list[tuple[int, ...]] = []

        def copy(
            drafted: Sequence[int], stay: Callable[[], float], at: int = at, asked: list[tuple[int, ...]] = asked
        ) -> list[int]:
            assert stay() == 1.0, "the end is off"
            asked.append(tuple(drafted))
            return [11, 12] if len(drafted) == at else []

        found = made(slow, Sampling(), copy=copy)[0]
        assert found[at:] == [11, 12]
        assert asked == [tuple(found[:length]) for length in range(1, at + 1)]
        asked.clear()
        whole = made(quick, Sampling(), copy=copy)[0]
        assert asked == [tuple(whole[:LIMIT])]
        assert whole[:at] == found[:at]
        assert whole[LIMIT:] == ([11, 12] if at == LIMIT else [])
    assert quick.chains == 3


def test_a_chain_in_one_go_tells_the_chance_of_one_token_after_another() -> None:
    quick, slow = pair(demo_model("draft"))
    told: list[list[float]] = []
    for decoder in (quick, slow):
        chances: list[float] = []
        told.append(chances)

        def copy(_: Sequence[int], stay: Callable[[], float], chances: list[float] = chances) -> list[int]:
            chances.append(stay())
            assert stay() == chances[-1]
            return []

        made(decoder, Sampling(), copy=copy, taught=taught(3))
    assert told[0] == told[1][-1:]
    assert 0 < told[0][0] < 1


def trusted(decoder: CpuDecoder) -> NDArray[np.float64]:
    """How far a decoder's chains trust proposals of each length; empty before its first chain."""
    chains = decoder._arguments._chains
    return np.zeros(0) if chains is None else chains[1].acceptance


@pytest.mark.parametrize("temperature", [0.0, 0.6])
def test_what_followed_the_same_words_is_guessed_and_changes_nothing(temperature: float) -> None:
    """Where the guess is right wholly, in part and not at all, and where the chain ends within it."""
    quick, slow = pair(demo_model("draft"))
    story = made(slow, Sampling(), prompt=PROMPT)[0]
    right, wrong = 0, 0
    for seed in range(12):
        sampling = Sampling(temperature=temperature, seed=seed)
        # What the model says next stands in the prompt, with another token in it at one place.
        place = seed % len(story)
        prompt = [*PROMPT, *story[:place], 99, *story[place + 1 :], 11, *PROMPT]
        for limit, eos, taught_by in ((LIMIT, (), None), (5, (), None), (LIMIT, (story[4],), None), (9, (), taught(2))):
            before = trusted(quick).copy()
            found = made(quick, sampling, limit, unread=1 + seed % 3, eos=eos, taught=taught_by, prompt=prompt)
            assert found == made(slow, sampling, limit, unread=1 + seed % 3, eos=eos, taught=taught_by, prompt=prompt)
            if len(before):
                # What is trusted rises by itself only where it is too little to guess by.
                right += int(((trusted(quick) > before) & (before >= MIN_ACCEPTANCE)).sum())
                wrong += int((trusted(quick) < before).sum())
    assert right > 5
    assert wrong > 5


def test_guesses_of_no_use_are_left_for_a_while() -> None:
    """Where the chain ends at its first token no guess spares a pass, right or wrong."""
    quick, _ = pair(demo_model("draft"))
    prompt = [*PROMPT, *PROMPT]
    shares = np.array(((np.inf,), (0.5,), (0.5,)))
    quick.write(prompt[:-1], 0)
    chain = ChainParameters(9, quick.vocab, 0.0, 0, shares, 1.0, 0.9)
    for _ in range(40):
        made = quick.draft_chain(prompt[-1:], len(prompt) - 1, chain, NOTHING)
        assert len(made) == 1
    assert trusted(quick).min() < MIN_ACCEPTANCE + 0.02


def test_scores_that_are_no_numbers_are_told_of(tmp_path: Path) -> None:
    quick, _ = pair(checkpoint(tmp_path / "m", tie_word_embeddings=True))
    for norm in (quick._parameters.last_norm, quick._arguments._head._held["norm"]):
        norm[:] = torch.nan
    with pytest.raises(ModelError, match="scores that are no numbers"):
        made(quick, Sampling(temperature=1.0))
    assert not quick.chains
