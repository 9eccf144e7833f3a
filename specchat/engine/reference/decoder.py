"""The reference decoder: each row alone, so a token's logits do not depend on the other rows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from specchat.engine.model.cache import KVCache
from specchat.engine.model.decoder import NOTHING, CachedDecoder, PassRows, Skip
from specchat.engine.model.kv_entries import stored
from specchat.engine.model.norm import capped
from specchat.engine.model.rope import tables, tempers
from specchat.engine.model.tree_layout import MAX_TREE_NODES, Layout, chain
from specchat.engine.program.lower import lower
from specchat.engine.program.ops import Half
from specchat.engine.protocol.pair import Quant
from specchat.engine.recipe import Attention, Delta, ShortConv
from specchat.engine.reference.delta import Past
from specchat.engine.reference.layer import REFERENCE, run
from specchat.engine.reference.ops import Context, LayerRows, norm
from specchat.engine.reference.recurrence import Recurrence
from specchat.engine.reference.tensors import CheckpointTensors
from specchat.engine.weights.checkpoint import Checkpoint


class Row(NamedTuple):
    """A row of a pass: its position, its ancestors that the cache lacks, and its node of the tree, if any."""

    position: int
    ancestors: list[int]
    node: int | None


class ReferenceDecoder(CachedDecoder):
    """A loaded model with its cache, of any shape, on any processor. Not thread-safe: one sequence at a time."""

    exactness = "each token computed alone"
    instructions = torch.backends.cpu.get_cpu_capability()

    def __init__(self, checkpoint: Checkpoint, context: int | None = None, quant: Quant | None = None) -> None:
        """Read the weights; `context` limits the cache, in tokens; dense layers are quantised as `quant`.

        Raises:
            ModelError: weights missing, damaged or of other shapes.
        """
        self.config = c = checkpoint.config
        self.context = min(c.longest, context or c.context)
        self._recipe, self._program = c.recipe, lower(c.recipe)
        self._tensors = CheckpointTensors(checkpoint, quant)
        self._drafts = None if checkpoint.drafts is None else torch.tensor(checkpoint.drafts)
        self.cache = KVCache(c.recipe, self.context)
        self._nodes: list[tuple[Tensor, Tensor]] = []
        """Keys and values of a tree's nodes in each layer, as in the cache: [kv_heads, MAX_TREE_NODES, row]."""
        self._recurrences = [None if log is None else Recurrence(log) for log in self.cache.logs]
        self._tempers = {mixer: tempers(mixer, self.context) for mixer in c.recipe.attentions}
        self._rotations = {rope: tables(rope, rope.width, self.context) for rope in c.recipe.ropes if rope}

    def turn(self, first: int, places: Tensor) -> None:
        for rope, held in self._rotations.items():
            new = tables(rope, rope.width, len(places), self.context, places)
            for into, table in zip(held, new, strict=True):
                into[first : first + len(places)] = table

    def _embed(self, tokens: Sequence[int] | Tensor, normed: bool) -> Tensor:
        # A target may choose a padding token without an embedding in the draft.
        known = [min(token, self._recipe.vocab - 1) for token in tokens]
        op = self._program.embed if normed else replace(self._program.embed, eps=None)
        made: Tensor = REFERENCE.run(op, torch.tensor(known), self._tensors)
        return made

    @torch.inference_mode()
    def run_layers(self, x: Tensor, layers: range, rows: PassRows, skip: Skip = NOTHING) -> Tensor:
        tokens, start, layout, until = rows
        placed = list(_rows(len(x), start, layout))
        end = max(row.position for row in placed) + 1
        if end > self.context:
            raise ValueError(f"{len(x)} tokens do not fit after {start} of {self.context}")
        self.cache.slide(start, max(end, until), layers.start, layers.stop)
        if layout is not None:
            self._make_nodes(layout.scratch_row + len(x))
        states, inputs, attention = alone(x), self._inputs(tokens), skip.attention - self._recipe.shared
        for index in layers:
            halves: list[Half] = ["mixer"] if index not in attention else []
            halves += ["feed"] if index not in skip.mlp else []
            halves += ["start", "end"] if halves else []
            if (recurrence := self._recurrences[index]) is not None and "mixer" in halves:
                recurrence.begin(start)
            for i, row in enumerate(placed):
                context = self._context(index, row, until) if "mixer" in halves else None
                own = None if inputs is None else inputs[i][:, index]
                of_row = LayerRows(states[i], self._tensors, context, own)
                states[i] = run(self._program.layers[index], of_row, *halves)
        return torch.cat(states)

    def _inputs(self, tokens: Sequence[int]) -> list[Tensor] | None:
        """Inputs of all layers of each token alone, float32 [1, layers, values]; None without such."""
        op = self._program.inputs
        if op is None:
            return None
        rows = ((self.embed([token]), torch.tensor([op.of.row(token)])) for token in tokens)
        return [REFERENCE.run(op, *row, self._tensors) for row in rows]

    def _context(self, index: int, row: Row, until: int) -> Context | Past:
        """The context of a row in layer `index`: the cache with the row's own entry; `until` as in `PassRows`."""
        if (recurrence := self._recurrences[index]) is not None:
            return recurrence.past(row.position, row.ancestors, row.node)
        of, end = self._recipe.layers[index].mixer, row.position + 1
        assert not isinstance(of, Delta)
        last = until or end if isinstance(of, Attention) and of.mutual else end
        place = index if of.share is None else of.share
        cache, base = (self.cache.keys[place], self.cache.values[place]), self.cache.bases[place]

        def entries(*new: Tensor) -> tuple[Tensor, Tensor]:
            rows = [stored(part, of.block) for part in new]
            for kind, kept in enumerate(cache):
                if row.ancestors:
                    before = slice(row.position - len(row.ancestors) - base, row.position - base)
                    kept[:, before] = self._nodes[place][kind][:, row.ancestors]
                here = slice(row.position - base, end - base)
                if row.node is not None:
                    node = self._nodes[place][kind][:, row.node : row.node + 1]
                    # Later nodes of the pass overwrote what the layer that is shared with has put in the cache.
                    kept[:, here] = node.copy_(rows[kind]) if rows else node
                elif rows:
                    kept[:, here] = rows[kind]
            return self.cache.read(index, max(0, end - of.window) if of.window else 0, last)

        if isinstance(of, ShortConv):
            return Context(None, entries)
        temper = self._tempers[of]
        tempered = None if temper is None else temper[row.position]
        if of.rope is None:
            return Context(None, entries, temper=tempered)
        cos, sin = (table[row.position : end] for table in self._rotations[of.rope])
        return Context((cos, sin), entries, temper=tempered)

    def _make_nodes(self, count: int) -> None:
        if count > MAX_TREE_NODES:
            raise ValueError(f"a tree of {count} nodes has more than {MAX_TREE_NODES}")
        if not self._nodes:
            rows = [MAX_TREE_NODES if layer.share is None else 0 for layer in self._recipe.layers]
            pairs = zip(self.cache.keys, rows, strict=True)
            scratch = [keys.new_zeros(len(keys), count, keys.shape[2]) for keys, count in pairs]
            self._nodes = [(nodes, nodes.clone()) for nodes in scratch]

    def _keep_entries(self, rows: Sequence[int], start: int) -> None:
        for index, nodes in enumerate(self._nodes):
            if self._recipe.layers[index].share is not None:
                continue
            first = start - self.cache.bases[index]
            for kept, entries in zip((self.cache.keys[index], self.cache.values[index]), nodes, strict=True):
                kept[:, first : first + len(rows)] = entries[:, list(rows)]
            if (recurrence := self._recurrences[index]) is not None:
                recurrence.keep(rows, start)

    def final_norm(self, hidden: Tensor) -> Tensor:
        return by_row(lambda row: norm(self._recipe.norm, row, self._tensors), hidden)

    def project(self, hidden: Tensor) -> Tensor:
        head, tensors = self._program.head, self._tensors
        logits = by_row(lambda row: capped(head.scale * tensors.product(row, tensors.head), head.cap), hidden)
        if self._drafts is None:
            return logits
        whole = logits.new_full((len(logits), self._recipe.vocab), float("-inf"))
        return whole.index_copy_(1, self._drafts, logits)

    def logits(self, hidden: Tensor) -> Tensor:
        return self.project(self.final_norm(hidden))

    @property
    def threads(self) -> int:
        """Limit of the threads."""
        return torch.get_num_threads()

    def memory(self) -> int:
        recorded = 0 if self.aux_states is None else self.aux_states.memory()
        return self._tensors.memory() + self.cache.memory() + recorded


def _rows(count: int, start: int, layout: Layout | None) -> Iterator[Row]:
    """The rows of a pass from position `start` on."""
    of, index = layout or chain(count), 0
    for depth, length, ancestors in zip(of.depths, of.lengths, of.ancestors, strict=True):
        for i in range(length):
            yield Row(start + depth + i, [] if i else ancestors, None if layout is None else layout.scratch_row + index)
            index += 1


def alone(x: Tensor) -> list[Tensor]:
    """Rows float32 [1, values] copied: a library's order of sums may depend on the alignment of its operands."""
    return [row.clone() for row in x.split(1)]


@torch.inference_mode()
def by_row(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Apply `function` to each row of x [rows, values] alone."""
    return torch.cat([function(row) for row in alone(x)])
