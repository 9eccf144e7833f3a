"""Models whose rows depend on the others of a pass, whatever pads it: what is kept of a chat changes no text."""

import ctypes

import pytest
import torch

from measure.random_gguf import write
from specchat.engine.decoding.cached import CachedModel
from specchat.engine.decoding.row_invariance import UNEVEN_BLOCK
from specchat.engine.llama_cpp.model import GgufModel
from specchat.engine.protocol.events import Finished, Started
from specchat.engine.protocol.options import Limits, Message, Speculation
from specchat.engine.protocol.pair import GgufOptions
from specchat.engine.protocol.requests import Generate
from specchat.engine.session import Session
from specchat.engine.weights.checkpoint import Checkpoint
from tests.conftest import MISSING
from tests.engine.test_lossless import SAMPLINGS
from tests.engine.tiny import MORE, checkpoint
from tests.llama_cpp.conftest import byte_tokenizer, loaded

pytestmark = pytest.mark.needs_llama

WINDOWED = MORE["gemma3"] | {
    "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "head_dim": 64,
    "query_pre_attn_scalar": 64, "sliding_window": 32, "max_position_embeddings": 1024,
    "final_logit_softcapping": None, "rope_scaling": None, "rope_local_base_freq": 10000.0, "tie_word_embeddings": True,
}  # fmt: skip
Q4_K_M = 15
"""llama.cpp's number of the type, whose products round one row and several otherwise."""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """A random model with windows."""
    if MISSING:
        pytest.skip(f"needs {' and '.join(MISSING)}")
    import llama_cpp

    folder = tmp_path_factory.mktemp("windowed")
    write(
        Checkpoint.open(checkpoint(folder, backend=byte_tokenizer(), **WINDOWED)),
        folder / "f32.gguf",
        "f32",
        tokenizer=True,
    )
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.nthread = Q4_K_M, 1
    files = (str(folder / name).encode() for name in ("f32.gguf", "q4.gguf"))
    assert llama_cpp.llama_model_quantize(*files, ctypes.byref(params)) == 0
    made = loaded(folder / "q4.gguf", options=GgufOptions(threads=1))
    assert isinstance(made.target.model, GgufModel)
    made.target.model.uneven = True  # on any processor
    return made


def test_a_text_goes_on_as_if_it_were_read_from_the_start(session: Session) -> None:
    """Bit for bit: nothing is kept that a reply wrote, row by row, nor the end of a prompt."""
    model = session.target.model
    assert isinstance(model, GgufModel)
    text = [(7919 * (place + 1)) % model.vocab for place in range(2 * UNEVEN_BLOCK + 90)]
    asked, longer = text[: UNEVEN_BLOCK + 37], [*text[:-20], *text[:9]]
    for at in (text, longer):
        cold = CachedModel(model).next_logits(at)
        warm = CachedModel(model)
        warm.begin(asked)
        for place in range(len(asked) - 1, len(text) - 1):
            model.forward([text[place]], place)
        warm.hold(text, len(text) - 1)
        assert warm.rewind(at) == UNEVEN_BLOCK
        assert torch.equal(warm.next_logits(at), cold)


@pytest.mark.parametrize("name", SAMPLINGS)
def test_plain_and_every_strategy_write_what_is_written_from_empty_caches(session: Session, name: str) -> None:
    def answer(chat: tuple[Message, ...], speculation: Speculation, cold: bool) -> tuple[int, Finished]:
        request = Generate(1, chat, SAMPLINGS[name], Limits(24), speculation, cold=cold)
        events = list(session.generate(request))
        (reused,) = (event.reused for event in events if isinstance(event, Started))
        last = events[-1]
        assert isinstance(last, Finished)
        return reused, last

    first = (Message("user", "the cat sat on the mat and " * 9),)
    _, plain = answer(first, Speculation(), True)
    second = (*first, Message("assistant", plain.text), Message("user", "Go on."))
    turns = [(first, plain), (second, answer(second, Speculation(), True)[1])]
    session.forget()
    for strategy in ("plain", "lookup", "suffix", "ngram", "auto"):
        for number, (chat, expected) in enumerate(turns):
            reused, last = answer(chat, Speculation.of(strategy), False)
            assert last.token_ids == expected.token_ids, (strategy, number)
        assert reused == UNEVEN_BLOCK
