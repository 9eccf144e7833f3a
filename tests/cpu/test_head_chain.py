"""An EAGLE head's chain drafted in one go is the one drafted token by token, up to rounding."""

from pathlib import Path
from typing import Any

import pytest
import torch

from specchat.engine.cpu.decoder import CpuDecoder
from specchat.engine.decoding.cached import CachedModel
from specchat.engine.decoding.costs import StepCosts
from specchat.engine.decoding.draft import Chain
from specchat.engine.decoding.host_loops import HostLoops
from specchat.engine.decoding.length_policy import LengthPolicies
from specchat.engine.decoding.reply_rules import ReplyRules
from specchat.engine.heads.eagle3 import Eagle3Head
from specchat.engine.heads.files import HeadFiles
from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.protocol.options import Sampling
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.published_heads import eagle3
from tests.engine.test_decoder import tokens
from tests.engine.tiny import checkpoint

pytestmark = pytest.mark.cpu
CONTEXT = 64
TEXT = tokens(40)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> CachedModel[CachedDecoder]:
    folder = checkpoint(tmp_path_factory.mktemp("target") / "m", num_hidden_layers=6, tie_word_embeddings=True)
    return CachedModel(CpuDecoder(Checkpoint.open(folder), CONTEXT, threads=1))


def drafted(head: Eagle3Head, text: list[int], read: int, sampling: Sampling) -> tuple[list[int], list[float]]:
    """A draft of five after `text`, of which the head has read so many tokens; the target all but the last."""
    policies = LengthPolicies(StepCosts())
    policies.off = True
    cached: CachedModel[Any] = CachedModel(head)
    drafts = HostLoops({"eagle3": cached}, head.vocab, policies)
    drafts.begin(ReplyRules(sampling), text)
    head.target.begin(text)
    while len(cached.tokens) < read:
        cached.fill(text[: read + 1])
    draft = drafts.make(Chain("eagle3", "eagle3", 5)).draft
    return list(draft.tokens), list(draft.confidence)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.0, seed=3)], ids=["greedy", "T=1"])
@pytest.mark.parametrize(
    "told",
    [{}, {"norm_before_residual": True}, {"norm_before_fc": True}, {"fc_norm": True}, {"layout": "modelopt"}],
    ids=str,
)
def test_tokens_probabilities_and_features_are_those_of_one_after_another(
    told: dict[str, Any], sampling: Sampling, target: CachedModel[CachedDecoder], tmp_path: Path
) -> None:
    files = HeadFiles.open(eagle3(tmp_path, few=None, **told))
    quick, slow = Eagle3Head(files, target), Eagle3Head(files, target)
    assert quick._chain is not None
    assert quick.memory() > 0
    slow._chain = None
    for length, read in ((30, 28), (31, 24), (40, 38), (20, 1)):
        found, expected = (drafted(head, TEXT[:length], read, sampling) for head in (quick, slow))
        assert found[0] == expected[0]
        assert len(found[0]) == 5
        assert found[1] == pytest.approx(expected[1], rel=1e-3)
        torch.testing.assert_close(quick._made[length - 1 : length + 4], slow._made[length - 1 : length + 4])


@pytest.mark.parametrize(
    "told", [{"few": 120}, {"layers": 2}, {"layout": "speculators"}, {"norm_output": True}], ids=str
)
def test_other_heads_go_token_by_token(
    told: dict[str, Any], target: CachedModel[CachedDecoder], tmp_path: Path
) -> None:
    head = Eagle3Head(HeadFiles.open(eagle3(tmp_path, **({"few": None} | told))), target)
    assert head._chain is None
    assert len(drafted(head, TEXT[:30], 28, Sampling())[0]) == 5


@pytest.mark.parametrize(("length", "whole"), [(CONTEXT - 4, True), (CONTEXT - 3, False)])
def test_a_chain_beyond_the_context_is_not_begun(
    length: int, whole: bool, target: CachedModel[CachedDecoder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = Eagle3Head(HeadFiles.open(eagle3(tmp_path, few=None)), target)
    found: list[bool] = []
    chain = head.draft_chain

    def counted(*arguments: Any) -> list[tuple[int, float]]:
        made = chain(*arguments)
        found.append(bool(made))
        return made

    monkeypatch.setattr(head, "draft_chain", counted)
    drafted(head, tokens(CONTEXT)[:length], length - 2, Sampling())
    assert found[0] is whole
