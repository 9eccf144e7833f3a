"""Steps on a GPU, estimated from their bytes and the compiled code, by what a step of Llama-3.1-8B took on an H200.

docs/measurements.md explains the method and its limits; `measure.gpu_estimate` prints its tables.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from specchat.engine.device.ops import LAUNCHES as OF_ATTENTION
from specchat.engine.formats.format import StorageLayout
from specchat.engine.formats.gguf import TYPES, Gguf
from specchat.engine.kernels.gpu_shapes import (
    AHEAD_PART,
    LAUNCH_US,
    MOST_RATE,
    OVERHEAD,
    PASS_ROWS,
    RESIDENT,
    TOGETHER,
    activates,
    ahead_parts,
    expert_tiles,
    joined_scores,
    part_of,
    tiling,
    widened,
)
from specchat.engine.memory.need import Model, expert_bytes, gpu_bits
from specchat.engine.recipe import Attention, Delta, Experts, Gated, Layer, Matrix, ShortConv

CONTEXT = 500
"""Tokens in the KV cache."""
NF4_BYTES = 0.5 + 1 / 64 + 4 / 64 / 256
"""Bytes of a weight: four bits, its share of a scale, and its share of that scale's scale."""
WEIGHT_BYTES = {"nf4": NF4_BYTES, "mxfp4": 0.5 + 1 / 32 + 4 / 32 / 256, "16 bits": 2.0}
SUM_BYTES = 2 * 4
"""A partial sum, written and read."""
COME = 0.5
"""Share of what is asked for ahead that has come when its product begins. Nobody has measured it."""
ASKING_US = 0.6
"""Microseconds more of a launch that asks: on an H200 one of 132 programs took as much longer than one of one."""
A_PASS, PER_LAYER, CAP = 5, 2, 3
"""Such launches of each step, of inputs of layers if there are any, and torch's of a cap on logits."""
HOST_MS = 0.15
"""Milliseconds between drafting steps: the report's copy to the host, and Python. Plain steps are scheduled ahead."""
OF_BANDWIDTH = 0.95
BUS = 25.0
"""GB/s from main memory, where the link is not known."""
FLOPS_A_CYCLE = 512
"""Floating-point operations of a multiprocessor's tensor cores on consumer cards: bfloat16, with float32 sums.

With few rows, reading weights takes longer."""
STATE_ROW_US = 0.9
"""Microseconds of a recurrent layer between its products for each of 64 rows, as on the H200."""
PASS_CYCLES = {
    ("nf4", 256): 726,
    ("nf4", 128): 432,
    ("nf4", 64): 260,
    ("mxfp4", 64): 260,
    ("16 bits", 64): 168,
    ("Q4_K", 256): 666,
    ("Q6_K", 256): 717,
}
"""Cycles of the busiest pipe in one iteration of a product's loop, by storage and inputs of the iteration.

That pipe is the integers' for codes (nested NF4), shared memory for 16 bits, and for blocks of whole numbers the issue
of instructions. The compile suite counts them (tests/kernels/test_products.py, test_blocks.py).
"""


@dataclass(frozen=True)
class Card:
    """Multiprocessors, GHz, GB/s and MB of the second cache from the data sheet."""

    name: str
    processors: int
    clock: float
    bandwidth: float
    cache: int


CARDS = (
    Card("RTX 5090", 170, 2.41, 1792, 96),
    Card("RTX 4090", 128, 2.52, 1008, 72),
    Card("RTX 3090", 82, 1.695, 936, 6),
    Card("H200", 132, 1.98, 4800, 50),
)
FOR_FAMILIES = CARDS[1]
BUSY = 0.68
"""Share of the time that the busiest pipe is busy: with it the H200's row is what was measured there."""
ROWS_A_CYCLE = 20
"""Bytes of its rows that a multiprocessor reads in a cycle; every program reads them again.

On the H200 rows 17 to 64 of an int8 product took as long, multiplications included. Products of 4 bits have since come
to read rows in whole lines, as those of int8 do.
"""
TIMED_ROWS_A_CYCLE = 12
"""The same of 4 bits when the H200's steps were timed: in pieces of 16 bytes, each of a line of its own.

Programs had 64 outputs then for any number of rows.
"""


