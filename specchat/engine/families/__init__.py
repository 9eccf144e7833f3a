"""Model families: from config.json to a recipe. No other code names a family; `parts` has the layers they share."""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from specchat.engine.families.parts.family import Family


@cache
def known() -> dict[str, Family]:
    """Families by model_type in config.json: every `Family` in a module of this package, under any name."""
    modules = (import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__) if not module.ispkg)
    values = (value for module in modules for value in vars(module).values())
    found = {value.model_type: value for value in values if isinstance(value, Family)}
    return dict(sorted(found.items()))


def also_seeing() -> dict[str, str]:
    """The model_type of the text part, by that of a checkpoint that reads images too."""
    return {outer: family.model_type for family in known().values() for outer in family.also_seeing}


def plain() -> Family:
    """The family whose layers trained heads have, unless they say otherwise."""
    return known()["llama"]


def head_normed() -> Family:
    """The family whose layers are `plain` ones with norms of query and key heads."""
    return known()["qwen3"]
