"""Experts beside an MLP that every row has, each with norms of their own, in the names of Gemma 4."""

from dataclasses import replace

from specchat.engine.families.experts import Count, MaybeChosen
from specchat.engine.families.family import gated
from specchat.engine.families.settings import Settings
from specchat.engine.foreign import MaybeCount, Switch
from specchat.engine.recipe import Apart, Experts, Layer, Matrix, Norm


class BesideSettings(Settings):
    enable_moe_block: Switch = False
    num_experts: Count = None
    top_k_experts: MaybeChosen = None
    moe_intermediate_size: MaybeCount = None
    hidden_activation: str = "gelu_pytorch_tanh"


def beside(c: BesideSettings, prefix: str, layer: Layer) -> Layer:
    """`layer` with experts beside its MLP, if `c` asks for some; `prefix` begins the names of their tensors.

    Raises:
        ValueError: a number is missing, or a token is to have more experts than there are.
    """
    if not c.enable_moe_block:
        return layer
    count, top, width = c.num_experts, c.top_k_experts, c.moe_intermediate_size
    if not count or not top or not width:
        key = "num_experts" if not count else "top_k_experts" if not top else "moe_intermediate_size"
        raise ValueError(f"enable_moe_block asks for experts, and {key} is {getattr(c, key) or 'missing'}")
    if top > count:
        raise ValueError(f"top_k_experts is {top}, and a layer has {count} experts")
    assert not isinstance(layer.feed, Experts)
    assert layer.pre_feed is not None

    def norm(name: str, factor: float = 1.0) -> Norm:
        return Norm(f"{prefix}.{name}", c.hidden_size, c.rms_norm_eps, factor=factor)

    experts = Experts(
        router=Matrix((f"{prefix}.router.proj",), (count,), c.hidden_size, dense=True),
        each=gated(c, f"{prefix}.experts.{{}}", act=c.hidden_activation, width=width),
        count=count,
        top=top,
        renormalised=True,
        factors=f"{prefix}.router.per_expert_scale",
        shared=layer.feed,
        apart=Apart(
            router=norm("router.norm", c.hidden_size**-0.5),
            pre_experts=norm("pre_feedforward_layernorm_2"),
            post_experts=norm("post_feedforward_layernorm_2"),
            pre_shared=layer.pre_feed,
            post_shared=norm("post_feedforward_layernorm_1"),
        ),
    )
    return replace(layer, feed=experts, pre_feed=None)
