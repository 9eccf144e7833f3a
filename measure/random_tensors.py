"""Tensors of the GGUF files of `random_gguf`, in the layouts of llama.cpp's converter."""

from collections import defaultdict
from dataclasses import replace

import torch
from torch import Tensor

from measure.random_states import recurrent
from specchat.engine.heads.files import HeadFiles
from specchat.engine.heads.mtp_settings import mtp
from specchat.engine.llama_cpp.export import llama3_factors, pairwise
from specchat.engine.recipe import Attention, Delta, Experts, Layer, Norm, Recipe
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.weights import Weights

PAIRED = ("llama", "granite", "granitehybrid", "granitemoe", "smollm3", "mistral3", "muse-glimmer")
"""Architectures whose queries and keys rotate in pairs of neighbours, where checkpoints hold halves."""


def tensors(recipe: Recipe, weights: Weights, arch: str) -> dict[str, Tensor]:
    """Tensors by our names, in llama.cpp's layouts, experts of a layer stacked."""
    found: dict[str, Tensor] = {}
    stacks: dict[str, list[Tensor]] = defaultdict(list)
    own = recipe.per_layer
    outer = (recipe.embed, *(() if recipe.tied else (recipe.head,)), *((own.table, own.project) if own else ()))
    for matrix in (*outer, *recipe.matrices):
        for name, outputs in matrix.parts:
            ends: dict[str, tuple[int, ...]] = {"weight": (outputs, matrix.inputs)}
            ends |= {"bias": (outputs,)} if matrix.bias else {}
            for end, shape in ends.items():
                before, number, part = name.partition(".experts.")
                if number:
                    stacks[f"{before}.experts.{part.partition('.')[2]}.{end}"].append(
                        weights.get(f"{name}.{end}", *shape)
                    )
                else:
                    found[f"{name}.{end}"] = weights.get(f"{name}.{end}", *shape)
    found |= {name: torch.stack(experts) for name, experts in stacks.items()}
    norms: list[Norm] = [
        recipe.norm,
        *([own.norm] if own else []),
        *(one for layer in recipe.layers for one in layer.norms),
    ]
    for norm in norms:
        for name, shape in norm.shapes.items():
            found[name] = weights.get(name, *shape) + (norm.plus_one and name.endswith("weight"))
    for number, layer in enumerate(recipe.layers):
        found |= {name: weights.get(name, *shape) for name, shape in layer.vectors.items()}
        if isinstance(layer.mixer, Delta):
            recurrent(layer.mixer, found)
        elif isinstance(layer.mixer, Attention):
            _attention(layer.mixer, found, f"blk.{number}.", arch in PAIRED)
        if isinstance(layer.feed, Experts) and layer.feed.apart:
            gate, up = (found.pop(f"{name.replace('.{}', '')}.weight") for name in layer.feed.each.gate_up.names)
            name = layer.feed.each.gate_up.names[0].replace(".{}.gate_proj", ".gate_up_proj")
            found[f"{name}.weight"] = torch.cat([gate, up], 1)
        if arch.startswith("granite"):
            _shared(layer, found, f"blk.{number}.")
    for rope in recipe.ropes:
        if rope and rope.kind == "llama3":
            found["rope_freqs.weight"] = llama3_factors(rope)
        if rope and rope.kind == "proportional":
            turned = int(rope.width * rope.options["partial_rotary_factor"] / 2)
            found["rope_freqs.weight"] = torch.tensor([1.0] * turned + [1e30] * (rope.width // 2 - turned))
        if rope and rope.kind == "longrope":
            for kind in ("long", "short"):
                found[f"rope_factors_{kind}.weight"] = torch.tensor(rope.options[f"{kind}_factor"])
    return found


def nextn(checkpoint: Checkpoint, weights: Weights, arch: str) -> dict[str, Tensor]:
    """Tensors of the layer for multi-token prediction: those of a block by our names, the others by llama.cpp's."""
    given, recipe = mtp(HeadFiles.open(checkpoint.folder), checkpoint.config, "mtp"), checkpoint.config.recipe
    number, before = len(recipe.layers), f"{given.layout.layer}."
    whole = tensors(replace(recipe, layers=given.recipe.layers), weights, arch)
    found = {
        f"model.layers.{number}.{name.removeprefix(before)}": one
        for name, one in whole.items()
        if name.startswith(before)
    }
    layout, plus_one = given.layout, recipe.norm.plus_one
    ends = {"hnorm": layout.of_state, "enorm": layout.of_token, "shared_head_norm": layout.final}
    for end, name in ends.items():
        found[f"blk.{number}.nextn.{end}.weight"] = weights.get(f"{name}.weight", recipe.hidden) + plus_one
    joined = weights.get(f"{layout.joined}.weight", recipe.hidden, 2 * recipe.hidden)
    found[f"blk.{number}.nextn.eh_proj.weight"] = joined
    return found


def _shared(layer: Layer, found: dict[str, Tensor], before: str) -> None:
    """Put gate and up of an MLP beside experts, or in their place, apart."""
    of, end = (layer.feed.shared, "_shexp") if isinstance(layer.feed, Experts) else (layer.feed, "")
    if of and len(of.gate_up.names) == 1:
        gate, up = found.pop(f"{of.gate_up.names[0]}.weight").chunk(2)
        found |= {f"{before}ffn_gate{end}.weight": gate, f"{before}ffn_up{end}.weight": up}
        found[f"{before}ffn_down{end}.weight"] = found.pop(f"{of.down.names[0]}.weight")


def _attention(of: Attention, found: dict[str, Tensor], before: str, paired: bool) -> None:
    parts = [of.qkv.names[0], of.qkv.names[-2]] if paired else []
    for name, heads in zip(parts, (of.heads, of.kv_heads), strict=False):
        for end in ("weight", "bias"):
            if f"{name}.{end}" in found:
                found[f"{name}.{end}"] = pairwise(found[f"{name}.{end}"], heads)
    if of.query_norm and not of.query_norm.name:
        # Norms without a weight, and a factor on queries beside that of the size of a head.
        found[f"{before}attn_q_norm.weight"] = torch.full((of.head_dim,), of.scale * of.head_dim**0.5)
        found[f"{before}attn_k_norm.weight"] = torch.ones(of.head_dim)
    if of.latent:
        whole = found.pop(f"{of.latent.key_value.names[0]}.weight").unflatten(0, (of.heads, -1))
        size = of.head_dim - of.rotary_dim
        found[f"{before}attn_k_b.weight"] = whole[:, :size].transpose(1, 2)
        found[f"{before}attn_v_b.weight"] = whole[:, size:]
