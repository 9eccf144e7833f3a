"""A program of a recipe: the one place that knows the order of a layer's parts."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from specchat.engine.program.ops import (
    Add,
    Advance,
    Attend,
    Buffer,
    Convolve,
    Embed,
    Expand,
    GatedProduct,
    GateInput,
    Half,
    Head,
    Kind,
    MakeInputs,
    Mix,
    Multiply,
    Normalise,
    Op,
    Program,
    Scale,
)
from specchat.engine.recipe import Delta, Experts, Gated, Layer, Matrix, Norm, Recipe, ShortConv


@cache
def lower(recipe: Recipe) -> Program:
    """Lower a recipe; equal recipes share a program."""
    return Program(
        Embed(recipe.embed, recipe.embed_scale, recipe.embed_eps),
        MakeInputs(recipe.per_layer) if recipe.per_layer else None,
        tuple(lower_layer(layer, index) for index, layer in enumerate(recipe.layers)),
        Head(recipe.norm, recipe.head, recipe.logit_scale, recipe.cap),
    )


@cache
def lower_layer(layer: Layer, index: int = 0) -> tuple[Op, ...]:
    """Lower a layer: both halves, then its end. Parallel halves are added once both have read their inputs."""
    mixer, feed = list(_mixer(layer)), list(_feed(layer))
    halves: list[tuple[Half, list[Kind]]] = [("mixer", mixer), ("feed", feed), ("end", list(_end(layer)))]
    if layer.parallel:
        start: list[Kind] = [mixer.pop(0)]
        halves = [("start", start), ("mixer", mixer[:-1]), ("feed", feed), ("mixer", mixer[-1:]), halves[-1]]
    return tuple(Op(index, half, kind) for half, kinds in halves for kind in kinds)


def _mixer(layer: Layer) -> Iterator[Kind]:
    mixer = layer.mixer
    first, last = mixer.products
    source, projected = Buffer("inputs", first.inputs), _sums("projected", first)
    yield Normalise(layer.pre_mixer, source)
    yield Multiply(first, source, projected)
    mixed = Buffer("mixed", last.inputs)
    if isinstance(mixer, Delta):
        gates = _sums("gates", mixer.gates) if mixer.gates else None
        if mixer.gates and gates:
            yield Multiply(mixer.gates, source, gates)
        yield Advance(mixer, projected, gates, mixed)
    elif isinstance(mixer, ShortConv):
        yield Convolve(mixer, projected, mixed)
    else:
        if mixer.latent:
            of_heads = Buffer("heads", 3 * mixer.heads * mixer.head_dim, summed=True)
            yield Expand(mixer.latent, mixer, projected, of_heads)
            projected = of_heads
        yield Attend(mixer, projected, mixed)
    yield from _added(last, mixed, "mixer's update", layer.post_mixer, layer.residual)


def _feed(layer: Layer) -> Iterator[Kind]:
    feed = layer.feed
    if feed is None:
        return
    source = Buffer("inputs", layer.gated.gate_up.inputs)
    if not layer.parallel:
        yield Normalise(feed.apart.router if isinstance(feed, Experts) and feed.apart else layer.pre_feed, source)
    if isinstance(feed, Gated):
        between = Buffer("gated", feed.width)
        yield GatedProduct(feed, source, between)
        yield from _added(feed.down, between, "update", layer.post_feed, layer.residual)
        return
    of_experts = of_shared = source
    if feed.apart:
        of_experts, of_shared = (replace(source, name=f"inputs of {which}") for which in ("experts", "shared"))
        yield Normalise(feed.apart.pre_experts, of_experts)
        yield Normalise(feed.apart.pre_shared, of_shared)
    mixture = Buffer("mixture", sum(feed.each.down.outputs), summed=True)
    yield Mix(feed, source, of_experts, of_shared, mixture)
    yield Add(mixture, layer.post_feed, layer.residual)


def _end(layer: Layer) -> Iterator[Kind]:
    if layer.input:
        between = Buffer("input", layer.input.down.inputs)
        yield GateInput(layer.input, layer.gated.activation, between)
        yield from _added(layer.input.down, between, "update", layer.input.norm)
    if layer.scalar:
        yield Scale(layer.scalar)


def _added(matrix: Matrix, source: Buffer, name: str, post: Norm | None, factor: float = 1.0) -> Iterator[Kind]:
    out = _sums(name, matrix)
    yield Multiply(matrix, source, out)
    yield Add(out, post, factor)


def _sums(name: str, matrix: Matrix) -> Buffer:
    return Buffer(name, sum(matrix.outputs), summed=True)
