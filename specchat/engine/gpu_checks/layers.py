"""Layers with a state of the text: outputs against their reference, bits of rows alone, in company and in trees."""

from collections.abc import Callable
from itertools import cycle

import torch
from torch import Tensor

from specchat.engine.gpu_checks import place
from specchat.engine.gpu_checks.notes import Notes
from specchat.engine.gpu_checks.short_convs import ShortConvLayer
from specchat.engine.gpu_checks.states import RecurrentLayer, TextLayer

BRIEF = 60
"""Tokens of rows in company under the interpreter, which takes seconds for more."""
PATHS = [[0], [0, 1], [0, 2], [0, 1, 3], [0, 2, 4], [0, 1, 3, 5]]
"""Nodes of a tree by their paths."""
START = 93
"""Tokens before the tree, whose entries lie on both sides of the edge of a ring."""


LAYERS: dict[str, tuple[Callable[[torch.dtype], TextLayer], float]] = {
    "recurrent layer": (lambda dtype: RecurrentLayer(1, 2, 128, 32, 4, dtype=dtype), 2e-4),
    "short convolution": (ShortConvLayer, 1e-5),
}
"""Each with the difference of values near 1 that float32 makes over a text."""


def outputs(notes: Notes, what: str) -> None:
    """Outputs of a text against the reference."""
    make, allowed = LAYERS[what]
    layer, text = make(place.dtype()), list(range(100))
    truth = layer.reference(text)
    difference = place.largest((layer.read(text, (1, 3, 16, 60)).double() - truth) / (1 + truth.abs()))
    notes.within(what, difference, allowed if place.dtype() == torch.float32 else 2e-2)


def company(notes: Notes, what: str) -> None:
    """Rows of a text in passes of unlike rows, the last of which are rejected."""
    make, dtype = LAYERS[what][0], place.dtype()
    text = list(range(make(dtype).tokens if place.on_gpu() else BRIEF))
    alone = make(dtype).read(text, (1,))
    for cuts in ((55,), (1, 12, 60)):
        layer, found, sizes, at = make(dtype), [], cycle(cuts), 0
        while at < len(text):
            rows = text[at : at + next(sizes)]
            found.append(layer.run([*rows, 0, 7, 0, 9], at)[: len(rows)])
            at += len(rows)
        unlike = (torch.cat(found) != alone).any(1).nonzero().flatten().tolist()
        notes.row(what=what, rows=cuts, unlike=unlike)
        notes.expect(not unlike, f"{what}: rows {unlike} of passes of {cuts} differ from those rows alone")


def nodes(notes: Notes, what: str) -> None:
    """Nodes of a tree against the ends of chains along their paths."""
    layer, tokens = LAYERS[what][0](place.dtype()), [7 * node + 3 for node in range(len(PATHS))]
    layer.read(list(range(START)), (50,))
    made = layer.run(tokens, START, None, masks_of(PATHS))
    ends = [layer.run([tokens[node] for node in path], START)[-1] for path in PATHS]
    unlike = [node for node, end in enumerate(ends) if not torch.equal(made[node], end)]
    notes.row(what=f"tree of a {what}", unlike=unlike)
    notes.expect(not unlike, f"tree of a {what}: nodes {unlike} differ from the ends of their chains")


def masks_of(paths: list[list[int]]) -> Tensor:
    """Nodes of each path as bits: int64 [paths]."""
    return torch.tensor([sum(1 << node for node in path) for path in paths], device=place.device())
