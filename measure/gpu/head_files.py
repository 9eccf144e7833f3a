"""Random trained heads of a target's shapes, as files with the settings of published ones."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file

from specchat.bench.synthetic import drawn, shapes_of
from specchat.engine import families
from specchat.engine.heads.files import MEDUSA, FoundHeads, HeadFiles
from specchat.engine.heads.recipe import HeadRecipe
from specchat.engine.recipe import Matrix, Norm
from specchat.engine.strategies import HEADS
from specchat.engine.strategy import Head, resolved
from specchat.engine.weights.config import ModelConfig
from specchat.tune import dflash, eagle3, medusa
from specchat.tune.parts import settings

BLOCK = 16
"""Rows of a block head: the pending token and 15 drafted ones."""

Shapes = dict[str, tuple[int, ...]]


class Layout(NamedTuple):
    """Settings of a head, the shapes of its tensors, and the name of its file."""

    settings: dict[str, Any]
    shapes: Shapes
    file: str = "model.safetensors"


def eagle3_layout(c: ModelConfig) -> Layout:
    """One layer and a draft vocabulary, as tuned for a target `c`."""
    proposed, states = min(eagle3.PROPOSED, c.vocab), eagle3.read_layers(c.layers)
    told = settings(c, families.plain(), 1)
    told |= {"draft_vocab_size": proposed, "eagle_aux_hidden_state_layer_ids": list(states)}
    norms = [Norm(name, c.hidden, 0) for name in ("layers.0.input_layernorm", "layers.0.hidden_norm", "norm")]
    products = _fc(c, len(states)), Matrix(("lm_head",), (proposed,), c.hidden)
    return Layout(told, _layers("eagle3", told, c) | shapes_of(products, norms) | {"d2t": (proposed,)})


def dflash_layout(c: ModelConfig) -> Layout:
    """A block of BLOCK rows; the layers are as many as `tune heads` trains."""
    states = dflash.read_layers(c.layers)
    told = settings(c, families.head_normed(), dflash.depth(c.layers))
    told |= {"block_size": BLOCK, "num_target_layers": c.layers}
    told["dflash_config"] = {"mask_token_id": c.vocab - 1, "target_layer_ids": [number - 1 for number in states]}
    norms = [Norm(name, c.hidden, 0) for name in ("hidden_norm", "norm")]
    return Layout(told, _layers("dflash", told, c) | shapes_of([_fc(c, len(states))], norms))


def medusa_layout(c: ModelConfig) -> Layout:
    """A residual block for each head; the heads are as many as `tune heads` trains."""
    products = [
        matrix
        for i in range(medusa.HEADS)
        for matrix in (
            Matrix((f"{i}.0.linear",), (c.hidden,), c.hidden, bias=True),
            Matrix((f"{i}.1",), (c.vocab,), c.hidden),
        )
    ]
    return Layout({"medusa_num_layers": 1}, shapes_of(products, ()), MEDUSA)


LAYOUTS: Mapping[Head, Callable[[ModelConfig], Layout]] = {
    "eagle3": eagle3_layout,
    "dflash": dflash_layout,
    "medusa": medusa_layout,
}


def write_heads(folder: Path, target: ModelConfig) -> FoundHeads:
    """Write a head of each family in LAYOUTS into `folder`."""
    generator, found = torch.Generator().manual_seed(0), dict[Head, HeadFiles]()
    for head, layout in LAYOUTS.items():
        of, place = layout(target), folder / head
        place.mkdir()
        (place / "config.json").write_text(json.dumps(of.settings))
        tensors = {name: drawn(name, shape, generator) for name, shape in of.shapes.items() if name != "d2t"}
        if "d2t" in of.shapes:
            tensors["d2t"] = torch.zeros(of.shapes["d2t"], dtype=torch.int64)
        save_file(tensors, place / of.file)
        found[head] = HeadFiles.open(place)
    return FoundHeads(found)


def _fc(c: ModelConfig, states: int) -> Matrix:
    """The product that joins hidden states after so many layers."""
    return Matrix(("fc",), (c.hidden,), states * c.hidden)


def _layers(head: Head, told: dict[str, Any], c: ModelConfig) -> Shapes:
    """Tensors of the head's own layers, by its recipe."""
    recipe: HeadRecipe = resolved(HEADS[head].settings)(HeadFiles(Path(), told, ()), c, head).recipe
    shapes: Shapes = {}
    for layer in recipe.layers:
        shapes |= shapes_of(layer.products, layer.norms)
    return shapes
