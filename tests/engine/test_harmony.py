"""A reply of gpt-oss from its first token to the next prompt, by its published template."""

from pathlib import Path

import pytest

from specchat.engine.loading import load
from specchat.engine.protocol.options import Limits, Message, Written
from specchat.engine.protocol.pair import PairSpec
from tests.engine.scripted import scripted
from tests.engine.test_chat_formats import (
    ANSWER,
    ASKED,
    EXPECTED,
    FILES,
    NAMED,
    THOUGHT,
    name,
    request,
    said,
    tokenizer,
)
from tests.engine.tiny import on_cpu


@pytest.mark.parametrize("file", [file for file in FILES if EXPECTED[file.stem].end == "<|return|>"], ids=name)
def test_channels_are_written_after_each_other(file: Path, tmp_path: Path) -> None:
    """Reasoning, then a header and the answer, which the next prompt has as the template writes them."""
    source = file.read_text(encoding="utf-8")
    backend, begins = tokenizer(source), ("<|channel|>", "analysis", "<|message|>", THOUGHT[0])
    backend.add_tokens([*begins, "assistant", "final"])
    ids = backend.get_vocab()
    rest = (
        THOUGHT[1],
        "<|end|>",
        "<|start|>",
        "assistant",
        "<|channel|>",
        "final",
        "<|message|>",
        *ANSWER,
        "<|return|>",
    )
    settings = {kind: text for kind, text in NAMED.items() if kind != "eos_token"} | {"eos_token": "<|return|>"}
    scripted(tmp_path / "m", backend, [ids[text] for text in rest], settings, source, max_position_embeddings=16384)
    session = load(PairSpec("m", "M", on_cpu(tmp_path / "m"), context=16384), lambda _: None)
    begun = Written(THOUGHT[0], ((0, len(THOUGHT[0])),), True, tuple(ids[text] for text in begins))
    reply = said(session.generate(request(begun=begun, limits=Limits(32))))
    assert (reply.reason, reply.written.thoughts, reply.written.answer) == ("stop", "".join(THOUGHT), "".join(ANSWER))
    chat = ASKED, reply.written.message, Message("user", "And cats?")
    prompt = session.tokenizer.backend.decode(session.tokenizer.prompt(chat), skip_special_tokens=False)
    assert "<|channel|>final<|message|>" + "".join(ANSWER) in prompt
    assert "".join(THOUGHT) not in prompt, "earlier reasoning is left out, as its makers do"
