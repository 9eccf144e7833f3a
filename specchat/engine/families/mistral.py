"""Mistral (Jiang et al. 2023): Llama's layers with sliding-window attention."""

from specchat.engine.families import llama
from specchat.engine.families.family import Family
from specchat.engine.families.settings import Settings
from specchat.engine.recipe import Recipe


def recipe(c: Settings) -> Recipe:
    return llama.recipe(c.model_copy(update={"use_sliding_window": True}))


FAMILY = Family("mistral", "Mistral", recipe)
