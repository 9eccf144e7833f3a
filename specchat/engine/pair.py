"""A pair of models: where its files are and how it is to run, and what is known of it once it is loaded."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Literal

from specchat.engine.backends import DEFAULT_BACKEND
from specchat.engine.options import Sampling
from specchat.engine.strategies import STRATEGIES
from specchat.engine.strategy import Head

Quant = Literal["nf4", "fp4", "int8"]
"""How the matrices of a model's layers are kept. nf4 and fp4 have blocks of 64 with
double-quantised scales (QLoRA), int8 one scale a row (the weights of LLM.int8, without its activations)."""
Wanted = Quant | Literal["none"]
"""What may be asked for; "none" takes the weights as they are stored."""
Device = Literal["auto", "cpu", "cuda"]
CacheType = Literal["f32", "f16", "q8_0"]
"""What llama.cpp keeps an entry of the cache as."""

QUANTS: tuple[Quant, ...] = ("nf4", "fp4", "int8")
QUANT_BITS: Mapping[Wanted | None, int] = {"nf4": 5, "fp4": 5, "int8": 8}
"""Bits of a weight that bitsandbytes quantised, scales included, rounded up."""
CACHE_TYPES: tuple[CacheType, ...] = ("f32", "f16", "q8_0")


def is_gguf(name: str) -> bool:
    """Whether this is the name of a GGUF file."""
    return name.lower().endswith(".gguf")


@dataclass(frozen=True)
class GgufOptions:
    """How llama.cpp runs a model. `gpu_layers` None: all where it can; `threads` None: the fastest of a few numbers."""

    gpu_layers: int | None = None
    threads: int | None = None
    cache: CacheType = "f16"
    flash_attention: bool = False


@dataclass(frozen=True)
class ModelSource:
    """Where a model's files are, a local folder (`path`) or a Hugging Face repository (`repo`), and how it is to run.

    A GGUF file is a `path` by itself, or a `file` of a repository. `quant` quantises an unquantised checkpoint while it
    is loaded. None takes the weights as they are stored, but for a draft on a GPU, for which the plan chooses.
    """

    path: str | None = None
    repo: str | None = None
    revision: str | None = None
    quant: Wanted | None = None
    device: Device = "auto"
    file: str | None = None
    gguf: GgufOptions = GgufOptions()

    @property
    def label(self) -> str:
        return self.path or "/".join(part for part in (self.repo, self.file) if part) or "?"

    @property
    def short(self) -> str:
        """The label, of a path its last two parts: where the place is known."""
        return str(PurePath(*PurePath(self.path).parts[-2:])) if self.path else self.label

    @property
    def is_gguf(self) -> bool:
        """Whether it is a GGUF file by its name, or by being a file at all: Ollama's have other names."""
        return is_gguf(self.file or self.path or "") or os.path.isfile(os.path.expanduser(self.path or ""))


@dataclass(frozen=True)
class PairSpec:
    """A target with an optional draft, as the engine loads it.

    `heads` are trained ones for the target, by family. `draft_vocabulary` is the path of a file with the tokens that
    the draft may propose (model/draft_vocabulary.py).
    `exit_layer` is the number of the target's first layers that draft by `early-exit`; None to find it out.
    With `trust_remote_code` programs that come with the checkpoints are run, by the backend `hf` alone.
    """

    id: str
    name: str
    target: ModelSource
    draft: ModelSource | None = None
    backend: str = DEFAULT_BACKEND
    context: int | None = None
    draft_vocabulary: str | None = None
    heads: Mapping[Head, ModelSource] = field(default_factory=dict)
    trust_remote_code: bool = False
    exit_layer: int | None = None

    @property
    def sources(self) -> tuple[ModelSource, ...]:
        """All that is read: the models and the heads."""
        return (self.target, *([self.draft] if self.draft else []), *self.heads.values())


@dataclass(frozen=True)
class StrategyStatus:
    """Whether a strategy works for the loaded pair, and in words why not."""

    name: str
    available: bool
    reason: str = ""


NO_SYSTEM_ROLE = "This model's chat template has no system role: the system prompt goes before the first message."


@dataclass(frozen=True)
class PairInfo:
    """The loaded pair. `memory` in bytes; plain speeds were measured at load on this machine."""

    id: str
    name: str
    device: str
    context: int
    vocab_size: int
    target_parameters: int
    draft_parameters: int
    memory: int
    strategies: tuple[StrategyStatus, ...]
    plain_tokens_per_second: float
    draft_cost: float | None
    """Draft step time over target step time, measured at load."""
    load_seconds: float
    exactness: str
    """How equality with plain decoding is ensured here, in words."""
    note: str
    """Why a pair is run otherwise than expected, such as on the CPU where there is a GPU, in words; "" if it is not."""
    plain_sampled_tokens_per_second: float = 0.0
    """Plain speed where tokens are drawn, which costs a small model much of a step; 0 where it was not measured."""
    gpu: str = ""
    """The UUID of the GPU that the target runs on, as NVML names it; empty on the CPU."""
    draft_tokens: int | None = None
    """How many tokens the draft may propose, where a draft vocabulary leaves some out."""
    warning: str = ""
    """What the pair asks for and does not get, in sentences; empty otherwise."""
    template: tuple[tuple[str, str], ...] = ()
    """The habits of the target's chat template, as names and words."""
    system_role: bool = True
    """Whether that template takes a system prompt as one; otherwise it goes before the first message."""
    draft_context: int | None = None
    """Tokens that the draft holds, where the target holds more."""

    def plain_speed(self, sampling: Sampling) -> float:
        """The plain speed that a reply with these options is compared with, in tokens per second."""
        drawn = self.plain_sampled_tokens_per_second if not sampling.greedy else 0.0
        return drawn or self.plain_tokens_per_second

    def undrafted(self, strategy: str, tokens: int) -> str:
        """That a chat of so many tokens is too long for the draft of a `strategy`, in words; empty where it is not."""
        drafts = STRATEGIES[strategy].needs_draft or strategy == "auto"
        if not drafts or self.draft_context is None or tokens < self.draft_context:
            return ""
        return f"the draft model holds {self.draft_context:,} tokens: in a longer chat it drafts nothing"

    def strategy(self, name: str) -> StrategyStatus:
        return next(s for s in self.strategies if s.name == name)
