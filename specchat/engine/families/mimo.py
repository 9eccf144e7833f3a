"""MiMo: Qwen2 with a layer for multi-token prediction beside it, which drafts and is no part of the recipe."""

from specchat.engine.families import qwen2
from specchat.engine.families.family import Family

FAMILY = Family("mimo", "MiMo", qwen2.recipe)
