"""Same seed, same tokens: every strategy, draft length, sampler option and stop condition, on the CPU."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from itertools import product

import pytest

from specchat.engine.bandit import exploration
from specchat.engine.bandit.choice import ReplyState
from specchat.engine.bandit.drafter import AutoDrafter
from specchat.engine.bandit.exploration import Exploration
from specchat.engine.cpu.decoder import CpuDecoder
from specchat.engine.decoding.draft import Proposal
from specchat.engine.decoding.yardstick import Yardstick
from specchat.engine.protocol.events import Changed, Event, Finished, Started, Step
from specchat.engine.protocol.options import Acceptance, Limits, Message, Sampling, Speculation
from specchat.engine.protocol.requests import Cancel, Change, Generate
from specchat.engine.session import Session
from specchat.engine.strategies import HEADED, STRATEGIES, delegates

SAMPLINGS = {
    "greedy": Sampling(),
    "greedy penalties": Sampling(repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.4),
    "T=1": Sampling(temperature=1.0),
    "top-p": Sampling(temperature=0.7, top_p=0.9),
    "top-k": Sampling(temperature=1.2, top_k=7),
    "min-p": Sampling(temperature=1.0, min_p=0.05),
    "everything": Sampling(
        temperature=0.9,
        top_k=40,
        top_p=0.95,
        min_p=0.01,
        repetition_penalty=1.2,
        presence_penalty=0.3,
        frequency_penalty=0.2,
        logit_bias={65: 2.0, 66: -100.0},
    ),
}
FEW_SAMPLINGS = {name: SAMPLINGS[name] for name in ("greedy", "top-p", "everything")}
"""For what differs in its drafts alone."""
# Text that repeats gives lookup something to find even with a random model.
PROMPTS = ["abcabcabcabc", "The cat sat. The cat sat. The", "x"]
OF_FEW = "abcab"
"""A prompt whose reply is drawn of its letters."""
LENGTHS = (1, 4, 15)
DRAFTING = [name for name in STRATEGIES if name != "plain"]
HEADLESS = [name for name in STRATEGIES if name not in HEADED]
"""What pairs without trained heads have."""


def reply(session: Session, prompt: str, sampling: Sampling, limits: Limits, speculation: Speculation) -> list[Event]:
    return list(session.generate(Generate(7, (Message("user", prompt),), sampling, limits, speculation)))


def finished(events: list[Event]) -> Finished:
    assert isinstance(events[-1], Finished)
    return events[-1]


@pytest.fixture(autouse=True)
def auto_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether that pays or not: models this small seldom do. The first of its replies, and each second one from then
    on, tries models at each step."""
    monkeypatch.setattr(Exploration, "_could_pay", lambda *_: True)
    monkeypatch.setattr(exploration, "ENOUGH", 1 << 30)
    propose, replies = AutoDrafter.propose, list[ReplyState]()

    def trying(auto: AutoDrafter, token_ids: Sequence[int], limit: int) -> Proposal:
        if not replies or replies[-1] is not auto._reply:
            replies.append(auto._reply)
            auto.tries = len(replies) % 2 == 1
        return propose(auto, token_ids, limit)

    monkeypatch.setattr(AutoDrafter, "propose", trying)


def some_of(strategies: list[str], name: str) -> list[str]:
    """A third of the strategies with each sampling: each strategy meets two or three of them, of both parities."""
    return strategies[list(SAMPLINGS).index(name) % 3 :: 3]


@pytest.mark.parametrize("strategy", DRAFTING)
def test_every_strategy_and_length_writes_what_plain_writes(session: Session, strategy: str) -> None:
    check_all_samplings(session, strategy)


