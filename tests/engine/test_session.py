"""What a reply begins with, what it remembers of earlier ones, and what it tells of its drafts."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from specchat.engine.cpu.decoder import CpuDecoder
from specchat.engine.decoding.length_policy import UNSURE, LengthPolicy
from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.decoding.yardstick import Measured, Yardstick
from specchat.engine.drafters.swift import SwiftDrafter
from specchat.engine.errors import ContextError, EngineError
from specchat.engine.loading import load
from specchat.engine.protocol.events import Drafted, Event, Finished, Started, Step
from specchat.engine.protocol.options import Grammar, Limits, Message, Sampling, Speculation, Written
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.protocol.requests import Cancel, Count, Generate
from specchat.engine.protocol.stats import Stats
from specchat.engine.protocol.step_tree import StepTree, branched
from specchat.engine.reply import measure
from specchat.engine.reply.measure import REPLY_TOKENS, reply_plainly
from specchat.engine.reply.reply import source
from specchat.engine.session import Session
from specchat.engine.strategies import STRATEGIES
from specchat.engine.text.tokenizer import Tokenizer
from tests.engine.scripted import scripted
from tests.engine.test_lossless import HEADED, HEADLESS, Script, finished, shown
from tests.engine.tiny import TEMPLATE, byte_fallback, checkpoint, on_cpu, tokenizer

STORY = (Message("user", "Tell me a story about a fox and a lamp."),)
OPENING = "Once there was a crab who"


def test_what_is_tested_here_runs_on_the_cpu_whatever_the_machine_has(session: Session) -> None:
    """A device of "auto" would leave a note where there is no GPU, and take it where there is one."""
    assert (session.runner.place, session.info.notes.note) == ("cpu", "")


def started(events: list[Event]) -> Started:
    assert isinstance(events[0], Started)
    return events[0]


def steps(events: list[Event]) -> list[Step]:
    return [event for event in events if isinstance(event, Step)]


def figures(events: list[Event]) -> list[tuple[int, int, int, tuple[Drafted, ...]]]:
    return [(s.drafted, s.tested, s.accepted, s.drafts) for s in steps(events)]


def test_a_temperature_that_draws_nothing_is_compared_with_greedy_speed(session: Session) -> None:
    info = replace(
        session.info, plain=replace(session.info.plain, tokens_per_second=2.0, sampled_tokens_per_second=1.0)
    )
    assert [info.plain_speed(Sampling(temperature=t)) for t in (0.0, 1e-6, 0.7)] == [2.0, 2.0, 1.0]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_reply_may_go_on_behind_its_end_with_every_strategy(demo: Session, temperature: float) -> None:
    request = Generate(1, STORY, Sampling(3, temperature=temperature), Limits(400))
    ended = finished(list(demo.generate(request)))
    assert ended.reason == "stop"
    on = replace(request, limits=replace(request.limits, max_tokens=len(ended.token_ids) + 40, ignore_eos=True))
    plain = finished(list(demo.generate(on)))
    assert (plain.reason, len(plain.token_ids)) == ("length", on.limits.max_tokens)
    assert plain.token_ids[: len(ended.token_ids)] == ended.token_ids
    for strategy in ("draft", "lookup", "auto"):
        last = finished(list(demo.generate(replace(on, speculation=Speculation.of(strategy)))))
        assert last.token_ids == plain.token_ids, strategy
    with pytest.raises(EngineError, match="leave out ignore_eos"):
        list(demo.generate(replace(on, grammar=Grammar("json_object"))))


def test_a_text_that_cannot_fit_is_refused_before_it_is_split(demo: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = demo.tokenizer
    fitting = "x" * (tokenizer.longest * demo.info.context - 1)
    limits = Limits(context="refuse")
    with pytest.raises(ContextError, match=rf"takes [\d,]+ tokens and Demo holds {demo.info.context:,}"):
        list(demo.generate(Generate(1, (Message("user", fitting),), limits=limits)))
    monkeypatch.setattr(type(tokenizer), "_encoded", lambda *_, **__: pytest.fail("it was split into tokens"))
    for request in (Generate(1, (Message("user", fitting + "x"),)), Generate(1, (), limits=limits, raw=fitting + "x")):
        with pytest.raises(ContextError, match=r"takes at least"):
            list(demo.generate(request))
    with pytest.raises(ContextError, match=r"takes at least"):
        demo.count(Count(1, (Message("user", fitting), *STORY), limits))


# Text


@pytest.fixture(scope="module")
def falling_back(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """A random model that spells most of its text in bytes."""
    folder = checkpoint(tmp_path_factory.mktemp("bytes") / "m", backend=byte_fallback())
    return load(PairSpec("b", "B", ModelSource(path=str(folder))), lambda _: None)


def test_bytes_that_are_no_text_do_not_end_a_reply(falling_back: Session) -> None:
    replies = []
    for seed in range(10):
        request = Generate(1, STORY, Sampling(seed=seed, temperature=10.0), Limits(40))
        replies.append(events := list(falling_back.generate(request)))
        assert finished(events).text == shown(events)
    assert sum("\ufffd" in shown(events) for events in replies) > 5


def test_a_prompt_that_ends_in_bytes_leaves_none_of_them_in_the_reply(falling_back: Session) -> None:
    always_a = Sampling(logit_bias={1: 1000.0})
    for prefill in ("한한한", "x👨‍👩‍👧"):
        assert shown(list(falling_back.generate(Generate(1, STORY, always_a, Limits(5), prefill=prefill)))) == "aaaaa"


CHARACTERS = "Fan:\U0001fa6d,\u2042!"


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize("strategy", ["plain", "lookup"])
def test_a_reply_that_was_cut_inside_a_character_goes_on_with_it(strategy: str, tmp_path: Path) -> None:
    """Cut after each token by its limit, by the user or by the context; streamed text is no other."""
    backend = tokenizer()
    script = backend.encode(CHARACTERS, add_special_tokens=False).ids
    folder = scripted(tmp_path / "m", backend, script, {}, TEMPLATE)
    prompt = len(Tokenizer.read(folder).prompt(STORY))
    for tokens in range(1, len(script)):
        narrow, wide = (
            load(PairSpec("s", "S", on_cpu(folder), context=c), lambda _: None) for c in (prompt + tokens, 512)
        )
        request = Generate(1, STORY, limits=Limits(len(script)), speculation=Speculation.of(strategy))
        cuts = [
            list(wide.generate(replace(request, limits=Limits(tokens)))),
            list(wide.generate(request, Script({tokens: Cancel(1)}))),
            list(narrow.generate(request)),
        ]
        assert [finished(events).reason for events in cuts] == ["length", "cancelled", "context"]
        for events in cuts:
            cut = finished(events)
            expected = CHARACTERS.encode()[: len(cut.token_ids)].decode(errors="ignore")
            assert (cut.text, shown(events)) == (expected, expected)
            rest = replace(request, limits=Limits(len(script) - len(cut.token_ids)), begun=cut.written)
            assert finished(list(wide.generate(rest))).text == CHARACTERS


# Prefill


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(seed=3, temperature=0.8, repetition_penalty=1.2)])
def test_a_prefilled_reply_is_the_same_with_every_strategy(demo: Session, sampling: Sampling) -> None:
    request = Generate(1, STORY, sampling, Limits(40), prefill=OPENING)
    plain = list(demo.generate(request))
    assert started(plain).prefill == OPENING
    assert finished(plain).text == OPENING + shown(plain)
    assert len(finished(plain).token_ids) == sum(s.emitted for s in steps(plain)) > 20
    assert shown(plain) != ""
    for strategy in HEADLESS:
        last = finished(list(demo.generate(replace(request, speculation=Speculation.of(strategy)))))
        assert (last.token_ids, last.text) == (finished(plain).token_ids, finished(plain).text), strategy


def test_what_a_reply_says_by_itself_it_says_from_a_prefill_too(demo: Session) -> None:
    """Ended where a token ends, a prefill changes nothing of what follows."""
    free = finished(list(demo.generate(Generate(1, STORY, limits=Limits(40)))))
    begun = demo.tokenizer.decode(free.token_ids[:12])
    last = finished(list(demo.generate(Generate(1, STORY, limits=Limits(28), prefill=begun))))
    assert last.text == free.text
    assert last.token_ids == free.token_ids[12:]


def test_a_prefilled_reply_is_reused_by_the_next_turn(demo: Session) -> None:
    first = finished(list(demo.generate(Generate(1, STORY, limits=Limits(20), prefill=OPENING, cold=True))))
    again = started(list(demo.generate(Generate(2, STORY, limits=Limits(1), prefill=OPENING))))
    assert again.reused == again.prompt_tokens - 1
    chat = (*STORY, Message("assistant", first.text), Message("user", "And then?"))
    follow = started(list(demo.generate(Generate(3, chat, limits=Limits(1)))))
    assert follow.reused >= again.prompt_tokens


def test_stop_strings_are_not_looked_for_in_the_prefill(demo: Session) -> None:
    free = shown(list(demo.generate(Generate(1, STORY, limits=Limits(30), prefill=OPENING))))
    stop = free[10:14]
    events = list(
        demo.generate(Generate(1, STORY, limits=Limits(30, ("crab", "who" + free[:3], stop)), prefill=OPENING))
    )
    assert finished(events).reason == "stop"
    assert shown(events) == free[: min(free.index(s) for s in ("crab", stop) if s in free)]
    assert finished(events).text == OPENING + shown(events)


def test_a_prefill_counts_as_prompt(demo: Session) -> None:
    begun = started(list(demo.generate(Generate(1, STORY, limits=Limits(1), prefill=OPENING))))
    assert demo.count(Count(1, STORY, prefill=OPENING)).tokens == begun.prompt_tokens
    assert begun.prompt_tokens > demo.count(Count(1, STORY)).tokens


def test_a_prefill_is_kept_when_the_reply_is_stopped_at_once(demo: Session) -> None:
    messages = (Message("user", "fox " * 300),)
    request = Generate(7, messages, prefill=OPENING, cold=True)
    events = list(demo.generate(request, Script({1: Cancel(7)})))
    assert [type(event) for event in events] == [Started, Finished]
    assert finished(events).text == OPENING


# Cold


@pytest.mark.rotated(3)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_cold_reply_is_as_the_first_one(session: Session, strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Where a draft ends goes by what steps took, too.
    monkeypatch.setattr(LengthPolicy, "observe", lambda *_: None)
    request = Generate(1, (Message("user", "abcabc"),), Sampling(), Limits(30), Speculation.of(strategy), cold=True)
    first = list(session.generate(request))
    swift = session.drafters["swift"]
    assert isinstance(swift, SwiftDrafter)
    # Replies between the two, by its own drafter and by all that `auto` has: the caches hold the very prompt, and the
    # search for what to skip has gone on.
    for between in sorted({strategy, "draft", "swift", "auto"}):
        warm = replace(
            request,
            speculation=Speculation.of(between),
            cold=False,
            sampling=Sampling(seed=9, temperature=1),
            limits=Limits(100 if between == "swift" else 20),
        )
        assert started(list(session.generate(warm))).reused > 0
    assert swift.search.trials > 0
    again = list(session.generate(request))
    assert started(again).reused == started(first).reused == 0
    # What `auto` chooses goes by what steps took.
    assert strategy == "auto" or figures(again) == figures(first)
    assert finished(again).token_ids == finished(first).token_ids


def test_a_cold_reply_reads_the_whole_prompt_with_both_models(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Generate(1, (Message("user", "ab" * 60),), limits=Limits(8), speculation=Speculation("draft", 4))
    prompt = len(session.tokenizer.prompt(request.messages))
    assert session.runner.draft is not None
    draft = session.runner.draft.model
    assert isinstance(draft, CpuDecoder)
    fed: list[int] = []

    def feed(inner: Callable[..., Any], tokens: Sequence[int], *more: Any) -> Any:
        fed.append(len(tokens))
        return inner(tokens, *more)

    for name in ("forward", "draft_chain"):
        monkeypatch.setattr(draft, name, partial(feed, getattr(draft, name)))
    list(session.generate(request))
    for cold in (False, True):
        fed.clear()
        events = list(session.generate(replace(request, cold=cold)))
        assert started(events).reused == (0 if cold else prompt - 1)
        assert fed[0] >= prompt - 2 if cold else fed[0] <= 2


@pytest.mark.rotated(3, 1)
@pytest.mark.parametrize("strategy", [name for name, each in STRATEGIES.items() if each.needs_draft or name in HEADED])
def test_after_an_edit_drafts_are_those_of_empty_caches(
    session: Session, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prompt is edited in its middle, and is as long as before."""
    monkeypatch.setattr(LengthPolicy, "observe", lambda *_: None)
    request = Generate(1, (Message("user", "abc" * 30),), Sampling(), Limits(30), Speculation.of(strategy), cold=True)
    edited = replace(request, messages=(Message("user", "abc" * 15 + "xyz" * 15),))
    drafts = []
    for again in (edited, replace(edited, cold=False)):
        list(session.generate(request))
        drafts.append([[draft.text for draft in step.drafts] for step in steps(list(session.generate(again)))])
    assert drafts[1] == drafts[0] != []


