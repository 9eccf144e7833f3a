"""Layers with recurrent states in the GGUF files of `random_gguf`: their metadata, and how llama.cpp lays them out."""

from typing import Any

import torch
from torch import Tensor

from specchat.engine.recipe import Attention, Delta, Experts, Gated, Layer, Recipe, ShortConv

Half = Attention | ShortConv | Delta | Gated | Experts


def blocks(recipe: Recipe, arch: str) -> list[tuple[Half, ...]]:
    """The mixer and the MLP of each block of a file; those of Nemotron-H hold one of the two."""

    def halves(layer: Layer) -> tuple[Half, ...]:
        return (layer.mixer, layer.feed) if layer.feed else (layer.mixer,)

    whole = [halves(layer) for layer in recipe.layers]
    return [(half,) for both in whole for half in both] if arch.startswith("nemotron_h") else whole


def describe_delta(writer: Any, recipe: Recipe) -> None:
    """Write the metadata of Gated DeltaNet."""
    mixer = recipe.recurrent[0]
    _describe(writer, mixer)
    writer.add_rope_dimension_sections([11, 11, 10, 0])  # of images alone: equal for text
    recurrent = [*(isinstance(layer.mixer, Delta) for layer in recipe.layers), False]  # of a layer that predicts, too
    writer.add_array(f"{writer.arch}.attention.recurrent_layers", recurrent)


def describe_selective(writer: Any, recipe: Recipe, raw: dict[str, Any]) -> None:
    """Write the metadata of Mamba 2, and of layers that have something else."""
    arch = writer.arch
    _describe(writer, recipe.recurrent[0])
    halves = blocks(recipe, arch)
    if recipe.attentions:
        heads = [half.kv_heads if isinstance(half, Attention) else 0 for half, *_ in halves]
        writer.add_head_count_kv(heads)
    if arch == "mamba2":
        writer.add_head_count(0)
        writer.add_feed_forward_length(0)
    elif arch == "granitehybrid":
        writer.add_feed_forward_length(raw["intermediate_size"])
        writer.add_expert_shared_feed_forward_length(raw["shared_intermediate_size"])
        writer.add_rope_scaling_finetuned(any(recipe.ropes))
    else:
        widths = (half.each.width if isinstance(half, Experts) else getattr(half, "width", 0) for (half,) in halves)
        writer.add_feed_forward_length([*widths])
        writer.add_layer_norm_eps(recipe.norm.eps)  # llama.cpp wants both, and computes by the other
        if recipe.mixtures and (shared := recipe.mixtures[0].shared):
            writer.add_expert_shared_feed_forward_length(shared.width)


def _describe(writer: Any, mixer: Delta) -> None:
    writer.add_ssm_conv_kernel(mixer.taps)
    writer.add_ssm_state_size(mixer.key_dim)
    writer.add_ssm_group_count(mixer.key_heads)
    writer.add_ssm_time_step_rank(mixer.value_heads)
    writer.add_ssm_inner_size(mixer.value_heads * mixer.value_dim)


def recurrent(of: Delta, found: dict[str, Tensor]) -> None:
    """Lay the tensors of a mixer out as llama.cpp has them."""
    found[of.convolution] = found[of.convolution][:, 0]
    found[of.decay] = -found[of.decay].exp()
    if selective := of.selective:
        groups = {of.decay: of.value_heads, selective.skip: of.value_heads, selective.weight: of.key_heads}
        for name, count in groups.items():
            found[name] = found[name].unflatten(0, (count, -1))
        return
    if len(of.mix.names) == 1:
        # Qwen3-Next's, of which queries, keys and values become a matrix and z another; heads keep their order.
        name = f"{of.mix.names[0]}.weight"
        whole, keys = found.pop(name)[of.mix.order(0)], of.channels
        begin = of.mix.names[0].removesuffix("in_proj_qkvz")
        found[f"{begin}in_proj_qkv.weight"], found[f"{begin}in_proj_z.weight"] = whole[:keys], whole[keys:]
        return
    order = torch.arange(of.value_heads).view(of.key_heads, -1).T.flatten()

    def turned(x: Tensor, size: int) -> Tensor:
        moved: Tensor = x.unflatten(0, (of.value_heads, size))[order].flatten(0, 1)
        return moved

    assert of.gates
    qkv, z = (f"{name}.weight" for name in of.mix.names)
    keys = of.channels - of.value_heads * of.value_dim
    for name in (qkv, of.convolution):
        found[name] = torch.cat([found[name][:keys], turned(found[name][keys:], of.value_dim)])
    for name, size in ((z, of.value_dim), *((f"{name}.weight", 1) for name in of.gates.names)):
        found[name] = turned(found[name], size)
    out = f"{of.out.names[0]}.weight"
    found[out] = turned(found[out].T, of.value_dim).T
    for name in (of.decay, of.shift):
        found[name] = turned(found[name], 1)
