"""Heads as recipes: their layers, and what follows for memory. The app asks too: no torch in here."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from specchat.engine.model.config import ModelConfig
from specchat.engine.model.plan import Place
from specchat.engine.model.tree_layout import MAX_TREE_NODES
from specchat.engine.model.vectors import brief, fits
from specchat.engine.recipe import Attention, Gated, Layer, Matrix, Norm, Recipe
from specchat.engine.strategies import HEADS
from specchat.engine.strategy import resolved

Part = TypeVar("Part")


class Given(Protocol):
    """A folder with heads, `settings`, those of its config.json, and the number of `values` in its tensors."""

    @property
    def folder(self) -> Path: ...

    @property
    def settings(self) -> dict[str, Any]: ...

    @property
    def values(self) -> int: ...


@dataclass(frozen=True)
class HeadRecipe:
    """What a head computes with, and keeps of each token.

    Attributes:
        layers: those of its own.
        aux_layers: the numbers of layers after which the target's hidden states are taken.
        feature: values that the head hands from token to token beside its KV entries.
        doubled: weights that are held a second time, for compiled chains.
        parameters: all weights; None where they are all the values of the head's files.
    """

    layers: tuple[Layer, ...]
    aux_layers: tuple[int, ...]
    feature: int = 0
    doubled: int = 0
    parameters: int | None = None

    def need(self, files: Given, target: ModelConfig, context: int, place: Place) -> int:
        """Bytes at most, read from `files` for a `target` there with so many tokens of cache.

        On a GPU weights and hidden states have 16 bits, on a processor 32 or, where no more are needed, 16.
        """
        parameters = files.values if self.parameters is None else self.parameters
        positions = min(context, target.longest) + MAX_TREE_NODES  # a tree's hidden states stand apart from the text's
        states = len(set(self.aux_layers)) * target.hidden
        own = self.feature + sum(layer.mixer.entry for layer in self.layers)
        if place == "cuda":
            return 2 * parameters + (2 * states + 4 * own) * positions
        return 4 * (parameters + self.doubled + (states + own) * positions)


def need(head: str, files: Given, target: ModelConfig, context: int, place: Place) -> int:
    """Bytes of a family's heads at most, for a target there with so many tokens of cache.

    Raises:
        ModelError: the settings are of no such head.
    """
    recipe: HeadRecipe = resolved(HEADS[head].recipe)(files, target, head)
    return recipe.need(files, target, context, place)


def on_last_state(_: Given, target: ModelConfig, __: str) -> HeadRecipe:
    """Heads without layers, which see the target's last hidden state alone."""
    return HeadRecipe((), (target.layers,))


def compiles(shape: ModelConfig) -> bool:
    """Whether layers of a head of this shape may have compiled ones beside them, for chains: `cpu.head_layer`."""
    return fits(shape) and brief(shape)


def layers(of: Recipe, prefix: str = "layers") -> tuple[Layer, ...]:
    """The layers of a model as a head has them: named after `prefix` and their numbers, over all tokens before."""
    found = (renamed(layer, f"model.layers.{index}.", f"{prefix}.{index}.") for index, layer in enumerate(of.layers))
    return tuple(replace(layer, mixer=replace(layer.mixer, window=0)) for layer in found)


def joined(layer: Layer, inputs: int) -> Layer:
    """`layer` without a norm before its attention, which has `inputs` of its own."""
    return replace(layer, pre_mixer=None, mixer=replace(layer.mixer, qkv=replace(layer.mixer.qkv, inputs=inputs)))


def renamed(part: Part, old: str, new: str) -> Part:
    """A part of a recipe with names that begin with `new` in place of `old`."""
    match part:
        case Norm():
            return replace(part, name=new + part.name.removeprefix(old))
        case Matrix():
            return replace(part, names=tuple(new + name.removeprefix(old) for name in part.names))
        case Layer() | Attention() | Gated():
            return replace(part, **{one.name: renamed(getattr(part, one.name), old, new) for one in fields(part)})
        case _:
            return part
