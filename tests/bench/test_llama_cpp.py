"""llama.cpp as a contender: the loop with a scripted model, then the real one."""

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch

from specchat.bench.contender import BenchPrompt, Material
from specchat.bench.peers import llama_cpp as peer
from specchat.config.paths import demo_model
from specchat.engine.decoding.cached import CachedModel
from specchat.engine.errors import EngineError
from specchat.engine.protocol.options import Message, Sampling
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.text.tokenizer import Tokenizer
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.tiny import checkpoint

needs_gguf = pytest.mark.skipif(find_spec("gguf") is None, reason="needs the package gguf")
needs_llama = pytest.mark.skipif(
    find_spec("llama_cpp") is None or find_spec("gguf") is None, reason="needs llama-cpp-python and gguf"
)


def material(folder: Path, eos: frozenset[int] = frozenset({256}), length: int = 4) -> Material:
    return Material(folder, None, None, None, False, eos, Sampling(), 256, length)


def asked(*tokens: int) -> BenchPrompt:
    return BenchPrompt("one", "chat", (), tokens)


def greedy(decoder: ReferenceDecoder, prompt: BenchPrompt, most: int, eos: frozenset[int]) -> tuple[int, ...]:
    """The reference: argmax after argmax of our decoder."""
    model, text = CachedModel(decoder), list(prompt.tokens)
    while len(text) - len(prompt.tokens) < most and not (len(text) > len(prompt.tokens) and text[-1] in eos):
        text.append(int(model.next_logits(text).argmax()))
    return tuple(text[len(prompt.tokens) :])


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Threads that share a core with another program wait for each other at every product."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# The loop, with a scripted model in llama.cpp's place.


class Scripted:
    """Writes 10, 11, 12, ...; the clock says one second a token with one thread, two with more."""

    now = 0.0
    pace = 1.0
    options: ClassVar[dict[str, Any]] = {}

    def __init__(self, path: str, **options: Any) -> None:
        assert Path(path).exists()
        self.ctx = self
        self.made = options
        self.empty = False

    def reset(self) -> None:
        self.empty = True

    def set_seed(self, seed: int) -> None:
        assert 0 <= seed < 2**32

    def generate(self, tokens: list[int], **options: Any) -> Iterator[int]:
        Scripted.options = options
        assert self.empty, "a reply must not find the last one in the cache"
        self.empty = False
        for token in range(10, 1000):
            Scripted.now += Scripted.pace
            yield token

    def close(self) -> None:
        pass


def choose_threads(_: Scripted, threads: int, __: int) -> None:
    Scripted.pace = 1.0 if threads == 1 else 2.0


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("llama_cpp")
    vars(module).update(
        Llama=Scripted, llama_set_n_threads=choose_threads, llama_supports_gpu_offload=lambda: False, __spec__=object()
    )
    speculative = ModuleType("llama_cpp.llama_speculative")
    vars(speculative)["LlamaPromptLookupDecoding"] = SimpleNamespace
    monkeypatch.setitem(sys.modules, "llama_cpp", module)
    monkeypatch.setitem(sys.modules, "llama_cpp.llama_speculative", speculative)
    monkeypatch.setattr(peer, "find_spec", lambda _: object())
    monkeypatch.setattr(peer, "export", lambda _, file, *__, **___: file.write_bytes(b"GGUF"))
    monkeypatch.setattr(peer.os, "cpu_count", lambda: 4)


@pytest.mark.usefixtures("scripted")
def test_plain_and_lookup_are_timed_by_the_clock_and_end_at_the_limit_or_the_end_token(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path)
    plain, lookup = peer.contenders(material(folder, frozenset({14})), clock=lambda: Scripted.now)
    assert (plain.rival, lookup.rival, lookup.name) == ("plain", "lookup", "llama.cpp lookup x4")
    plain.warm_up(asked(1, 2))
    assert plain.note == "1 of 4 threads, the faster in its warm-up, f32"
    run = plain.run(asked(1, 2), 3)
    assert (run.tokens, run.seconds, run.first_seconds, run.speed) == ((10, 11, 12), 3.0, 1.0, 1.0)
    assert plain.run(asked(1, 2), 50).tokens == (10, 11, 12, 13, 14)
    assert Scripted.options["temp"] == 0
    plain.close()
    assert lookup.run(asked(1), 1).tokens == (10,)
    lookup.close()


@pytest.mark.usefixtures("scripted")
def test_the_exported_file_goes_with_the_last_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "files"))
    (tmp_path / "files").mkdir()
    plain, lookup = peer.contenders(material(checkpoint(tmp_path / "model")))
    plain.close()
    plain.close()
    assert list((tmp_path / "files").rglob("*.gguf"))
    lookup.close()
    assert not list((tmp_path / "files").iterdir())


@pytest.mark.usefixtures("scripted")
def test_weights_that_llama_cpp_refuses_are_told_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ValueError("Failed to load model from file")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "files"))
    (tmp_path / "files").mkdir()
    monkeypatch.setattr(sys.modules["llama_cpp"], "Llama", refuse)
    with pytest.raises(EngineError, match=r"llama\.cpp cannot load the exported weights"):
        peer.contenders(material(checkpoint(tmp_path / "model")))
    assert not list((tmp_path / "files").iterdir())


def test_without_the_package_a_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer, "find_spec", lambda _: None)
    with pytest.raises(EngineError, match=r'llama-cpp-python, which is not installed: .*"specchat\[gguf\]"'):
        peer.contenders(material(tmp_path))


# llama.cpp itself.


@needs_llama
def test_the_demo_target_writes_our_greedy_texts() -> None:
    folder = demo_model("target")
    tokenizer, decoder = Tokenizer.read(folder), ReferenceDecoder(Checkpoint.open(folder))
    eos = decoder.config.eos | tokenizer.eos
    texts = (
        "hi, computer",
        "Say cat.",
        "Write a story about a fox.",
        "Count to five.",
        "Copy this: one two three one two",
    )
    prompts = [BenchPrompt(text, "chat", (), tuple(tokenizer.prompt([Message("user", text)]))) for text in texts]
    plain, lookup = peer.contenders(material(folder, eos))
    try:
        for contender in (plain, lookup):
            same = [contender.run(p, 48).tokens == greedy(decoder, p, 48, eos) for p in prompts]
            # Its caches are float16: on another processor a near-tie may fall the other way.
            assert sum(same) >= len(prompts) - 1, (contender.name, same)
    finally:
        plain.close()
        lookup.close()