@dataclass(frozen=True)
class Product:
    """A product of a pass: `top` of `count` such matrices for a row, and `shared` ones, all of them those of any row.

    `form` is the storage, `weight` the bytes of a value; `gates` is true for gates and values; `after` so many small
    launches ask for it. A part of a matrix has its splits by `whole`, the outputs and bits of that.
    """

    outputs: int
    inputs: int
    bits: int
    weight: float
    form: str = "nf4"
    whole: tuple[int, int] | None = None
    gates: bool = False
    count: int = 1
    top: int = 1
    shared: int = 0
    after: int = 0

    @property
    def of_row(self) -> int:
        """Matrices that a row reads."""
        return self.top + self.shared

    def hit(self, rows: int) -> float:
        """Matrices that rows read which choose at random."""
        return self.shared + self.count * (1 - (1 - self.top / self.count) ** rows)

    def within(self, card: Card) -> bool:
        """Return true if the product applies an activation."""
        return (
            self.gates
            and self.whole is None
            and activates(self.outputs, self.inputs, self.bits, card.processors, self.of_row)
        )

    def come(self, card: Card) -> float:
        """Bytes that are in the second cache when the product begins."""
        held, rate = self.outputs * self.inputs * self.bits // 8, 1e3 * card.bandwidth
        if rate > MOST_RATE * card.processors:
            return 0.0
        return COME * AHEAD_PART * ahead_parts(held, self.after, rate, card.cache << 20)

    def ms(self, card: Card, rows: int, busy: float, ahead: bool, as_timed: bool = False) -> float:
        """The longest of moving the bytes, computing on the busiest multiprocessor, and a launch; and asking before."""
        outputs, bits = self.whole or (self.outputs, self.bits)
        cut, whole = tiling(outputs, self.inputs, bits, card.processors, self.of_row), self.within(card)
        cut = part_of(cut, self.outputs, self.inputs, self.bits)
        splits, hit = 1 if whole else cut.splits, self.hit(rows)
        sums = self.outputs * (1 if whole else splits * SUM_BYTES)  # bfloat16 for every second output
        moved = hit * self.outputs * self.inputs * self.weight + rows * self.of_row * sums
        moved -= self.come(card) if ahead else 0
        # A row of a mixture's pass has experts that have room for it in one tile.
        groups = -(-rows // PASS_ROWS) if self.count == 1 else 1
        programs = -(-self.outputs // cut.outputs) * splits * round(hit) * groups
        waves, rest = divmod(-(-programs // card.processors), RESIDENT[self.bits])
        together = waves * RESIDENT[self.bits] + (max(TOGETHER, rest) if rest else 0)
        passes = together * (-(-self.inputs // cut.inputs // splits) + OVERHEAD[self.bits])
        read_again = (
            rows / groups * self.of_row / hit * 2 * cut.inputs / (TIMED_ROWS_A_CYCLE if as_timed else ROWS_A_CYCLE)
        )
        if self.count == 1 and not as_timed:
            wide = widened(replace(cut, splits=splits), self.outputs, self.bits, rows, card.processors)
            read_again *= cut.outputs / wide.outputs
        multiplied = 0.0
        if rows >= PASS_ROWS:
            tile = PASS_ROWS if self.count == 1 else expert_tiles(rows, self.count, self.of_row)[0]
            multiplied = 2 * tile * cut.outputs * cut.inputs / FLOPS_A_CYCLE
        computing = passes * (PASS_CYCLES[self.form, cut.inputs] / busy + read_again + multiplied) / card.clock
        asking = ASKING_US / 1e3 if ahead and self.come(card) else 0.0
        return asking + max(moved / card.bandwidth / OF_BANDWIDTH / 1e6, computing / 1e6, LAUNCH_US / 1e3)


def products(model: Model) -> Iterator[Product]:
    """The products of a pass, the head among them."""

    def made(matrix: Matrix, gates: bool = False, of: Experts | None = None, after: int = 0) -> Iterator[Product]:
        among = (of.count, of.top, of.each.down in joined) if of else (1, 1, 0)
        outputs = joined_scores(sum(matrix.outputs)) if matrix in routers else sum(matrix.outputs)
        parts = storage_of(model, matrix, outputs)
        whole = (outputs, max(one.bits for _, _, one in parts)) if len(parts) > 1 else None
        for first, (rows, form, layout) in enumerate(parts):
            weight = WEIGHT_BYTES.get(form) or layout.bytes(rows, matrix.inputs, in_words=True) / rows / matrix.inputs
            part = rows, matrix.inputs, layout.bits, weight, form, whole
            yield Product(*part, gates, *among, 0 if first else after)

    def gated(one: Gated, of: Experts | None = None) -> Iterator[Product]:
        yield from made(one.gate_up, gates=not one.ungated, of=of, after=0 if of else 1)
        yield from made(one.down, of=of)

    recipe, joined = model.config.recipe, model.joined
    routers = {one.router for one in recipe.mixtures if one.router in joined}
    for layer in recipe.layers:
        feed, (first, *others) = layer.feed, layer.mixer.products
        yield from made(first, after=1)
        of_attention = OF_ATTENTION if isinstance(layer.mixer, Attention) else 0
        for one in others:
            yield from made(one, after=of_attention)
        if isinstance(layer.mixer, Delta) and layer.mixer.gates:
            yield from made(layer.mixer.gates)
        if isinstance(feed, Gated):
            yield from gated(feed)
        elif feed:
            yield from made(feed.router)
            yield from gated(feed.each, feed)
            if feed.each.down not in joined:
                yield from gated(feed.shared) if feed.shared else ()
                yield from made(feed.shared_gate) if feed.shared_gate else ()
        for one in (layer.input.gate, layer.input.down) if layer.input else ():
            yield from made(one)
    yield from made(recipe.per_layer.project) if recipe.per_layer else ()
    yield from made(replace(recipe.head, dense=True), after=1)


def storage_of(model: Model, matrix: Matrix, outputs: int) -> list[tuple[int, str, StorageLayout]]:
    """Outputs, form and layout of each part of a matrix of unlike storage."""
    if isinstance(model.stored, Gguf):
        found = list[tuple[int, str, StorageLayout]]()
        for name, rows in matrix.parts:
            kind = model.stored.types[name]
            before = found.pop()[0] if found and found[-1][1] == kind else 0
            found.append((before + rows, kind, TYPES[kind].layout))
        return found
    bits = max(gpu_bits(model, matrix))
    form = "16 bits" if bits == 16 else "mxfp4" if model.stored else "nf4"
    return [(outputs, form, StorageLayout(bits))]


def small(layer: Layer) -> int:
    """Launches of a layer that are no products, but for activations: norms, what mixes, choices and sums of experts."""
    mixing = 2 if isinstance(layer.mixer, ShortConv) else 4
    of_feed = isinstance(layer.feed, Experts)
    return mixing + 1 + of_feed + 2 * (layer.input is not None)


def launches(model: Model, card: Card) -> int:
    """Launches of a verify pass of a chain that are no products."""
    recipe = model.config.recipe
    activations = sum(one.gates and not one.within(card) for one in products(model))
    of_pass = A_PASS + PER_LAYER * (recipe.per_layer is not None) + CAP * bool(recipe.cap)
    return sum(map(small, recipe.layers)) + activations + of_pass


def cache_bytes(model: Model) -> int:
    """Bytes of KV entries that a step reads, and of recurrent states that it reads and writes."""

    def of(mixer: Attention | ShortConv | Delta) -> int:
        if isinstance(mixer, Attention):
            seen = min(CONTEXT, mixer.window or CONTEXT)
            return 2 * mixer.kv_heads * mixer.head_dim * 2 * seen
        return 2 * 4 * mixer.state if isinstance(mixer, Delta) else 0

    return sum(of(layer.mixer) for layer in model.config.recipe.layers)


def step_ms(model: Model, card: Card, rows: int, busy: float, ahead: bool = True, as_timed: bool = False) -> float:
    """A verify pass of `rows` tokens, with a pipe busy for at most the share `busy` of the time.

    Without `ahead` no weight is asked for before its product; `as_timed` products read rows as on the H200 then.
    """
    multiplying = sum(one.ms(card, rows, busy, ahead, as_timed) for one in products(model))
    read = cache_bytes(model) / card.bandwidth / OF_BANDWIDTH / 1e6
    host = HOST_MS if rows > 1 else 0.0
    return multiplying + read + launches(model, card) * LAUNCH_US / 1e3 + host


def prompt_ms(model: Model, card: Card, rows: int, bus: float = 0.0) -> float:
    """A pass of a prompt over so many rows, without the head; with `bus` GB/s all experts lie in main memory."""
    *of_layers, _ = products(model)
    multiplying = sum(one.ms(card, rows, BUSY, ahead=False) for one in of_layers)
    mixers = [layer.mixer for layer in model.config.recipe.layers]
    states, attending = (sum(isinstance(one, kind) for one in mixers) for kind in (Delta, Attention))
    # The combination of attention's sums, and what comes after the head, have no launch.
    waiting = (launches(model, card) - attending - A_PASS + 2) * LAUNCH_US / 1e3
    recurring = states * rows * STATE_ROW_US / 1e3
    moved = sum(expert_bytes(model, one) * one.count for one in model.config.recipe.mixtures) if bus else 0
    return multiplying + waiting + recurring + HOST_MS + moved / max(bus, 1.0) / 1e6


def floor_bytes(model: Model) -> float:
    """The weights that a row reads, and the cache, once."""
    weights = sum(one.of_row * one.outputs * one.inputs * one.weight for one in products(model))
    return weights + cache_bytes(model)


def floor_ms(model: Model, card: Card) -> float:
    """Lower bound: these bytes at the data sheet's bandwidth."""
    return floor_bytes(model) / card.bandwidth / 1e6
