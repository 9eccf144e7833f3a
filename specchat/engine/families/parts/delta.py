"""Layers of Gated DeltaNet, and their keys of config.json."""

from specchat.engine.families.parts.settings import Settings
from specchat.engine.foreign import Count
from specchat.engine.recipe import Delta, Matrix, Norm

LINEAR = "linear_attention"
"""Their kind in "layer_types"."""


class DeltaSettings(Settings):
    """Published files leave out what is as here."""

    linear_conv_kernel_dim: Count = 4
    linear_key_head_dim: Count = 128
    linear_value_head_dim: Count = 128
    linear_num_key_heads: Count = 16
    linear_num_value_heads: Count = 32


def delta(c: DeltaSettings, prefix: str) -> Delta:
    """Gated DeltaNet; `prefix` begins the names of its tensors.

    Raises:
        ValueError: key heads cannot be shared equally.
    """
    heads, shared = c.linear_num_value_heads, c.linear_num_key_heads
    if heads % shared:
        raise ValueError(f"linear_num_value_heads {heads} is not a multiple of linear_num_key_heads {shared}")
    values = heads * c.linear_value_head_dim
    channels = 2 * shared * c.linear_key_head_dim + values
    first, last = (tuple(f"{prefix}.in_proj_{end}" for end in ends) for ends in (("qkv", "z"), ("b", "a")))
    return Delta(
        key_heads=shared,
        value_heads=heads,
        key_dim=c.linear_key_head_dim,
        value_dim=c.linear_value_head_dim,
        taps=c.linear_conv_kernel_dim,
        mix=Matrix(first, (channels, values), c.hidden_size),
        gates=Matrix(last, (heads, heads), c.hidden_size, dense=True),
        out=Matrix((f"{prefix}.out_proj",), (c.hidden_size,), values),
        norm=Norm(f"{prefix}.norm", c.linear_value_head_dim, c.rms_norm_eps),
        convolution=f"{prefix}.conv1d.weight",
        decay=f"{prefix}.A_log",
        shift=f"{prefix}.dt_bias",
    )
