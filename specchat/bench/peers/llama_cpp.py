"""llama.cpp through llama-cpp-python, on the target's weights: plain decoding and its prompt lookup."""

import os
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from specchat.bench.contender import CLOCK, BenchPrompt, Clock, Material, Run
from specchat.engine.errors import EngineError
from specchat.engine.llama_cpp.export import Kind, export
from specchat.engine.protocol.options import Sampling
from specchat.engine.protocol.pair import is_gguf
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.installing import install_command

WARM_UP_TOKENS = 32
"""Tokens of the replies that choose the number of threads."""
MAX_MATCH_TOKENS = 2
"""llama-cpp-python's default for the longest n-gram match."""


def contenders(material: Material, clock: Clock = CLOCK) -> "list[LlamaCpp]":
    """Plain decoding and prompt lookup of llama.cpp, on a temporary GGUF export of other weights.

    Raises:
        EngineError: "config": llama-cpp-python or gguf is not installed. "model": llama.cpp cannot read the weights.
    """
    if find_spec("llama_cpp") is None:
        raise EngineError(
            "config",
            "llama.cpp needs the package llama-cpp-python, which is not installed: "
            f"{install_command('specchat[gguf]')}.",
        )
    scratch = TemporaryDirectory(prefix="specchat-gguf-", ignore_cleanup_errors=True)
    opened: list[LlamaCpp] = []
    try:
        file, weights = material.target, "the same file"
        if not is_gguf(file.name):
            file = Path(scratch.name) / "target.gguf"
            checkpoint = Checkpoint.open(material.target)
            width = stored_width(checkpoint)
            export(checkpoint, file, width, material.target_quant, tokenizer=False)
            weights = f"{material.target_quant} weights as {width}" if material.target_quant else width
        shared = _Shared(scratch, weights)
        opened.append(LlamaCpp("llama.cpp", "plain", file, material, shared, None, clock))
        lookup = _lookup(material.lookup_length)
        name = f"llama.cpp lookup x{material.lookup_length}"
        opened.append(LlamaCpp(name, "lookup", file, material, shared, lookup, clock))
    except BaseException:
        for one in opened:
            one.close()
        scratch.cleanup()
        raise
    return opened


def stored_width(checkpoint: Checkpoint) -> Kind:
    """float16 for a checkpoint of 16-bit weights, which llama.cpp runs faster at no relevant loss; else float32."""
    return "f16" if checkpoint.dtype in (torch.float16, torch.bfloat16) else "f32"


class LlamaCpp:
    """One llama.cpp context, fed with token ids; `rival` is our strategy that does the same."""

    def __init__(
        self,
        name: str,
        rival: str,
        file: Path,
        material: Material,
        shared: "_Shared",
        draft: Any,
        clock: Clock = CLOCK,
    ) -> None:
        """`draft` is a llama_cpp.LlamaDraftModel, or None for plain decoding.

        Raises:
            EngineError: "model": llama.cpp cannot load `file`.
        """
        import llama_cpp

        self.name = name
        self.rival = rival
        self.note = ""
        self._api = llama_cpp
        self._shared = shared
        self._eos = material.eos
        self._options = _options(material.sampling)
        self._seed = material.sampling.seed
        self._clock = clock
        self._where = ""
        if material.on_gpu:
            offloads = llama_cpp.llama_supports_gpu_offload()
            self._where = "on the GPU" if offloads else "on the CPU: this llama-cpp-python is built without CUDA"
        try:
            self._model = llama_cpp.Llama(
                str(file),
                n_ctx=material.context,
                n_gpu_layers=-1 if material.on_gpu else 0,
                n_threads=1,
                n_threads_batch=1,
                draft_model=draft,
                logits_all=draft is not None,
                verbose=False,
            )
        except (ValueError, RuntimeError, AssertionError) as error:
            raise EngineError("model", f"llama.cpp cannot load the exported weights: {error}.") from None
        shared.join()

    def warm_up(self, prompt: BenchPrompt) -> None:
        """Choose between one thread and all cores by speed."""
        if self._model is None:
            raise ValueError(f"{self.name} is closed")
        tried = {threads: self._tried(prompt, threads) for threads in sorted({1, os.cpu_count() or 1})}
        best = max(tried, key=lambda threads: tried[threads])
        self._use(best)
        words = f"{best} of {max(tried)} threads, the faster in its warm-up"
        self.note = ", ".join(part for part in (words, self._shared.weights, self._where) if part)

    def run(self, prompt: BenchPrompt, most: int) -> Run:
        model = self._model
        if model is None:
            raise ValueError(f"{self.name} is closed")
        model.reset()
        model.set_seed(self._seed % 2**32)
        tokens: list[int] = []
        first = 0.0
        started = self._clock()
        for token in model.generate(list(prompt.tokens), **self._options):
            if not tokens:
                first = self._clock() - started
            tokens.append(token)
            if token in self._eos or len(tokens) >= most:
                break
        return Run(tuple(tokens), self._clock() - started, first, 1)

    def close(self) -> None:
        if self._model is not None:
            self._model.close()
            self._model = None
            self._shared.leave()

    def _tried(self, prompt: BenchPrompt, threads: int) -> float:
        self._use(threads)
        self.run(prompt, 2)
        return self.run(prompt, WARM_UP_TOKENS).speed or 0.0

    def _use(self, threads: int) -> None:
        self._api.llama_set_n_threads(self._model.ctx, threads, threads)


class _Shared:
    """A folder that is removed once its last user has closed; `weights` describes its content."""

    def __init__(self, folder: "TemporaryDirectory[str]", weights: str) -> None:
        self.weights = weights
        self._folder = folder
        self._users = 0

    def join(self) -> None:
        self._users += 1

    def leave(self) -> None:
        self._users -= 1
        if self._users == 0:
            self._folder.cleanup()


def _lookup(length: int) -> Any:
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

    return LlamaPromptLookupDecoding(max_ngram_size=MAX_MATCH_TOKENS, num_pred_tokens=length)


def _options(sampling: Sampling) -> dict[str, Any]:
    return {
        "temp": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "repeat_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
    }
