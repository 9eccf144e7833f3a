"""Hunyuan's dense models (Tencent 2025): norms of queries and keys after their rotation."""

from dataclasses import replace

from specchat.engine.families.parts.family import Family, block, decoder
from specchat.engine.families.parts.settings import Settings
from specchat.engine.foreign import Number, shown
from specchat.engine.recipe import Layer, Norm, Recipe, Unsupported


class HunyuanSettings(Settings):
    """Published files leave out what is as here."""

    rms_norm_eps: Number = 1e-5


def recipe(c: HunyuanSettings) -> Recipe:
    c = _static(c)

    def layer(_: int, prefix: str) -> Layer:
        plain, name = block(c, prefix, qkv_bias=c.attention_bias, out_bias=c.attention_bias), f"{prefix}.self_attn"
        size = plain.attention.head_dim
        query, key = (Norm(f"{name}.{which}_layernorm", size, c.rms_norm_eps) for which in ("query", "key"))
        return replace(plain, mixer=replace(plain.attention, query_norm=query, key_norm=key, late_norms=True))

    return decoder(c, layer)


def _static(c: HunyuanSettings) -> HunyuanSettings:
    """Settings with the rope that a fixed `alpha` makes of a "dynamic" one: another base, whatever the length.

    Raises:
        Unsupported: the rope has another scaling.
    """
    options = dict(c.scaling)
    kind, alpha = options.get("rope_type", options.get("type", "default")), float(options.get("alpha") or 0.0)
    if kind == "dynamic" and alpha:
        size = c.head_dim or c.hidden_size // c.num_attention_heads
        base = float(options.get("rope_theta") or c.rope_theta or 10000.0) * alpha ** (size / (size - 2))
        return c.model_copy(update={"rope_parameters": {"rope_type": "default", "rope_theta": base}})
    if kind != "default":
        raise Unsupported(f"norms after a rotation with scaling {shown(kind)}: not in specchat's decoder")
    return c


FAMILY = Family("hunyuan_v1_dense", "Hunyuan", recipe, HunyuanSettings)
