"""config.json of a checkpoint: the recipe of its model, and its limits."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from specchat.engine import families
from specchat.engine.errors import ForeignModel, ModelError
from specchat.engine.families.parts.family import Family
from specchat.engine.families.parts.settings import Ends, Scaling, Settings
from specchat.engine.files import found, read
from specchat.engine.foreign import LARGEST, checked, shown
from specchat.engine.protocol.pair import KvCache
from specchat.engine.recipe import Recipe, Unsupported

LEAST_CONTEXT = 16
"""Fewest tokens that a chat needs."""
FOREIGN_KEYS: Mapping[str, tuple[str, ...]] = {
    "latent attention": ("kv_lora_rank",),
    "hyper-connections": ("hc_mult", "hc_count"),
    "attention to chosen tokens": ("index_topk", "indexer_budget"),
    "attention in chunks": ("attention_chunk_size",),
    "Mamba layers": ("mamba_d_state", "ssm_state_size", "mamba_n_heads", "mamba_num_heads", "state_size"),
}
"""Keys of config.json that ask for features no recipe holds, in unknown families alone: in known ones some have no
effect."""


@dataclass(frozen=True)
class ModelConfig:
    """A model and its limits.

    Attributes:
        family: its model_type.
        context: default limit of a sequence, in tokens.
        eos: tokens that end a reply.
        stretched: limit that position scaling allows on request, in tokens; 0: no more than `context`.
        sees: rows that stand for a token of a picture, of a model that is the text part of one that reads images: one
            in place of its embedding, and one that is added after each of some first layers. 0: it reads text alone.
    """

    family: str
    recipe: Recipe
    context: int
    eos: frozenset[int]
    stretched: int = 0
    sees: int = 0

    @property
    def longest(self) -> int:
        """Limit of a sequence on request, in tokens."""
        return max(self.context, self.stretched)

    @property
    def hidden(self) -> int:
        """Values of a hidden state."""
        return self.recipe.hidden

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self.recipe.layers)

    @property
    def vocab(self) -> int:
        """Size of the vocabulary."""
        return self.recipe.vocab

    @property
    def tied(self) -> bool:
        """True where the head is the table of embeddings."""
        return self.recipe.tied

    @property
    def head_layers(self) -> float:
        """Weights of the head in layers, as a row reads them."""
        return self.recipe.head.parameters * self.layers / sum(layer.active for layer in self.recipe.layers)

    def cut(self, layers: int) -> "ModelConfig":
        """The model of the first `layers` layers."""
        return replace(self, recipe=replace(self.recipe, layers=self.recipe.layers[:layers]))

    def halves(self, first: int) -> tuple["ModelConfig", "ModelConfig"]:
        """The model in two: its first layers with the embeddings, and the others with the head. Both read text alone.

        No layer of the others may share the KV entries of one of the first.
        """
        of, text = self.recipe, replace(self, sees=0)
        front = replace(of, layers=of.layers[:first], head=of.embed)
        back = replace(of, layers=tuple(layer.moved(first) for layer in of.layers[first:]), embed=of.head)
        return replace(text, recipe=front), replace(text, recipe=back)

    def with_cache(self, cache: KvCache | None) -> "ModelConfig":
        """The model with KV entries in the form `cache`."""
        return self if cache is None else replace(self, recipe=self.recipe.with_int8_cache())

    def parameters(self) -> int:
        """Number of weights, a tied head counted once."""
        return self.recipe.parameters


def parse_config(folder: Path, raw: dict[str, Any]) -> ModelConfig:
    """Parse `raw`, the JSON of `folder`/config.json; generation_config.json may add ends of text.

    Raises:
        ModelError: a key is missing or wrong, or a family or a feature is unsupported.
    """
    config = parsed_settings(folder / "config.json", raw)
    generation = folder / "generation_config.json"
    if not found(generation):
        return config
    return replace(config, eos=config.eos | _with_rows(read(generation, Ends).ends, config.vocab))


def parsed_settings(path: Path, raw: dict[str, Any]) -> ModelConfig:
    """Parse settings in the keys of config.json; messages name `path`.

    Raises:
        ModelError: a key is missing or wrong, or a family or a feature is unsupported.
    """
    known, kind = families.known(), raw.get("model_type")
    family = known.get(kind) if isinstance(kind, str) else None
    whole = with_text(raw)
    of_text = families.also_seeing().get(kind) if isinstance(kind, str) else None
    # Older files of some families that read images have the settings of text among those of the whole.
    if sees := of_text is not None and (whole is not raw or "hidden_size" in raw):
        vision, own = raw.get("vision_config"), raw["text_config"].get("model_type") if whole is not raw else None
        added = vision.get("deepstack_visual_indexes") if isinstance(vision, dict) else None
        deep = len(added) if isinstance(added, list) else 0
        raw, family = whole, known[own if isinstance(own, str) and own in known else of_text]
    if family is None:
        if needed := _foreign_features(whole):
            raise ForeignModel(path, f"model_type {shown(kind)} needs {needed}, which specchat's decoder lacks")
        names = ", ".join(known)
        raise ForeignModel(path, f"model_type {shown(kind)} is not one that specchat's decoder runs ({names})")
    try:
        return replace(_parse(raw, family, str(path)), sees=sees and 1 + deep)
    except KeyError as error:
        raise ModelError(f"{path}: key {error} is missing.") from None
    except Unsupported as lacking:
        raise ForeignModel(path, str(lacking)) from None
    except ValueError as error:
        raise ModelError(f"{path}: {error}.") from None


def with_text(raw: dict[str, Any]) -> dict[str, Any]:
    """Settings with those of the model of text, which stand apart where images are read too.

    What the whole says of tied embeddings counts, as in transformers.
    """
    text = raw.get("text_config")
    if not isinstance(text, dict):
        return raw
    tied = raw.get("tie_word_embeddings")
    return {**raw, **text, **({} if tied is None else {"tie_word_embeddings": tied})}


def _parse(raw: dict[str, Any], family: Family, where: str) -> ModelConfig:
    given: Settings = checked(family.settings, raw, where)
    for options in given.scalings:
        checked(Scaling, options, where)
    recipe = family.recipe(given)
    rope = next((rope for rope in recipe.ropes if rope is not None), None)
    context = stretched = given.max_position_embeddings
    if rope is not None:
        context, stretched = reach(rope.kind, rope.options, context)
    if context < LEAST_CONTEXT:
        raise ValueError(f"max_position_embeddings is {context}, and a chat needs {LEAST_CONTEXT}")
    eos = _with_rows(given.ends, recipe.vocab)
    return ModelConfig(family.model_type, recipe, context, eos, stretched if stretched > context else 0)


def reach(kind: str, options: Mapping[str, Any], context: int) -> tuple[int, int]:
    """Context of a model of `context` positions in tokens: the default, and the limit on request.

    `kind` and `options` are the scaling of its rotary embeddings. YaRN's product is the trained length. With other
    scalings max_position_embeddings may be the length before or after, and some change the results of short texts.
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
    """A positive number of tokens; None for any other value."""
    return float(value) if isinstance(value, int | float) and 0 < value < LARGEST else None


def _with_rows(tokens: frozenset[int], vocab: int) -> frozenset[int]:
    """`tokens` within the vocabulary."""
    return frozenset(token for token in tokens if 0 <= token < vocab)


def _foreign_features(settings: Mapping[str, Any]) -> str:
    """Return the features that the settings ask for, in words; empty where none of these is known."""
    found = [feature for feature, keys in FOREIGN_KEYS.items() if any(settings.get(key) for key in keys)]
    return " and ".join([", ".join(found[:-1]), found[-1]] if len(found) > 1 else found)
