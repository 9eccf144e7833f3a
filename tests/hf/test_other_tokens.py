"""Drafts for targets that transformers runs whose tokens are others, or padded to another number."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from measure.other_drafts import permuted
from specchat.engine.cross_tokenizer.model import CrossTokenizerModel
from specchat.engine.hf import proof
from specchat.engine.hf.model import HfModel
from specchat.engine.loading import load
from specchat.engine.protocol.options import Limits, Speculation
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.reply import measure
from specchat.engine.session import Session
from tests.engine.test_lossless import SAMPLINGS, auto_drafts, check_all_samplings, finished, reply
from tests.engine.tiny import SPECIAL, checkpoint, on_cpu, perturbed, tokenizer
from tests.hf.networks import network, saved
from tests.hf.networks import perturbed as network_perturbed

__all__ = ["auto_drafts"]


@pytest.fixture(autouse=True, scope="module")
def _quick() -> Iterator[None]:
    """Little is measured at load."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(proof, "POSITIONS", proof.POSITIONS[:2])
        patched.setattr(measure, "BUDGET_S", 0.05)
        yield


def loaded(target: Path, draft: Path) -> Session:
    return load(PairSpec("tiny", "Tiny", on_cpu(target), on_cpu(draft), "hf"), lambda _: None)


@pytest.fixture(scope="module", params=["transformers", "our own decoder"])
def session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Session:
    """A draft by either, whose tokens have other numbers."""
    root = tmp_path_factory.mktemp("others")
    if request.param == "transformers":
        made = network("stablelm")
        target = saved(made, root / "target")
        draft = saved(network_perturbed(made), root / "draft")
        tokenizer([SPECIAL[0], *reversed(SPECIAL[1:])]).save(str(draft / "tokenizer.json"))
        return loaded(target, draft)
    target = checkpoint(root / "target", tie_word_embeddings=False)
    return loaded(target, permuted(root / "draft", perturbed(root / "same", target, 0.05)))


@pytest.mark.rotated(2, 1)
@pytest.mark.parametrize("strategy", ["draft", "cascade", "auto"])
def test_every_strategy_and_length_writes_what_plain_writes(session: Session, strategy: str) -> None:
    check_all_samplings(session, strategy, ("greedy", "greedy penalties", "everything"))


def test_what_is_told_of_the_pair(session: Session, request: pytest.FixtureRequest) -> None:
    assert session.runner.draft is not None
    model = session.runner.draft.model
    assert isinstance(model, CrossTokenizerModel)
    assert isinstance(model.model, HfModel) == ("our own decoder" not in request.node.name)
    assert "the draft's tokens differ: it has 256 of the target's 256" in session.info.notes.note
    assert session.info.strategy("draft-tree").reason == "transformers' caches hold chains of tokens, no trees"


@pytest.mark.parametrize(("rows", "more", "by_us"), [(288, 320, True), (320, 288, False)])
def test_tokens_padded_to_other_numbers_are_the_same(rows: int, more: int, by_us: bool, tmp_path: Path) -> None:
    """As of Qwen2.5, whose 0.5B has 151,936 rows and whose 7B 152,064, for 151,665 tokens."""
    target = saved(network("qwen2_moe", vocab_size=more), tmp_path / "target")
    if by_us:
        draft = checkpoint(tmp_path / "draft", vocab_size=rows, tie_word_embeddings=False)
    else:
        draft = saved(network("qwen2_moe", seed=3, vocab_size=rows), tmp_path / "draft")
    session = loaded(target, draft)
    assert "tokens differ" not in session.info.notes.note
    padding = 0
    for sampling in (SAMPLINGS["greedy"], SAMPLINGS["T=1"]):
        plain = finished(reply(session, "abc", sampling, Limits(60), Speculation()))
        last = finished(reply(session, "abc", sampling, Limits(60), Speculation("draft", 5)))
        assert last.token_ids == plain.token_ids
        padding += sum(token >= 260 for token in plain.token_ids)
    assert padding, "a random target chooses its padding rows as well"
