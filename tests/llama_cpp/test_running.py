"""Models whose layers keep a running state: plain decoding, the same with a reused prefix, and nothing drafted."""

from pathlib import Path
from typing import Any

import pytest
import torch

from specchat.engine.errors import EngineError, ModelError
from specchat.engine.llama_cpp.vocabulary import Vocabulary, describe
from specchat.engine.protocol.options import Limits, Message, Sampling, Speculation
from specchat.engine.protocol.requests import Generate
from specchat.engine.session import Session
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.test_lossless import SAMPLINGS, finished, reply
from tests.hf.networks import network
from tests.llama_cpp.conftest import loaded

pytestmark = pytest.mark.needs_llama

PARTS = {
    "norm": "attn_norm",
    "mixer.in_proj": "ssm_in",
    "mixer.conv1d": "ssm_conv1d",
    "mixer.x_proj": "ssm_x",
    "mixer.dt_proj": "ssm_dt",
    "mixer.out_proj": "ssm_out",
}
"""llama.cpp's names by those of transformers' Mamba."""


@pytest.fixture(scope="module")
def mamba() -> Any:
    return network("mamba")


@pytest.fixture(scope="module")
def file(mamba: Any, folders: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    import gguf

    c = mamba.config
    made = tmp_path_factory.mktemp("mamba") / "mamba.gguf"
    writer = gguf.GGUFWriter(made, "mamba")
    writer.add_context_length(256)
    writer.add_embedding_length(c.hidden_size)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_block_count(c.num_hidden_layers)
    writer.add_ssm_conv_kernel(c.conv_kernel)
    writer.add_ssm_inner_size(c.intermediate_size)
    writer.add_ssm_state_size(c.state_size)
    writer.add_ssm_time_step_rank(c.time_step_rank)
    writer.add_layer_norm_rms_eps(c.layer_norm_epsilon)
    describe(writer, gguf, Vocabulary.of(Checkpoint.open(folders[0])), c.vocab_size)
    outer = {"backbone.embeddings": "token_embd", "backbone.norm_f": "output_norm", "lm_head": "output"}
    for name, weight in mamba.state_dict().items():
        whole, _, kind = name.rpartition(".")
        place = whole.removeprefix("backbone.layers.")
        index, _, part = place.partition(".")
        if kind == "A_log":
            theirs, weight = f"blk.{index}.ssm_a", -weight.exp()
        elif kind == "D":
            theirs = f"blk.{index}.ssm_d"
        else:
            theirs = f"{outer.get(whole) or f'blk.{index}.{PARTS[part]}'}.{kind}"
        writer.add_tensor(theirs, (weight.squeeze(1) if weight.dim() == 3 else weight).contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return made


@pytest.fixture(scope="module")
def session(file: Path) -> Session:
    return loaded(file)


def test_greedy_text_is_that_of_transformers(session: Session, mamba: Any) -> None:
    prompt = session.tokenizer.prompt([Message("user", "the cat")])
    ids = torch.tensor([prompt])
    with torch.inference_mode():
        out = mamba.generate(
            ids, max_new_tokens=40, do_sample=False, attention_mask=torch.ones_like(ids), pad_token_id=0
        )
    expected = [int(token) for token in out[0, len(prompt) :]]
    last = finished(reply(session, "the cat", Sampling(), Limits(40), Speculation()))
    ended = next((at for at, token in enumerate(expected) if token in session.eos), len(expected))
    assert list(last.token_ids) == expected[: ended + 1]
    assert len(set(last.token_ids)) > 2


def test_only_plain_is_offered_and_the_rest_says_why(session: Session) -> None:
    assert session.info.notes.exactness == "one token after the other: nothing is drafted"
    assert {s.name for s in session.info.strategies if s.available} == {"plain", "auto"}
    told = session.info.strategy("lookup").reason
    assert told == "plain only: it keeps a running state, of which llama.cpp takes nothing back"
    with pytest.raises(EngineError, match="plain only"):
        reply(session, "x", Sampling(), Limits(4), Speculation("lookup", 4))


@pytest.mark.parametrize("name", ["greedy", "T=1"])
def test_a_reused_prefix_changes_nothing(session: Session, name: str) -> None:
    sampling = SAMPLINGS[name]
    first = finished(reply(session, "the cat", sampling, Limits(20), Speculation()))
    chat = (Message("user", "the cat"), Message("assistant", first.text), Message("user", "and"))
    for strategy in ("plain", "auto"):
        request = Generate(8, chat, sampling, Limits(20), Speculation.of(strategy))
        warm = finished(list(session.generate(request)))
        session.forget()
        cold = finished(list(session.generate(request)))
        assert warm.token_ids == cold.token_ids
    again = finished(reply(session, "the cat", sampling, Limits(20), Speculation()))
    assert again.token_ids == first.token_ids


def test_it_cannot_draft(file: Path, files: tuple[Path, Path]) -> None:
    with pytest.raises(ModelError, match="cannot draft: it keeps a running state"):
        loaded(files[0], file)
