"""Vector sizes of the compiled pass, apart from numba, which plans do without."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate

from specchat.engine.program.lower import lower
from specchat.engine.program.table import unsupported as lacking
from specchat.engine.recipe import Attention, Delta, Experts, Layer, Norm, Recipe, ShortConv
from specchat.engine.weights.config import ModelConfig

LANES = 16
"""float32 values of a vector."""
FEW = 8
"""Fewest panels, vectors of outputs, that every processor handles at a time."""
QUERIES = 4
"""Queries that attend to a key together."""
SMALL = 4_000_000
"""Products of a pass up to which one thread is faster than several."""
BRIEF = 30_000_000
"""Weights of a model up to which one compiled call is faster than several threads with Python between passes."""


def unsupported(recipe: Recipe) -> str:
    """Reason why the compiled pass does not support a model; empty where it does."""
    mixtures = [layer.feed for layer in recipe.layers if isinstance(layer.feed, Experts)]
    sizes = {
        "recurrent heads": {size for mixer in recipe.recurrent for size in (mixer.key_dim, mixer.value_dim)},
        "halves of convolutions": {mixer.head_dim for mixer in recipe.cached if isinstance(mixer, ShortConv)},
        "latent attention": {size for mixer in recipe.attentions if mixer.latent for size in _of_latents(mixer)},
        "inputs of layers": {recipe.per_layer.norm.size} if recipe.per_layer else set(),
    }
    for what, found in sizes.items():
        if odd := [size for size in sorted(found) if size % LANES]:
            return f"{what} of {odd[0]} values, not a multiple of {LANES}: not in the compiled pass"
    if any(layer.post_mixer and isinstance(layer.mixer, Delta) for layer in recipe.layers):
        return "a norm after recurrent layers: not in the compiled pass"
    if any(len({norm.eps for norm in norms if norm}) > 1 for layer in recipe.layers for norms in _alike(layer)):
        return "norms of unlike eps in attention or a mixture: not in the compiled pass"
    shared = [(one.each, one.shared) for one in mixtures if one.shared]
    if any((a.activation, a.ungated) != (b.activation, b.ungated) for a, b in shared):
        return "a shared MLP with another gate than the experts: not in the compiled pass"
    if any(len(_norms_over_heads(mixer)) > 1 for mixer in recipe.attentions):
        return "a norm of each head beside one of all heads: not in the compiled pass"
    return lacking(lower(recipe), "the compiled pass")


def _alike(layer: Layer) -> Iterator[tuple[Norm | None, ...]]:
    """Norms that must have one eps in common."""
    if isinstance(layer.mixer, Attention):
        yield layer.mixer.query_norm, layer.mixer.key_norm, layer.mixer.value_norm
    if isinstance(layer.feed, Experts) and layer.feed.apart:
        yield layer.feed.apart.all


def _of_latents(mixer: Attention) -> Iterator[int]:
    """Sizes of latents, of heads and of their parts."""
    assert mixer.latent
    yield from (matrix.inputs for matrix in mixer.latent.products)
    yield from (mixer.head_dim, mixer.rotary_dim, mixer.value_dim or LANES)


def latent_places(mixer: Attention) -> tuple[int, ...]:
    """Elements of a row at which the first product and those of latents, queries, keys and values, begin, and the end.

    Heads come before them.
    """
    latent = mixer.latent
    assert latent
    outputs = sum(mixer.qkv.outputs), sum(latent.query.outputs) if latent.query else 0, *latent.key_value.outputs
    spans = (LANES * panels_for(one) if one else 0 for one in outputs)
    return tuple(accumulate(spans, initial=3 * mixer.heads * mixer.head_dim))


def _norms_over_heads(mixer: Attention) -> set[bool]:
    """For the norms of queries and keys: True where one is over several heads."""
    norms = (mixer.query_norm, mixer.heads), (mixer.key_norm, mixer.kv_heads)
    return {norm.size > mixer.head_dim for norm, heads in norms if norm is not None and heads > 1}


def fits(config: ModelConfig) -> bool:
    """True where the compiled pass supports a model."""
    return not unsupported(config.recipe)


def filled(recipe: Recipe) -> Recipe:
    """A recipe with hidden states and attention heads in whole vectors, as caches and buffers hold them."""
    hidden = whole_vectors(recipe.hidden)

    def one(layer: Layer) -> Layer:
        of = layer.mixer
        if not isinstance(of, Attention) or (size := head_size(of)) == of.head_dim:
            return layer
        outputs = tuple(count // of.head_dim * size for count in of.qkv.outputs)
        qkv, out = replace(of.qkv, outputs=outputs), replace(of.out, inputs=of.heads * size)
        return replace(layer, mixer=replace(of, head_dim=size, qkv=qkv, out=out))

    embed, head = (replace(matrix, inputs=hidden) for matrix in (recipe.embed, recipe.head))
    return replace(recipe, layers=tuple(map(one, recipe.layers)), embed=embed, head=head)


def head_places(of: Attention) -> list[int]:
    """Places of a query's or a key's values in a head of whole vectors, where each rotated half fills half vectors."""
    half = of.rotary_dim // 2
    second = -(-half // (LANES // 2)) * (LANES // 2)
    return [*range(half), *range(second, second + half), *range(2 * second, 2 * second + of.head_dim - 2 * half)]


def head_size(of: Attention) -> int:
    """Values of an attention head in whole vectors."""
    return whole_vectors(head_places(of)[-1] + 1)


def whole_vectors(size: int) -> int:
    """`size` or more values in whole vectors."""
    return -(-size // LANES) * LANES


def panels_for(outputs: int) -> int:
    """Panels that hold `outputs` values."""
    return max(FEW, -(-outputs // LANES))


def attention_room(slots: int, size: int) -> int:
    """float32 values of attention's workspace, for `slots` positions of the cache and heads of `size`."""
    return (1 + 2 * QUERIES) * size + QUERIES * (slots + LANES)


def workers(config: ModelConfig, most: int, rows: int = 1) -> int:
    """Useful threads, of `most`, for a pass of a model over `rows` rows."""
    return most if rows * config.parameters() > SMALL else 1


def brief(config: ModelConfig) -> bool:
    """True where one thread drafts a chain in one call, even if there are more."""
    return config.parameters() <= BRIEF
