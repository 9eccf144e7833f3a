"""Drafts whose tokens are not the target's: same seed, same tokens; and the drafts are what they should be."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from measure.other_drafts import cut, permuted
from specchat.config.paths import demo_model
from specchat.engine import check_ratio
from specchat.engine.check_ratio import chi_square, exact_distribution
from specchat.engine.cross_tokenizer.model import CrossTokenizerModel
from specchat.engine.cross_tokenizer.vocabulary_map import VocabularyMap
from specchat.engine.decoding.cached import HostModel
from specchat.engine.errors import EngineError, ModelError
from specchat.engine.loading import load, placing
from specchat.engine.memory.devices import Placement, place
from specchat.engine.model.passes import NOTHING, Skip
from specchat.engine.model.tree_layout import Layout
from specchat.engine.protocol.events import Finished, Started, Step
from specchat.engine.protocol.options import ACCEPTANCES, Acceptance, Limits, Message, Sampling, Speculation
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.requests import Generate
from specchat.engine.session import Session
from specchat.engine.text.tokenizer import Tokenizer
from tests.engine.test_lossless import (
    SAMPLINGS,
    auto_drafts,
    check_all_samplings,
    finished,
    reply,
    reuse_the_prefix,
    shown,
)
from tests.engine.tiny import byte_fallback, checkpoint, on_cpu

__all__ = ["auto_drafts"]

STRATEGIES = ("draft", "cascade", "auto")
"""Those that need a draft and that such a pair has."""
STORY = "Tell me a story about a fox and a lamp."


def pair(target: Path, draft: Path) -> PairSpec:
    return PairSpec("tiny", "Tiny", on_cpu(target), on_cpu(draft))


def loaded(target: Path, draft: Path) -> Session:
    return load(pair(target, draft), lambda _: None)


def of(session: Session) -> CrossTokenizerModel:
    """Its draft."""
    assert session.runner.draft is not None
    model = session.runner.draft.model
    assert isinstance(model, CrossTokenizerModel)
    return model


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Models of the demo pair with other tokens."""
    root = tmp_path_factory.mktemp("others")
    return {
        "permuted": permuted(root / "permuted", demo_model("draft")),
        "finer": cut(root / "finer", demo_model("draft"), 1100),
        "coarse target": cut(root / "coarse", demo_model("target"), 1100),
    }


@pytest.fixture(scope="module")
def finer(folders: dict[str, Path]) -> Session:
    """The draft spells two thirds of the target's tokens."""
    return loaded(demo_model("target"), folders["finer"])


@pytest.fixture(scope="module")
def coarser(folders: dict[str, Path]) -> Session:
    """The target spells two thirds of the draft's tokens."""
    return loaded(folders["coarse target"], demo_model("draft"))


@pytest.fixture(scope="module")
def permuted_draft(folders: dict[str, Path]) -> Session:
    """The draft has other numbers for the target's tokens."""
    return loaded(demo_model("target"), folders["permuted"])


@pytest.fixture(params=["finer", "coarser"])
def other(request: pytest.FixtureRequest) -> Session:
    session: Session = request.getfixturevalue(request.param)
    return session


# What is drafted


def drafted(session: Session, prompt: str, sampling: Sampling, acceptance: Acceptance) -> list[tuple[object, ...]]:
    """Each step's drafts with their probabilities, and the reply's tokens."""
    drafting = Speculation("draft", 5, acceptance)
    session.runner.executor.policies.off = True
    request = Generate(7, (Message("user", prompt),), sampling, Limits(16), drafting, cold=True)
    events = list(session.generate(request))
    session.runner.executor.policies.off = False
    steps = [(step.drafts, step.accepted) for step in events if isinstance(step, Step)]
    return [*steps, finished(events).token_ids]


@pytest.mark.rotated(3)
@pytest.mark.parametrize("acceptance", ACCEPTANCES)
def test_other_numbers_for_the_same_tokens_change_no_draft(
    demo: Session, permuted_draft: Session, acceptance: Acceptance
) -> None:
    for prompt, sampling in zip(cycle((STORY, "Say 😀 twice: 😀 €")), SAMPLINGS.values()):
        assert drafted(permuted_draft, prompt, sampling, acceptance) == drafted(demo, prompt, sampling, acceptance)


