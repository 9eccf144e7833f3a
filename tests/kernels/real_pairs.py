"""Pairs of published shapes, and what each launches on a card for consumers, found without compiling anything.

A few layers of a target are enough: `rehearsal.blank` keeps those that differ.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from measure.families import config
from specchat.bench.published import PUBLISHED
from specchat.engine.device.compile import Absent, Kernel, rehearsed
from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.device.rehearsal import HOST
from specchat.engine.kernels.ahead import Memory, as_of
from specchat.engine.kernels.processors import as_with
from specchat.engine.protocol.pair import Quant
from specchat.engine.runners.device import rehearse
from specchat.engine.weights.config import ModelConfig, parse_config
from tests.gpu_net.shapes import DTYPE, Storage, weights

LAYERS = 6
"""Of a target: one in six of Gemma's sees the whole text, one in four of Qwen3.5's is not recurrent."""
CONTEXT = 4096


@dataclass(frozen=True)
class Card:
    """Multiprocessors of a GPU, and its memory."""

    processors: int
    memory: Memory


CARDS = {
    86: Card(82, Memory(936e3, 6 << 20)),
    89: Card(128, Memory(1008e3, 72 << 20)),
    120: Card(170, Memory(1792e3, 96 << 20)),
}
"""An RTX 3090, 4090 and 5090, by compute capability."""


@dataclass(frozen=True)
class RealPair:
    """A target as a plan stores it, and its draft in int8."""

    target: ModelConfig
    draft: ModelConfig | None = None
    quant: Storage | None = "nf4"

    def launches(self, architecture: int) -> list[Kernel]:
        """All kernels that a load of the pair compiles on the card of an architecture."""
        target, draft = self._decoder(self.target.cut(LAYERS), self.quant), None
        if self.draft is not None:
            draft = self._decoder(self.draft.cut(LAYERS), "int8", "int8")
        card = CARDS[architecture]
        driver.set_active(Absent(GPUTarget("cuda", architecture, 32)))
        with as_with(card.processors), as_of(card.memory), patch.object(torch, "zeros", unwritten):
            return rehearsed(partial(rehearse, target, draft, self.target.vocab))

    def _decoder(self, config: ModelConfig, quant: Storage | None, head: Quant | None = None) -> DeviceDecoder:
        return DeviceDecoder(config, weights(config, quant, HOST, head), CONTEXT, HOST, DTYPE)


def unwritten(*sizes: Any, dtype: torch.dtype = torch.float32, **_: object) -> Tensor:
    """`torch.zeros` in memory that the system gives at the first write: nothing writes to what kernels would."""
    shape = torch.Size(sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes)
    data = np.zeros(max(1, prod(shape)) * dtype.itemsize, np.uint8)
    return torch.from_numpy(data).view(dtype)[: prod(shape)].view(shape)


NEXT = parse_config(
    Path(),
    {
        "model_type": "qwen3_next",
        "hidden_size": 2048,
        "intermediate_size": 5120,
        "num_hidden_layers": 48,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "vocab_size": 151936,
        "num_experts": 512,
        "num_experts_per_tok": 10,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
        "tie_word_embeddings": False,
        "max_position_embeddings": 131072,
    },
)
"""Qwen3-Next-80B-A3B."""


GEMMA3 = parse_config(
    Path(),
    {
        "model_type": "gemma3",
        "text_config": {
            "model_type": "gemma3_text",
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "num_hidden_layers": 34,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "sliding_window": 1024,
        },
    },
)
"""Gemma 3 4B, which reads pictures."""


def _published() -> Iterator[tuple[str, RealPair]]:
    for shapes in PUBLISHED.values():
        yield shapes.target_name, RealPair(shapes.target, shapes.draft)


def _alone(*names: str) -> dict[str, RealPair]:
    return {name: RealPair(config(name)) for name in names}


LLAMA = PUBLISHED["llama-3.1-8b"].target
PAIRS = {
    **dict(_published()),
    **_alone("Qwen3.5-9B", "Qwen3.8-27B", "Qwen3.6-35B-A3B"),
    "Qwen3-Next-80B-A3B": RealPair(NEXT),
    "Llama-3.1-8B, GGUF": RealPair(LLAMA, quant="Q4_K"),
    "Llama-3.1-8B, int4 with zero points": RealPair(LLAMA, quant="int4"),
    "Llama-3.1-8B, cache in 8 bits": RealPair(LLAMA.with_cache("int8")),
    **_alone("Gemma 4 31B", "Gemma 4 26B-A4B", "gpt-oss-20b", "Muse Glimmer 30B", "LFM2-1.2B"),
    "Gemma 3 4B": RealPair(GEMMA3),
}
