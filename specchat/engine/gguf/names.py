"""Places of the tensors of a recipe in a GGUF file.

A tensor is found by what it is in the recipe, whatever the family. Names: llama.cpp's src/llama-arch.cpp;
rearrangements: its conversion/.
"""

from collections.abc import Iterator

from specchat.engine.gguf.blocks import FileBlock, Places, StoredAs
from specchat.engine.gguf.config import Architecture
from specchat.engine.gguf.files import GgufFiles
from specchat.engine.gguf.mixers import mixer, unused
from specchat.engine.recipe import Attention, Delta, Experts, Gated, Layer, Recipe, ShortConv

NOT_READ = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
"""Tensors that say how positions rotate: settings, not weights."""
ELSEWHERE = ("a.", "mm.", "mtp.", "v.")
"""Beginnings of the names of towers and of layers that draft, which Ollama's files have beside the text."""
CURVE = {"xielu.alpha_p": 1, "xielu.alpha_n": 1, "xielu.beta": 0, "xielu.eps": 0}
"""Lists of the metadata with the values of `Gated.curve`, one for each layer, and the dimensions of its tensors."""


def sources(recipe: Recipe, files: GgufFiles, known: Architecture) -> dict[str, StoredAs]:
    """The sources of all tensors of a recipe, by their names in it; of missing ones the name they should have."""
    return dict(_all(recipe, files, known))


def unread(recipe: Recipe, files: GgufFiles, known: Architecture, found: dict[str, StoredAs]) -> str:
    """A tensor that no tensor of the recipe comes from, at least in part; empty where there is none.

    Blocks after those of the recipe predict further tokens, and are left out.
    """
    rows: dict[str, int] = {}
    for one in found.values():
        for name in filter(None, (one.name, one.values)):
            rows[name] = rows.get(name, 0) + (len(one.rows) if not one.expert else 0)
    mixers = [of for layer in recipe.layers for of in _halves(layer, known)]
    for name in files.tensors:
        shape, before = files.shape(name), name.partition(".")[0] == "blk"
        number = int(layer) if before and (layer := name.split(".")[1]).isdecimal() else -1
        if number >= len(mixers) or name in NOT_READ or name.startswith(ELSEWHERE):
            continue
        of = mixers[number] if number >= 0 else None
        if name in rows:
            stored = shape[1] if len(shape) == 3 else next(iter(shape), 0)
            if rows[name] not in (0, stored):
                return f"{name} with {stored} rows"
        elif not (isinstance(of, Attention) and name.split(".")[2] in unused(of)):
            return name
    return ""


def _halves(layer: Layer, known: Architecture) -> Iterator[Attention | ShortConv | Delta | None]:
    """The mixer of each block of a layer; None for a block without one."""
    yield layer.mixer
    if known.halves and layer.feed:
        yield None


def _all(recipe: Recipe, files: GgufFiles, known: Architecture) -> Places:
    whole = FileBlock(files)
    yield from whole.matrix(recipe.embed, ["token_embd"])
    if not recipe.tied:
        yield from whole.matrix(recipe.head, ["output"])
    yield from whole.norm(recipe.norm, "output_norm", "token_embd_norm")
    if recipe.per_layer:
        yield from whole.matrix(recipe.per_layer.table, ["per_layer_token_embd"])
        yield from whole.matrix(recipe.per_layer.project, ["per_layer_model_proj"])
        yield from whole.norm(recipe.per_layer.norm, "per_layer_proj_norm")
    number = 0
    for layer in recipe.layers:
        blocks = [FileBlock(files, f"blk.{number + half}.") for half, _ in enumerate(_halves(layer, known))]
        yield from layer_sources(blocks[0], blocks[-1], layer, known)
        if isinstance(layer.feed, Gated):
            curve = (StoredAs(key, number, dims=dims) for key, dims in CURVE.items())
            yield from zip(layer.feed.curve, curve, strict=False)
        number += len(blocks)


def layer_sources(first: FileBlock, block: FileBlock, layer: Layer, known: Architecture) -> Places:
    """The sources of a layer; `block` has its MLP, and its mixer, too, where it is `first`."""
    yield from mixer(first, layer.mixer, known.paired)
    if isinstance(layer.feed, Experts):
        yield from _experts(block, layer.feed)
    elif layer.feed:
        yield from _gated(block, layer.feed)
    yield from first.norm(layer.pre_mixer, "attn_norm")
    feed_norm = (
        ("attn_norm",) if known.halves else ("ffn_norm", *(() if layer.post_mixer else ("post_attention_norm",)))
    )
    yield from block.norm(layer.pre_feed, *feed_norm)
    yield from block.norm(layer.post_mixer, "post_attention_norm")
    yield from block.norm(layer.post_feed, "post_ffw_norm")
    if layer.input:
        yield from block.matrix(layer.input.gate, ["inp_gate"])
        yield from block.matrix(layer.input.down, ["proj"])
        yield from block.norm(layer.input.norm, "post_norm")
    if layer.scalar:
        yield layer.scalar, block.source("layer_output_scale.weight")


def _gated(block: FileBlock, feed: Gated, end: str = "") -> Places:
    """An MLP; `end` of the names of its tensors."""
    gate = f"ffn_gate{end}"
    whole = len(feed.gate_up.names) == 1 or f"{gate}.weight" not in block
    yield from block.matrix(feed.gate_up, [f"ffn_up{end}"] if whole else [gate, f"ffn_up{end}"])
    yield from block.matrix(feed.down, [f"ffn_down{end}"])


def _experts(block: FileBlock, feed: Experts) -> Places:
    yield from block.matrix(feed.router, ["ffn_gate_inp"])
    names = ["ffn_gate_up_exps"] if "ffn_gate_up_exps.weight" in block else ["ffn_gate_exps", "ffn_up_exps"]
    for number in range(feed.count):
        each = feed.expert(number)
        yield from block.matrix(each.gate_up, names[-len(each.gate_up.names) :], expert=number)
        yield from block.matrix(each.down, ["ffn_down_exps"], expert=number)
    if feed.correction:
        yield feed.correction, block.source("exp_probs_b.bias")
    if feed.factors:
        yield feed.factors, block.source("ffn_down_exps.scale")
    if feed.shared:
        yield from _gated(block, feed.shared, "" if feed.apart else "_shexp")
    if feed.shared_gate:
        yield from block.matrix(feed.shared_gate, ["ffn_gate_inp_shexp"])
    if feed.apart:
        yield f"{feed.apart.router.name}.weight", block.source("ffn_gate_inp.scale")
        yield from block.norm(feed.apart.pre_experts, "pre_ffw_norm_2")
        yield from block.norm(feed.apart.post_experts, "post_ffw_norm_2")
        yield from block.norm(feed.apart.pre_shared, "ffn_norm")
        yield from block.norm(feed.apart.post_shared, "post_ffw_norm_1")
