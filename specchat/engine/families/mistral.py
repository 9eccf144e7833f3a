"""Mistral (Jiang et al. 2023): Llama's layers with sliding-window attention."""

from dataclasses import replace

from specchat.engine.families import llama
from specchat.engine.families.parts.family import Family, within
from specchat.engine.families.parts.settings import Settings
from specchat.engine.foreign import MaybeCount
from specchat.engine.recipe import Recipe


class MistralSettings(Settings):
    sliding_window: MaybeCount = 4096


def recipe(c: MistralSettings) -> Recipe:
    made = llama.recipe(c)
    return replace(made, layers=tuple(within(c.sliding_window, layer) for layer in made.layers))


FAMILY = Family("mistral", "Mistral", recipe, MistralSettings)
