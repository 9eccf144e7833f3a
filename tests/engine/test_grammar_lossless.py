"""Replies held to a grammar: the same tokens with every strategy, and always what the grammar allows."""

import json
from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from llguidance import LLMatcher

from specchat.engine.check_ratio import chi_square
from specchat.engine.decoding.sampler import History, Sampler
from specchat.engine.grammar import source
from specchat.engine.grammar.compiler import Grammars
from specchat.engine.grammar.matcher import CompiledGrammar
from specchat.engine.protocol.events import Finished, Started, Step
from specchat.engine.protocol.options import Acceptance, Grammar, Limits, Message, Sampling, Speculation
from specchat.engine.protocol.requests import Change, Generate
from specchat.engine.session import Session
from specchat.engine.strategies import GRAMMAR, STRATEGIES
from tests.engine.grammars import GRAMMARS, ending, fits, random_schema
from tests.engine.test_lossless import DRAFTING, HEADLESS, SAMPLINGS, Script, auto_drafts, finished, shown

__all__ = ["auto_drafts"]

PROMPT = "The cat sat. The cat sat. The"


def request(grammar: Grammar, sampling: Sampling = Sampling(), strategy: str = "plain", **changes: object) -> Generate:
    made = Generate(7, (Message("user", PROMPT),), sampling, Limits(48), Speculation.of(strategy), grammar=grammar)
    return replace(made, **changes)  # type: ignore[arg-type]


def last(session: Session, wanted: Generate) -> Finished:
    return finished(list(session.generate(wanted)))


@pytest.mark.parametrize("name", SAMPLINGS)
def test_every_strategy_writes_what_plain_writes(session: Session, name: str) -> None:
    drafted, accepted = Counter[str](), Counter[str]()
    turned = list(SAMPLINGS).index(name)
    for at, grammar in enumerate(GRAMMARS.values()):
        sampling = replace(SAMPLINGS[name], seed=at + turned)
        plain = last(session, request(grammar, sampling))
        assert plain.stats.num_draft_tokens == 0
        assert fits(session, grammar, plain)
        # Each strategy meets one or two of the grammars with each sampling.
        for place, strategy in enumerate(DRAFTING):
            if (place + at + turned) % 3:
                continue
            drafting = last(session, request(grammar, sampling, strategy))
            assert (drafting.token_ids, drafting.text) == (plain.token_ids, plain.text), (strategy, at)
            assert drafting.reason == plain.reason
            drafted[strategy] += drafting.stats.num_draft_tokens
            accepted[strategy] += drafting.stats.num_accepted_draft_tokens
    assert all(accepted.values())
    assert sum(accepted.values()) < sum(drafted.values())


def test_forced_tokens_are_drafted_for_nothing(session: Session) -> None:
    """By every strategy but plain; a draft model goes on after them."""
    for strategy in STRATEGIES:
        events = list(session.generate(request(GRAMMARS["schema"], strategy=strategy)))
        steps = [event for event in events if isinstance(event, Step)]
        own = [step for step in steps if step.strategy == GRAMMAR]
        assert bool(own) is (strategy != "plain")
        if own:
            forced = [sum(draft.probability is None for draft in step.drafts) for step in own]
            accepted = [min(step.accepted, n) for step, n in zip(own, forced, strict=True)]
            # How far a model drafts over such tokens by itself depends on measured times.
            by_itself = strategy in ("draft", "auto")
            assert sum(accepted) > 0.8 * sum(forced) > (0 if by_itself else 10)
            assert {piece.source for step in own for piece in step.pieces} <= {GRAMMAR, "draft", "bonus", "target"}
            goes_on = any(step.drafted > n for step, n in zip(own, forced, strict=True))
            assert goes_on or strategy != "draft"
            assert by_itself or not goes_on


@pytest.fixture(scope="module")
def uncut(session: Session) -> list[tuple[Sampling, Finished]]:
    """What plain writes as the schema has it, greedily and drawn."""
    samplings = Sampling(), Sampling(seed=4, temperature=1.0)
    return [(one, last(session, request(GRAMMARS["schema"], one, limits=Limits(90)))) for one in samplings]


