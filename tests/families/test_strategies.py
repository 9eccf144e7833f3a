"""With a target of any family every strategy writes what plain decoding does."""

from random import Random

import pytest

from specchat.engine.loading import load
from specchat.engine.protocol.events import Finished
from specchat.engine.protocol.options import Limits, Message, Sampling, Speculation
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.requests import Generate
from specchat.engine.session import Session
from specchat.engine.strategies import STRATEGIES
from tests.engine.conftest import HEADS, heads
from tests.engine.repeated_steps import always_repeated, chat, outcome
from tests.engine.test_lossless import finished
from tests.engine.test_turns import alone, asked, same, woven
from tests.engine.tiny import FAMILIES, MORE, checkpoint, mostly, on_cpu, perturbed

PROMPT = "abcabcabcabc"
TOKENS = 16


SHAPES = MORE | {
    "by the reference": FAMILIES["qwen3_5"] | {"linear_value_head_dim": 24},
    "filled up": FAMILIES["qwen3"] | {"head_dim": 24, "intermediate_size": 100},
}


@pytest.fixture(scope="module", params=mostly(SHAPES))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PairSpec:
    """A pair of a family, with a third of the heads in turn: all are given states by the same method of a target."""
    root, turn = tmp_path_factory.mktemp(request.param), list(SHAPES).index(request.param)
    target = checkpoint(root / "target", seed=4, **SHAPES[request.param])
    draft = perturbed(root / "draft", target, 0.05)
    some = {head: write for at, (head, write) in enumerate(HEADS.items()) if at % 3 == turn % 3}
    return PairSpec("tiny", "Tiny", on_cpu(target), on_cpu(draft), heads=heads(root, some))


@pytest.fixture(scope="module")
def session(pair: PairSpec) -> Session:
    """Unmeasured: half of the time of loading such a pair."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Session, "_measure", lambda _: None)
        return load(pair, lambda _: None)


def written(
    session: Session,
    sampling: Sampling,
    speculation: Speculation,
    asked: tuple[Message, ...] = (Message("user", PROMPT),),
    limits: Limits = Limits(TOKENS),
) -> Finished:
    request = Generate(1, asked, sampling, limits, speculation, cold=True)
    last = list(session.generate(request))[-1]
    assert isinstance(last, Finished)
    return last


def test_all_strategies_run_natively(pair: PairSpec, session: Session) -> None:
    lacking = {status.name for status in session.info.strategies if not status.available}
    without = {name for name, info in STRATEGIES.items() if info.needs_head and info.needs_head not in pair.heads}
    assert lacking - {"kv-mtp"} == without - {"kv-mtp"}  # whose layers have the shapes of one family


@pytest.mark.rotated(2)
def test_every_strategy_writes_what_plain_writes(session: Session, request: pytest.FixtureRequest) -> None:
    """Greedily or drawn, in turn: each family and each strategy meets both."""
    samplings = (Sampling(), Sampling(temperature=1.0, seed=3))
    expected = [written(session, sampling, Speculation()).token_ids for sampling in samplings]
    turned, accepted = list(SHAPES).index(request.node.callspec.params["pair"]), {}
    for at, status in enumerate(session.info.strategies, turned):
        if status.available:
            found = written(session, samplings[at % 2], Speculation.of(status.name))
            assert found.token_ids == expected[at % 2], status.name
            accepted[status.name] = found.stats.num_accepted_draft_tokens
    assert accepted["draft"] > 0


@pytest.mark.rotated(2, 1)
def test_replies_that_take_turns_write_what_they_write_alone(session: Session, request: pytest.FixtureRequest) -> None:
    # The reference is slow.
    every = 6 if "by the reference" in request.node.name else 3
    some = [status.name for status in session.info.strategies if status.available][::every]
    requests = asked(some, Random(1))
    found = woven(session, requests, Random(2))
    for one in requests:
        assert same(finished(found[one.id]), alone(session, one)), one.speculation.strategy


@pytest.mark.rotated(2)
def test_steps_repeated_after_a_reply_leave_its_cache_as_it_was(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = outcome(chat(session, Speculation("draft", 3)))
    made = always_repeated(monkeypatch)
    assert outcome(chat(session, Speculation("draft", 3))) == without
    assert made
