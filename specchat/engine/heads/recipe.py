"""Recipes of heads: their layers and memory needs. The app imports this module, so it does not import torch."""

from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from specchat.engine import families
from specchat.engine.errors import ModelError
from specchat.engine.families.parts.family import Family
from specchat.engine.heads.files import HeadFiles
from specchat.engine.memory.need import Place
from specchat.engine.memory.vectors import brief, filled, fits
from specchat.engine.model.tree_layout import MAX_TREE_NODES
from specchat.engine.recipe import Attention, Experts, Gated, Layer, Matrix, Norm, Recipe
from specchat.engine.strategies import HEADS
from specchat.engine.strategy import resolved
from specchat.engine.weights.config import ModelConfig, parse_config

Part = TypeVar("Part")


@dataclass(frozen=True)
class HeadRecipe:
    """Layers of a head, and the state it holds for each token.

    Attributes:
        layers: the head's own layers.
        aux_layers: layer counts after which the target's hidden states are taken.
        feature: values passed from token to token besides KV entries.
        doubled: weights held twice, for compiled chains.
        parameters: number of weights; None for all values of the head's files.
    """

    layers: tuple[Layer, ...]
    aux_layers: tuple[int, ...]
    feature: int = 0
    doubled: int = 0
    parameters: int | None = None

    def need(self, files: HeadFiles, target: ModelConfig, context: int, place: Place) -> int:
        """Upper bound of bytes for a `target` at `place` with `context` tokens of cache.

        Weights and hidden states have 16 bits on a GPU, at most 32 on a CPU.
        """
        parameters = files.values if self.parameters is None else self.parameters
        positions = min(context, target.longest) + MAX_TREE_NODES  # a tree's hidden states have their own rows
        states = len(set(self.aux_layers)) * target.hidden
        own = self.feature + sum(layer.attention.entry for layer in self.layers)
        if place == "cuda":
            return 2 * parameters + (2 * states + 4 * own) * positions
        return 4 * (parameters + self.doubled + (states + own) * positions)


def need(head: str, files: HeadFiles, target: ModelConfig, context: int, place: Place) -> int:
    """Upper bound of bytes of a family's heads, for a target at `place` with `context` tokens of cache.

    Raises:
        ModelError: the settings are not of this family.
    """
    recipe: HeadRecipe = resolved(HEADS[head].settings)(files, target, head).recipe
    return recipe.need(files, target, context, place)


def shape_of(files: HeadFiles, settings: dict[str, Any], family: Family | None = None) -> ModelConfig:
    """Shape of a head's layers, of a `family` of models unless the settings name one; None: of plain layers.

    Raises:
        ModelError: a key is missing or wrong, or the layers are mixtures of experts or recurrent.
    """
    # Which layers have a window the head's own settings say; no family's default is the size of its attention heads.
    usual = {"model_type": (family or families.plain()).model_type, "head_dim": None}
    shape = parse_config(files.folder, {**usual, **settings, "layer_types": None})
    if any(isinstance(layer.feed, Experts) for layer in shape.recipe.layers):
        raise ModelError(f"{files.folder}: the head's layers are mixtures of experts, and no such head is run.")
    mixers = [None if layer.input else layer.mixer for layer in shape.recipe.layers]
    if not all(isinstance(mixer, Attention) and not mixer.gated and not mixer.latent for mixer in mixers):
        raise ModelError(f"{files.folder}: the head's layers are not of plain attention, and no other head is run.")
    return shape


def compiles(shape: ModelConfig) -> bool:
    """True if chains of a head of this shape may use compiled layers: `cpu.drafting.heads`."""
    whole = filled(shape.recipe) == shape.recipe
    return whole and fits(shape) and brief(shape) and all(_plain(layer) for layer in shape.recipe.layers)


def _plain(layer: Layer) -> bool:
    mixer = layer.mixer
    whole = isinstance(mixer, Attention) and (mixer.rope is None or mixer.rope.width == mixer.head_dim)
    return whole and not layer.attention.gated and isinstance(layer.feed, Gated) and not layer.vectors


def layers(of: Recipe, prefix: str = "layers") -> tuple[Layer, ...]:
    """Layers of a model renamed for a head, under `prefix`, with full attention."""
    found = (renamed(layer, f"model.layers.{index}.", f"{prefix}.{index}.") for index, layer in enumerate(of.layers))
    return tuple(map(full_attention, found))


def full_attention(layer: Layer) -> Layer:
    """Return `layer` without a window."""
    return replace(layer, mixer=replace(layer.attention, window=0))


def joined(layer: Layer, inputs: int) -> Layer:
    """Return `layer` without a norm before its attention, which has `inputs` columns."""
    mixer = layer.attention
    return replace(layer, pre_mixer=None, mixer=replace(mixer, qkv=replace(mixer.qkv, inputs=inputs)))


def renamed(part: Part, old: str, new: str) -> Part:
    """Return a part of a recipe with the name prefix `old` replaced by `new`."""
    match part:
        case Norm():
            return replace(part, name=new + part.name.removeprefix(old))
        case Matrix():
            return replace(part, names=tuple(new + name.removeprefix(old) for name in part.names))
        case Layer() | Attention() | Gated() | Experts():
            of_fields: dict[str, Any] = {one.name: getattr(part, one.name) for one in fields(part)}
            return replace(part, **{key: renamed(one, old, new) for key, one in of_fields.items()})
        case str() | tuple():
            made: Any = part.replace(old, new, 1) if isinstance(part, str) else [renamed(one, old, new) for one in part]
            return type(part)(made)
        case _:
            return part