@pytest.mark.rotated(2, 1)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_token_limits_and_stop_strings_cut_as_they_do_for_plain(
    session: Session, uncut: list[tuple[Sampling, Finished]], strategy: str
) -> None:
    turned, grammar = list(STRATEGIES).index(strategy), GRAMMARS["schema"]
    sampling, free = uncut[turned % 2]
    limit = (1, 9, 30)[turned // 2 % 3]
    cut = last(session, request(grammar, sampling, strategy, limits=Limits(limit)))
    assert (cut.token_ids, cut.reason) == (free.token_ids[:limit], "length")
    assert fits(session, grammar, cut)
    sampling, free = uncut[1 - turned % 2]
    stopped = last(session, request(grammar, sampling, strategy, limits=Limits(90, ('"age', "never"))))
    assert stopped.text == free.text[: free.text.index('"age')]
    assert stopped.reason == "stop"


def test_a_change_in_the_middle_changes_nothing_else(session: Session) -> None:
    grammar, sampling = (
        Grammar("lark", "start: (/[a-z ]{4}/ | DIGIT)*\nDIGIT: /[0-9]/"),
        Sampling(seed=5, temperature=0.9),
    )
    plain = last(session, request(grammar, sampling, limits=Limits(100)))
    order = [*DRAFTING, "plain"]
    script = Script({2 + 2 * at: Change(7, Speculation.of(strategy)) for at, strategy in enumerate(order)})
    changing = finished(list(session.generate(request(grammar, sampling, limits=Limits(100), cold=True), script)))
    assert changing.token_ids == plain.token_ids


def test_a_draft_vocabulary_changes_no_text(restricted: Session) -> None:
    for strategy, grammar in product([s for s in DRAFTING if STRATEGIES[s].needs_draft], GRAMMARS.values()):
        sampling = Sampling(seed=3, temperature=0.8)
        plain = last(restricted, request(grammar, sampling))
        assert last(restricted, request(grammar, sampling, strategy)).token_ids == plain.token_ids


def check_random(session: Session, seeds: range, strategies: list[str]) -> Counter[str]:
    """Random schemas, each with plain and one strategy in turn; how the replies ended."""
    ends = Counter[str]()
    samplings = list(SAMPLINGS.values())
    for seed in seeds:
        grammar = Grammar("json_schema", json.dumps(random_schema(seed)))
        sampling = replace(samplings[seed % len(samplings)], seed=seed, logit_bias={})
        strategy = strategies[seed % len(strategies)]
        plain = last(session, request(grammar, sampling, limits=Limits(120)))
        assert fits(session, grammar, plain), (seed, plain.text)
        drafting = last(session, request(grammar, sampling, strategy, limits=Limits(120)))
        assert (drafting.token_ids, drafting.reason) == (plain.token_ids, plain.reason), (seed, strategy)
        ends[plain.reason] += 1
    return ends


def test_random_schemas(session: Session) -> None:
    ends = check_random(session, range(40), DRAFTING)
    assert ends["stop"] > 33


@pytest.mark.slow
def test_two_thousand_random_schemas(session: Session, demo: Session) -> None:
    available = [s.name for s in demo.info.strategies if s.available and s.name != "plain"]
    ends = check_random(session, range(1000, 2000), DRAFTING) + check_random(demo, range(2000, 3000), available)
    assert ends["stop"] > 1900


@pytest.mark.parametrize("name", ["greedy", "everything"])
def test_the_embedded_pair_writes_valid_json(demo: Session, name: str) -> None:
    grammar = GRAMMARS["schema"]
    plain = last(demo, request(grammar, replace(SAMPLINGS[name], logit_bias={}), limits=Limits(90)))
    assert plain.reason == "stop"
    assert fits(demo, grammar, plain)
    assert plain.text.startswith('{"name": "')


WEARING = Grammar("regex", "(.{0,60}[aeiou]){3,40}q")
"""Each place of its text adds states to the lexer, each mask hundreds."""


@pytest.mark.rotated(2)
@pytest.mark.parametrize(
    "strategy",
    [
        *("plain", "draft", "draft-tree", "lookup"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("auto", "medusa", "lookahead", "swift")),
    ],
)
def test_limits_of_a_lexer_are_met_alike(session: Session, strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lexer that met its limit is renewed; a place that no lexer has room for ends the reply of every strategy."""
    plain = [request(WEARING, Sampling(seed=seed, temperature=1.0), cold=True) for seed in range(3)]
    drafting = [replace(wanted, speculation=Speculation.of(strategy)) for wanted in plain]
    free = [ending(session, wanted) for wanted in plain]
    renewals, renewed = list[bool](), CompiledGrammar.renewed
    monkeypatch.setattr(CompiledGrammar, "renewed", lambda self: renewals.append(renewed(self)) or renewals[-1])
    for states, fails in ((150, False), (70, True)):
        monkeypatch.setattr(source, "MAX_LEXER_STATES", states)
        monkeypatch.setattr(session, "_grammars", Grammars(session.tokenizer))
        expected = [ending(session, wanted) for wanted in plain] if fails else free
        monkeypatch.setattr(session, "_grammars", Grammars(session.tokenizer))
        assert [ending(session, wanted) for wanted in drafting] == expected
        assert any("too complex" in words for _, words in expected) is fails
    assert sum(renewals) > 2


def distribution(session: Session, grammar: Grammar, sampling: Sampling) -> dict[tuple[int, ...], float]:
    """Probabilities of a reply's first two tokens, by the target's logits among the tokens of llguidance's mask."""
    prompt, tokens = (
        session.tokenizer.prompt((Message("user", PROMPT),)),
        Grammars(session.tokenizer).tokens(session.eos),
    )
    sampler, found = Sampler(sampling), dict[tuple[int, ...], float]({(): 1.0})
    for _ in range(2):
        longer: dict[tuple[int, ...], float] = {}
        for before, reached in found.items():
            matcher = LLMatcher(tokens, LLMatcher.grammar_from_regex(grammar.text))
            assert matcher.try_consume_tokens(list(before)) == len(before)
            mask = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
            allowed = [token for token in mask.nonzero()[0].tolist() if token < session.info.target.vocabulary]
            scores = sampler.scores(session.target.next_logits([*prompt, *before]), History(prompt))
            shares = scores[allowed].double().softmax(-1)
            longer |= {(*before, token): reached * float(p) for token, p in zip(allowed, shares, strict=True)}
        found = longer
    return found


FORCING = Grammar("regex", "(yes|maybe|lamplight) (yes|no)+")
"""Its words can be split in many ways; once one is chosen, the mask has only the usual one."""


@pytest.mark.parametrize(
    ("strategy", "acceptance"),
    [
        *(("plain", "coupled"), ("draft", "ratio"), ("draft-tree", "block"), ("lookup", "ratio")),
        *(
            pytest.param(*pair, marks=pytest.mark.slow)
            for pair in (("draft", "block"), ("draft-tree", "ratio"), ("lookup", "block"))
        ),
    ],
)
def test_replies_have_the_distribution_of_the_target_among_allowed_tokens(
    demo: Session, strategy: str, acceptance: Acceptance
) -> None:
    sampling, found = Sampling(temperature=3.0), Counter[tuple[int, ...]]()
    for seed in range(120):
        speculation = Speculation(strategy, 0 if strategy == "plain" else 3, acceptance)
        wanted = request(FORCING, replace(sampling, seed=seed), speculation=speculation, limits=Limits(3))
        found[last(demo, wanted).token_ids[:2]] += 1
    expected = distribution(demo, FORCING, sampling)
    assert found.keys() <= expected.keys()
    statistic, bound = chi_square(found, expected)
    assert statistic <= bound


def test_a_neutral_bias_changes_no_text(demo: Session) -> None:
    for seed in range(60):
        sampling = Sampling(seed=seed, temperature=3.0)
        biases: tuple[dict[int, float], ...] = ({}, {0: 0.0})
        free, biased = (request(FORCING, replace(sampling, logit_bias=bias), limits=Limits(3)) for bias in biases)
        assert last(demo, free).token_ids == last(demo, biased).token_ids


def test_a_second_reply_reuses_the_prefix(session: Session) -> None:
    wanted = request(GRAMMARS["schema"], strategy="draft")
    first = last(session, wanted)
    messages = (*wanted.messages, Message("assistant", first.text), Message("user", "Again"))
    again = list(session.generate(replace(wanted, messages=messages)))
    assert isinstance(again[0], Started)
    assert again[0].reused > first.stats.prompt_tokens
    assert fits(session, GRAMMARS["schema"], finished(again))
    free = finished(list(session.generate(replace(wanted, grammar=None))))
    session.forget()
    assert finished(list(session.generate(replace(wanted, grammar=None)))).token_ids == free.token_ids


@pytest.mark.parametrize("strategy", HEADLESS)
def test_a_beginning_is_part_of_the_answer(session: Session, strategy: str) -> None:
    grammar, begun = GRAMMARS["schema"], '{"name": "Ann", "age": 1'
    plain = last(session, request(grammar, prefill=begun))
    drafting = list(session.generate(request(grammar, strategy=strategy, prefill=begun)))
    assert finished(drafting).token_ids == plain.token_ids
    assert plain.text == begun + shown(drafting)
    assert fits(session, grammar, plain, begun)


def test_a_reply_goes_on_within_its_grammar(session: Session) -> None:
    grammar = GRAMMARS["schema"]
    whole = last(session, request(grammar, limits=Limits(90)))
    half = last(session, request(grammar, limits=Limits(25)))
    rest = last(session, request(grammar, limits=Limits(90), begun=half.written, strategy="suffix"))
    assert (rest.text, rest.reason) == (whole.text, "stop")
    assert half.token_ids + rest.token_ids == whole.token_ids
