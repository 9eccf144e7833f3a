"""EXAONE 4 (LG AI Research 2025): OLMo 3's layers with norms of heads; beside windows full ones have no rope."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from specchat.engine.families.parts.family import (
    FULL,
    Family,
    attention,
    decoder,
    head_norms,
    kinds,
    norms_after,
    within,
)
from specchat.engine.families.parts.settings import Settings
from specchat.engine.foreign import POSITIVE, Count, MaybeCount, Number
from specchat.engine.recipe import Layer, Recipe


class Exaone4Settings(Settings):
    rms_norm_eps: Number = 1e-5
    sliding_window: MaybeCount = 4096
    sliding_window_pattern: Annotated[Count | str | None, Field(description=f'{POSITIVE} or a text like "LLLG"')] = 4
    """Number of layers of which the last one is full, or a letter for each of them."""


def recipe(c: Exaone4Settings) -> Recipe:
    pattern = c.sliding_window_pattern
    every = (len(pattern) if isinstance(pattern, str) else pattern) or 1
    of = kinds(c, lambda index: bool(c.sliding_window) and (index + 1) % every > 0)

    def layer(index: int, prefix: str) -> Layer:
        name, kind = f"{prefix}.self_attn", of[index]
        mixer = head_norms(c, attention(c, name), name)
        mixer = replace(mixer, rope=None) if c.sliding_window and kind == FULL else mixer
        return within(c.sliding_window, norms_after(c, prefix, mixer), kind)

    return decoder(c, layer)


FAMILY = Family("exaone4", "EXAONE 4", recipe, Exaone4Settings)
