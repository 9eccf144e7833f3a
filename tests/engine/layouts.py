"""The layouts of experts in published checkpoints, written from our own names."""

from collections.abc import Callable
from typing import Any

import torch

Tensors = dict[str, torch.Tensor]
LFM2 = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
MIXTRAL = {".mlp.": ".block_sparse_moe.", **LFM2}
"""Names in its files by those of transformers' modules."""
GRANITE = {
    ".mlp.experts.gate_up_proj": ".block_sparse_moe.input_linear.weight",
    ".mlp.experts.down_proj": ".block_sparse_moe.output_linear.weight",
    ".mlp.router.": ".block_sparse_moe.router.layer.",
}
GEMMA4 = {".router.norm.weight": ".router.scale"}


def stored(c: dict[str, Any], tensors: Tensors) -> Tensors:
    """The tensors as files of a model_type have them."""
    return LAYOUTS.get(c["model_type"], dict)(tensors)


def renamed(tensors: Tensors, names: dict[str, str]) -> Tensors:
    """Parts of names by others."""
    out: Tensors = {}
    for name, weight in tensors.items():
        for ours, theirs in names.items():
            name = name.replace(ours, theirs)
        out[name] = weight
    return out


def by_turns(of_each: Tensors) -> Tensors:
    """gpt-oss's layout: all experts in one tensor, transposed, gate and up by turns."""
    out = {name: weight for name, weight in of_each.items() if ".experts." not in name}
    for begins, stack in _of_layers(of_each):
        for part, ending in (("weight", ""), ("bias", "_bias")):
            turns = torch.stack([stack(f"gate_proj.{part}"), stack(f"up_proj.{part}")], 2).flatten(1, 2)
            for name, whole in (("gate_up_proj", turns), ("down_proj", stack(f"down_proj.{part}"))):
                out[f"{begins}{name}{ending}"] = (whole if ending else whole.transpose(1, 2)).contiguous()
    return out


def stacked(of_each: Tensors) -> Tensors:
    """Stacks of all experts, as modules of transformers 5 have them: gates, then ups."""
    out = {name: weight for name, weight in of_each.items() if ".experts." not in name}
    for begins, stack in _of_layers(of_each):
        out[f"{begins}gate_up_proj"] = torch.cat([stack("gate_proj.weight"), stack("up_proj.weight")], 1)
        out[f"{begins}down_proj"] = stack("down_proj.weight")
    return out


def _of_layers(of_each: Tensors) -> list[tuple[str, Callable[[str], torch.Tensor]]]:
    """The beginnings of the names of each layer's experts, and what stacks the tensors of an end of their names."""

    def stacks(begins: str) -> Callable[[str], torch.Tensor]:
        count = sum(name.startswith(begins) and name.endswith("down_proj.weight") for name in of_each)
        return lambda end: torch.stack([of_each[f"{begins}{number}.{end}"] for number in range(count)])

    end = "0.down_proj.weight"
    layers = [name.removesuffix(end) for name in of_each if name.endswith(f".experts.{end}")]
    return [(begins, stacks(begins)) for begins in layers]


LAYOUTS: dict[str, Callable[[Tensors], Tensors]] = {
    "lfm2_moe": lambda tensors: renamed(tensors, LFM2),
    "minimax_m2": lambda tensors: renamed(tensors, MIXTRAL),
    "mixtral": lambda tensors: renamed(tensors, MIXTRAL),
    "gpt_oss": by_turns,
    **dict.fromkeys(
        ("granitemoe", "granitemoeshared", "granitemoehybrid"), lambda tensors: renamed(stacked(tensors), GRANITE)
    ),
    "gemma4_text": lambda tensors: renamed(stacked(tensors), GEMMA4),
}
"""By model_type, where they are not our own."""
