"""Pairs of published shapes, and what each launches on a card for consumers, found without compiling anything.

A few layers of a target are enough: `rehearsal.blank` keeps those that differ.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

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
from specchat.engine.weights.config import ModelConfig
from tests.gpu_net.shapes import DTYPE, weights

LAYERS = 6
"""Of a target: one in six of Gemma's sees the whole text, one in four of Qwen3.5's is not recurrent."""
CONTEXT = 8192


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
    quant: Quant | None = "nf4"

    def launches(self, architecture: int) -> list[Kernel]:
        """All kernels that a load of the pair compiles on the card of an architecture."""
        target, draft = self._decoder(self.target.cut(LAYERS), self.quant), None
        if self.draft is not None:
            draft = self._decoder(self.draft.cut(LAYERS), "int8", "int8")
        card = CARDS[architecture]
        driver.set_active(Absent(GPUTarget("cuda", architecture, 32)))
        with as_with(card.processors), as_of(card.memory):
            return rehearsed(partial(rehearse, target, draft, self.target.vocab))

    def _decoder(self, config: ModelConfig, quant: Quant | None, head: Quant | None = None) -> DeviceDecoder:
        return DeviceDecoder(config, weights(config, quant, HOST, head), CONTEXT, HOST, DTYPE)


def _published() -> Iterator[tuple[str, RealPair]]:
    for shapes in PUBLISHED.values():
        yield shapes.target_name, RealPair(shapes.target, shapes.draft)


PAIRS = {
    **dict(_published()),
    **{
        name: RealPair(config(name))
        for name in (
            "Qwen3.5-9B",
            "Qwen3.8-27B",
            "Qwen3.6-35B-A3B",
            "Qwen3-Next-80B-A3B",
            "Gemma 4 31B",
            "Gemma 4 26B-A4B",
            "gpt-oss-20b",
            "Muse Glimmer 30B",
            "LFM2-1.2B",
        )
    },
}
