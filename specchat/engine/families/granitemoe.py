"""Granite 3 with experts (IBM 2024): Granite's layers, whose experts may stand beside a shared MLP."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from specchat.engine.families.granite import GraniteSettings
from specchat.engine.families.granite import recipe as granite
from specchat.engine.families.parts.experts import Chosen, ExpertsSettings, mixture
from specchat.engine.families.parts.family import Family, gated
from specchat.engine.foreign import LARGEST, Switch
from specchat.engine.recipe import Experts, Gated, Recipe


class GraniteMoeSettings(GraniteSettings, ExpertsSettings):
    """Published files leave out what is as here."""

    USUAL = 8
    num_experts_per_tok: Chosen = 2
    shared_intermediate_size: Annotated[int, Field(ge=0, lt=LARGEST, description="a whole number from 0 on")] = 0
    fused_mlp: Switch = True
    """False in GGUF files: gate and up of the shared MLP are stored apart."""


def recipe(c: GraniteMoeSettings) -> Recipe:
    plain = granite(c)
    layers = (replace(layer, feed=experts(c, f"model.layers.{index}")) for index, layer in enumerate(plain.layers))
    return replace(plain, layers=tuple(layers))


def experts(c: GraniteMoeSettings, prefix: str) -> Experts:
    """The experts of a layer; `prefix` begins the names of its tensors."""
    plain = mixture(c, f"{prefix}.mlp", c.intermediate_size, renormalised=True)
    shared = shared_mlp(c, prefix) if c.shared_intermediate_size else None
    return replace(plain, router=plain.router.fused(f"{prefix}.mlp.router"), shared=shared)


def shared_mlp(c: GraniteMoeSettings, prefix: str) -> Gated:
    """The MLP of a layer that every token has; `prefix` begins the names of its tensors."""
    name = f"{prefix}.shared_mlp"
    plain = gated(c, name, width=c.shared_intermediate_size)
    gate_up = plain.gate_up.fused(f"{name}.input_linear") if c.fused_mlp else plain.gate_up
    return replace(plain, gate_up=gate_up, down=plain.down.fused(f"{name}.output_linear"))


FAMILY = Family("granitemoe", "Granite MoE", recipe, GraniteMoeSettings)
SHARED = Family("granitemoeshared", "Granite MoE Shared", recipe, GraniteMoeSettings)
