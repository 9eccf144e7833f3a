"""`specchat bench --against` with a GGUF pair: llama.cpp reads the pair's own file."""

from pathlib import Path

import pytest

from specchat.bench.contender import BenchPrompt
from specchat.bench.peers import llama_cpp as peer
from specchat.bench.peers import theirs
from specchat.engine.protocol.options import Limits, Message, Sampling, Speculation
from specchat.engine.session import Session
from tests.engine.test_lossless import finished, reply
from tests.llama_cpp.conftest import pair

pytestmark = pytest.mark.needs_llama


def test_llama_cpp_writes_with_the_pair_s_own_file(demo: Session, demo_files: tuple[Path, Path]) -> None:
    spec = pair(*demo_files)
    made = theirs(peer, demo, spec, Sampling())
    try:
        assert [one.name for one in made] == ["llama.cpp", "llama.cpp lookup x8"]
        text = "Say cat."
        prompt = BenchPrompt(text, "chat", (), tuple(demo.tokenizer.prompt([Message("user", text)])))
        ours = finished(reply(demo, text, Sampling(), Limits(24), Speculation()))
        assert made[0].run(prompt, 24).tokens == ours.token_ids
    finally:
        for one in made:
            one.close()
    assert demo_files[0].exists()


def test_other_programs_are_refused(demo: Session, demo_files: tuple[Path, Path]) -> None:
    from specchat.bench.peers import transformers

    with pytest.raises(ValueError, match="does not run GGUF files"):
        theirs(transformers, demo, pair(*demo_files), Sampling())
