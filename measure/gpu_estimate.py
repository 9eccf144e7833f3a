"""Estimates a step of Llama-3.1-8B from its bytes and the compiled code, by what a step took on an H200.

`python -m measure.gpu_estimate` writes the table of docs/gpu-step.md, which explains the method and its limits.
"""

from dataclasses import dataclass

from specchat.engine.gpu_shapes import OVERHEAD, RESIDENT, TOGETHER, activates, tiling

LAYERS = 32
GATES = (28672, 4096)
LAYER = ((6144, 4096), (4096, 4096), GATES, (4096, 14336))
"""Outputs and inputs of q/k/v, output, gate/up, down."""
HEAD = (128_256, 4096)
KV_BYTES = LAYERS * 2 * 8 * 128 * 2 * 500
"""Bytes of the KV cache that a step reads at a context of 500 tokens."""
NF4_BYTES = 0.5 + 1 / 64 + 4 / 64 / 256
"""Bytes of a weight: four bits, its share of a scale, and its share of that scale's scale."""
SUM_BYTES = 2 * 4
"""A partial sum, written and read."""
SMALL, SMALL_US = 197, 4.1
"""Launches of a step bound by latency instead of memory, a layer's activation among them, and microseconds of each."""
HOST_MS = 0.15
"""Milliseconds between drafting steps: the report's copy to the host, and Python. Plain steps are scheduled ahead."""
OF_BANDWIDTH = 0.95
PASS_CYCLES = {4: 726, 16: 168}
"""Cycles of the busiest pipe in one iteration of a product's loop, by bits per weight.

That pipe is the integers' for nested NF4 (16,384 weights), and shared memory for 16 bits (4,096). A ceiling of
`tests/kernels/test_products.py` holds each.
"""


@dataclass(frozen=True)
class Card:
    """Multiprocessors, GHz and GB/s from the data sheet."""

    name: str
    processors: int
    clock: float
    bandwidth: float


CARDS = (
    Card("RTX 5090", 170, 2.41, 1792),
    Card("RTX 4090", 128, 2.52, 1008),
    Card("RTX 3090", 82, 1.695, 936),
    Card("H200", 132, 1.98, 4800),
)
BUSY = 0.6
"""Share of the time that the busiest pipe is busy: with it the H200's row is what was measured there."""


def product_ms(card: Card, outputs: int, inputs: int, bits: int, rows: int, busy: float) -> float:
    """The longer of moving the bytes and of computing on the busiest multiprocessor."""
    cut, whole = tiling(outputs, inputs, bits, card.processors), _activates(card, outputs, inputs)
    splits = 1 if whole else cut.splits
    sums = outputs * (1 if whole else splits * SUM_BYTES)  # bfloat16 for every second output
    moved = outputs * inputs * (NF4_BYTES if bits == 4 else 2) + rows * sums
    programs = -(-outputs // cut.outputs) * splits
    waves, rest = divmod(-(-programs // card.processors), RESIDENT[bits])
    together = waves * RESIDENT[bits] + (max(TOGETHER, rest) if rest else 0)
    passes = together * (-(-inputs // cut.inputs // splits) + OVERHEAD[bits])
    return max(moved / card.bandwidth / OF_BANDWIDTH, passes * PASS_CYCLES[bits] / busy / card.clock) / 1e6


def _activates(card: Card, outputs: int, inputs: int) -> bool:
    """Return true for gates whose product applies the activation."""
    return (outputs, inputs) == GATES and activates(outputs, inputs, 4, card.processors)


def step_ms(card: Card, rows: int, busy: float) -> float:
    """A verify pass of `rows` tokens, with a pipe busy for at most the share `busy` of the time."""
    layer = sum(product_ms(card, *shape, 4, rows, busy) for shape in LAYER)
    read = KV_BYTES / card.bandwidth / OF_BANDWIDTH / 1e6
    host = HOST_MS if rows > 1 else 0.0
    small = SMALL - LAYERS * _activates(card, *GATES)
    return LAYERS * layer + product_ms(card, *HEAD, 16, rows, busy) + read + small * SMALL_US / 1e3 + host


def floor_ms(card: Card) -> float:
    """Lower bound: all weights and the cache read once at the data sheet's bandwidth."""
    weights = LAYERS * sum(o * i for o, i in LAYER) * NF4_BYTES + HEAD[0] * HEAD[1] * 2
    return (weights + KV_BYTES) / card.bandwidth / 1e6


def table() -> str:
    """Markdown table: a row per card, with the busiest pipe as busy as on the H200 and all the time."""
    lines = ["| card | pipe busy | floor, ms | plain, ms | of the floor | 8 rows, of plain |", "|---" * 6 + "|"]
    for card in CARDS:
        for busy in (BUSY, 1.0):
            plain, floor = step_ms(card, 1, busy), floor_ms(card)
            several = step_ms(card, 8, busy) / plain
            lines.append(
                f"| {card.name} | {busy:.0%} | {floor:.2f} | {plain:.2f} | {plain / floor:.2f} | {several:.2f} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
