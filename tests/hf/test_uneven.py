"""Networks whose rows depend on the others of a pass: what is kept of a chat changes no bit of the next turn."""

import pytest
import torch

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.decoding.row_invariance import UNEVEN_BLOCK, Proof
from specchat.engine.hf.model import HfModel
from tests.hf.networks import missing, network

CONTEXT = 400
STATES = {"mamba_d_ssm": 96, "mamba_n_heads": 8, "mamba_d_state": 8, "mamba_chunk_size": 32}


@pytest.mark.parametrize(("kind", "sizes"), [("olmo2", {}), ("gemma3_text", {}), ("falcon_h1", STATES)])
def test_a_text_goes_on_as_if_it_were_read_from_the_start(kind: str, sizes: dict[str, int]) -> None:
    if reason := missing(kind):
        pytest.skip(reason)
    model = HfModel(network(kind, max_position_embeddings=CONTEXT, **sizes), CONTEXT, kind)
    model.uneven = True
    text = [(7919 * (place + 1)) % model.vocab for place in range(2 * UNEVEN_BLOCK + 90)]
    asked, longer = text[: UNEVEN_BLOCK + 37], [*text[:-20], *text[:9]]
    for at in (text, longer):
        cold = CachedModel(model).next_logits(at).clone()
        warm = CachedModel(model)
        warm.begin(asked)
        for place in range(len(asked) - 1, len(text) - 3, 3):
            model.forward(text[place : place + 3], place)
        warm.hold(text, len(text) - 4)
        assert warm.rewind(at) == UNEVEN_BLOCK
        assert torch.equal(warm.next_logits(at), cold)


def test_rows_that_differ_are_told_with_what_is_kept() -> None:
    assert Proof(0.5).uneven
    assert "128 tokens of a chat are kept at a time" in Proof(0.5).exactness
    assert not Proof(0.5, alone=True).uneven
    assert not Proof(0.5, unsupported="it reads one token a pass").uneven
    assert not Proof().uneven
