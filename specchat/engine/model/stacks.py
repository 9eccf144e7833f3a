"""Experts in a checkpoint: a tensor for each, or stacks of them all, under the names of any version of transformers."""

import re
from collections.abc import Iterator
from pathlib import Path

from specchat.engine.errors import ModelError
from specchat.engine.recipe import MOST_EXPERTS, Experts, Recipe

OLDER = (
    (re.compile(r"\.block_sparse_moe\."), ".mlp."),
    (re.compile(r"(\.experts\.\d+)\.w1\."), r"\1.gate_proj."),
    (re.compile(r"(\.experts\.\d+)\.w3\."), r"\1.up_proj."),
    (re.compile(r"(\.experts\.\d+)\.w2\."), r"\1.down_proj."),
)
"""Names of Mixtral's files, and ours of the same tensors."""
STACKS = {".experts.gate_up_proj": ("gate_proj", "up_proj"), ".experts.down_proj": ("down_proj",)}
"""Ends of the names of stacks [experts, outputs, inputs], and the matrices whose outputs follow each other in one."""
Rows = tuple[int, slice]
"""The number of an expert, and its rows in a stack's matrix."""


def renamed(name: str) -> str:
    """Our name of a tensor of experts."""
    for older, ours in OLDER:
        name = older.sub(ours, name)
    return name


def is_stack(name: str) -> bool:
    """True for the name of a stack of experts."""
    return name.endswith(tuple(STACKS))


def unstacked(name: str, shape: tuple[int, ...]) -> Iterator[tuple[str, Rows]]:
    """The name and the rows of each expert's matrices in a stack of this shape; none in one that no model has.

    Of an odd number of outputs the halves are unlike, which shows where they are read.
    """
    end = next(end for end in STACKS if name.endswith(end))
    if len(shape) != 3 or shape[0] > MOST_EXPERTS:
        return
    rows, begins = -(-shape[1] // len(STACKS[end])), name.removesuffix(end)
    for number in range(shape[0]):
        for place, part in enumerate(STACKS[end]):
            yield f"{begins}.experts.{number}.{part}.weight", (number, slice(place * rows, (place + 1) * rows))


def check_stacks(stacks: dict[str, int], recipe: Recipe, where: Path) -> None:
    """Check that every stack, by its name, holds as many experts as its layer has; `where` begins the message.

    Raises:
        ModelError: one holds others.
    """
    for layer in recipe.layers:
        if isinstance(layer.feed, Experts):
            for end in STACKS:
                begins, asked = layer.feed.router.names[0].rpartition(".")[0], layer.feed.count
                if (found := stacks.get(begins + end, asked)) != asked:
                    raise ModelError(
                        f"{where}: tensor {begins}{end} holds {found} experts, config.json asks for {asked}."
                    )
