"""A pair of models: its files and settings."""

import os
from collections.abc import Mapping
from dataclasses import field, replace
from math import inf
from pathlib import PurePath
from typing import Literal

from specchat.dataclass import dataclass
from specchat.engine.backends import DEFAULT_BACKEND
from specchat.engine.strategy import Head, SkippedLayers

Quant = Literal["nf4", "fp4", "int8", "int4", "gguf"]
"""Quantisation of the layers' matrices. nf4 and fp4 have blocks of 64 with double-quantised scales (QLoRA), or fp4
those of MXFP4. int8 has one scale per row (the weights of LLM.int8, without its activations). int4 are integers, with
or without zero points, of checkpoints that were stored so. gguf are the types of a GGUF file, a matrix each."""
Wanted = Literal["nf4", "fp4", "int8", "none"]
"""The setting; "none" keeps the weights as stored."""
Device = Literal["auto", "cpu", "cuda", "second-gpu", "both-gpus"]
"""A model's device; "second-gpu", of a draft, is another one than "cuda", which is the target's. The layers of a target
may lie on both."""
ServerKind = Literal["auto", "openai", "llama.cpp", "vllm", "sglang", "trtllm", "triton", "specchat"]
DEFAULT_CONTEXT = 8192
"""Default tokens of a context: published ones of 128 k would take all memory."""
CacheType = Literal["f32", "f16", "q8_0"]
"""llama.cpp's type of KV entries."""
KvCache = Literal["int8"]
"""Another form of the native decoders' KV entries: int8 values in blocks (`model/kv_entries.py`)."""
Activations = Literal["float32", "int8", "bfloat16"]
"""Form of the rows that matrices multiply on a CPU: as they are; in 8 bits with weights of whole numbers
(`formats/int8_rows.py`); bfloat16 with dense weights, which are bfloat16 then (`formats/bfloat16_rows.py`)."""
QuantisedHead = Literal["int8"]
"""Form that a CPU may hold a dense head in: int8 values, with a scale for each token."""
QUANTS: tuple[Quant, ...] = ("nf4", "fp4", "int8")
QUANT_BITS: Mapping[Quant | Wanted | None, int] = {"nf4": 5, "fp4": 5, "int8": 8, "int4": 5, "gguf": 5}
"""Bits of a quantised weight, scales included, rounded up."""


def is_gguf(name: str) -> bool:
    """True for the name of a GGUF file."""
    return name.lower().endswith(".gguf")


@dataclass(frozen=True)
class GgufOptions:
    """llama.cpp's settings. `gpu_layers` None puts all on a GPU if there is one; `threads` None tries a few numbers."""

    gpu_layers: int | None = None
    threads: int | None = None
    cache: CacheType = "f16"
    flash_attention: bool = False


@dataclass(frozen=True)
class Server:
    """An inference server elsewhere, which runs a model.

    Attributes:
        url: its address, with or without the `/v1` of OpenAI's API.
        kind: the program that serves, a `ServerKind`; "auto" finds it out.
        model: the model's name there; empty for the server's first one.
        key_env: the environment variable with its key; empty where it needs none.
        keyring: the entry with its key in the system's keyring; empty where it needs none.
        tokenizer: the folder with the tokenizer and chat template, for a server that applies none.
        undrafted: a server of the same model that was started without drafting.
    """

    url: str
    kind: ServerKind = "auto"
    model: str = ""
    key_env: str = ""
    keyring: str = ""
    tokenizer: str = ""
    undrafted: "Server | None" = None


@dataclass(frozen=True)
class ModelSource:
    """A model's files, in a local folder (`path`) or a Hugging Face repository (`repo`), and its settings.

    A GGUF file is a `path` itself, or a `file` of a repository. A model on a `server` has no files here. `quant`
    quantises an unquantised checkpoint at load. None keeps the weights as stored, except for a draft on a GPU, for
    which the memory plan chooses. `activations` and `head` None are the pair's.
    """

    path: str | None = None
    repo: str | None = None
    revision: str | None = None
    quant: Wanted | None = None
    device: Device = "auto"
    activations: Activations | None = None
    head: QuantisedHead | None = None
    file: str | None = None
    gguf: GgufOptions = GgufOptions()
    server: Server | None = None

    @property
    def label(self) -> str:
        if self.server is not None:
            return f"{self.server.model} at {self.server.url}" if self.server.model else self.server.url
        return self.path or "/".join(part for part in (self.repo, self.file) if part) or "?"

    @property
    def short(self) -> str:
        """A short label: of a path, its last two parts."""
        return str(PurePath(*PurePath(self.path).parts[-2:])) if self.path else self.label

    @property
    def is_gguf(self) -> bool:
        """True for a GGUF name, and for any file at all, because Ollama's have other names."""
        return is_gguf(self.file or self.path or "") or os.path.isfile(os.path.expanduser(self.path or ""))


@dataclass(frozen=True)
class PairSpec:
    """A target with an optional draft, as the engine loads it.

    Attributes:
        heads: trained heads for the target, by family.
        draft_vocabulary: path of a file with the tokens that the draft may propose (text/draft_vocabulary.py).
        template: arguments of the target's chat template, such as enable_thinking.
        context: most tokens of a chat with its reply; None: the default, or with `long_context` as many as fit.
        cache: form of the KV entries of target and draft; None: full precision.
        activations, head: of models whose source states none; None: the model's default (`formats/activations.py`).
        exit_layer: number of the target's first layers that draft by `early-exit`; None to search for it.
        exit: folder of an adapter for `early-exit`, which replaces `exit_layer`.
        skip: what `swift` leaves out of the target; None to search for it.
        trust_remote_code: let the backend `hf` run code from the checkpoints.
    """

    id: str
    name: str
    target: ModelSource
    draft: ModelSource | None = None
    backend: str = DEFAULT_BACKEND
    context: int | None = None
    long_context: bool = False
    cache: KvCache | None = None
    activations: Activations | None = None
    head: QuantisedHead | None = None
    draft_vocabulary: str | None = None
    heads: Mapping[Head, ModelSource] = field(default_factory=dict)
    trust_remote_code: bool = False
    exit_layer: int | None = None
    exit: str | None = None
    skip: SkippedLayers | None = None
    template: Mapping[str, str | int | bool] = field(default_factory=dict)

    @property
    def own_settings(self) -> Mapping[str, str]:
        """Settings of the pair or its target, by key, that specchat's own decoder alone has."""
        activations, head = self.target.activations or self.activations, self.target.head or self.head
        device = "both-gpus" if self.target.device == "both-gpus" else None
        found = {"cache": self.cache, "activations": activations, "head": head, "device": device}
        return {key: value for key, value in found.items() if value is not None}

    def alike(self, other: "PairSpec") -> bool:
        """True if the two differ in their contexts at most."""
        return replace(self, context=None, long_context=False) == replace(other, context=None, long_context=False)

    @property
    def wanted_context(self) -> float:
        """Tokens of the context it wants, infinite for as many as fit."""
        return inf if self.long_context else self.context or DEFAULT_CONTEXT

    def fits_in(self, context: float) -> bool:
        """True if a context of so many tokens is as long as the pair wants it."""
        return not self.long_context and self.wanted_context <= context

    @property
    def sources(self) -> tuple[ModelSource, ...]:
        """All sources that are loaded: models and heads."""
        return (self.target, *([self.draft] if self.draft else []), *self.heads.values())
