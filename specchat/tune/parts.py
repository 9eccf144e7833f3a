"""Trainable parts of a recipe, the settings that they are published with, and attention over what trainees see."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from specchat.engine.families.parts.family import Family, described
from specchat.engine.recipe import Layer, Matrix, Norm
from specchat.engine.weights.config import ModelConfig

Piece = tuple[Tensor, Callable[[Tensor], Tensor]]
"""Scores float32 [..., positions] of some positions, and what their shares mix of the values there."""


def add(root: nn.Module, *parts: Layer | Matrix | Norm) -> None:
    """Give `root` the tensors of parts as parameters, under their names in a checkpoint."""
    for part in parts:
        if isinstance(part, Layer):
            add(root, *part.products, *part.norms)
        elif isinstance(part, Norm):
            put(root, part.name, nn.RMSNorm(part.size))
        else:
            for name, outputs in part.parts:
                put(root, name, nn.Linear(part.inputs, outputs, bias=part.bias))


def put(root: nn.Module, name: str, part: nn.Module | nn.Parameter) -> None:
    """Give `root` a module or a parameter under a name with dots."""
    *path, last = name.split(".")
    for step in path:
        if step not in dict(root.named_children()):
            root.add_module(step, nn.Module())
        root = root.get_submodule(step)
    setattr(root, last, part)


def mixed(pieces: Sequence[Piece]) -> Tensor:
    """The values that queries mix of several pieces of what they see, whose shares add up to one."""
    scores = [scores for scores, _ in pieces]
    shares = torch.cat(scores, -1).softmax(-1).split([one.shape[-1] for one in scores], -1)
    first, *others = (mix(share) for (_, mix), share in zip(pieces, shares, strict=True))
    return sum(others, first)


def settings(c: ModelConfig, family: Family, layers: int) -> dict[str, object]:
    """The settings of a head of so many layers of `family`, shaped as the first layer of a target `c`."""
    shape = {key: value for key, value in described(c.recipe).items() if key != "tie_word_embeddings"}
    overrides = {"model_type": family.model_type, "num_hidden_layers": layers, "max_position_embeddings": c.context}
    return shape | overrides
