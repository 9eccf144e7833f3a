"""Bytes that a model on the CPU takes beside its weights and its cache."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from specchat.engine.memory.state_need import gates_width, held, pieces, room, width
from specchat.engine.memory.vectors import FEW, LANES, attention_room, latent_places, panels_for, workers
from specchat.engine.recipe import Attention, Recipe, ShortConv
from specchat.engine.weights.config import ModelConfig

ROWS, VERIFY_ROWS, TREE_ROWS = 128, 16, 64
"""Rows of a prefill pass, rows with logits, and nodes of a tree."""
CACHE_BLOCK = 64
"""Positions that a KV cache is rounded up to."""
BACK, ROOM = 512, 512
"""Positions of a layer with a window beside it: before it, to roll back to, and after it, to write on."""
HEAP = 64 << 20
"""Heap that loading leaves allocated (measured: 50 to 100 MB)."""
ReadAs = Literal["quantised", "half", "whole"]
PACKING: dict[ReadAs, int] = {"quantised": 7, "half": 3, "whole": 6}
"""Bytes per weight that packing a layer's matrix takes beside the result, by the format read (measured)."""


def positions(mixer: Attention | ShortConv, capacity: int) -> int:
    """Positions that a layer's KV cache holds, for a text of up to `capacity`."""
    # All of a picture may be there before its first row attends.
    held = -(-(mixer.window + BACK + max(ROOM, mixer.mutual + LANES)) // CACHE_BLOCK) * CACHE_BLOCK
    return min(held, capacity) if mixer.window else capacity


def cache_bytes(recipe: Recipe, capacity: int) -> int:
    """Bytes of the caches of all layers: KV entries, and recurrent states."""
    of_entries = sum(mixer.entry_bytes(4) * positions(mixer, capacity) for mixer in recipe.cached)
    return of_entries + 4 * sum(map(held, recipe.recurrent))


def of_tree(recipe: Recipe) -> int:
    """Bytes of a tree's node in the caches of all layers."""
    states = sum(pieces(of) * width(of) for of in recipe.recurrent)
    return sum(mixer.entry_bytes(4) for mixer in recipe.cached) + 4 * states


class PassShape(NamedTuple):
    """Values of a row of the `wide` buffer of a compiled pass and of each thread's `own` two, and of its `scores`."""

    wide: int
    own: int
    scores: int


def pass_shape(recipe: Recipe, capacity: int, ordered: bool) -> PassShape:
    """The buffers for a cache of `capacity` positions; `ordered` as in `formats.format.StorageLayout`."""
    matrices = [matrix for matrix, _ in recipe.forms] + ([recipe.per_layer.project] if recipe.per_layer else [])
    widest = max(LANES * sum(map(panels_for, matrix.outputs)) for matrix in matrices)
    latents = (latent_places(mixer)[-1] for mixer in recipe.attentions if mixer.latent)
    of_states = (gates_width(mixer) + 2 * pieces(mixer) * mixer.key_dim for mixer in recipe.recurrent)
    after = any(layer.post_norms or layer.input or layer.parallel for layer in recipe.layers)
    moved = max(matrix.inputs for matrix in matrices) if ordered else 0
    return PassShape(
        max(widest, *latents, 0) + max(of_states, default=0) + after * LANES * panels_for(recipe.hidden),
        max(recipe.hidden, FEW * LANES, moved),
        max([attention_room(capacity, recipe.deepest), *map(room, recipe.recurrent)]),
    )


def buffers(c: ModelConfig, head_rows: int, threads: int, capacity: int, ordered: bool) -> int:
    """Buffers of a compiled pass, as `cpu.decoder` allocates them, with tree KV scratch and logits.

    `ordered` as in `formats.format.StorageLayout`.
    """
    r, shape = c.recipe, pass_shape(c.recipe, capacity, ordered)
    own = r.per_layer
    inputs = ROWS * (c.hidden + own.width + LANES * panels_for(own.width)) if own else 0
    for_one = 2 * ROWS * shape.own + shape.scores
    working = workers(c, threads, VERIFY_ROWS)
    logits = VERIFY_ROWS * LANES * panels_for(head_rows)
    turns = 2 * capacity * r.deepest * len(r.ropes)
    held = 4 * (turns + ROWS * (c.hidden + shape.wide) + working * for_one + logits + inputs)
    return held + TREE_ROWS * of_tree(r) + mixture_need(r, ROWS).bytes(working)


def packing_workspace(c: ModelConfig, read_as: ReadAs) -> int:
    """Workspace of loading for the compiled pass, or of sampling a step's tokens if that is larger."""
    passing = 4 * (ROWS * 2 * c.hidden + VERIFY_ROWS * 2 * c.vocab)
    return HEAP + max(passing, PACKING[read_as] * _largest(c), 2 * c.vocab * c.hidden)


def reference_workspace(c: ModelConfig, capacity: int) -> int:
    """Buffers of the reference, plus workspace of a pass or of loading its largest matrix, the larger."""
    r = c.recipe
    tables = 2 * capacity * r.deepest * len(r.ropes)
    passing = 2 * ROWS * c.hidden + 3 * VERIFY_ROWS * c.vocab
    of_pass = max(passing, c.vocab * c.hidden, 2 * _largest(c))
    return HEAP + 4 * (tables + of_pass) + TREE_ROWS * of_tree(r)


def _largest(c: ModelConfig) -> int:
    return max(sum(m.outputs) * m.inputs for m, _ in c.recipe.forms)


APART = ("sums", "sums of the shared MLP", "inputs", "inputs of the shared MLP")
"""Buffers as wide as hidden states where norms are apart, else the first alone."""


@dataclass(frozen=True)
class MixtureNeed:
    """Values of the buffers that the layers of a model share; a pair is a row with one of its experts.

    Attributes:
        between: float32, gate and up of each pair, or each row's scores of experts, their ranks and those of groups.
        beside: float32, gate and up of the shared MLP for each row.
        rows: float32, buffers as wide as hidden states (see `APART`).
        gates: float32, the share of the shared MLP in each row.
        pairs: float32 shares and int64 experts of the pairs.
        order: int64 of each thread, the pairs by expert.
    """

    between: int = 0
    beside: int = 0
    rows: int = 0
    gates: int = 0
    pairs: int = 0
    order: int = 0

    def bytes(self, threads: int) -> int:
        """Bytes of all of them."""
        return 4 * (self.between + self.beside + self.rows + self.gates) + 12 * self.pairs + 8 * threads * self.order


def mixture_need(recipe: Recipe, rows: int) -> MixtureNeed:
    """The buffers of a pass over `rows` rows; empty for a model without experts."""
    mixtures = recipe.mixtures
    if not mixtures:
        return MixtureNeed()
    top = max(one.top for one in mixtures)
    widest = max(LANES * max(2 * one.top * panels_for(one.each.width), 3 * panels_for(one.count)) for one in mixtures)
    order = 2 * max(one.count for one in mixtures) + 1 + 2 * rows * top
    beside = max(2 * LANES * panels_for(one.shared.width) if one.shared else 0 for one in mixtures)
    wide = rows * recipe.hidden * (len(APART) if any(one.apart for one in mixtures) else 1)
    return MixtureNeed(rows * widest, rows * beside, wide, rows * bool(beside), rows * top, order)