def test_words_that_only_the_draft_has_are_said_by_one_pass(coarser: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = watched(of(coarser).model, monkeypatch)
    monkeypatch.setattr(coarser.runner.executor.policies, "off", True)
    last = finished(reply(coarser, STORY, Sampling(), Limits(120), Speculation("draft", 8)))
    assert last.stats.num_accepted_draft_tokens > 10
    assert len(passes) < last.stats.num_draft_tokens


# The text


@pytest.mark.rotated(2, 1)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_and_length_writes_what_plain_writes(other: Session, strategy: str) -> None:
    check_all_samplings(other, strategy)


def test_published_weights_of_another_tokenizer_change_no_text(shared_data: Path) -> None:
    """Pieces of SentencePiece draft for bytes, and the other way round."""
    stories = shared_data / "checkpoints" / "stories260K"
    for target, draft in ((demo_model("target"), stories), (stories, demo_model("draft"))):
        session = loaded(target, draft)
        accepted = 0
        for seed, sampling in enumerate((Sampling(), SAMPLINGS["everything"])):
            sampling = replace(sampling, seed=seed)
            prompt = "Once upon a time there was a little girl who"
            plain = finished(reply(session, prompt, sampling, Limits(60), Speculation()))
            for strategy in STRATEGIES:
                last = finished(reply(session, prompt, sampling, Limits(60), Speculation(strategy, 5)))
                assert (last.token_ids, last.text) == (plain.token_ids, plain.text), strategy
                accepted += last.stats.num_accepted_draft_tokens
        assert accepted, draft


@pytest.fixture
def ends(other: Session) -> Iterator[Session]:
    """A session whose ends may be set."""
    kept = other.eos
    yield other
    other.eos = kept


@pytest.mark.rotated(2)
@pytest.mark.parametrize("name", ["greedy", "top-p"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_replies_end_where_plain_ones_do(ends: Session, strategy: str, name: str) -> None:
    def written(limits: Limits, speculation: Speculation, end: Collection[int] = ()) -> Finished:
        ends.eos = frozenset(end)
        events = reply(ends, STORY, SAMPLINGS[name], limits, speculation)
        assert shown(events) == finished(events).text
        return finished(events)

    drafting = Speculation.of(strategy)
    free = written(Limits(30), Speculation())
    for cut_at in (1, 4, 12):
        last = written(Limits(30), drafting, {free.token_ids[cut_at]})
        assert last.token_ids == free.token_ids[: free.token_ids.index(free.token_ids[cut_at]) + 1]
        assert written(Limits(cut_at), drafting).token_ids == free.token_ids[:cut_at]
        stop = free.text[3 * cut_at : 3 * cut_at + 3]
        assert written(Limits(30, (stop,)), drafting).text == free.text[: free.text.index(stop)]


def test_a_full_context_ends_the_reply(ends: Session) -> None:
    prompt = "ab cd " * 325
    ends.eos = frozenset()
    plain = finished(reply(ends, prompt, Sampling(), Limits(context="refuse"), Speculation()))
    for strategy in STRATEGIES:
        last = finished(reply(ends, prompt, Sampling(), Limits(context="refuse"), Speculation.of(strategy)))
        assert last.token_ids == plain.token_ids
        assert last.reason == plain.reason == "context"


def test_characters_of_several_tokens_are_streamed_whole(other: Session) -> None:
    few = dict.fromkeys([*other.tokenizer.encode("😀🦊 é"), other.tokenizer.encode("a")[0]], 30.0)
    for sampling in (Sampling(logit_bias=few), Sampling(seed=2, temperature=1.3, logit_bias=few)):
        plain = reply(other, "😀", sampling, Limits(50), Speculation())
        for strategy in STRATEGIES:
            events = reply(other, "😀", sampling, Limits(50), Speculation(strategy, 6))
            assert finished(events).token_ids == finished(plain).token_ids
            assert shown(events) == finished(events).text == finished(plain).text


def test_the_next_turn_reuses_the_prefix_and_changes_nothing(other: Session) -> None:
    reuse_the_prefix(other, 10)


def watched(model: HostModel, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Tokens of each pass of a model from now on."""
    passes: list[int] = []
    write, forward = model.write, model.forward

    def written(tokens: Sequence[int], start: int) -> None:
        passes.append(len(tokens))
        write(tokens, start)

    def forwarded(tokens: Sequence[int], start: int, skip: Skip = NOTHING, layout: Layout | None = None) -> Tensor:
        passes.append(len(tokens))
        return forward(tokens, start, skip, layout)

    monkeypatch.setattr(model, "write", written)
    monkeypatch.setattr(model, "forward", forwarded)
    return passes


def test_what_was_read_is_not_read_again(finer: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = watched(of(finer).model, monkeypatch)
    request = Generate(7, (Message("user", STORY * 12),), Sampling(), Limits(20), Speculation("draft", 4))
    first = finished(list(finer.generate(request)))
    assert sum(passes) > 140
    passes.clear()
    chat = (*request.messages, Message("assistant", first.text), Message("user", "Go on."))
    list(finer.generate(replace(request, messages=chat)))
    assert sum(passes) < 140


def test_a_text_longer_than_the_drafts_context_is_drafted_for(tmp_path: Path) -> None:
    draft = cut(tmp_path / "draft", demo_model("draft"), 1100)
    config = draft / "config.json"
    config.write_text(config.read_text().replace('"max_position_embeddings": 1024', '"max_position_embeddings": 96'))
    session = loaded(demo_model("target"), draft)
    session.eos = frozenset()
    plain = finished(reply(session, STORY * 9, Sampling(), Limits(80), Speculation()))
    events = reply(session, STORY * 9, Sampling(), Limits(80), Speculation("draft", 4))
    assert finished(events).token_ids == plain.token_ids
    late = [event for event in events if isinstance(event, Step)][10:]
    assert sum(step.accepted for step in late) > 10
    assert isinstance(events[0], Started)
    assert events[0].prompt_tokens > 96


@pytest.mark.rotated(2)
@pytest.mark.parametrize("acceptance", ["ratio", "block"])
def test_drawn_replies_follow_the_targets_law(finer: Session, acceptance: Acceptance) -> None:
    law = exact_distribution(finer)
    found: Counter[tuple[int, ...]] = Counter()
    for seed in range(200):
        found[check_ratio._drawn(finer, Speculation("draft", 3, acceptance), 9000 + seed)] += 1
    value, bound = chi_square(found, law)
    assert value <= bound


# What is said of it


def test_the_pair_says_what_it_does(finer: Session, demo: Session) -> None:
    assert "the draft's tokens differ: it has 1,094 of the target's 3,066" in finer.info.notes.note
    assert demo.info.notes.note == ""
    tree = finer.info.strategy("draft-tree")
    assert not tree.available
    assert "tokens differ" in tree.reason
    assert all(finer.info.strategy(name).available for name in STRATEGIES)
    with pytest.raises(EngineError, match="the draft's tokens differ from the target's"):
        reply(finer, "x", Sampling(), Limits(5), Speculation.of("draft-tree"))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> PairSpec:
    """A pair of random models, loaded in a third of the time."""
    root = tmp_path_factory.mktemp("small")
    return pair(checkpoint(root / "target"), checkpoint(root / "draft", backend=byte_fallback()))


def test_a_draft_vocabulary_and_a_gpu_for_the_draft_are_not_to_be_had(small: PairSpec) -> None:
    session = load(replace(small, draft_vocabulary="x.json"), lambda _: None)
    assert (
        session.info.notes.warning
        == "tiny drafts with its whole vocabulary: the draft's tokens differ from the target's."
    )
    assert small.draft is not None
    with pytest.raises(EngineError, match="its tokens differ from the target's and are translated on the CPU") as error:
        load(replace(small, draft=replace(small.draft, device="cuda")), lambda _: None)
    assert error.value.kind == "config"


def test_the_draft_stays_on_the_host_wherever_the_target_is(small: PairSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[PairSpec] = []

    def watched(pair: PairSpec, *others: Any) -> Placement:
        asked.append(pair)
        return place(pair, *others)

    monkeypatch.setattr(placing, "place", watched)
    assert small.draft is not None
    load(replace(small, draft=replace(small.draft, device="auto")), lambda _: None)
    assert [one.draft and one.draft.device for one in asked] == ["cpu"]


def test_tokens_that_mean_nothing_to_each_other_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = VocabularyMap.of

    def nothing(target: Tokenizer, draft: Tokenizer) -> VocabularyMap:
        return replace(made(target, draft), to_target={})

    monkeypatch.setattr(VocabularyMap, "of", nothing)
    folder = checkpoint(tmp_path / "draft", backend=byte_fallback())
    with pytest.raises(ModelError, match="no token of its own says anything"):
        loaded(checkpoint(tmp_path / "target"), folder)