# Replies before


def drafted_by_copying(session: Session, strategy: str, cold: bool = False) -> int:
    """Tokens kept of drafts that copy, in a chat that has nothing to copy itself."""
    request = Generate(1, (Message("user", "xyz"),), Sampling(), Limits(30), Speculation.of(strategy), cold=cold)
    return finished(list(session.generate(request))).stats.num_accepted_draft_tokens


@pytest.mark.parametrize("strategy", ["suffix", "ngram"])
def test_a_reply_is_copied_from_whoever_drafted_it_but_not_by_or_from_a_cold_one(
    tiny_pair: PairSpec, strategy: str
) -> None:
    session = load(tiny_pair, lambda _: None)
    first = drafted_by_copying(session, strategy, cold=True)
    assert drafted_by_copying(session, strategy, cold=True) == first
    assert drafted_by_copying(session, "plain") == 0
    assert drafted_by_copying(session, strategy, cold=True) == first
    assert drafted_by_copying(session, strategy) > first + 10


# Drafts


@pytest.mark.parametrize("strategy", HEADLESS)
def test_a_step_tells_what_was_drafted_and_how_sure(demo: Session, strategy: str) -> None:
    seen: list[Step] = []
    for seed in range(2, 12):
        sampling, speculation = Sampling(seed=seed, temperature=0.7), Speculation.of(strategy)
        events = list(demo.generate(Generate(1, (*STORY, *STORY), sampling, Limits(80), speculation)))
        tokens = finished(events).token_ids
        seen, at = steps(events), 0
        for step in seen:
            kept = tokens[at : at + step.accepted]
            assert [draft.text for draft in step.drafts[: step.accepted]] == [demo.tokenizer.text_of(t) for t in kept]
            assert len(step.drafts) == step.drafted
            tree = StepTree.of(step.drafts)
            assert tree.parents[: step.accepted] == tuple(range(-1, step.accepted - 1))
            if len(tokens[at:]) > step.accepted:
                candidates = tree.candidates().get(step.accepted - 1, [])
                assert step.tested == step.accepted + bool(candidates)
            for draft in step.drafts:
                assert (draft.probability is None) == (step.strategy in ("lookup", "ngram", "lookahead"))
                assert draft.probability is None or 0 < draft.probability <= 1
            at += step.emitted
        assert (strategy == "plain") == (not any(step.drafts for step in seen))
        # Whether a tree branches depends on what steps cost here, too.
        if strategy != "draft-tree" or any(branched(step.drafts) and step.accepted for step in seen):
            return
    raise AssertionError("no tree branched")


