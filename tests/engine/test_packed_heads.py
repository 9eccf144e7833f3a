"""Heads on packed checkpoints of other packages: plain's text, and the drafts on the values that they stand for."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from specchat.engine.drafters import draft_model, eagle, medusa
from specchat.engine.loading import load
from specchat.engine.protocol.options import Sampling
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.session import Session
from specchat.engine.strategies import HEADED
from specchat.engine.text.draft_vocabulary import write
from specchat.engine.text.tokenizer import Tokenizer
from tests.engine.conftest import EVEN, HEADS, heads
from tests.engine.packed import Pack, awq, compressed, packed, repacked
from tests.engine.published_heads import glm_mtp
from tests.engine.test_packed import OF_AWQ, of_compressed
from tests.engine.tiny import on_cpu

pytestmark = [pytest.mark.cpu, pytest.mark.usefixtures("unmeasured")]

PROMPT = [65, 66, 67, 65, 66, 67, 65, 66]
SHAPE = {"intermediate_size": 96, "num_key_value_heads": 2, "tie_word_embeddings": False}
OF_32 = {"group_size": 32}
FORMS: dict[str, tuple[Pack, dict[str, Any]]] = {
    "awq": (awq(32), OF_AWQ | OF_32),
    "head and few tokens": (compressed(32), of_compressed(**OF_32)),
}


@pytest.fixture(autouse=True)
def _whole_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (draft_model, eagle, medusa):
        monkeypatch.setattr(module, "LEAST", 0.0)


def loaded(spec: PairSpec) -> Session:
    session = load(spec, lambda _: None)
    session.runner.executor.policies.off = True
    return session


def steps(session: Session, strategy: str, count: int) -> tuple[list[int], list[tuple[Sequence[int], ...]]]:
    """The text of some steps, and what was drafted in each."""
    runner = session.runner
    runner.target.keep(0)
    runner.target.begin(PROMPT)
    for drafter in runner.drafters.values():
        drafter.begin(PROMPT)
    reply = runner.reply(Sampling(seed=1, temperature=0.7), list(PROMPT), ())
    made = [reply.step(runner.drafters[strategy], 4 if strategy in HEADED else 0, "coupled") for _ in range(count)]
    reply.close()
    return [token for one in made for token in one.tokens], [(tuple(one.drafts), one.parents or ()) for one in made]


def compare(stored: Session, truth: Session, strategies: Sequence[str]) -> None:
    plain, _ = steps(stored, "plain", 2 * 5)
    for strategy in strategies:
        (text, drafts), (_, expected) = (steps(one, strategy, 2) for one in (stored, truth))
        assert text == plain[: len(text)], strategy
        assert drafts == expected, strategy
        assert all(drafted for drafted, _ in drafts), strategy


@pytest.mark.parametrize("form", FORMS)
def test_heads_draft_as_on_the_values_that_a_packed_target_stands_for(form: str, tmp_path: Path) -> None:
    few = "few" in form
    folders = packed(tmp_path, *FORMS[form], head=few, **SHAPE)
    spec = PairSpec("p", "P", on_cpu(folders[0]), heads=heads(tmp_path, HEADS))
    if few:
        write(tmp_path / "even.json", Tokenizer.read(folders[0]), EVEN)
    of = partial(PairSpec, heads=spec.heads, draft_vocabulary=str(tmp_path / "even.json") if few else None)
    stored, truth = (loaded(of("p", "P", on_cpu(folder))) for folder in folders)
    compare(stored, truth, HEADED)


def test_a_packed_layer_of_the_target_drafts(tmp_path: Path) -> None:
    write_target = partial(glm_mtp, moe_intermediate_size=32, intermediate_size=96)
    stored, truth = repacked(tmp_path, write_target, *FORMS["awq"], ("eh_proj", "embed_tokens", "shared_head"))
    compare(*(loaded(PairSpec("p", "P", on_cpu(one))) for one in (stored, truth)), ["mtp"])
