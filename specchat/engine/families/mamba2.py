"""Mamba 2 (Dao and Gu 2024) alone, as in Codestral Mamba: every layer is a mixer without an MLP."""

from specchat.engine.families.parts.family import Family
from specchat.engine.families.parts.mamba import MambaSettings, MambaShape, backbone, mamba
from specchat.engine.foreign import Count, MaybeCount, Number, Switch
from specchat.engine.recipe import Layer, Norm, Recipe


class Mamba2Settings(MambaSettings):
    """Published files leave out what is as here, and say nothing of attention, MLPs or the length of a text."""

    intermediate_size: Count = 1
    num_attention_heads: Count = 1
    max_position_embeddings: Count = 1 << 15
    num_heads: Count = 128
    head_dim: MaybeCount = 64
    state_size: Count = 128
    n_groups: Count = 8
    conv_kernel: Count = 4
    layer_norm_epsilon: Number = 1e-5
    use_bias: Switch = False
    use_conv_bias: Switch = True


def recipe(c: Mamba2Settings) -> Recipe:
    shape, eps = (
        MambaShape(c.num_heads, c.head_dim or 64, c.n_groups, c.state_size, c.conv_kernel),
        c.layer_norm_epsilon,
    )

    def layer(prefix: str) -> Layer:
        mixer = mamba(c, f"{prefix}.mixer", shape, eps, conv_bias=c.use_conv_bias, bias=c.use_bias)
        return Layer(mixer, None, Norm(f"{prefix}.norm", c.hidden_size, eps), None)

    return backbone(c, (layer(f"backbone.layers.{index}") for index in range(c.num_hidden_layers)), eps)


FAMILY = Family("mamba2", "Mamba 2", recipe, Mamba2Settings)
