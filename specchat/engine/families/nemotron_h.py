"""Nemotron-H and Nemotron 3 (NVIDIA 2025): layers of Mamba 2, of attention without rope, and of MLPs without gates.

The file's layers have one part each. Here a layer is a mixer, with the MLP or the experts that follow it. Steps of time
have no least size, as in Mamba's own kernels and in transformers' steps of single tokens.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from specchat.engine.families.parts.delta import LINEAR
from specchat.engine.families.parts.experts import Chosen
from specchat.engine.families.parts.family import FULL, Family, attention, ungated
from specchat.engine.families.parts.grouped import GroupedSettings, grouped_experts
from specchat.engine.families.parts.mamba import MambaSettings, MambaShape, backbone, mamba
from specchat.engine.foreign import Count, MaybeCount, Number, Switch, shown
from specchat.engine.recipe import Experts, Gated, Layer, Norm, Recipe, Unsupported

MLP, MOE = "mlp", "moe"
KINDS = {"M": LINEAR, "*": FULL, "-": MLP, "E": MOE, "mamba": LINEAR, "attention": FULL}
"""Kinds of layers by their letters in a pattern, and by older names."""


class NemotronHSettings(MambaSettings, GroupedSettings):
    """Published files leave out what is as here."""

    USUAL = 8
    num_hidden_layers: Count = 1
    intermediate_size: Count = 21504
    mlp_hidden_act: str = "relu2"
    layers_block_type: Annotated[list[str] | None, Field(description="a list of kinds of layers")] = None
    hybrid_override_pattern: str = ""
    layer_norm_epsilon: Number = 1e-5
    ssm_state_size: Count = 128
    mamba_num_heads: Count = 128
    mamba_head_dim: Count = 64
    n_groups: Count = 8
    conv_kernel: Count = 4
    use_conv_bias: Switch = True
    use_bias: Switch = False
    head_dim: MaybeCount = 128
    num_experts_per_tok: Chosen = 2
    moe_intermediate_size: Count = 7688
    moe_shared_expert_intermediate_size: Count = 7688
    moe_latent_size: MaybeCount = None

    @property
    def kinds(self) -> list[str]:
        """The kind of each of the file's layers."""
        named = self.layers_block_type or self.layer_types or list(self.hybrid_override_pattern)
        found = named or [LINEAR, MOE, FULL, MLP]
        return [KINDS.get(kind, kind) for kind in found]


def recipe(c: NemotronHSettings) -> Recipe:
    return backbone(c, layers(c), c.layer_norm_epsilon)


def layers(c: NemotronHSettings) -> Iterator[Layer]:
    waiting: Layer | None = None
    for index, kind in enumerate(c.kinds):
        prefix = f"backbone.layers.{index}"
        name, norm = f"{prefix}.mixer", Norm(f"{prefix}.norm", c.hidden_size, c.layer_norm_epsilon)
        if kind in (MLP, MOE):
            if waiting is None:
                raise Unsupported("an MLP that follows neither attention nor Mamba: not in specchat's decoder")
            yield replace(waiting, feed=feed(c, kind, name), pre_feed=norm)
            waiting = None
            continue
        if waiting:
            yield waiting
        if kind == LINEAR:
            shape = MambaShape(c.mamba_num_heads, c.mamba_head_dim, c.n_groups, c.ssm_state_size, c.conv_kernel)
            mixer = mamba(c, name, shape, c.layer_norm_epsilon, conv_bias=c.use_conv_bias, bias=c.use_bias)
            waiting = Layer(mixer, None, norm, None)
        elif kind == FULL:
            waiting = Layer(replace(attention(c, name), rope=None), None, norm, None)
        else:
            known = ", ".join(sorted({*KINDS.values()}))
            raise Unsupported(f"specchat's decoder has no layers of {shown(kind)}, only {known}")
    if waiting:
        yield waiting


def feed(c: NemotronHSettings, kind: str, name: str) -> Gated | Experts:
    c = c.model_copy(update={"hidden_act": c.mlp_hidden_act})
    if kind == MLP:
        return ungated(c, f"{name}.up_proj", f"{name}.down_proj", bias=c.mlp_bias)
    if c.moe_latent_size:
        raise Unsupported("experts of latents: not in specchat's decoder")
    each, shared = (
        ungated(c, f"{name}.{part}.up_proj", f"{name}.{part}.down_proj", bias=bias, width=width)
        for part, bias, width in (
            ("experts.{}", False, c.moe_intermediate_size),
            ("shared_experts", c.mlp_bias, c.moe_shared_expert_intermediate_size),
        )
    )
    of_gates = c.model_copy(update={"hidden_act": "silu", "n_shared_experts": None})
    return replace(grouped_experts(of_gates, name), each=each, shared=shared)


FAMILY = Family("nemotron_h", "Nemotron-H", recipe, NemotronHSettings)
