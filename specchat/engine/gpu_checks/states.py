"""Recurrent layers on a GPU: outputs against their reference, bits of rows alone, in company and in trees."""

from itertools import cycle, pairwise

import torch
from torch import Tensor

from specchat.engine.gpu_checks import place
from specchat.engine.gpu_checks.notes import Notes
from specchat.engine.kernels.delta import step
from specchat.engine.kernels.delta_outputs import finish, reference_delta
from specchat.engine.kernels.delta_rows import convolve
from specchat.engine.kernels.delta_state import DeltaState, LogEntries, chain_paths, slices
from specchat.engine.kernels.gpu_shapes import PASS_ROWS, STATE_SLOTS
from specchat.engine.recipe import LENGTH_EPS

KEY_HEADS, VALUE_HEADS, KEY_DIM, VALUE_DIM, TAPS = 1, 2, 128, 32, 4
TOKENS = STATE_SLOTS + 20
"""More than a log holds."""
BRIEF = 60
"""Tokens of rows in company under the interpreter, which takes seconds for more."""
ALLOWED = {torch.float32: 2e-4, torch.bfloat16: 2e-2}
"""Difference of values near 1 that sums over a whole text make, by dtype."""
PATHS = [[0], [0, 1], [0, 2], [0, 1, 3], [0, 2, 4], [0, 1, 3, 5]]
"""Nodes of a tree by their paths."""


class RecurrentLayer:
    """A layer of random numbers that forgets slowly, with the products of a text's tokens."""

    def __init__(self) -> None:
        keys, values = KEY_HEADS * KEY_DIM, VALUE_HEADS * VALUE_DIM
        channels = 2 * keys + values
        self.products = place.random(2, TOKENS, channels + values, seed=41)
        self.gates = place.random(3, TOKENS, 2 * VALUE_HEADS, seed=42)
        self.weights = place.random(channels, 1, TAPS, seed=43)
        self.rates, self.shifts = place.random(VALUE_HEADS, seed=44) - 3, place.random(VALUE_HEADS, seed=45)
        self.norm = place.random(VALUE_DIM, seed=46), LENGTH_EPS
        device, width = place.device(), channels + keys + values + 4 * VALUE_HEADS
        self._sizes = KEY_HEADS, KEY_DIM, VALUE_HEADS, VALUE_DIM
        self._state = DeltaState(
            torch.zeros(2, VALUE_HEADS, KEY_DIM, VALUE_DIM, device=device),
            torch.zeros(VALUE_HEADS, slices(KEY_DIM, VALUE_DIM), 2, device=device, dtype=torch.int32),
            LogEntries.of(torch.zeros(STATE_SLOTS, width, device=device), *self._sizes),
        )
        self._rows = LogEntries.of(torch.zeros(PASS_ROWS, width, device=device), *self._sizes)
        self._between = tuple(
            torch.zeros(PASS_ROWS, *shape, device=device)
            for shape in ((KEY_HEADS, KEY_DIM), (VALUE_HEADS, VALUE_DIM), (VALUE_HEADS,))
        )

    def run(self, tokens: list[int], start: int, masks: Tensor | None = None) -> Tensor:
        """Outputs of rows of the text's tokens: compute dtype [rows, VALUE_HEADS * VALUE_DIM]."""
        rows, device = len(tokens), place.device()
        query, values, writes = self._between
        first = torch.tensor([start], dtype=torch.int32, device=device)
        masks = chain_paths(PASS_ROWS, device) if masks is None else masks
        partials, gates = self.products[:, tokens].contiguous(), self.gates[:, tokens].contiguous()
        convolve(
            partials, gates, self.weights, self.rates, self.shifts, first, first, masks, self._state.log, self._rows,
            query, values, writes, rows, None, LENGTH_EPS,
        )  # fmt: skip
        step(self._state, self._rows, query, values, writes, first, first, masks, rows, None, TAPS)
        out = torch.empty(rows, VALUE_HEADS * VALUE_DIM, device=device, dtype=place.dtype())
        finish(partials, values, self.norm, self._rows, self._state.log, first, out, rows, None)
        return out


def outputs(notes: Notes) -> None:
    """Outputs of a text against the reference."""
    layer, count = RecurrentLayer(), 40
    found = torch.cat([layer.run(list(range(*ends)), ends[0]) for ends in pairwise((0, 1, 4, 20, count))])
    mixed, gates = (part[:, :count].double().sum(0) for part in (layer.products, layer.gates))
    used = layer.weights, layer.rates, layer.shifts, layer.norm
    truth = reference_delta(mixed, gates, *used, KEY_HEADS, LENGTH_EPS)
    difference = place.largest((found.double() - truth) / (1 + truth.abs()))
    notes.within("recurrent layer", difference, ALLOWED[place.dtype()])


def company(notes: Notes) -> None:
    """Rows of a text that is longer than the log, in passes of unlike rows, the last of which are rejected."""
    text, layer = list(range(TOKENS if place.on_gpu() else BRIEF)), RecurrentLayer()
    alone = torch.cat([layer.run([token], token) for token in text])
    for cuts in ((55,), (1, 12, 60)):
        layer, found, sizes, at = RecurrentLayer(), [], cycle(cuts), 0
        while at < len(text):
            rows = text[at : at + next(sizes)]
            found.append(layer.run([*rows, 0, 7, 0, 9], at)[: len(rows)])
            at += len(rows)
        unlike = (torch.cat(found) != alone).any(1).nonzero().flatten().tolist()
        notes.row(what="recurrent layer", rows=cuts, unlike=unlike)
        notes.expect(not unlike, f"recurrent layer: rows {unlike} of passes of {cuts} differ from those rows alone")


def nodes(notes: Notes) -> None:
    """Nodes of a tree against the ends of chains along their paths."""
    masks = torch.tensor([sum(1 << node for node in path) for path in PATHS], device=place.device())
    layer, start, tokens = RecurrentLayer(), 50, [7 * node + 3 for node in range(len(PATHS))]
    layer.run(list(range(start)), 0)
    made = layer.run(tokens, start, masks)
    ends = [layer.run([tokens[node] for node in path], start)[-1] for path in PATHS]
    unlike = [node for node, end in enumerate(ends) if not torch.equal(made[node], end)]
    notes.row(what="tree of a recurrent layer", unlike=unlike)
    notes.expect(not unlike, f"tree of a recurrent layer: nodes {unlike} differ from the ends of their chains")
