"""Short convolutions on a GPU: outputs against torch's, bits of rows alone, in company and in trees."""

from itertools import cycle, pairwise

import torch
from torch import Tensor
from torch.nn.functional import conv1d, pad

from specchat.engine.gpu_checks import place
from specchat.engine.gpu_checks.notes import Notes
from specchat.engine.gpu_checks.states import PATHS
from specchat.engine.kernels.short_conv import short_conv

CHANNELS, TAPS, TOKENS, HELD = 640, 3, 150, 100
"""HELD entries of TOKENS are a ring."""
BRIEF = 60
"""Tokens of rows in company under the interpreter, which takes seconds for more."""
ALLOWED = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
"""Difference of values near 1, by dtype."""


class ShortConvLayer:
    """A convolution of random numbers, with what the first product gives for a text's tokens."""

    def __init__(self) -> None:
        self.products = place.random(2, TOKENS, 3 * CHANNELS, seed=51)
        self.weights = place.random(CHANNELS, 1, TAPS, seed=52)
        shape = 1, HELD, CHANNELS // 2
        self._keys, self._values = (torch.zeros(shape, device=place.device(), dtype=place.dtype()) for _ in range(2))

    def run(self, tokens: list[int], start: int, masks: Tensor | None = None) -> Tensor:
        """Outputs of rows of the text's tokens: compute dtype [rows, CHANNELS]."""
        first = torch.tensor([start], dtype=torch.int32, device=place.device())
        out = torch.empty(len(tokens), CHANNELS, device=place.device(), dtype=place.dtype())
        partials = self.products[:, tokens].contiguous()
        entries = self._keys, self._values
        short_conv(partials, self.weights, first, first, masks, *entries, out, len(tokens), None, 2 * TOKENS)
        return out


def outputs(notes: Notes) -> None:
    """Outputs of a text against torch's own convolution."""
    layer = ShortConvLayer()
    ends = pairwise((0, 1, 4, 20, 80, TOKENS))
    found = torch.cat([layer.run(list(range(*each)), each[0]) for each in ends]).double()
    before, after, z = layer.products.double().sum(0).chunk(3, -1)
    given = pad((before * z).to(place.dtype()).double().T, (TAPS - 1, 0))
    truth = after * conv1d(given[None], layer.weights.double(), groups=CHANNELS)[0].T
    difference = place.largest((found - truth) / (1 + truth.abs()))
    notes.within("short convolution", difference, ALLOWED[place.dtype()])


def company(notes: Notes) -> None:
    """Rows in passes of unlike rows, the last of which are rejected."""
    text, layer = list(range(TOKENS if place.on_gpu() else BRIEF)), ShortConvLayer()
    alone = torch.cat([layer.run([token], token) for token in text])
    for cuts in ((55,), (1, 12, 16)):
        layer, found, sizes, at = ShortConvLayer(), [], cycle(cuts), 0
        while at < len(text):
            rows = text[at : at + next(sizes)]
            found.append(layer.run([*rows, 0, 7, 9], at)[: len(rows)])
            at += len(rows)
        unlike = (torch.cat(found) != alone).any(1).nonzero().flatten().tolist()
        notes.row(what="short convolution", rows=cuts, unlike=unlike)
        notes.expect(not unlike, f"short convolution: rows {unlike} of passes of {cuts} differ from those rows alone")


def nodes(notes: Notes) -> None:
    """Nodes of a tree against the ends of chains along their paths."""
    masks = torch.tensor([sum(1 << node for node in path) for path in PATHS], device=place.device())
    layer, start, tokens = ShortConvLayer(), HELD - 3, [7 * node + 3 for node in range(len(PATHS))]
    for at in range(0, start, 50):
        layer.run(list(range(at, min(at + 50, start))), at)
    made = layer.run(tokens, start, masks)
    ends = [layer.run([tokens[node] for node in path], start)[-1] for path in PATHS]
    unlike = [node for node, end in enumerate(ends) if not torch.equal(made[node], end)]
    notes.row(what="tree of a short convolution", unlike=unlike)
    notes.expect(not unlike, f"tree of a short convolution: nodes {unlike} differ from the ends of their chains")