def test_a_draft_goes_on_while_its_model_is_sure(demo: Session) -> None:
    """Where the text depends on the draft: elsewhere the costs of a step decide, too."""
    sampling = Sampling(seed=3, temperature=0.7)
    request = Generate(1, STORY, sampling, Limits(80), Speculation("draft", 8, "ratio"))
    seen, again = (steps(list(demo.generate(request))) for _ in range(2))
    assert [step.drafts for step in seen] == [step.drafts for step in again]
    for step in seen:
        assert all((draft.probability or 0) >= UNSURE for draft in step.drafts[:-1])
    assert any(step.drafts and (step.drafts[-1].probability or 0) < UNSURE for step in seen)


@pytest.mark.parametrize(
    ("drafted", "tested", "accepted", "last"),
    [(0, 0, 0, "plain"), (3, 3, 3, "bonus"), (3, 3, 2, "target"), (6, 2, 2, "bonus"), (6, 3, 2, "target")],
    ids=["nothing drafted", "a whole chain", "a refused chain", "a leaf of a tree", "a tree refused further up"],
)
def test_the_last_token_is_a_bonus_where_nothing_was_refused(
    drafted: int, tested: int, accepted: int, last: str
) -> None:
    tokens = tuple(range(accepted + 1))
    outcome = StepOutcome(
        tokens=tokens,
        drafts=tuple(range(drafted)),
        confidence=(),
        tested=tested,
        path=tuple(range(1, accepted + 1)),
        draft_ms=0.0,
        verify_ms=0.0,
        sources=("draft",),
    )
    assert [source(outcome, at) for at in range(len(tokens))] == [*["draft"] * accepted, last]


