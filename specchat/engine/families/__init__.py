"""The model families that are known, a file each: from config.json to a recipe. Nothing else knows a family's name."""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from specchat.engine.families.family import Family


@cache
def known() -> dict[str, Family]:
    """The families by their model_type in config.json: of every module beside this one that has a `FAMILY`."""
    modules = (import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__))
    families = [module.FAMILY for module in modules if hasattr(module, "FAMILY")]
    return {family.model_type: family for family in families}


def plain() -> Family:
    """The family whose layers trained heads have, unless they say otherwise."""
    return known()["llama"]


def head_normed() -> Family:
    """The family whose layers are `plain` ones with norms of query and key heads."""
    return known()["qwen3"]
