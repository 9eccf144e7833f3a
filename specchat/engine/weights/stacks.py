"""Experts in a checkpoint: a tensor for each, or stacks of them all, under the names of any version of transformers."""

import re
from collections.abc import Container, Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from specchat.engine.errors import ModelError
from specchat.engine.recipe import MOST_EXPERTS, Experts, Recipe

OLDER = (
    (re.compile(r"\.block_sparse_moe\."), ".mlp."),
    (re.compile(r"(\.experts\.\d+)\.w1\."), r"\1.gate_proj."),
    (re.compile(r"(\.experts\.\d+)\.w3\."), r"\1.up_proj."),
    (re.compile(r"(\.experts\.\d+)\.w2\."), r"\1.down_proj."),
    (re.compile(r"\.router\.scale$"), ".router.norm.weight"),
    (re.compile(r"\.mlp\.input_linear\.weight$"), ".mlp.experts.gate_up_proj"),
    (re.compile(r"\.mlp\.output_linear\.weight$"), ".mlp.experts.down_proj"),
    (re.compile(r"\.mlp\.router\.layer\."), ".mlp.router."),
)
"""Names in files of older versions or of one family, and ours of the same tensors."""
STACKS = {".experts.gate_up_proj": ("gate_proj", "up_proj"), ".experts.down_proj": ("down_proj",)}
"""Ends of the names of stacks [experts, outputs, inputs], and the matrices whose outputs follow each other in one.

Published files of Qwen3-VL have [experts, inputs, outputs]. gpt-oss's stacks have biases, and the outputs of the two
matrices by turns: [experts, inputs, outputs] in 16 bits, and in MXFP4 blocks [experts, outputs, inputs / 32, 16] and
scales [experts, outputs, inputs / 32].
"""
BY_TURNS = {"": ".weight", "_bias": ".bias", "_blocks": ".blocks", "_scales": ".scales"}
"""Ends of the names of gpt-oss's stacks after those of STACKS, and of the parts of an expert's matrix."""


class Rows(NamedTuple):
    """The number of an expert, and its rows in a stack's matrix, which may have been stored transposed."""

    expert: int
    rows: slice
    transposed: bool = False

    def of(self, whole: Any) -> Tensor:
        """The rows of a stack, a slice of a safetensors file."""
        if self.rows.step is None and not self.transposed:
            found: Tensor = whole[self.expert, self.rows]
            return found
        matrix: Tensor = whole[self.expert]
        return (matrix.T if self.transposed else matrix)[self.rows].contiguous()

    def shape(self, whole: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of these rows of a stack of a shape."""
        outputs, *others = reversed(whole[1:]) if self.transposed else whole[1:]
        return len(range(*self.rows.indices(outputs))), *others


def renamed(name: str) -> str:
    """Our name of a tensor of experts."""
    for older, ours in OLDER:
        name = older.sub(ours, name)
    return name


def is_stack(name: str) -> bool:
    """True for the name of a stack of experts."""
    return name.endswith(tuple(STACKS))


def by_turns(name: str, names: Container[str]) -> tuple[str, str]:
    """The end of STACKS and the part of BY_TURNS that the name of one of gpt-oss's stacks ends with; empty for others.

    `names` are those of all tensors.
    """
    for end, (part, _) in product(STACKS, BY_TURNS.items()):
        whole = f"{name.removesuffix(end + part)}{end}"
        if name.endswith(end + part) and f"{whole}_bias" in names:
            return end, part
    return "", ""


def of_turns(name: str, end: str, part: str, shape: tuple[int, ...]) -> Iterator[tuple[str, Rows]]:
    """The name and the rows of each expert's matrices in one of gpt-oss's stacks; none in one that no model has."""
    if len(shape) < 2 or shape[0] > MOST_EXPERTS:
        return
    begins, matrices = name.removesuffix(end + part), STACKS[end]
    for number in range(shape[0]):
        for place, matrix in enumerate(matrices):
            rows = Rows(number, slice(place, None, len(matrices)), transposed=not part)
            yield f"{begins}.experts.{number}.{matrix}{BY_TURNS[part]}", rows


def of_layer(name: str) -> tuple[str, ...]:
    """The names of both stacks of the layer that stack `name` belongs to."""
    begins = name.removesuffix(next(end for end in STACKS if name.endswith(end)))
    return tuple(begins + end for end in STACKS)


def are_transposed(gate_up: tuple[int, ...], down: tuple[int, ...]) -> bool:
    """True for the shapes of a layer's two stacks where they are [experts, inputs, outputs]."""
    return len(gate_up) == len(down) == 3 and gate_up[1] == down[2]


def unstacked(name: str, shape: tuple[int, ...], transposed: bool) -> Iterator[tuple[str, Rows]]:
    """The name and the rows of each expert's matrices in a stack of this shape; none in one that no model has.

    Of an odd number of outputs the halves are unlike, which shows where they are read.
    """
    end = next(end for end in STACKS if name.endswith(end))
    if len(shape) != 3 or shape[0] > MOST_EXPERTS:
        return
    rows, begins = -(-shape[2 if transposed else 1] // len(STACKS[end])), name.removesuffix(end)
    for number in range(shape[0]):
        for place, part in enumerate(STACKS[end]):
            of_part = slice(place * rows, (place + 1) * rows)
            yield f"{begins}.experts.{number}.{part}.weight", Rows(number, of_part, transposed)


def check_stacks(stacks: dict[str, int], recipe: Recipe, where: Path) -> None:
    """Check that every stack, by its name, holds as many experts as its layer has; `where` begins the message.

    Raises:
        ModelError: one holds others.
    """
    for layer in recipe.layers:
        if isinstance(layer.feed, Experts):
            for end in STACKS:
                begins, asked = layer.feed.each.down.names[0].partition(".experts.")[0], layer.feed.count
                if (found := stacks.get(begins + end, asked)) != asked:
                    raise ModelError(
                        f"{where}: tensor {begins}{end} holds {found} experts, config.json asks for {asked}."
                    )
