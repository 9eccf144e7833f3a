"""The head of a checkpoint, its own or the table of embeddings: as in transformers, one that is stored counts."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from specchat.engine.errors import ModelError
from specchat.engine.recipe import Recipe

BEGINNINGS = ("", "model.", "language_model.", "model.language_model.", "language_model.model.")
"""Beginnings of the names of heads and embeddings."""
HEAD, TABLE = "lm_head", "embed_tokens"
PARTS = ("weight", "qweight", "weight_packed")
"""Ends of a matrix's name, of which the last ones are quantised."""
ROWS = 4096
"""Rows that are compared at a time."""


def with_own_head(recipe: Recipe, shards: Sequence[Path], may_be_tied: bool) -> Recipe:
    """`recipe` with the head that the safetensors files have; without one a model that `may_be_tied` is.

    Raises:
        ModelError: a file is damaged or cut short.
    """
    wanted = {f"{begin}{name}.{part}" for begin in BEGINNINGS for name in (HEAD, TABLE) for part in PARTS}
    with ExitStack() as stack:
        found: dict[str, Any] = {}
        for shard in shards:
            try:
                file = stack.enter_context(safe_open(shard, framework="pt"))
            except (SafetensorError, OSError) as error:
                raise ModelError(f"{shard} is damaged or cut short ({error}). Download the checkpoint again.") from None
            found |= {name: file.get_slice(name) for name in wanted.intersection(file.keys())}
        heads = [part for name, part in found.items() if HEAD in name]
        tables = [part for name, part in found.items() if TABLE in name]
        if recipe.tied and heads and not (tables and _same(heads[0], tables[0])):
            return replace(recipe, head=replace(recipe.embed, names=(HEAD,)))
    return replace(recipe, head=recipe.embed) if may_be_tied and not heads else recipe


def _same(one: Any, other: Any) -> bool:
    """True if two stored matrices have the same values."""
    if one.get_shape() != other.get_shape() or one.get_dtype() != other.get_dtype():
        return False
    count = (one.get_shape() or [0])[0]
    return all(torch.equal(one[n : n + ROWS], other[n : n + ROWS]) for n in range(0, count, ROWS))