@pytest.mark.parametrize("name", list(SAMPLINGS)[:3])
def test_plain_steps_slipped_in_change_no_text(session: Session, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each third step, whatever time it is: what a family learns of its drafts it learns of its own alone."""
    asked = Counter[str]()

    def due(_: Yardstick) -> bool:
        asked["due"] += 1
        return asked["due"] % 3 == 0

    monkeypatch.setattr(Yardstick, "due", due)
    sampling = replace(SAMPLINGS[name], seed=1)
    plain = finished(reply(session, PROMPTS[1], sampling, Limits(32), Speculation()))
    for strategy in some_of(DRAFTING, name):
        events = reply(session, PROMPTS[1], sampling, Limits(32), Speculation(strategy, 4))
        assert finished(events).token_ids == plain.token_ids, strategy
        steps = [event for event in events if isinstance(event, Step)]
        assert any(step.strategy == "plain" and not step.drafted for step in steps), strategy


@pytest.mark.parametrize("acceptance", ["ratio", "block"])
def test_no_step_is_slipped_in_where_the_text_depends_on_drafts(
    session: Session, acceptance: Acceptance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Yardstick, "due", lambda _: pytest.fail("it was asked whether one is due"))
    reply(session, PROMPTS[0], Sampling(temperature=1.0), Limits(12), Speculation("draft", 4, acceptance))


@pytest.mark.parametrize("strategy", [name for name in DRAFTING if STRATEGIES[name].needs_draft])
def test_a_draft_vocabulary_changes_no_text(restricted: Session, strategy: str) -> None:
    check_all_samplings(restricted, strategy)


@contextmanager
def whole_drafts(session: Session) -> Iterator[None]:
    """Drafts end at their length, not where they stop to pay here: what is refused is then the same everywhere."""
    policies = session.runner.executor.policies
    policies.off = True
    try:
        yield
    finally:
        policies.off = False


@cache
def written_by_plain(session: Session, prompt: str, name: str) -> tuple[Sampling, Finished]:
    """A reply without drafts, and how it was drawn."""
    # Of few letters it repeats itself, so that every way of drafting has something to draft.
    few = dict.fromkeys(session.tokenizer.backend.encode("abc").ids, 9.0) if prompt == OF_FEW else {}
    sampling = SAMPLINGS[name]
    sampling = replace(sampling, seed=len(prompt), logit_bias=sampling.logit_bias | few)
    plain = finished(reply(session, prompt, sampling, Limits(22), Speculation()))
    assert plain.stats.num_draft_tokens == 0
    return sampling, plain


def check_all_samplings(session: Session, strategy: str, names: Iterable[str] = SAMPLINGS) -> None:
    """Each with one of the lengths and of the prompts: a strategy meets all of both, and so does a sampling."""
    drafted = accepted = 0
    for at, name in enumerate(names, list(STRATEGIES).index(strategy)):
        prompt, length = OF_FEW if at % 2 else PROMPTS[at // 2 % len(PROMPTS)], LENGTHS[at % len(LENGTHS)]
        sampling, plain = written_by_plain(session, prompt, name)
        with whole_drafts(session):
            last = finished(reply(session, prompt, sampling, Limits(22), Speculation(strategy, length)))
        assert last.token_ids == plain.token_ids, (name, length, prompt)
        assert (last.text, last.reason) == (plain.text, plain.reason)
        drafted += last.stats.num_draft_tokens
        accepted += last.stats.num_accepted_draft_tokens
    # Without drafts that are kept and drafts that are refused the equality above would be empty.
    # Auto drafts what it is sure of at the time, which may be right each time.
    assert 0 < accepted < drafted + (strategy == "auto")


def test_real_weights_write_the_same_with_every_strategy(real_session: Session) -> None:
    """One length of three with each sampling: each strategy meets all of both."""
    prompt = "Once upon a time there was a cat. The cat"
    drafted = Counter[str]()
    for seed, sampling in enumerate(SAMPLINGS.values()):
        sampling = replace(sampling, seed=seed)
        plain = finished(reply(real_session, prompt, sampling, Limits(12), Speculation()))
        length = LENGTHS[seed % 3]
        for strategy in DRAFTING:
            last = finished(reply(real_session, prompt, sampling, Limits(12), Speculation(strategy, length)))
            assert last.token_ids == plain.token_ids, (strategy, length)
            drafted[strategy] += last.stats.num_draft_tokens
    assert set(+drafted) == set(DRAFTING)


@pytest.fixture
def ends(session: Session) -> Iterator[Callable[[Collection[int]], None]]:
    """Sets the tokens that end a reply, for one test."""
    kept = session.eos

    def end_with(tokens: Collection[int]) -> None:
        session.eos = frozenset(tokens)

    yield end_with
    session.eos = kept


Ends = Callable[[Collection[int]], None]


@pytest.fixture(scope="module")
def free(session: Session) -> dict[str, Finished]:
    """What plain writes with each sampling where nothing ends the reply but 40 tokens."""
    kept, session.eos = session.eos, frozenset()
    made = {name: finished(reply(session, "abc", s, Limits(40), Speculation())) for name, s in SAMPLINGS.items()}
    session.eos = kept
    return made


def in_turn(places: tuple[int, ...], strategy: str, name: str) -> int:
    """One of the places: each strategy and each sampling meets all of them."""
    return places[(list(STRATEGIES).index(strategy) + 2 * list(SAMPLINGS).index(name)) % len(places)]


def a_third(first: int) -> pytest.MarkDecorator:
    """Strategies and samplings, each of both with some of the others: what ends a reply knows neither."""
    pairs = enumerate(product(STRATEGIES, SAMPLINGS))
    turns = {pair: (at // len(SAMPLINGS) + at) % 3 for at, pair in pairs}
    slow = pytest.mark.slow
    found = [pytest.param(*pair, marks=() if turn == first else slow) for pair, turn in turns.items()]
    return pytest.mark.parametrize(("strategy", "name"), found)


@a_third(0)
def test_an_end_token_inside_an_accepted_block_ends_the_reply(
    session: Session, free: dict[str, Finished], ends: Ends, strategy: str, name: str
) -> None:
    plain = free[name].token_ids
    end = plain[in_turn((1, 2, 5, 9, 11), strategy, name)]
    ends({end})
    last = finished(reply(session, "abc", SAMPLINGS[name], Limits(20), Speculation.of(strategy)))
    assert last.token_ids == plain[: plain.index(end) + 1]
    assert last.reason == "stop"


@pytest.mark.rotated(2)
@a_third(1)
def test_stop_strings_cut_the_text_and_end_the_reply(
    session: Session, free: dict[str, Finished], ends: Ends, strategy: str, name: str
) -> None:
    ends(())
    plain = free[name]
    start = in_turn((0, 7, 20), strategy, name)
    stop = plain.text[start : start + 3]
    events = reply(session, "abc", SAMPLINGS[name], Limits(40, (stop, "never said")), Speculation.of(strategy, 8))
    last = finished(events)
    assert last.text == plain.text[: plain.text.index(stop)]
    assert last.reason == "stop"
    assert last.token_ids == plain.token_ids[: len(last.token_ids)]
    assert shown(events) == last.text


@a_third(2)
def test_the_token_limit_is_exact(
    session: Session, free: dict[str, Finished], ends: Ends, strategy: str, name: str
) -> None:
    ends(())
    limit = in_turn((0, 1, 2, 5, 9), strategy, name)
    last = finished(reply(session, "abc", SAMPLINGS[name], Limits(limit), Speculation.of(strategy)))
    assert last.token_ids == free[name].token_ids[:limit]
    assert last.reason == "length"


@pytest.mark.parametrize("name", SAMPLINGS)
def test_a_full_context_ends_the_reply(session: Session, ends: Ends, name: str) -> None:
    """With one of two lengths that are left: each strategy meets both."""
    ends(())
    prompt = "ab" * (118 if list(SAMPLINGS).index(name) % 2 else 112)
    plain = finished(reply(session, prompt, SAMPLINGS[name], Limits(), Speculation()))
    replies = (reply(session, prompt, SAMPLINGS[name], Limits(), Speculation.of(s)) for s in some_of(DRAFTING, name))
    for last in (plain, *map(finished, replies)):
        assert last.token_ids == plain.token_ids
        assert last.reason == "context"
        assert last.stats.prompt_tokens + len(last.token_ids) == session.info.context


class Script:
    """Hands out control messages before given polls."""

    def __init__(self, messages: dict[int, Cancel | Change]) -> None:
        self.messages = messages
        self.polls = 0

    def poll(self) -> Cancel | Change | None:
        self.polls += 1
        return self.messages.pop(self.polls, None)


def test_changing_the_strategy_in_the_middle_changes_nothing_else(session: Session) -> None:
    sampling = Sampling(seed=5, temperature=0.9)
    plain = finished(reply(session, "abcabc", sampling, Limits(200), Speculation()))
    order = [*DRAFTING, *reversed(STRATEGIES)]
    script = Script({2 + 3 * at: Change(7, Speculation.of(strategy)) for at, strategy in enumerate(order)})
    # Cold, for with the plain reply to copy from there would be too few steps for all the changes.
    request = Generate(7, (Message("user", "abcabc"),), sampling, Limits(200), cold=True)
    events = list(session.generate(request, script))
    assert finished(events).token_ids == plain.token_ids
    changes = [e for e in events if isinstance(e, Changed)]
    assert [c.speculation.strategy for c in changes] == order
    assert {e.strategy for e in events if isinstance(e, Step)} == {name for name in STRATEGIES if not delegates(name)}


def test_cancelling_stops_at_the_next_step_and_keeps_the_text(session: Session) -> None:
    free = finished(reply(session, "abc", Sampling(), Limits(60), Speculation()))
    script = Script({10: Cancel(7)})  # which is asked twice a step
    events = list(session.generate(Generate(7, (Message("user", "abc"),), Sampling(), Limits(60)), script))
    last = finished(events)
    assert last.reason == "cancelled"
    assert len([e for e in events if isinstance(e, Step)]) == 5
    assert last.token_ids == free.token_ids[:5]
    assert shown(events) == last.text
    again = finished(reply(session, "abc", Sampling(), Limits(60), Speculation()))
    assert again.token_ids == free.token_ids


def test_cancelling_while_the_prompt_is_read_ends_there(session: Session) -> None:
    forget(session)
    request = Generate(7, (Message("user", "ab" * 110),), Sampling(), Limits(20), Speculation.of("draft"))
    events = list(session.generate(request, Script({1: Cancel(7)})))
    assert [type(e) for e in events] == [Started, Finished]
    assert finished(events).reason == "cancelled"
    assert 0 < len(session.target.tokens) < 200
    plain = finished(list(session.generate(replace(request, speculation=Speculation()))))
    forget(session)
    assert finished(list(session.generate(request))).token_ids == plain.token_ids


def test_changing_while_the_prompt_is_read_counts_from_the_start(session: Session) -> None:
    forget(session)
    request = Generate(7, (Message("user", "ab" * 110),), Sampling(), Limits(9))
    events = list(session.generate(request, Script({1: Change(7, Speculation("swift", 2))})))
    assert {e.strategy for e in events if isinstance(e, Step)} == {"swift"}
    assert [e.tokens for e in events if isinstance(e, Changed)] == [0]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_abandoned_stream_leaves_the_caches_in_order(session: Session, strategy: str) -> None:
    free = finished(reply(session, "abc", Sampling(), Limits(40), Speculation()))
    request = Generate(7, (Message("user", "abc"),), Sampling(), Limits(40), Speculation.of(strategy))
    stream = session.generate(request)
    events = [next(stream) for _ in range(4)]
    stream.close()
    emitted = sum(e.emitted for e in events if isinstance(e, Step))
    committed = [*session.tokenizer.prompt(request.messages), *free.token_ids[:emitted]]
    # The last token is yet to be read.
    assert session.target.tokens == committed[:-1]
    assert finished(list(session.generate(request))).token_ids == free.token_ids


def test_a_failing_drafter_leaves_the_target_as_it_was(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    free = finished(reply(session, "abc", Sampling(), Limits(40), Speculation()))
    calls = {"n": 0}
    assert session.runner.draft is not None
    draft = session.runner.draft.model
    assert isinstance(draft, CpuDecoder)

    def failing(inner: Callable[..., object], *arguments: object) -> object:
        calls["n"] += 1
        if calls["n"] == 5:
            raise MemoryError
        return inner(*arguments)

    with monkeypatch.context() as patch:
        for name in ("forward", "draft_chain"):
            patch.setattr(draft, name, partial(failing, getattr(draft, name)))
        with pytest.raises(MemoryError):
            reply(session, "abc", Sampling(), Limits(40), Speculation("draft", 4))
    for strategy in STRATEGIES:
        last = finished(reply(session, "abc", Sampling(), Limits(16), Speculation.of(strategy)))
        assert last.token_ids == free.token_ids[:16]


def forget(session: Session) -> None:
    """Let the target read its next text from the start."""
    session.target.keep(0)
    session.shelf.clear()


def reuse_the_prefix(session: Session, least: int) -> None:
    """The next turn reads more than `least` tokens of the chat no more, and changes nothing."""
    first = Message("user", "hello there")
    answer = finished(reply(session, first.content, Sampling(), Limits(10), Speculation.of("draft")))
    chat = (first, Message("assistant", answer.text), Message("user", "and then?"))
    request = Generate(8, chat, Sampling(seed=3, temperature=0.8), Limits(30), Speculation.of("draft"))
    warm = list(session.generate(request))
    forget(session)
    cold = list(session.generate(request))
    assert isinstance(warm[0], Started)
    assert isinstance(cold[0], Started)
    assert warm[0].reused > least > cold[0].reused
    assert finished(warm).token_ids == finished(cold).token_ids


def test_the_next_turn_reuses_the_prefix_and_changes_nothing(session: Session) -> None:
    reuse_the_prefix(session, 15)


def test_pieces_sources_and_figures_agree(session: Session) -> None:
    events = reply(session, "abcabc", Sampling(), Limits(50), Speculation("draft", 4))
    steps = [e for e in events if isinstance(e, Step)]
    last = finished(events)
    assert shown(events) == last.text
    assert {p.source for s in steps for p in s.pieces} <= {"draft", "target", "bonus", "plain"}
    assert sum(s.emitted for s in steps) == len(last.token_ids) == last.stats.completion_tokens == 50
    assert last.stats.num_accepted_draft_tokens == sum(s.accepted for s in steps)
    assert last.stats.num_tested_draft_tokens == sum(s.tested for s in steps)
    assert last.stats.num_draft_tokens == sum(s.drafted for s in steps)
    assert sum(last.stats.acceptance_histogram) == last.stats.num_spec_steps
    for step in steps:
        assert step.accepted <= step.tested <= step.drafted
        assert len(step.drafts) == step.drafted
    # As vLLM tells them, over all verify steps.
    assert last.stats.mean_acceptance_length == 1 + sum(s.accepted for s in steps) / len(steps)
    assert last.stats.draft_acceptance_rate == sum(s.accepted for s in steps) / sum(s.drafted for s in steps)
    assert last.stats.tested_acceptance_rate == sum(s.accepted for s in steps) / sum(s.tested for s in steps)


def shown(events: list[Event]) -> str:
    return "".join(p.text for e in events if isinstance(e, Step) for p in e.pieces)
