"""config.json of a checkpoint: the recipe of its model, and how long a text it holds."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from specchat.engine import families
from specchat.engine.errors import ForeignModel, ModelError
from specchat.engine.families.family import Family
from specchat.engine.families.settings import Ends, Scaling, Settings
from specchat.engine.foreign import LARGEST, checked, shown
from specchat.engine.model.files import found, read
from specchat.engine.recipe import Recipe, Unsupported

LEAST_CONTEXT = 16
"""Fewer tokens hold no chat."""


@dataclass(frozen=True)
class ModelConfig:
    """A model and its limits.

    Attributes:
        family: its model_type.
        context: the longest sequence, in tokens, unless more is asked for.
        eos: tokens that end a reply.
        stretched: the longest sequence that the scaling of positions allows where it is asked for; 0: no longer than
            `context`.
    """

    family: str
    recipe: Recipe
    context: int
    eos: frozenset[int]
    stretched: int = 0

    @property
    def longest(self) -> int:
        """The longest sequence that can be asked for, in tokens."""
        return max(self.context, self.stretched)

    @property
    def hidden(self) -> int:
        """Values of a token's state."""
        return self.recipe.hidden

    @property
    def layers(self) -> int:
        """How many there are."""
        return len(self.recipe.layers)

    @property
    def vocab(self) -> int:
        """Tokens that are known."""
        return self.recipe.vocab

    @property
    def tied(self) -> bool:
        """Whether the head is the table of embeddings."""
        return self.recipe.tied

    @property
    def head_layers(self) -> float:
        """How many layers have as many weights as the head."""
        return self.recipe.head.parameters * self.layers / sum(layer.parameters for layer in self.recipe.layers)

    def cut(self, layers: int) -> "ModelConfig":
        """The model of the first so many layers."""
        return replace(self, recipe=replace(self.recipe, layers=self.recipe.layers[:layers]))

    def parameters(self) -> int:
        """Number of weights, a tied head counted once."""
        return self.recipe.parameters


def parse_config(folder: Path, raw: dict[str, Any]) -> ModelConfig:
    """The model that `raw`, the JSON of `folder`/config.json, describes; generation_config.json may name more ends.

    Raises:
        ModelError: a key is missing or wrong, or a family or a feature that no recipe holds.
    """
    path = folder / "config.json"
    known, kind = families.known(), raw.get("model_type")
    family = known.get(kind) if isinstance(kind, str) else None
    if family is None:
        names = ", ".join(known)
        raise ForeignModel(path, f"model_type {shown(kind)} is not one that specchat's decoder runs ({names})")
    try:
        config = _parse(raw, family, str(path))
    except KeyError as error:
        raise ModelError(f"{path}: key {error} is missing.") from None
    except Unsupported as lacking:
        raise ForeignModel(path, str(lacking)) from None
    except ValueError as error:
        raise ModelError(f"{path}: {error}.") from None
    generation = folder / "generation_config.json"
    if not found(generation):
        return config
    return replace(config, eos=config.eos | _with_rows(read(generation, Ends).ends, config.vocab))


def _parse(raw: dict[str, Any], family: Family, where: str) -> ModelConfig:
    given: Settings = checked(family.settings, raw, where)
    checked(Scaling, given.scaling, where)
    recipe = family.recipe(given)
    rope = next((rope for rope in recipe.ropes if rope is not None), None)
    context = stretched = given.max_position_embeddings
    if rope is not None:
        context, stretched = reach(rope.kind, rope.options, context)
    if window := min((layer.mixer.window for layer in recipe.layers if layer.mixer.window), default=0):
        # Within the window sliding attention is full attention; beyond it executors would be wrong.
        context, stretched = min(context, window), 0
    if context < LEAST_CONTEXT:
        raise ValueError(f"max_position_embeddings or sliding_window is {context}, and a chat needs {LEAST_CONTEXT}")
    eos = _with_rows(given.ends, recipe.vocab)
    return ModelConfig(family.model_type, recipe, context, eos, stretched if stretched > context else 0)


def reach(kind: str, options: Mapping[str, Any], context: int) -> tuple[int, int]:
    """How many tokens a model of `context` positions holds by itself, and how many where they are asked for.

    `kind` and `options` say how its rotary embeddings are scaled. YaRN's product is what a model was made for. Of other
    scalings max_position_embeddings may be the length before or after, and some change what is said of short texts.
    """
    original = _sound(options.get("original_max_position_embeddings")) or context
    factor = _sound(options.get("factor")) or max(1.0, context / original)
    stretched = max(context, int(min(original * factor, LARGEST - 1)))
    match kind:
        case "yarn":
            return stretched, stretched
        case "longrope":
            return min(context, int(original)), stretched
        case "linear" | "llama3" | "dynamic":
            return context, stretched
        case _:
            return context, context


def _sound(value: object) -> float | None:
    """A number that may count tokens, None where it is none."""
    return float(value) if isinstance(value, int | float) and 0 < value < LARGEST else None


def _with_rows(tokens: frozenset[int], vocab: int) -> frozenset[int]:
    """Those that the model can say."""
    return frozenset(token for token in tokens if 0 <= token < vocab)