# The yardstick


def test_the_yardstick_is_the_speed_of_a_plain_reply(demo: Session) -> None:
    def ended(tokens: int) -> bool:
        stats = replace(Stats(), completion_tokens=tokens)
        return reply_plainly(lambda *_: iter([Finished(0, "length", "", (), stats)]))

    assert ended(REPLY_TOKENS)
    assert not ended(REPLY_TOKENS - 1)
    assert measure.REPLY.speculation.strategy == "plain"
    *_, finished = demo.generate(measure.REPLY)
    assert isinstance(finished, Finished)
    assert finished.stats.completion_tokens >= REPLY_TOKENS


def test_a_strategy_has_a_yardstick_of_its_own_under_each_that_chooses_it(
    demo: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`auto` lets a model draft further than it does alone, which costs otherwise than is expected."""
    added, names = Yardstick.add, list[str]()

    def noting(self: Yardstick, strategy: str, outcome: StepOutcome, sent_ms: float = 0.0) -> Measured:
        names.append(strategy)
        return added(self, strategy, outcome, sent_ms)

    monkeypatch.setattr(Yardstick, "add", noting)
    for strategy in ("auto", "draft"):
        for _ in demo.generate(replace(measure.REPLY, speculation=Speculation.of(strategy))):
            pass
    assert {"auto draft", "draft draft"} <= set(names)


def test_it_is_that_of_a_machine_that_is_not_slow(tiny_pair: PairSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loaded while other programs ran, plain replies were slow; compared with those, all would be fast afterwards."""
    monkeypatch.setattr(Yardstick, "usual_speed", 300.0)
    monkeypatch.setattr(Yardstick, "slowed", 1.0)
    session = load(replace(tiny_pair, heads={}), lambda _: None)
    assert session.info.plain.tokens_per_second == 300.0
    assert session.info.plain.sampled_tokens_per_second == 300.0


def test_a_slow_model_is_measured_for_a_second_only(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(measure, "perf_counter", lambda: now[0])
    deadline = measure.Deadline()
    assert deadline.poll() is None
    now[0] = measure.BUDGET_S + 0.1
    assert isinstance(deadline.poll(), Cancel)


@pytest.mark.rotated(3)
@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(seed=3, temperature=0.9, repetition_penalty=1.1),
        Sampling(seed=3, temperature=0.9, presence_penalty=-9.0, frequency_penalty=1.0),
    ],
)
@pytest.mark.parametrize("strategy", ["plain", "auto", "draft", "lookup"])
def test_a_reply_that_goes_on_from_its_tokens_says_what_it_would_have_said(
    demo: Session, strategy: str, sampling: Sampling
) -> None:
    request = Generate(1, STORY, sampling, Limits(32), Speculation.of(strategy))
    whole = finished(list(demo.generate(request)))
    for length in (1, 7, 16):
        cut = finished(list(demo.generate(replace(request, limits=Limits(length)))))
        rest = replace(request, limits=Limits(32 - length), begun=cut.written)
        assert demo.count(Count(1, STORY)).tokens + length == started(list(demo.generate(rest))).prompt_tokens
        on = finished(list(demo.generate(rest)))
        assert (*cut.token_ids, *on.token_ids) == whole.token_ids
        assert on.text == whole.text


