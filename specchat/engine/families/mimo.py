"""MiMo: Qwen2 with a layer for multi-token prediction, which drafts and is not part of the recipe."""

from specchat.engine.families import qwen2
from specchat.engine.families.family import Family

FAMILY = Family("mimo", "MiMo", qwen2.recipe, qwen2.QwenSettings, mtp="model.mtp_layers.")
