"""OLMo 3 (OLMo team 2025): OLMo 2's layers, three of four with a window and rotary embeddings without scaling."""

from dataclasses import replace

from specchat.engine.families import olmo2
from specchat.engine.families.family import Family, kinds, rope_of_kind, within
from specchat.engine.foreign import MaybeCount
from specchat.engine.recipe import Recipe


class Olmo3Settings(olmo2.Olmo2Settings):
    sliding_window: MaybeCount = 4096


def recipe(c: Olmo3Settings) -> Recipe:
    made, of = olmo2.recipe(c), kinds(c, lambda index: (index + 1) % 4 > 0)
    turned = (
        replace(
            one,
            mixer=replace(one.attention, rope=rope_of_kind(c, one.attention.head_dim, kind, c.rope_theta or 5e5)),
        )
        for one, kind in zip(made.layers, of, strict=True)
    )
    return replace(
        made, layers=tuple(within(c.sliding_window, one, kind) for one, kind in zip(turned, of, strict=True))
    )


FAMILY = Family("olmo3", "OLMo 3", recipe, Olmo3Settings)