def test_tokens_that_do_not_say_what_the_text_does_are_another_models(demo: Session) -> None:
    whole = finished(list(demo.generate(Generate(1, STORY, limits=Limits(20)))))
    for tokens in ((1, 2, 3), (10**6,), (-1,), whole.token_ids[:-1]):
        begun = Written(whole.text, token_ids=tokens)
        prompt = demo.tokenizer.prompt(STORY, begun=Written(whole.text))
        assert started(list(demo.generate(Generate(1, STORY, begun=begun)))).prompt_tokens == len(prompt)


def test_a_draft_of_a_shorter_context_drafts_until_its_end_and_is_told_of(tmp_path: Path) -> None:
    target = checkpoint(tmp_path / "target", tie_word_embeddings=False)
    draft = checkpoint(tmp_path / "draft", tie_word_embeddings=False, max_position_embeddings=64)
    session = load(PairSpec("p", "P", on_cpu(target), on_cpu(draft)), lambda _: None)
    assert session.info.draft.context == 64
    request = Generate(1, (Message("user", "x" * 30),), Sampling(), Limits(60), Speculation("draft", 4))
    steps = [event for event in session.generate(request) if isinstance(event, Step)]
    beyond = [step for step in steps if step.context_used - step.emitted >= 64]
    assert beyond
    assert not any(step.drafted for step in beyond)
    assert any(step.drafted for step in steps)
    assert session.info.undrafted("draft", steps[-1].context_used).startswith("the draft model holds 64 tokens")
    assert session.info.undrafted("draft", 63) == session.info.undrafted("plain", 99) == ""
