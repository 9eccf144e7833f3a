"""Model families, a file each: from config.json to a recipe. No other code names a family."""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from specchat.engine.families.family import Family


@cache
def known() -> dict[str, Family]:
    """Families by model_type in config.json: the `FAMILY` of every module in this package."""
    modules = (import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__))
    families = [module.FAMILY for module in modules if hasattr(module, "FAMILY")]
    return {family.model_type: family for family in families}


def also_seeing() -> dict[str, str]:
    """The model_type of the text part, by that of a checkpoint that reads images too."""
    return {outer: family.model_type for family in known().values() for outer in family.also_seeing}


def plain() -> Family:
    """The family whose layers trained heads have, unless they say otherwise."""
    return known()["llama"]


def head_normed() -> Family:
    """The family whose layers are `plain` ones with norms of query and key heads."""
    return known()["qwen3"]
