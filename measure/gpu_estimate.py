"""Estimate a step of Llama-3.1-8B on GPUs that are not at hand, from its bytes and from compiled code.

`python -m measure.gpu_estimate` writes the table of docs/gpu-step.md, which has the method and what it leaves out.
"""

from dataclasses import dataclass

from specchat.engine.gpu_shapes import OVERHEAD, RESIDENT, TOGETHER, tiling

LAYERS = 32
LAYER = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336))
"""Outputs and inputs of q/k/v, output, gate/up, down."""
HEAD = (128_256, 4096)
KV_BYTES = LAYERS * 2 * 8 * 128 * 2 * 500
"""Bytes of the KV cache that a step reads: a context of 500 tokens."""
NF4_BYTES = 0.5 + 1 / 64 + 4 / 64 / 256
"""Bytes a weight: its four bits, its part of the scale, and its part of the scale's own scale."""
SUM_BYTES = 2 * 4
"""A partial sum, written and read."""
SMALL, SMALL_US = 197, 4.1
"""Launches of a step that wait for the one before rather than for memory, and what each takes."""
HOST_MS = 0.15
"""Between steps that draft: the report's way to the host, and Python. A plain one is started before."""
OF_BANDWIDTH = 0.95
PASS_CYCLES = {4: 536, 16: 256}
"""Cycles that one pass of a product's loop keeps its busiest pipe, by bits a weight.

That pipe is shared memory for NF4 nested, and the tensor cores for 16 bits.
"""


@dataclass(frozen=True)
class Card:
    """Multiprocessors, GHz and GB/s by the data sheet."""

    name: str
    processors: int
    clock: float
    bandwidth: float


CARDS = (Card("RTX 4090", 128, 2.52, 1008), Card("RTX 3090", 82, 1.695, 936))


def product_ms(card: Card, outputs: int, inputs: int, bits: int, rows: int, busy: float) -> float:
    """The longer of moving its bytes and of the passes of the multiprocessor that has most to do."""
    cut = tiling(outputs, inputs, bits, card.processors)
    moved = outputs * inputs * (NF4_BYTES if bits == 4 else 2) + rows * outputs * cut.splits * SUM_BYTES
    programs = -(-outputs // cut.outputs) * cut.splits
    waves, rest = divmod(-(-programs // card.processors), RESIDENT[bits])
    together = waves * RESIDENT[bits] + (max(TOGETHER, rest) if rest else 0)
    passes = together * (-(-inputs // cut.inputs // cut.splits) + OVERHEAD)
    return max(moved / card.bandwidth / OF_BANDWIDTH, passes * PASS_CYCLES[bits] / busy / card.clock) / 1e6


def step_ms(card: Card, rows: int, busy: float) -> float:
    """A verify pass of `rows` tokens, a pipe being `busy` for that part of the time at best."""
    layer = sum(product_ms(card, *shape, 4, rows, busy) for shape in LAYER)
    read = KV_BYTES / card.bandwidth / OF_BANDWIDTH / 1e6
    host = HOST_MS if rows > 1 else 0.0
    return LAYERS * layer + product_ms(card, *HEAD, 16, rows, busy) + read + SMALL * SMALL_US / 1e3 + host


def floor_ms(card: Card) -> float:
    """All weights and the cache read once, at the data sheet's bandwidth."""
    weights = LAYERS * sum(o * i for o, i in LAYER) * NF4_BYTES + HEAD[0] * HEAD[1] * 2
    return (weights + KV_BYTES) / card.bandwidth / 1e6


def table() -> str:
    """Markdown: a row a card and share of time that the busiest pipe can be kept busy."""
    lines = ["| card | pipe busy | floor, ms | plain, ms | of the floor | 8 rows, of plain |", "|---" * 6 + "|"]
    for card in CARDS:
        for busy in (0.8, 0.9, 1.0):
            plain, floor = step_ms(card, 1, busy), floor_ms(card)
            several = step_ms(card, 8, busy) / plain
            lines.append(
                f"| {card.name} | {busy:.0%} | {floor:.2f} | {plain:.2f} | {plain / floor:.2f} | {several:.2f} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
