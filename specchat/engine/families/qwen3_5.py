"""Qwen3.5, 3.6 and 3.8 dense (Qwen team 2026): three of four layers are Gated DeltaNet, the others gated attention."""

from collections.abc import Callable
from dataclasses import replace

from specchat.engine.families.parts import family as parts
from specchat.engine.families.parts.delta import LINEAR, DeltaSettings, delta
from specchat.engine.families.parts.family import BEFORE, Family
from specchat.engine.foreign import Count, MaybeCount
from specchat.engine.recipe import Attention, Delta, Experts, Gated, Layer, Norm, Recipe


class Qwen35Settings(DeltaSettings):
    """Published files leave out what is as here."""

    head_dim: MaybeCount = 256
    full_attention_interval: Count = 4


def recipe(c: Qwen35Settings) -> Recipe:
    return hybrid(c, lambda _, name: parts.gated(c, name))


def hybrid(
    c: Qwen35Settings,
    feed: Callable[[int, str], Gated | Experts],
    linear: Callable[[DeltaSettings, str], Delta] = delta,
) -> Recipe:
    """The recipe, with what `feed` makes of a layer's number and the beginning of its names.

    `linear` makes the recurrent mixers.
    """
    of = parts.kinds(c, lambda index: (index + 1) % c.full_attention_interval > 0, LINEAR)

    def layer(index: int, prefix: str) -> Layer:
        before, between = (Norm(f"{prefix}.{end}", c.hidden_size, c.rms_norm_eps, plus_one=True) for end in BEFORE)
        recurrent = of[index] == LINEAR
        mixer = linear(c, f"{prefix}.linear_attn") if recurrent else attention(c, f"{prefix}.self_attn")
        return Layer(mixer, feed(index, f"{prefix}.mlp"), before, between)

    made = parts.decoder(c, layer)
    return replace(made, norm=replace(made.norm, plus_one=True))


def attention(c: Qwen35Settings, prefix: str) -> Attention:
    plain = parts.attention(c, prefix, qkv_bias=c.attention_bias, out_bias=c.attention_bias)
    query, key, value = plain.qkv.outputs
    made = replace(plain, gated=True, qkv=replace(plain.qkv, outputs=(2 * query, key, value)))
    return parts.head_norms(c, parts.partly(c, made, 0.25), prefix, plus_one=True)


FAMILY = Family("qwen3_5_text", "Qwen3.5", recipe, Qwen35Settings, also_seeing=("qwen3_5",), mtp="mtp.")
